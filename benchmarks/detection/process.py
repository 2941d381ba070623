"""Units of process sensors: the rows of a pack for training and for evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.detection.unit import Unit, bounds, copy_file, place
from core.workspace import atomic_file

# The public split of ETT, in hours; a window is the largest number of complete patches in 512 hours.
_MONTH = 30 * 24
ETT_ROWS = {"train": (0, 12 * _MONTH), "validation": (12 * _MONTH, 16 * _MONTH), "test": (16 * _MONTH, 20 * _MONTH)}
ETT_CONTEXT, ETT_PATCH = 512, 12
ETT_WINDOW = ETT_CONTEXT // ETT_PATCH * ETT_PATCH
_SPLITS = ("train", "validation", "calibration")
# The shortest window that the recipe selects by default.
SHORTEST_WINDOW = 64
# Shares of the rows of a machine for validation and calibration.
_VALIDATION, _CALIBRATION = 0.15, 0.25


def skab(pack: Path, work: Path) -> Iterator[Unit]:
    """Trains on the first 400 rows of each experiment, without labels, and scores the rest."""
    labels = sorted((pack / "fdc/skab").glob("*.labels.csv.gz"))
    experiments = [f"fdc/skab/{path.name.replace('.labels', '')}" for path in labels]
    if not experiments:
        return
    rows = {"train": (0, 240), "validation": (240, 304), "calibration": (304, 400), "test": (400, None)}
    overrides = ["data.guard=0"]  # the protocol has no gap between training and scored rows
    for split, (start, stop) in rows.items():
        overrides += [f"data.splits.{split}.files={json.dumps(experiments)}", f"data.splits.{split}.start={start}"]
        overrides += [f"data.splits.{split}.stop={stop}"] if stop else []
    # There is one decision per second, so the requested rate is one false alarm in a thousand, if calibration is long
    # enough.
    calibration_rows = len(experiments) * (400 - 304)
    yield Unit("skab", tuple(overrides), false_alarm_rate=0.001 if calibration_rows >= 1000 else 0.01)


def machines(folder: str, history: int | None = None) -> Callable[[Path, Path], Iterator[Unit]]:
    """Pairs of `NAME.train.parquet` and `NAME.test.parquet`. history: number of training rows, the first ones; None:
    all."""

    def units(pack: Path, work: Path) -> Iterator[Unit]:
        for train in sorted((pack / "fdc" / folder).glob("*.train.parquet")):
            name = train.name.removesuffix(".train.parquet")
            num_rows = _num_rows(train)
            rows = _shares(num_rows) if history is None else _of_the_first(history, num_rows)
            yield Unit(
                f"{folder}{f'_{history}' if history else ''}/{name}",
                (
                    "data.guard=0",
                    *bounds(f'["fdc/{folder}/{train.name}"]', **rows),
                    f'data.splits.test.files=["fdc/{folder}/{name}.test.parquet"]',
                ),
            )

    return units


def _num_rows(file: Path) -> int:
    """The number of rows; 0 for a file that cannot be read: the error is reported later, and other machines are
    evaluated."""
    try:
        return pq.read_metadata(file).num_rows
    except (OSError, pa.ArrowInvalid):
        return 0


def _shares(num_rows: int) -> dict[str, tuple[float, float]]:
    """Split of the normal rows of a machine into training, validation and calibration: each has a window if
    possible."""
    least = min((SHORTEST_WINDOW + 1) / max(num_rows, 1), 1 / 3)  # one more row, because bounds are rounded
    calibrate_from = 1.0 - max(_CALIBRATION, least)
    validate_from = calibrate_from - max(_VALIDATION, least)
    return {
        "train": (0.0, validate_from),
        "validation": (validate_from, calibrate_from),
        "calibration": (calibrate_from, 1.0),
    }


def _of_the_first(history: int, num_rows: int) -> dict[str, tuple[int, int]]:
    """The same split of the first rows only."""
    used = min(history, num_rows)
    return {split: (round(start * used), round(stop * used)) for split, (start, stop) in _shares(used).items()}


def awfd(exclude: tuple[str, ...]) -> Callable[[Path, Path], Iterator[Unit]]:
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
        for split, chosen in (("normal", rows[~is_test]), ("test", rows[is_test])):
            with atomic_file(work / f"{name}.{split}.parquet") as path:
                chosen.drop(columns=["run_id", "step_id", "t_norm", *exclude]).to_parquet(path, index=False)
            run_n[split] = chosen["run_id"].to_numpy()
        anomaly = pd.DataFrame(
            {"timestamp": chosen["timestamp"], "anomaly": labels["abnormal"][run_n["test"]].to_numpy()}
        )
        with atomic_file(work / f"{name}.test.labels.csv.gz") as path:
            anomaly.to_csv(path, index=False, compression="gzip")
        yield Unit(
            name,
            (
                place("data.root", work),
                *(f'data.splits.{split}.files=["{name}.normal.parquet"]' for split in _SPLITS),
                f'data.splits.test.files=["{name}.test.parquet"]',
            ),
            run_n=run_n,
            false_alarm_rate=0.02,  # the 69 runs left for calibration cannot support 1 %
        )

    return units


def tep(pack: Path, work: Path) -> Iterator[Unit]:
    """Tennessee Eastman: trains on the normal training run, calibrates on a normal run, one file for each fault."""
    folder = pack / "fdc/tep"
    normal = sorted(path.name for path in folder.glob("d00_te*.parquet"))
    faults = sorted(path.name for path in folder.glob("d*_te.parquet") if path.name not in normal)
    if not normal or not faults:
        return
    for name in faults:
        times = pd.read_parquet(folder / name, columns=["timestamp"])
        anomaly = (np.arange(len(times)) >= 160).astype(int)
        with atomic_file(work / "tep" / f"{name.removesuffix('.parquet')}.labels.csv") as path:
            times.assign(anomaly=anomaly).to_csv(path, index=False)
        copy_file(folder / name, work / "tep" / name)
    for name in ("d00_train_normal.parquet", normal[0]):
        copy_file(folder / name, work / "tep" / name)
    yield Unit(
        "tep",
        (
            place("data.root", work / "tep"),
            "data.guard=0",
            'data.splits.train.files=["d00_train_normal.parquet"]',
            "data.splits.train.stop=1.0",
            f'data.splits.validation.files=["{normal[0]}"]',
            "data.splits.validation.start=0",
            "data.splits.validation.stop=0.25",
            f'data.splits.calibration.files=["{normal[0]}"]',
            "data.splits.calibration.start=0.25",
            f"data.splits.test.files={json.dumps(faults)}",  # of this pack: the folder may contain files of another one
        ),
    )


def ett(pack: Path, work: Path) -> Iterator[Unit]:
    """Electricity transformers, hourly: no faults are labelled; masked patches are predicted."""
    for path in sorted((pack / "fdc/ett").glob("*.csv.gz")):
        overrides = []
        for split, (start, stop) in ETT_ROWS.items():
            overrides += [f'data.splits.{split}.files=["fdc/ett/{path.name}"]', f"data.splits.{split}.start={start}"]
            overrides += [f"data.splits.{split}.stop={stop}"]
        yield Unit(f"ett/{path.name.removesuffix('.csv.gz')}", tuple(overrides))
