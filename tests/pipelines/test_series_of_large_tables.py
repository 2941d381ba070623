"""The export of long score tables: no score is lost, extremes stay, and memory per row is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipelines.dashboard import series
from pipelines.dashboard.series import export_series
from pipelines.problems import Problems
from pipelines.stream_configs import CONTRACT
from tests.support import REPO_ROOT

# Exports the scores of a workspace and prints the peak of memory in MiB. What `resource` reports of a process starts at
# the peak of the process it was forked from.
_EXPORT = r"""
import re, sys
from pathlib import Path
from pipelines.problems import Problems
from pipelines.stream_configs import CONTRACT
from pipelines.dashboard.series import export_series
root = Path(sys.argv[1])
assert export_series(root, CONTRACT["patchtst"], [], root / "data", Problems(root))
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
            "segment": np.cumsum(rng.random(rows) < gaps),
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_detail_files_contain_every_score_and_bins_every_extreme(tmp_path, monkeypatch, seed, gaps):
    for name, value in (("MAX_BINS", 40), ("FEWEST_BINS", 8), ("POINTS_PER_PART", 30)):
        monkeypatch.setattr(series, name, value)
    write_table(tmp_path, 400, group=90, gaps=gaps, seed=seed)
    table = pd.read_parquet(tmp_path / "artifacts/scores/patchtst_scores.parquet")
    data = tmp_path / "data"
    assert export_series(tmp_path, CONTRACT["patchtst"], [], data, Problems(tmp_path)) == "series/patchtst.json"
    document = json.loads((data / "series/patchtst.json").read_text())
    for recording in document["recordings"]:
        rows = table[table["recording"] == recording["name"]]
        parts = [json.loads((data / part["file"]).read_text()) for part in recording["details"]]
        assert all(len(part["t"]) <= 30 for part in parts)
        written = [score for part in parts for score in part["score"] if score is not None]
        np.testing.assert_allclose(written, rows["score"].dropna(), atol=1e-4)
        low, high = ([each for each in recording[name] if each is not None] for name in ("low", "high"))
        assert (min(low), max(high)) == pytest.approx((rows["score"].min(), rows["score"].max()), abs=1e-4)
        labelled = rows["seconds"][rows["label"] == 1]
        assert all(any(first - 1e-6 <= t <= last + 1e-6 for first, last in recording["labels"]) for t in labelled)
        # A line breaks wherever there is no score: a missing row, or the end of a segment.
        breaks = rows["score"].isna().sum() + (np.diff(rows["segment"]) != 0).sum()
        assert sum(score is None for part in parts for score in part["score"]) == breaks


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_memory_per_row_is_bounded(tmp_path):
    """Scoring uses 57 bytes per row; the export may briefly use twice as much."""
    peaks, sizes = [], (200_000, 1_400_000)
    for rows in sizes:
        root = tmp_path / str(rows)
        write_table(root, rows, group=100_000, gaps=1e-4)
        done = subprocess.run(
            [sys.executable, "-c", _EXPORT, str(root)], cwd=REPO_ROOT, check=True, capture_output=True, text=True
        )
        peaks.append(json.loads(done.stdout))
    assert (peaks[1] - peaks[0]) * 2**20 / (sizes[1] - sizes[0]) < 130
