"""Score tables made by hand, and a trained workspace."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference.events import panels
from tests.inference.trained_workspace import build
from tests.support import built_once

TableMaker = Callable[..., pd.DataFrame]


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with data and a checkpoint of each stream; to copy only."""
    return built_once(tmp_path_factory, "trained", build)


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """A separate copy, before any scoring."""
    return Path(shutil.copytree(trained_once, tmp_path / "workspace"))


@pytest.fixture(autouse=True)
def one_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of the worst event, not of three: drawing takes most of a scoring. `test_panels` has all, and
    `test_provenance` scores in a fixture of the module, before this one."""
    if request.module.__name__.rpartition(".")[2] not in ("test_panels", "test_provenance"):
        monkeypatch.setattr(panels, "DRAWN_EVENTS", 1)


@pytest.fixture
def make_table() -> TableMaker:
    return make_score_table


def make_score_table(
    recordings: dict[str, Sequence[float]],
    *,
    threshold: float = 1.0,
    labels: dict[str, Sequence[int]] | None = None,
    stamped: bool = True,
    step_seconds: float = 1.0,
) -> pd.DataFrame:
    """A score table as `inference.detector.score_table` makes it, of scores by recording."""
    names, lengths = list(recordings), [len(values) for values in recordings.values()]
    score_s = np.concatenate([np.asarray(values, dtype=np.float32) for values in recordings.values()])
    row_s = np.concatenate([np.arange(length) for length in lengths])
    seconds_s = row_s * step_seconds
    time_s = np.datetime64("2026-01-05", "ns") + (seconds_s * 1e9).astype("timedelta64[ns]")
    known = [(labels or {}).get(name, [None] * length) for name, length in zip(names, lengths, strict=True)]
    return pd.DataFrame(
        {
            "recording": pd.Categorical.from_codes(np.repeat(np.arange(len(names)), lengths), names),
            "row": row_s,
            "segment": np.repeat(np.arange(len(names)), lengths),
            "time": time_s if stamped else np.full(len(row_s), np.datetime64("NaT", "ns")),
            "seconds": seconds_s,
            "score": score_s,
            "threshold": threshold,
            "alarm": score_s > threshold,
            "label": pd.array([value for values in known for value in values], dtype="Int8"),
        }
    )
