"""The sets of a pack: the role of the rows of each file. Every detector of faults is trained with the local
configuration of its stream, unchanged. A pack is a folder with `fdc/` and `vibration/`; a set that it does not contain
is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.detection import process, vibration
from benchmarks.detection.process import ETT_PATCH, ETT_WINDOW
from benchmarks.detection.unit import Unit
from core.config.schema import Stream

# Sets of the same machines: if constants are chosen on other sets, the complete family is left out.
_FAMILIES = ("smd", "asd", "st_awfd_d2", "femto")
# Overrides of the quick form.
QUICK: dict[str, tuple[str, ...]] = {
    "alarms": ("training.epochs=1", "training.windows_per_epoch=320"),
    "filling_in": ("training.epochs=2", "training.windows_per_epoch=2400"),
}
# The model of the published split predicts masked patches and does not detect faults: its training parameters were
# chosen on the validation months of ETTh1 only.
FILLING_IN = (
    "models/patchtst=published",
    f"data.window={ETT_WINDOW}",
    "data.stride=1",
    "data.guard=0",
    "data.scaling.method=zscore",
    "model.size=custom",
    f"model.patch_length={ETT_PATCH}",
    "model.mask_ratio=0.4",
    "model.instance_norm=true",
    "model.pre_norm=true",
    "model.d_model=64",
    "model.num_heads=4",
    "model.num_layers=3",
    "model.d_ff=128",
    "training.batch_size=16",
    "training.effective_batch=16",
    "training.learning_rate=0.012",
    "training.epochs=8",
    "training.windows_per_epoch=0",
)


@dataclass(frozen=True)
class BenchmarkSet:
    """A set of units with the same evaluation. judged_by: `alarms` on rows with faults, or `filling_in`, the prediction
    of masked patches (`masked`). decision: the unit of an alarm: a row (for vibration a window), or a run of the
    process. per: the group that is ranked before the mean is taken: all decisions of a unit, or those of each
    recording.
    """

    name: str
    title: str
    stream: Stream
    units: Callable[[Path, Path], Iterator[Unit]]
    decision: Literal["row", "run"] = "row"
    per: Literal["unit", "recording"] = "unit"
    judged_by: Literal["alarms", "filling_in"] = "alarms"

    @property
    def family(self) -> str:
        """The common name of sets of the same machines."""
        return next((each for each in _FAMILIES if self.name.startswith(each)), self.name)

    @property
    def headline(self) -> str:
        """The main metric of the set: the first that its publishers, or papers that use it, report."""
        if self.judged_by == "filling_in":
            return "test_mse"
        in_time = self.stream == "patchtst" and self.decision == "row" and self.per == "unit"
        return "vus_pr" if in_time else "auroc"

    def overrides(self, *, quick: bool) -> tuple[str, ...]:
        return (*(FILLING_IN if self.judged_by == "filling_in" else ()), *(QUICK[self.judged_by] if quick else ()))


SETS: tuple[BenchmarkSet, ...] = (
    BenchmarkSet(
        "skab", "SKAB, water pump: trained on the first 400 rows of each experiment", "patchtst", process.skab
    ),
    BenchmarkSet("smd", "SMD, servers", "patchtst", process.machines("smd")),
    BenchmarkSet("asd", "ASD, application servers", "patchtst", process.machines("asd")),
    BenchmarkSet("smd_400", "SMD, servers: trained on the first 400 rows", "patchtst", process.machines("smd", 400)),
    BenchmarkSet("asd_400", "ASD, servers: trained on the first 400 rows", "patchtst", process.machines("asd", 400)),
    BenchmarkSet("smap_msl", "SMAP and MSL, spacecraft telemetry", "patchtst", process.machines("smap_msl")),
    BenchmarkSet("st_awfd_d2", "ST-AWFD D2, semiconductor process, per run", "patchtst", process.awfd(()), "run"),
    BenchmarkSet(
        "st_awfd_d2_without_8_9",
        "ST-AWFD D2 without features 8 and 9, per run",
        "patchtst",
        process.awfd(("feature_8", "feature_9")),
        "run",
    ),
    BenchmarkSet("tep", "Tennessee Eastman, simulated, mean of faults", "patchtst", process.tep, per="recording"),
    BenchmarkSet(
        "ett", "ETT, transformers: prediction of masked patches", "patchtst", process.ett, judged_by="filling_in"
    ),
    BenchmarkSet("cwru", "CWRU bearing rig, per window of 43 ms", "swinmae", vibration.cwru),
    BenchmarkSet("motor_pump", "Motors and pumps, per window of 1 s", "swinmae", vibration.motor),
    BenchmarkSet("fan", "Ceiling fan, per record of 1 s", "swinmae", vibration.fan),
    BenchmarkSet(
        "femto", "FEMTO bearings, leave one out: the last 20 snapshots", "swinmae", vibration.femto(1.0, None)
    ),
    BenchmarkSet(
        "femto_80_95", "FEMTO bearings, leave one out: 80 to 95 % of life", "swinmae", vibration.femto(0.8, 0.95)
    ),
)
