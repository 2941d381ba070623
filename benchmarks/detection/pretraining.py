"""One model of the sensors of a pack's other sets, from which the training of a unit starts (`--pretrained`)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.detection.detectors import load
from benchmarks.detection.process import SHORTEST_WINDOW
from benchmarks.detection.sets import BenchmarkSet
from benchmarks.detection.unit import bounds, place
from core.data.files import matches
from core.errors import DataError
from pipelines.pool_sensors import pool

PRETRAINED = "Landfall, pre-trained elsewhere"
PRETRAINED_ALONE = "model alone, pre-trained elsewhere"

# Normal rows of each set, of machines that do not occur in other sets.
_NORMAL = {
    "skab": "fdc/skab/anomaly_free.csv.gz",
    "smd": "fdc/smd/*.train.parquet",
    "asd": "fdc/asd/*.train.parquet",
    "smap_msl": "fdc/smap_msl/*.train.parquet",
    "tep": "fdc/tep/d00_train_normal.parquet",
    "ett": "fdc/ett/*.csv.gz",
}
# Units use the window of the model they start from, and some have little history.
_RECIPE = (
    f"data.window={SHORTEST_WINDOW}",
    "data.stride=8",
    "data.scaling.method=none",
    "training.batch_size=128",
    "training.effective_batch=128",
    "training.epochs=20",
    "training.windows_per_epoch=19200",
)
_QUICK = ("training.epochs=1", "training.windows_per_epoch=1280")


def is_served(benchmark: BenchmarkSet) -> bool:
    """Whether the units of a set have windows that fit the pooled model."""
    return benchmark.stream == "patchtst" and benchmark.judged_by == "alarms"


def pretrained(benchmark: BenchmarkSet, *, pack: Path, root: Path, work: Path, seed: int, quick: bool) -> Path:
    """The checkpoint of a model that was trained without the set. Raises DataError if the pack contains no other
    set."""
    from trainers.run import train

    others = [pattern for name, pattern in _NORMAL.items() if not benchmark.name.startswith(name)]
    found = [pattern for pattern in others if matches(pattern, pack)]
    if not found:
        raise DataError("the pack contains no other set to pre-train on", path=pack, hint="omit --pretrained")
    name = f"elsewhere_than_{benchmark.name}_{seed}"
    sensors = work / "pools" / name
    pool(found, sensors, config=load("patchtst", (), root=root, work=work, name=name).config, root=pack, force=True)
    recipe = (*_RECIPE, *(_QUICK if quick else ()))
    shares = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "calibration": (0.95, 0.97), "test": (0.97, 1.0)}
    by_time = (f"data.splits.{split}.by=time" for split in shares)
    overrides = (place("data.root", sensors), f"seed={seed}", *recipe, *bounds('["*/*.parquet"]', **shares), *by_time)
    return train(load("patchtst", overrides, root=root, work=work, name=name), root=root).checkpoint
