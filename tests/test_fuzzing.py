"""Every reader of foreign data gets valid files whose bytes were changed: it reads them, or rejects them in one line.

The nightly tier draws 10,000 cases for each reader.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import landfall_runtime
from core import checkpoint
from core.config.schema import Data
from core.data.labels import labels_of
from core.data.readers import read_recordings
from core.data.recording import Recording
from core.errors import CheckpointError, DataError, OutputError, UsageError
from core.reading import UnreadableError, read_json_object, read_yaml
from core.runlog import read_loss_csv, read_metrics
from inference.detector.file import _digest, load_detector, save_detector
from inference.detector.stored import charts_and_data
from migration.migrate import migrate
from migration.notebook.reading import read as read_notebook
from pipelines.import_artifacts import import_artifacts
from tests.inference.trained_workspace import configuration, write_process
from tests.support import REPO_ROOT

CASES = 10_000
SLOWEST_MS = 200_000  # endless work takes longer
_ROWS = 40


@dataclass(frozen=True)
class Reader:
    """name: of the file. content: of a valid file. read: raises one of `errors` for an invalid one."""

    name: str
    content: Callable[[], bytes]
    read: Callable[[Path], object]
    errors: tuple[type[Exception], ...] = (DataError,)


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(_ROWS, 2)), columns=["pressure", "flow"])
    frame.insert(0, "timestamp", pd.date_range("2026-01-01", periods=_ROWS, freq="s"))
    return frame


def _csv() -> bytes:
    return _table().to_csv(index=False).encode()


def _parquet() -> bytes:
    return _table().to_parquet(index=False)


def _array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones((_ROWS, 3), np.float32))
    return file.getvalue()


def _records() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones((2, _ROWS, 3), np.float32))
    return file.getvalue()


def _checkpoint() -> bytes:
    file = io.BytesIO()
    torch.save({"format_version": 1, "model": {"w": torch.arange(20.0)}, "names": ["a", "b"], "epoch": 3}, file)
    return file.getvalue()


def _bundle() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("artifacts/loss/patchtst_loss_history.csv", _losses())
        archive.writestr("runs/patchtst_ssl/first/metrics.jsonl", _metrics())
        archive.writestr("runs/patchtst_ssl/first/config.yaml", "stream: patchtst\nseed: 3\n")
    return file.getvalue()


def _losses() -> bytes:
    return (
        b"epoch,train_loss,val_loss,lr,seconds,windows_per_second\n1,0.9,0.8,0.001,2.5,40.0\n2,0.7,0.6,0.001,2.4,41\n"
    )


def _metrics() -> bytes:
    return b'{"kind": "epoch", "epoch": 1, "train_loss": 0.9, "val_loss": 0.8}\n{"kind": "step", "loss": 1}\n'


def _notebook() -> bytes:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "text"]},
        {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": "from google.colab import drive\n"
         "drive.mount('/content/drive')\n!pip install -q torch\ndf = read('/content/drive/MyDrive/a.csv')",
         "outputs": [{"output_type": "stream", "name": "stdout", "text": ["Mounted\n"]}]},
    ]  # fmt: skip
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _configuration() -> bytes:
    return b"defaults: [patchtst_ssl_local, _self_]\nseed: 3\ntraining: {epochs: 2}\nx: &a [1, 2]\n"


@cache
def _arrays_of_detector() -> dict[str, np.ndarray]:
    """Of the file of a detector of control charts."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_process(root / "data/fdc")
        (root / "configs").symlink_to(REPO_ROOT / "configs")
        detector, *_ = charts_and_data(configuration("patchtst", root).config, root=root)
        save_detector(detector, root / "f.npz")
        with np.load(root / "f.npz") as held:
            return dict(held)


def _detector() -> bytes:
    file = io.BytesIO()
    np.savez(file, **_arrays_of_detector())
    return file.getvalue()


def _header_of_detector() -> bytes:
    return _arrays_of_detector()["header"].tobytes()


def _numbers_of_detector() -> bytes:
    """All arrays but the header, one after the other; each starts with its shape."""
    return b"".join(_npy(array) for name, array in _arrays_of_detector().items() if name not in _SIGNED)


_SIGNED = ("header", "sha256")


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _with_header(path: Path) -> object:
    """A detector with this header and a digest that fits, as an attacker writes it."""
    return _signed(path, {**_arrays_of_detector(), "header": np.frombuffer(path.read_bytes(), dtype=np.uint8)})


def _with_numbers(path: Path) -> object:
    """A detector with these arrays and a digest that fits."""
    arrays, content = dict(_arrays_of_detector()), path.read_bytes()
    for name, array in arrays.items():
        if name not in _SIGNED:
            length = len(_npy(array))
            piece, content = content[:length], content[length:]
            with contextlib.suppress(Exception):  # NumPy's reader is not under test: it keeps the array it has
                arrays[name] = np.load(io.BytesIO(piece))
    return _signed(path, arrays)


def _signed(path: Path, arrays: dict[str, np.ndarray]) -> object:
    arrays = {name: array for name, array in arrays.items() if name != "sha256"}
    np.savez(path.with_suffix(".npz"), **arrays, sha256=np.array(_digest(arrays)))
    return load_detector(path.with_suffix(".npz"))


def _sensors(path: Path) -> object:
    stream = "swinmae" if path.name.startswith("f.np") else "patchtst"
    return read_recordings(path, root=path.parent, stream=stream, settings=Data(sampling_rate_hz=10.0))


def _labelled(path: Path) -> object:
    return labels_of(_recording(path.parent))


@cache
def _recording(folder: Path) -> Recording:
    (folder / "f.csv").write_bytes(_csv())
    (recording,) = read_recordings(folder / "f.csv", root=folder, stream="patchtst", settings=Data())
    return recording


def _with_sidecar(path: Path) -> object:
    (path.parent / "f.npy").write_bytes(_array())
    return read_recordings(path.parent / "f.npy", root=path.parent, stream="swinmae", settings=Data())


def _weights(path: Path) -> object:
    """With a sidecar that fits, as an attacker writes it."""
    checkpoint.sidecar_path(path).write_text(json.dumps({"format_version": 1, **checkpoint._identity(path)}))
    return checkpoint.load(path)


def _imported(path: Path) -> object:
    root = path.parent / "workspace"
    root.mkdir(exist_ok=True)
    return import_artifacts(path, root=root, replace=True)


def _variables(path: Path) -> object:
    return landfall_runtime._env_file(path)


def _migrated(path: Path) -> object:
    notebook, _ = read_notebook(path)
    return migrate(notebook)


READERS = {
    "csv": Reader("f.csv", _csv, _sensors),
    "csv.gz": Reader("f.csv.gz", lambda: gzip.compress(_csv(), mtime=0), _sensors),
    "parquet": Reader("f.parquet", _parquet, _sensors),
    "npy": Reader("f.npy", _array, _sensors),
    "npz": Reader("f.npz", _records, _sensors),
    "labels": Reader("f.labels.csv", lambda: b"start,end,fault\n2026-01-01 00:00:03,,leak\n", _labelled),
    "sidecar": Reader("f.json", lambda: b'{"sampling_rate_hz": 1000, "unit": "g", "label": 0}', _with_sidecar),
    "json": Reader("f.json", lambda: b'{"a": [1, 2.5, null, true], "b": {"c": "text"}}', read_json_object,
                   (UnreadableError,)),
    "yaml": Reader("f.yaml", _configuration, read_yaml, (UnreadableError,)),
    "checkpoint": Reader("f.pt", _checkpoint, _weights, (CheckpointError,)),
    "detector": Reader("f.npz", _detector, load_detector, (OutputError,)),
    "header of a detector": Reader("f.json", _header_of_detector, _with_header, (OutputError,)),
    "arrays of a detector": Reader("f.bin", _numbers_of_detector, _with_numbers, (OutputError,)),
    "losses": Reader("f.csv", _losses, read_loss_csv, (ValueError,)),
    "metrics": Reader("f.jsonl", _metrics, read_metrics, (ValueError,)),
    "bundle": Reader("f.zip", _bundle, _imported, (OutputError, UsageError)),
    "notebook": Reader("f.ipynb", _notebook, _migrated, (UsageError,)),
    ".env": Reader(".env", lambda: b"# a\nexport A='b c'\nTOKEN=\"x\\ny\" # old\nEMPTY=\n", _variables, ()),
}  # fmt: skip

_PLACES = st.integers(-1_000, 1_000) | st.integers(0, 10**6)  # near both ends, where headers are, more often
_EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "insert", "repeat", "end"]), _PLACES, st.binary(min_size=1, max_size=6)),
    min_size=1, max_size=5,
)  # fmt: skip


def changed(content: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    for kind, place, piece in edits:
        place %= len(content) + 1
        before, after = content[:place], content[place:]
        width = len(piece)
        content = {
            "set": before + piece + after[width:],
            "cut": before + after[width:],
            "insert": before + piece + after,
            "repeat": before + after[:20] * width + after,
            "end": before if piece[0] % 8 == 0 else content,  # a truncated file is mostly rejected at once
        }[kind]
    return content


@pytest.mark.parametrize("name", READERS)
def test_valid_files_are_read(name, tmp_path):
    reader = READERS[name]
    path = tmp_path / reader.name
    path.write_bytes(reader.content())
    assert reader.read(path) is not None


@pytest.mark.parametrize("read, error", [(_sensors, DataError), (load_detector, OutputError)])
def test_an_encrypted_archive_is_rejected_in_one_line(read, error, tmp_path):
    path = tmp_path / "f.npz"
    content = bytearray(_records())
    content[6] |= 1  # the flag in the header of the first member, and in the list of members
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(error, match="encrypted"):
        read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": None},
        {"settings": {"scoring.smoothing_span": 0}},
        {"threshold": {"value": "high"}},
        {"seconds_per_score": ["one"]},
        {"sample_n": np.ones(3)},
        {"statistics.groups": np.array(["other"])},
        {"statistics.0.control.lags": np.array(10**9)},  # would need 30 GB
        {"statistics.0.control.usual_4c": np.ones((4, 7))},
        {"statistics.0.control.cross_fill_cc": np.ones((2, 2))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_detector_whose_parts_do_not_fit_is_rejected_when_it_is_read(changes, tmp_path):
    arrays = dict(_arrays_of_detector())
    header = json.loads(arrays["header"].tobytes())
    for name, value in changes.items():
        if name in header:
            header[name] = {**header[name], **value} if name == "threshold" else value
        else:
            arrays[name] = value
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with pytest.raises(OutputError, match="is not a detector"):
        _signed(tmp_path / "f.npz", arrays)


def fuzz(name: str, folder: Path, cases: int | None) -> None:
    reader = READERS[name]
    content, path = reader.content(), folder / reader.name
    options = {"max_examples": cases} if cases else {}

    @settings(suppress_health_check=[HealthCheck.too_slow], deadline=SLOWEST_MS, **options)
    @given(edits=_EDITS)
    def check(edits):
        path.write_bytes(changed(content, edits))
        message = ""
        try:
            reader.read(path)
        except reader.errors as error:
            message = str(error)
        assert len(message.splitlines()) <= 1

    check()


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes_are_read_or_rejected_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz(name, tmp_path, None)


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_changed_files_are_read_or_rejected_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz(name, tmp_path, CASES)
