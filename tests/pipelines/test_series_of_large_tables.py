"""Scores are exported some rows at a time: the files do not tell how many, and memory does not follow the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipelines.dashboard import series
from pipelines.dashboard.inputs import Problems
from pipelines.dashboard.series import export_series
from tests.support import REPO_ROOT

# Exports the scores of a workspace and tells the peak of memory, in megabytes. What resource says of a process begins
# with that of the one it was forked from.
_EXPORT = r"""
import re, sys
from pathlib import Path
from pipelines.dashboard.inputs import Problems
from pipelines.dashboard.series import export_series
root = Path(sys.argv[1])
assert export_series(root, "patchtst", [], root / "data", Problems(root))
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def write_table(root: Path, rows: int, *, group: int, gaps: float, seed: int = 0) -> None:
    """Three recordings. gaps: the share of rows without a score, before a gap, with a label, each by itself."""
    rng = np.random.default_rng(seed)
    code = np.sort(rng.integers(0, 3, rows))
    score = rng.normal(size=rows).astype(np.float32) ** 2
    score[rng.random(rows) < gaps] = np.nan
    table = pd.DataFrame(
        {
            "recording": pd.Categorical.from_codes(code, list("abc")),
            "stretch": np.cumsum(rng.random(rows) < gaps),
            "time": pd.Timestamp("2026-01-09") + pd.to_timedelta(np.arange(rows), "s"),
            "seconds": np.cumsum(rng.integers(1, 4, rows) * 0.37),
            "score": score,
            "threshold": 0.83,
            "label": pd.array((rng.random(rows) < gaps).astype(int), dtype="Int8"),
        }
    )
    path = root / "artifacts/scores/patchtst_scores.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path, index=False, row_group_size=group)


def exported(root: Path, data: str) -> dict[str, bytes]:
    problems = Problems(root)
    assert export_series(root, "patchtst", [], root / data, problems) == "series/patchtst.json"
    return {str(path.relative_to(root / data)): path.read_bytes() for path in (root / data).rglob("*.json")}


@pytest.mark.parametrize("seed", range(5))
def test_the_files_do_not_tell_how_many_rows_were_read_at_a_time(tmp_path, monkeypatch, seed):
    for name, value in (("MAX_BINS", 40), ("FEWEST_BINS", 8), ("POINTS_PER_PART", 30)):
        monkeypatch.setattr(series, name, value)
    write_table(tmp_path, 400, group=90, gaps=0.2, seed=seed)
    whole = exported(tmp_path, "whole")
    assert len(whole) > 10
    for rows in (1, 7, 64):
        monkeypatch.setattr(series, "_ROWS", rows)
        assert exported(tmp_path, f"by-{rows}") == whole


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_memory_does_not_follow_the_number_of_rows(tmp_path):
    """Read whole, the larger table took 92 MB more."""
    peaks = []
    for rows in (200_000, 1_400_000):
        root = tmp_path / str(rows)
        write_table(root, rows, group=100_000, gaps=1e-4)
        done = subprocess.run(
            [sys.executable, "-c", _EXPORT, str(root)], cwd=REPO_ROOT, check=True, capture_output=True, text=True
        )
        peaks.append(json.loads(done.stdout))
    assert peaks[1] - peaks[0] < 40, peaks
