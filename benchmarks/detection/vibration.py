"""Units of vibration: the recordings of a pack for training and for evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.detection.unit import Unit, bounds, copy_file, place
from core.errors import DataError
from core.workspace import atomic_file, write_json


def cwru(pack: Path, work: Path) -> Iterator[Unit]:
    """One healthy recording, split by time; its last quarter is the healthy test."""
    if not (pack / "vibration/cwru/normal.npy").is_file():
        return
    healthy = '["vibration/cwru/normal.npy"]'
    yield Unit(
        "cwru",
        (
            *bounds(healthy, train=(0.0, 0.4), validation=(0.4, 0.5), calibration=(0.5, 0.75)),
            'data.splits.test.files=["vibration/cwru/*.npy"]',
            "data.splits.test.start=0.75",
        ),
    )


def motor(pack: Path, work: Path) -> Iterator[Unit]:
    """Recordings of five seconds in the publisher's order: the healthy ones are for training, calibration and test, in
    this order."""
    source = pack / "vibration/motor_pump_3axis"
    healthy, faulty = (sorted(path.name for path in source.glob(f"{first}*.npy")) for first in "HF")
    if not healthy or not faulty:
        return
    for name in (*healthy, *faulty):
        copy_file(source / name, work / "motor_pump" / name)
    facts = json.loads((source / "dataset.json").read_text(encoding="utf-8"))
    labels = {Path(name).stem: {"label": "healthy" if name in healthy else "faulty"} for name in (*healthy, *faulty)}
    write_json(work / "motor_pump" / "dataset.json", {**facts, "files": labels})
    half, tenth = len(healthy) // 2, max(len(healthy) // 10, 1)
    groups = {
        "train": healthy[:half],
        "validation": healthy[half : half + tenth],
        "calibration": healthy[half + tenth : half + 3 * tenth],
        "test": [*healthy[half + 3 * tenth :], *faulty],
    }
    overrides = [place("data.root", work / "motor_pump")]
    for split, files in groups.items():
        overrides += [f"data.splits.{split}.files={json.dumps(files)}", f"data.splits.{split}.start=0.0"]
        overrides += [f"data.splits.{split}.stop=1.0"]
    yield Unit("motor_pump_3axis", tuple(overrides), false_alarm_rate=0.05)


def fan(pack: Path, work: Path) -> Iterator[Unit]:
    """Records of one second for each speed; healthy records of other sessions count as false alarms."""
    folder = pack / "vibration/fan_3axis"
    for healthy in sorted(folder.glob("fan_0_*_0_weight.npz")):
        speed = healthy.name.removeprefix("fan_0_").removesuffix("_0_weight.npz")
        if not (folder / f"fan_0_{speed}_1_weight.npz").is_file():
            continue
        files = f'["vibration/fan_3axis/{healthy.name}"]'
        splits = {"train": (0.0, 0.5), "validation": (0.5, 0.6), "calibration": (0.6, 0.8)}
        yield Unit(
            f"fan_{speed}",
            (
                *(f"data.splits.{split}.by=recording" for split in (*splits, "test")),
                *bounds(files, **splits),
                f'data.splits.test.files=["vibration/fan_3axis/fan_0_{speed}*.npz"]',
                "data.splits.test.start=0.8",
            ),
            false_alarm_rate=0.05,
            other_sessions=r"-\w+\.npz",
        )


def femto(first: float, last: float | None) -> Callable[[Path, Path], Iterator[Unit]]:
    """Bearings run to failure, leave-one-out: trained on the first half of the lives of the other bearings. In the
    test, the first half of a bearing's life is healthy, and a late segment is faulty. first, last: the late segment, as
    shares of the life; without `last`, the last 20 snapshots."""

    def units(pack: Path, work: Path) -> Iterator[Unit]:
        bearings = sorted((pack / "vibration/femto").glob("Bearing*.npz"))
        if len(bearings) == 1:
            raise DataError("is the only bearing", path=bearings[0], hint="to leave one out, two are needed")
        for bearing in bearings:
            name = f"femto_{first:g}/{bearing.stem}"
            others = [_snapshots(other, 0.0, 0.5) for other in bearings if other != bearing]
            # One bearing after the other: calibration has bearings that training does not have, as the test does.
            reference = np.concatenate(others)
            late = _snapshots(bearing, first, last)
            facts = json.loads(bearing.with_suffix(".json").read_text(encoding="utf-8"))
            files = {"reference": reference, "healthy": _snapshots(bearing, 0.0, 0.5), "late": late}
            for stem, records in files.items():
                with atomic_file(work / name / f"{stem}.npz") as path, path.open("wb") as file:
                    np.savez(file, x=records)
            labels = {stem: {"label": "faulty" if stem == "late" else "healthy"} for stem in files}
            description = {"axes": facts["axes"], "sampling_rate_hz": facts["sampling_rate_hz"], "files": labels}
            write_json(work / name / "dataset.json", description)
            splits = {"train": (0.0, 0.6), "validation": (0.6, 0.7), "calibration": (0.7, 1.0)}
            yield Unit(
                name,
                (
                    place("data.root", work / name),
                    *(f"data.splits.{split}.by=recording" for split in (*splits, "test")),
                    *bounds('["reference.npz"]', **splits),
                    'data.splits.test.files=["healthy.npz","late.npz"]',
                    "data.splits.test.start=0.0",
                ),
                false_alarm_rate=0.05,
            )

    return units


def _snapshots(bearing: Path, first: float, last: float | None) -> np.ndarray:
    """Records (R, T, A) of a segment of a bearing's life; with `first` = 1 and without `last` the last 20."""
    with np.load(bearing) as held:
        records, age = held["x"], held["snapshot"] / held["snapshot"].max()
    return records[-20:] if last is None else records[(age >= first) & (age <= last)]
