"""The sets of a pack: what is learned from, what is scored, what counts as one decision.

One recipe for each stream (`RECIPES`); a set only says which rows are which. A pack is a folder with `fdc/` and
`vibration/`; a set that it does not hold is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from core.config.schema import Stream
from core.workspace import atomic_file, write_json

# What every unit of a stream is trained and scored with. Chosen on the development pack: docs/experiments.md.
RECIPES: dict[Stream, tuple[str, ...]] = {
    "patchtst": (
        "data.window=64",
        "data.score_stride=16",
        "data.guard=0",
        "model.size=custom",
        "model.patch_length=8",
        "model.patch_stride=8",
        "model.d_model=64",
        "model.num_heads=4",
        "model.num_layers=2",
        "model.d_ff=128",
        "training.batch_size=32",
        "training.effective_batch=32",
        "training.epochs=5",
        "training.windows_per_epoch=1600",
    ),
    "swinmae": ("training.epochs=6", "training.windows_per_epoch=384"),
}
_QUICK = ("training.epochs=1", "training.windows_per_epoch=320")
_PARTS = ("train", "validation", "calibration")
_RARE = 0.01


@dataclass(frozen=True)
class Unit:
    """What one model is trained for.

    overrides: the rows of each part, on top of the stream's recipe. run_n: for rows of the scored and of the normal
    file, in order, the run that they belong to, where a decision is about a run. false_alarm_rate: what is asked for.
    other_sessions: a pattern of the names of healthy recordings made at another time, which are only counted as false
    alarms, in a figure of their own.
    """

    name: str
    overrides: tuple[str, ...]
    run_n: dict[str, np.ndarray] | None = None
    false_alarm_rate: float = _RARE
    other_sessions: str = ""


@dataclass(frozen=True)
class BenchmarkSet:
    """A set of units that are judged alike.

    decision: what an alarm is about: a row (of vibration a window), or a run of the process. per: what is ranked by
    itself, before the mean is taken: all decisions of a unit, or those of each recording.
    """

    name: str
    title: str
    stream: Stream
    units: Callable[[Path, Path], Iterator[Unit]]
    decision: Literal["row", "run"] = "row"
    per: Literal["unit", "recording"] = "unit"


def recipe(stream: Stream, *, quick: bool) -> tuple[str, ...]:
    return (*RECIPES[stream], *(_QUICK if quick else ()))


# ------------------------------------------------------------------------------------------------------ process sensors
def _skab(pack: Path, work: Path) -> Iterator[Unit]:
    """Learns from the first 400 rows of each experiment, unlabelled, and scores the rest."""
    if not list((pack / "fdc/skab").glob("*.labels.csv.gz")):
        return
    globs = '["fdc/skab/valve*.csv.gz","fdc/skab/other_*.csv.gz"]'
    rows = {"train": (0, 240), "validation": (240, 304), "calibration": (304, 400), "test": (400, None)}
    overrides = ["data.stride=2"]
    for part, (start, stop) in rows.items():
        overrides += [f"data.parts.{part}.files={globs}", f"data.parts.{part}.start={start}"]
        overrides += [f"data.parts.{part}.stop={stop}"] if stop else []
    yield Unit("skab", tuple(overrides))


def _machines(folder: str, stride: int) -> Callable[[Path, Path], Iterator[Unit]]:
    """Pairs of `NAME.train.parquet` and `NAME.test.parquet`."""

    def units(pack: Path, work: Path) -> Iterator[Unit]:
        for train in sorted((pack / "fdc" / folder).glob("*.train.parquet")):
            name = train.name.removesuffix(".train.parquet")
            yield Unit(
                f"{folder}/{name}",
                (
                    f"data.stride={stride}",
                    *(f'data.parts.{part}.files=["fdc/{folder}/{train.name}"]' for part in _PARTS),
                    f'data.parts.test.files=["fdc/{folder}/{name}.test.parquet"]',
                ),
            )

    return units


def _awfd(exclude: tuple[str, ...]) -> Callable[[Path, Path], Iterator[Unit]]:
    """ST-AWFD D2: runs of a semiconductor process, the publisher's own split; the label is that of a run."""

    def units(pack: Path, work: Path) -> Iterator[Unit]:
        source = pack / "fdc/st_awfd_d2/D2.parquet"
        if not source.is_file():
            return
        rows = pd.read_parquet(source).sort_values("timestamp", kind="stable")
        labels = pd.read_csv(source.with_name("D2.run_labels.csv.gz")).set_index("run_id")
        is_test = rows["run_id"].map(labels["is_test"]).to_numpy() == 1
        name = "st_awfd_d2" + "_without_8_9" * bool(exclude)
        run_n = {}
        for part, chosen in (("normal", rows[~is_test]), ("test", rows[is_test])):
            with atomic_file(work / f"{name}.{part}.parquet") as path:
                chosen.drop(columns=["run_id", "step_id", "t_norm", *exclude]).to_parquet(path, index=False)
            run_n[part] = chosen["run_id"].to_numpy()
        anomaly = pd.DataFrame(
            {"timestamp": chosen["timestamp"], "anomaly": labels["abnormal"][run_n["test"]].to_numpy()}
        )
        with atomic_file(work / f"{name}.test.labels.csv.gz") as path:
            anomaly.to_csv(path, index=False, compression="gzip")
        yield Unit(
            name,
            (
                f"data.root={work}",
                "data.stride=4",
                *(f'data.parts.{part}.files=["{name}.normal.parquet"]' for part in _PARTS),
                f'data.parts.test.files=["{name}.test.parquet"]',
            ),
            run_n=run_n,
            false_alarm_rate=0.02,  # the 69 runs left for calibration cannot support 1 %
        )

    return units


def _tep(pack: Path, work: Path) -> Iterator[Unit]:
    """Tennessee Eastman: learns from the normal training run, calibrates on a normal run, one file for each fault."""
    folder = pack / "fdc/tep"
    normal = [path.name for path in folder.glob("d00_te*.parquet")]
    faults = sorted(path.name for path in folder.glob("d*_te.parquet"))
    if not normal or not faults:
        return
    for name in faults:
        times = pd.read_parquet(folder / name, columns=["timestamp"])
        anomaly = (np.arange(len(times)) >= 160).astype(int)
        with atomic_file(work / "tep" / f"{name.removesuffix('.parquet')}.labels.csv") as path:
            times.assign(anomaly=anomaly).to_csv(path, index=False)
        _copy(folder / name, work / "tep" / name)
    for name in ("d00_train_normal.parquet", normal[0]):
        _copy(folder / name, work / "tep" / name)
    yield Unit(
        "tep",
        (
            f"data.root={work / 'tep'}",
            "data.stride=1",
            'data.parts.train.files=["d00_train_normal.parquet"]',
            "data.parts.train.stop=1.0",
            f'data.parts.validation.files=["{normal[0]}"]',
            "data.parts.validation.start=0",
            "data.parts.validation.stop=0.25",
            f'data.parts.calibration.files=["{normal[0]}"]',
            "data.parts.calibration.start=0.25",
            'data.parts.test.files=["d*_te.parquet"]',
        ),
    )


# ------------------------------------------------------------------------------------------------------------ vibration
def _cwru(pack: Path, work: Path) -> Iterator[Unit]:
    """One healthy recording, in stretches of time; its last quarter is the healthy test."""
    if not (pack / "vibration/cwru/normal.npy").is_file():
        return
    healthy = '["vibration/cwru/normal.npy"]'
    yield Unit(
        "cwru",
        (
            "data.window=2048",
            "data.stride=128",
            "data.score_stride=256",
            "scalogram.frequency_min_hz=100",
            *_bounds(healthy, train=(0.0, 0.4), validation=(0.4, 0.5), calibration=(0.5, 0.75)),
            'data.parts.test.files=["vibration/cwru/*.npy"]',
            "data.parts.test.start=0.75",
        ),
    )


def _motor(pack: Path, work: Path) -> Iterator[Unit]:
    """Recordings of five seconds in the publisher's order: the healthy ones teach, calibrate and are tested in turn."""
    source = pack / "vibration/motor_pump_3axis"
    healthy, faulty = (sorted(path.name for path in source.glob(f"{first}*.npy")) for first in "HF")
    if not healthy or not faulty:
        return
    for name in (*healthy, *faulty):
        _copy(source / name, work / "motor_pump" / name)
    facts = json.loads((source / "dataset.json").read_text(encoding="utf-8"))
    labels = {Path(name).stem: {"label": "healthy" if name in healthy else "faulty"} for name in (*healthy, *faulty)}
    write_json(work / "motor_pump" / "dataset.json", {**facts, "files": labels})
    half, tenth = len(healthy) // 2, len(healthy) // 10
    groups = {
        "train": healthy[:half],
        "validation": healthy[half : half + tenth],
        "calibration": healthy[half + tenth : half + 3 * tenth],
        "test": [*healthy[half + 3 * tenth :], *faulty],
    }
    overrides = [f"data.root={work / 'motor_pump'}", "data.window=1000", "data.stride=250", "data.score_stride=1000"]
    for part, files in groups.items():
        overrides += [f"data.parts.{part}.files={json.dumps(files)}", f"data.parts.{part}.start=0.0"]
        overrides += [f"data.parts.{part}.stop=1.0"]
    yield Unit("motor_pump_3axis", (*overrides, "scalogram.frequency_min_hz=5"), false_alarm_rate=0.05)


def _fan(pack: Path, work: Path) -> Iterator[Unit]:
    """Records of one second for each speed; healthy records of other sessions count as false alarms."""
    folder = pack / "vibration/fan_3axis"
    for healthy in sorted(folder.glob("fan_0_*_0_weight.npz")):
        speed = healthy.name.removeprefix("fan_0_").removesuffix("_0_weight.npz")
        if not (folder / f"fan_0_{speed}_1_weight.npz").is_file():
            continue
        files = f'["vibration/fan_3axis/{healthy.name}"]'
        parts = {"train": (0.0, 0.5), "validation": (0.5, 0.6), "calibration": (0.6, 0.8)}
        yield Unit(
            f"fan_{speed}",
            (
                "data.window=200",
                "data.stride=200",
                "data.score_stride=200",
                "scalogram.frequency_min_hz=2",
                *(f"data.parts.{part}.by=recording" for part in (*parts, "test")),
                *_bounds(files, **parts),
                f'data.parts.test.files=["vibration/fan_3axis/fan_0_{speed}*.npz"]',
                "data.parts.test.start=0.8",
            ),
            false_alarm_rate=0.05,
            other_sessions=r"-\w+\.npz",
        )


def _femto(first: float, last: float | None) -> Callable[[Path, Path], Iterator[Unit]]:
    """Bearings run to failure, leave one out: the first half of the others' lives teaches, the first half of its own
    life is healthy, a late stretch of it is not (shares of life; without `last` the last 20 snapshots)."""

    def units(pack: Path, work: Path) -> Iterator[Unit]:
        bearings = sorted((pack / "vibration/femto").glob("Bearing*.npz"))
        for bearing in bearings if len(bearings) > 1 else ():
            name = f"femto_{first:g}/{bearing.stem}"
            others = [_snapshots(other, 0.0, 0.5) for other in bearings if other != bearing]
            # Every tenth record to its own stretch: each part sees every bearing at every age.
            taught = np.concatenate(others)
            taught = taught[np.argsort(np.arange(len(taught)) % 10, kind="stable")]
            late = _snapshots(bearing, first, last)
            facts = json.loads(bearing.with_suffix(".json").read_text(encoding="utf-8"))
            files = {"taught": taught, "healthy": _snapshots(bearing, 0.0, 0.5), "late": late}
            for stem, records in files.items():
                with atomic_file(work / name / f"{stem}.npz") as path, path.open("wb") as file:
                    np.savez(file, x=records)
            labels = {stem: {"label": "faulty" if stem == "late" else "healthy"} for stem in files}
            told = {"axes": facts["axes"], "sampling_rate_hz": facts["sampling_rate_hz"], "files": labels}
            write_json(work / name / "dataset.json", told)
            parts = {"train": (0.0, 0.6), "validation": (0.6, 0.7), "calibration": (0.7, 1.0)}
            yield Unit(
                name,
                (
                    f"data.root={work / name}",
                    "data.window=2560",
                    "data.stride=2560",
                    "data.score_stride=2560",
                    "scalogram.frequency_min_hz=100",
                    *(f"data.parts.{part}.by=recording" for part in (*parts, "test")),
                    *_bounds('["taught.npz"]', **parts),
                    'data.parts.test.files=["healthy.npz","late.npz"]',
                    "data.parts.test.start=0.0",
                ),
                false_alarm_rate=0.05,
            )

    return units


def _snapshots(bearing: Path, first: float, last: float | None) -> np.ndarray:
    """Records (R, T, A) of a stretch of a bearing's life; from `first` = 1 and without `last` the last 20."""
    with np.load(bearing) as held:
        records, age = held["x"], held["snapshot"] / held["snapshot"].max()
    return records[-20:] if last is None else records[(age >= first) & (age <= last)]


def _bounds(files: str, **parts: tuple[float, float]) -> Iterator[str]:
    for part, (start, stop) in parts.items():
        yield from (
            f"data.parts.{part}.files={files}",
            f"data.parts.{part}.start={start}",
            f"data.parts.{part}.stop={stop}",
        )


def _copy(source: Path, target: Path) -> None:
    with atomic_file(target) as path:
        path.write_bytes(source.read_bytes())


SETS: tuple[BenchmarkSet, ...] = (
    BenchmarkSet("skab", "SKAB, water pump: the first 400 rows of each experiment teach", "patchtst", _skab),
    BenchmarkSet("smd", "SMD, servers", "patchtst", _machines("smd", 4)),
    BenchmarkSet("asd", "ASD, application servers", "patchtst", _machines("asd", 4)),
    BenchmarkSet("smap_msl", "SMAP and MSL, spacecraft telemetry", "patchtst", _machines("smap_msl", 2)),
    BenchmarkSet("st_awfd_d2", "ST-AWFD D2, semiconductor process, per run", "patchtst", _awfd(()), "run"),
    BenchmarkSet(
        "st_awfd_d2_without_8_9",
        "ST-AWFD D2 without features 8 and 9, per run",
        "patchtst",
        _awfd(("feature_8", "feature_9")),
        "run",
    ),
    BenchmarkSet("tep", "Tennessee Eastman, simulated, mean of faults", "patchtst", _tep, per="recording"),
    BenchmarkSet("cwru", "CWRU bearing rig, windows of 43 ms", "swinmae", _cwru),
    BenchmarkSet("motor_pump", "Motors and pumps, windows of 1 s", "swinmae", _motor),
    BenchmarkSet("fan", "Ceiling fan, per record of 1 s", "swinmae", _fan),
    BenchmarkSet("femto", "FEMTO bearings, leave one out: the last 20 snapshots", "swinmae", _femto(1.0, None)),
    BenchmarkSet("femto_80_95", "FEMTO bearings, leave one out: 80 to 95 % of life", "swinmae", _femto(0.8, 0.95)),
)
