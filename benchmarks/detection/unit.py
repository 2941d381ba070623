"""The unit of the benchmark, and helpers for the units of both streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.workspace import atomic_file

_RARE = 0.01


@dataclass(frozen=True)
class Unit:
    """The data for one model. overrides: the rows of each split, in addition to the stream's recipe. run_n: the run of
    each row of the test file and of the normal file, if a decision is about a run. false_alarm_rate: the requested
    rate. other_sessions: a regular expression for the names of healthy recordings of other sessions, whose alarms are
    counted in a separate metric.
    """

    name: str
    overrides: tuple[str, ...]
    run_n: dict[str, np.ndarray] | None = None
    false_alarm_rate: float = _RARE
    other_sessions: str = ""


def place(key: str, path: Path | str) -> str:
    """An override whose value is a path, quoted: a folder may be called `pack (1)`."""
    return f"{key}={json.dumps(str(path), ensure_ascii=False)}"


def bounds(files: str, **splits: tuple[float, float]) -> Iterator[str]:
    for split, (start, stop) in splits.items():
        yield from (
            f"data.splits.{split}.files={files}",
            f"data.splits.{split}.start={start}",
            f"data.splits.{split}.stop={stop}",
        )


def copy_file(source: Path, target: Path) -> None:
    with atomic_file(target) as path:
        path.write_bytes(source.read_bytes())
