"""One process rewrites every artifact with its own writer while another process reads them all."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from core import checkpoint
from core.runlog import read_loss_csv, write_loss_csv
from core.workspace import atomic_file, write_bytes, write_json
from inference.detector.file import load_detector
from pipelines.export_training_dashboard_state import export_state
from tests.support.artifact_checks import artifacts, faults
from tools.soak.targets import Process


def read_while_written(root: Path, seconds: float) -> tuple[int, list[str]]:
    """Number of artifacts below `root` that were read in this time, and every fault in them or in the export of the
    dashboard. The artifacts must exist; their content does not change."""
    readings, found = 0, []
    with tempfile.TemporaryDirectory() as folder:
        writer = Process(lambda report: _write_for_ever(root), Path(folder, "log"))
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                readings += len(list(artifacts(root)))
                state = export_state(root, out=Path(folder, "state.json"), persist_run_history=False)
                found += [*faults(root), *(f"export: {problem.path}: {problem.message}" for problem in state.problems)]
            if writer.has_ended(0.0):
                found.append(f"the writer ended: {writer.last_line()}")
        finally:
            writer.kill()
            writer.has_ended(10.0)
    return readings, found


def _write_for_ever(root: Path) -> None:
    again = [_WRITERS[path.suffix](path) for path in artifacts(root) if path.suffix in _WRITERS]
    for turn in itertools.count():
        for write in again:
            write(turn)


Write = Callable[[int], object]


def _json_writer(path: Path) -> Write:
    value = json.loads(path.read_bytes())
    return lambda turn: None if _is_sidecar(path) else write_json(path, value)


def _is_sidecar(path: Path) -> bool:
    """Sidecars are written together with their checkpoints."""
    return path.with_suffix(".pt").exists()


def _csv_writer(path: Path) -> Write:
    if path.name.endswith("_loss_history.csv"):
        history = read_loss_csv(path)
        return lambda turn: write_loss_csv(path, history)
    return _bytes_writer(path)


def _bytes_writer(path: Path) -> Write:
    content = path.read_bytes()
    return lambda turn: write_bytes(path, content)


def _table_writer(path: Path) -> Write:
    table = pd.read_parquet(path)

    def write(turn: int) -> None:
        with atomic_file(path) as part:
            table.to_parquet(part, index=False)

    return write


def _detector_writer(path: Path) -> Write:
    detector = load_detector(path)
    return lambda turn: detector.save(path)


def _checkpoint_writer(path: Path) -> Write:
    """Writes each checkpoint with other bytes, so that a sidecar of another one is detected; older states are
    rotated."""
    payload, description = checkpoint.load_described(path)
    return lambda turn: checkpoint.save(path, payload | {"turn": turn}, description=description, keep=2)


_WRITERS: dict[str, Callable[[Path], Write]] = {
    ".json": _json_writer,
    ".csv": _csv_writer,
    ".png": _bytes_writer,
    ".yaml": _bytes_writer,
    ".parquet": _table_writer,
    ".npz": _detector_writer,
    ".pt": _checkpoint_writer,
}
