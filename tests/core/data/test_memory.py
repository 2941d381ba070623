"""The peak memory of reading does not depend on the size of the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.memory import write_csv
from tests.support import REPO_ROOT

pytestmark = pytest.mark.nightly

# Reads files through the store, reads windows in all of them, and prints its peak memory after each, in megabytes.
_READ = """
import json, resource, sys
from pathlib import Path
import numpy as np
import torch
from core.config.data import Scaling
from core.data.scaling import Scaler
from core.data.store import Store
from core.data.windows import Series, WindowSet
from tests.core.data.bad_file_cases import config_for

def look_through(root, name, stream):
    config = config_for(stream, name, store_dir="store", sampling_rate_hz=1000.0)
    store = Store.of(config, root)
    recordings = store.read(root / name, root=root, config=config).recordings
    values_nc = store.joined(recordings)
    scaler = Scaler.fit([values_nc], recordings[0].channels, Scaling(), store.scratch())
    windows = WindowSet(Series.of(recordings, values_nc, scaler), np.arange(0, len(values_nc) - 256, 256), 256)
    return sum(float(windows.batch(index_b).nansum()) for index_b in torch.arange(len(windows)).split(64))

root, stream, *names = Path(sys.argv[1]), *sys.argv[2:]
peaks = []
for name in names:
    look_through(root, name, stream)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(json.dumps(peaks))
"""


def write_parquet(path: Path, num_bytes: int) -> None:
    rng = np.random.default_rng(0)
    rows = num_bytes // 32
    schema = pa.schema([(f"c{number}", pa.float32()) for number in range(8)])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for first in range(0, rows, 1 << 16):
            columns = [rng.normal(size=min(1 << 16, rows - first)).astype(np.float32) for _ in range(8)]
            writer.write_table(pa.table(columns, schema=schema))


def write_npy(path: Path, num_bytes: int) -> None:
    np.save(path, np.random.default_rng(0).normal(size=(num_bytes // 12, 3)).astype(np.float32))


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from the Unix API")
@pytest.mark.parametrize(
    ("suffix", "stream", "write"),
    [("csv", "patchtst", write_csv), ("parquet", "patchtst", write_parquet), ("npy", "swinmae", write_npy)],
)
def test_peak_memory_does_not_grow_with_the_data(suffix, stream, write, tmp_path):
    for megabytes in (30, 120):
        write(tmp_path / f"{megabytes}.{suffix}", megabytes * 10**6)
    command = [sys.executable, "-c", _READ, str(tmp_path), stream, f"30.{suffix}", f"120.{suffix}"]
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    of_small, of_large = json.loads(done.stdout.splitlines()[-1])
    assert of_large < of_small + 40  # megabytes; a copy of the values alone would be 45 to 120
