"""The memory of scoring does not grow with rows times channels: their arrays are in files."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import REPO_ROOT

pytestmark = pytest.mark.slow

# Fits a detector to rows in files and scores others, with simulated model errors; prints the peak memory after each
# number of rows, in megabytes.
_SCORE = """
import json, resource, sys
from pathlib import Path
import numpy as np
import torch
from core.config.schema import PatchTSTConfig
from core.data import blocks
from core.data.blocks import gathered
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from inference.detector.fitting import fit
from inference.events.finding import find_events
from inference.groups import reference_of
from inference.entries import SplitErrors
from inference.detector.score_table import score_table

CHANNELS = 16
SHARES = {"train": (0.0, 0.5), "calibration": (0.5, 0.75), "test": (0.75, 1.0)}
room = Path(sys.argv[1])
blocks.IN_MEMORY = 2**20

def noise(num_rows, seed):
    rng = np.random.default_rng(seed)
    return gathered((rng.normal(size=(5_000, CHANNELS)).astype(np.float32) for _ in range(num_rows // 5_000)), room)

def errors_of(windows):
    (start, stop), = windows.segments.rows_k2
    row_s = np.arange(start, stop)
    return SplitErrors(noise(len(row_s), seed=start), row_s, np.zeros_like(row_s), 1, room)

def score(num_rows):
    values_nc = noise(num_rows, seed=0)
    time_ns, names = np.arange(num_rows) * 10**9, tuple(f"c{number}" for number in range(CHANNELS))
    recording = Recording("plant", Path("p.csv"), values_nc, time_ns, names, 1.0, "sampling_rate", digest="of it")
    series = Series.of([recording], values_nc, None, room)
    bounds = {name: np.array([[round(a * num_rows), round(b * num_rows)]]) for name, (a, b) in SHARES.items()}
    splits = {name: WindowSet(series, np.zeros(0, dtype=np.int64), 64, each) for name, each in bounds.items()}
    where = {"logging": {"log_dir": "r", "checkpoint_path": "m.pt"}, "dqvl": {"report_dir": "q"}}
    config = PatchTSTConfig(**where, scoring={"model_weight": 0.3, "smoothing_span": 10})
    errors = {name: errors_of(split) for name, split in reference_of(splits).items()}
    detector = fit(config, "0", reference_of(splits), errors)
    test = splits["test"]
    scores = detector.score(errors_of(test), test)
    table = score_table(scores, test, channels=names, threshold=detector.threshold.value)
    find_events(table, config.scoring, channel_error_sc=scores.channel_error_sc, channels=names)

peaks = []
for num_rows in map(int, sys.argv[2:]):
    score(num_rows)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(json.dumps(peaks))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from the Unix API")
@pytest.mark.nightly
def test_peak_memory_of_scoring_does_not_grow_with_the_rows(tmp_path):
    command = [sys.executable, "-c", _SCORE, str(tmp_path), "100000", "400000"]
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    of_small, of_large = json.loads(done.stdout.splitlines()[-1])
    assert of_large < of_small + 75  # megabytes; with values, errors and residuals in memory it was 113 more
