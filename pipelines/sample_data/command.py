"""Synthetic sample data for both streams; the same seed gives the same bytes.

`landfall sample-data` writes `samples/data/fdc/` (an etch chamber) and `samples/data/vib/` (a bearing rig) with label
files next to the test files, and `samples/data/sample-data.json`, which lists every file. The data is simulated: it
shows that the pipeline works, not how it performs on a real plant.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from core.cli import run_command
from core.errors import EXIT_OK, DataError, UsageError
from core.reading import read_json_object
from core.workspace import SAMPLES, sha256_of, write_bytes, write_json
from pipelines.sample_data import chamber, rig

log = logging.getLogger(__name__)

VERSION = 6
MANIFEST = Path("data/sample-data.json")
_FDC_START = np.datetime64("2026-01-05T06:00:00", "s")
_RIG_START = np.datetime64("2026-01-05T06:00:00", "ns")
_MISSING_SHARE = 0.001


# --------------------------------------------------------------------------------------------------------- the scenario
@dataclass(frozen=True)
class ChamberFile:
    name: str
    rows: int
    age: float
    gaps: tuple[tuple[int, int], ...] = ()
    faults: tuple[chamber.Fault, ...] = ()


@dataclass(frozen=True)
class RigFile:
    name: str
    run: rig.Run


_F = chamber.Fault
CHAMBER_FILES = (
    ChamberFile("train_1.csv", 6000, 0.00, gaps=((2500, 2590),)),
    ChamberFile("train_2.csv", 6000, 0.20),
    ChamberFile("train_3.parquet", 6000, 0.45, gaps=((1200, 1245), (4700, 4820))),
    ChamberFile("train_4.csv.gz", 6000, 0.65),
    ChamberFile("test_1.csv", 5000, 0.30, gaps=((300, 360),), faults=(
        _F("spike", 1500, 1560, 20.0), _F("level_shift", 2300, 2500, 10.0), _F("stuck_sensor", 3300, 3520, 1.0),
        _F("rf_instability", 4200, 4400, 8.0))),
    ChamberFile("test_2.csv", 5000, 0.50, faults=(
        _F("coupling_break", 1400, 1640, 25.0), _F("oscillation", 2600, 2760, 16.0), _F("drift", 3400, 4240, 12.0))),
    ChamberFile("test_3.csv", 4000, 0.60, gaps=((3300, 3380),), faults=(
        _F("oscillation", 1100, 1220, 8.0), _F("level_shift", 1700, 1880, 6.0), _F("coupling_break", 2400, 2560, 15.0),
        _F("rf_instability", 2950, 3090, 4.0), _F("spike", 3600, 3640, 10.0))),
)  # fmt: skip

# The load programme that the rig repeats: second, rpm, load. A recording starts at any time in it.
_PROGRAMME = (
    (0.0, 1200, 0.3), (2.0, 1200, 0.3), (3.0, 1500, 0.3), (5.0, 1500, 0.3), (5.5, 1500, 0.8), (7.0, 1500, 0.8),
    (8.0, 1800, 0.8), (10.0, 1800, 0.8), (10.5, 1800, 0.4), (12.0, 1800, 0.4), (13.0, 1800, 1.0), (14.0, 1800, 1.0),
    (16.0, 1400, 0.6), (18.0, 1400, 0.6), (19.0, 1200, 1.0), (21.0, 1200, 1.0), (22.0, 1200, 0.2), (24.0, 1700, 0.2),
    (26.0, 1700, 0.2),
)  # fmt: skip
_PROGRAMME_S = 28.0


def _run(seconds: float, start_s: float, fault: str | None = None, size: float = 0.0, onset_s: float = 0.0) -> rig.Run:
    """A recording that starts `start_s` into the programme."""
    repeated = [(second + turn * _PROGRAMME_S, rpm, load) for turn in range(3) for second, rpm, load in _PROGRAMME]
    profile = tuple((second - start_s, rpm, load) for second, rpm, load in repeated)
    return rig.Run(seconds, profile, fault, size, onset_s)


# The healthy recordings start 4 s apart and last 20 s, so that each point of the programme is in the training data, and
# in the calibration data of one recording or two. With 10 s, some thresholds were too high. The first starts at 1 s, so
# that each speed is in the validation data (dev/LOG.md, 2026-11-26).
RIG_FILES = (
    RigFile("train_1.npy", _run(20, 1)), RigFile("train_2.npy", _run(20, 5)), RigFile("train_3.npy", _run(20, 9)),
    RigFile("train_4.npy", _run(20, 13)), RigFile("train_5.npy", _run(20, 17)), RigFile("train_6.npy", _run(20, 21)),
    RigFile("train_7.npy", _run(20, 25)), RigFile("train_8.csv", _run(6, 13)),
    RigFile("test_healthy_1.npy", _run(6, 2)), RigFile("test_healthy_2.npy", _run(6, 9)),
    RigFile("test_healthy_3.npy", _run(6, 15)), RigFile("test_healthy_4.npy", _run(6, 22)),
    RigFile("test_outer_race.npy", _run(6, 6, "outer_race", 0.4)),
    RigFile("test_outer_race_onset.npy", _run(8, 19, "outer_race", 0.4, 4.0)),
    RigFile("test_inner_race.npy", _run(6, 11, "inner_race", 0.4)),
    RigFile("test_inner_race_onset.npy", _run(8, 3, "inner_race", 0.3, 3.0)),
    RigFile("test_ball.npy", _run(6, 17, "ball", 0.4)),
    RigFile("test_cage.npy", _run(6, 25, "cage", 0.4)),
    RigFile("test_imbalance.npy", _run(6, 1, "imbalance", 0.5)),
    RigFile("test_looseness_onset.npy", _run(8, 13, "looseness", 0.45, 5.0)),
)  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- making
def make_sample_data(root: Path, *, seed: int = 7, force: bool = False) -> dict[str, Any]:
    """Writes the sample data under `root` and returns its manifest; complete data of this seed is kept.

    Raises DataError if a file of the same name exists that no manifest lists, unless `force`.
    """
    old = _manifest(root)
    if not force and old.get("seed") == seed and old.get("version") == VERSION and _is_complete(root, old):
        log.info("sample data of seed %d exists", seed)
        return {**old, "kept": True}
    ours = {entry["path"] for entry in old.get("files", ())}
    files = {path: content for part in (_chamber_files(seed), _rig_files(seed)) for path, content in part}
    foreign = [path for path in files if path not in ours and (root / path).exists()]
    if foreign and not force:
        raise DataError("exists and is not sample data", path=root / foreign[0], hint="move it away or pass --force")
    for path, content in files.items():
        write_bytes(root / path, content)
    for stale in sorted(ours - files.keys()):
        (root / stale).unlink(missing_ok=True)
    entries = [
        {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in sorted(files.items())
    ]
    manifest = {"schema_version": 1, "seed": seed, "version": VERSION, "synthetic": True, "files": entries}
    write_json(root / MANIFEST, manifest)
    log.info("wrote %d files, %.1f MB", len(entries), sum(entry["bytes"] for entry in entries) / 1e6)
    return {**manifest, "kept": False}


def _manifest(root: Path) -> dict[str, Any]:
    """The manifest of an earlier call; {} if there is none, or if it is damaged."""
    try:
        return read_json_object(root / MANIFEST)
    except (FileNotFoundError, ValueError):
        return {}


def _is_complete(root: Path, manifest: dict[str, Any]) -> bool:
    return bool(manifest.get("files")) and all(
        (root / entry["path"]).is_file() and sha256_of(root / entry["path"]) == entry["sha256"]
        for entry in manifest["files"]
    )


def _generator(seed: int, name: str) -> np.random.Generator:
    """One generator per file, so that a changed file does not change the others."""
    return np.random.default_rng([seed, *hashlib.sha256(name.encode("utf-8")).digest()[:8]])


# -------------------------------------------------------------------------------------------------------------- chamber
def _chamber_files(seed: int) -> Iterator[tuple[str, bytes]]:
    for number, file in enumerate(CHAMBER_FILES):
        rng = _generator(seed, f"fdc/{file.name}")
        signals = chamber.simulate(rng, file.rows, age=file.age, faults=file.faults)
        stem, _, suffix = file.name.partition(".")
        times = _FDC_START + np.timedelta64(1, "D") * number + np.arange(file.rows)
        frame = pd.DataFrame(
            {"timestamp": times, **{name: signal.astype(np.float32) for name, signal in signals.items()}}
        )
        _lose_values(rng, frame)
        kept_t = np.ones(file.rows, dtype=bool)
        for start, stop in file.gaps:
            kept_t[start:stop] = False
        yield f"data/fdc/{file.name}", _table_bytes(frame[kept_t], suffix, float_format="%.5g")
        if file.faults:
            labels = _chamber_labels(times, file.faults)
            yield f"data/fdc/{stem}.labels.csv", _table_bytes(labels[kept_t], "csv")


def _lose_values(rng: np.random.Generator, frame: pd.DataFrame) -> None:
    """Removes single cells everywhere, and short runs of some sensors."""
    rows, channels = len(frame), frame.shape[1] - 1
    lost_tc = rng.random((rows, channels)) < _MISSING_SHARE
    starts = rng.integers(0, rows - 30, 6)
    for start, channel, length in zip(starts, rng.integers(0, channels, 6), rng.integers(5, 30, 6), strict=True):
        lost_tc[start : start + length, channel] = True
    frame.iloc[:, 1:] = frame.iloc[:, 1:].mask(lost_tc)


def _chamber_labels(times: np.ndarray, faults: Sequence[chamber.Fault]) -> pd.DataFrame:
    fault_t = np.full(len(times), "", dtype=object)
    for fault in faults:
        fault_t[fault.start : fault.stop] = fault.kind
    return pd.DataFrame({"timestamp": times, "anomaly": (fault_t != "").astype(np.int8), "fault": fault_t})


# ------------------------------------------------------------------------------------------------------------------ rig
def _rig_files(seed: int) -> Iterator[tuple[str, bytes]]:
    for number, file in enumerate(RIG_FILES):
        run = file.run
        values_ta, operation = rig.simulate(_generator(seed, f"vib/{file.name}"), run)
        stem, _, suffix = file.name.partition(".")
        if suffix == "csv":
            nanosecond = np.rint(np.arange(len(values_ta)) * (1e9 / rig.SAMPLING_RATE_HZ)).astype("timedelta64[ns]")
            times = (_RIG_START + np.timedelta64(number, "h") + nanosecond).astype("datetime64[us]")
            frame = pd.DataFrame(values_ta, columns=list(rig.AXES))
            frame.insert(0, "timestamp", np.datetime_as_string(times))
            yield f"data/vib/{file.name}", _table_bytes(frame, "csv", float_format="%.5f")
        else:
            buffer = io.BytesIO()
            np.save(buffer, values_ta.astype(np.float16))  # the resolution of a 16-bit converter, and half the size
            yield f"data/vib/{file.name}", buffer.getvalue()
        rpm_t, load_t = operation.rpm_t.round(), operation.load_t.round(2)
        facts = {
            "sampling_rate_hz": rig.SAMPLING_RATE_HZ, "axes": list(rig.AXES), "unit": "g",
            "rpm": round(rpm_t.mean()), "rpm_range": [int(rpm_t.min()), int(rpm_t.max())],
            "load": round(load_t.mean(), 2), "load_range": [load_t.min(), load_t.max()], "synthetic": True,
        }  # fmt: skip
        yield f"data/vib/{stem}.json", (json.dumps(facts, indent=2) + "\n").encode("utf-8")
        if stem.startswith("test"):
            intervals = [(run.fault_start_s, run.seconds, run.fault)] if run.fault else []
            labels = pd.DataFrame(intervals, columns=["start", "end", "fault"])
            yield f"data/vib/{stem}.labels.csv", _table_bytes(labels, "csv")


def _table_bytes(frame: pd.DataFrame, suffix: str, float_format: str | None = None) -> bytes:
    if suffix == "parquet":
        return frame.to_parquet(index=False)
    text = frame.to_csv(index=False, float_format=float_format, lineterminator="\n").encode("utf-8")
    return gzip.compress(text, mtime=0) if suffix == "csv.gz" else text


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="landfall sample-data", description="Writes synthetic sample data.")
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path(SAMPLES),
        help=f"folder for data/fdc and data/vib (default: {SAMPLES})",
    )
    parser.add_argument("--seed", type=int, default=7, help="seed of all randomness (default: 7)")
    parser.add_argument("--force", action="store_true", help="write again, and replace files that are not sample data")
    return run_command(_make, parser, argv)


def _make(arguments: argparse.Namespace) -> int:
    if arguments.out.exists() and not arguments.out.is_dir():
        raise UsageError(f"--out {arguments.out} is not a folder", hint="pass the folder for data/fdc and data/vib")
    manifest = make_sample_data(arguments.out, seed=arguments.seed, force=arguments.force)
    sys.stdout.write(json.dumps(manifest, indent=2) + "\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
