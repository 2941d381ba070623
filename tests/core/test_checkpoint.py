import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core import checkpoint
from core.errors import CheckpointError
from tests.support import REPO_ROOT


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "model.pt"
    payload = {"model": {"weight": torch.arange(1000.0)}, "epoch": 3, "channels": ["a", "b"]}
    checkpoint.save(path, payload, description={"stream": "patchtst", "epoch": 3})
    return path


def rewrite_sidecar(path: Path, **changes) -> None:
    sidecar = checkpoint.sidecar_path(path)
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | changes))


def test_a_checkpoint_comes_back_as_it_was(saved):
    payload = checkpoint.load(saved)
    assert torch.equal(payload["model"]["weight"], torch.arange(1000.0))
    assert (payload["epoch"], payload["channels"]) == (3, ["a", "b"])
    assert torch.load(saved, weights_only=True)["epoch"] == 3


def test_names_of_the_files_around_a_checkpoint():
    path = Path("checkpoints/patchtst_ssl.pt")
    assert checkpoint.last_path(path) == Path("checkpoints/patchtst_ssl.last.pt")
    assert checkpoint.sidecar_path(path) == Path("checkpoints/patchtst_ssl.json")
    assert checkpoint.sidecar_path(checkpoint.last_path(path)) == Path("checkpoints/patchtst_ssl.last.json")


def test_the_sidecar_reads_without_torch(saved):
    program = f"""
import pathlib, sys
from core import checkpoint
description = checkpoint.verify(pathlib.Path({str(saved)!r}))
assert description["stream"] == "patchtst" and description["epoch"] == 3
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, check=True)


def test_a_missing_checkpoint_says_so(tmp_path):
    for ask in (checkpoint.describe, checkpoint.verify, checkpoint.load):
        with pytest.raises(CheckpointError, match=r"nope\.pt: does not exist — train first"):
            ask(tmp_path / "nope.pt")


def test_a_truncated_checkpoint_is_torn(saved):
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is torn or was changed"):
        checkpoint.load(saved)


def test_one_changed_byte_is_found(saved):
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 1
    saved.write_bytes(data)
    with pytest.raises(CheckpointError, match="is torn or was changed"):
        checkpoint.verify(saved)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_without_a_readable_sidecar_nothing_loads(saved, text):
    sidecar = checkpoint.sidecar_path(saved)
    sidecar.unlink() if text is None else sidecar.write_text(text)
    with pytest.raises(CheckpointError, match=r"its sidecar model\.json"):
        checkpoint.load(saved)


def test_a_file_that_is_no_checkpoint_is_refused_though_its_sum_is_right(saved):
    saved.write_bytes(b"not a checkpoint at all")
    rewrite_sidecar(saved, bytes=23, sha256=checkpoint._sha256(saved))
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        checkpoint.load(saved)


def test_another_format_version_is_refused(saved, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 2)
    with pytest.raises(CheckpointError, match="has format version 1, this Landfall reads 2"):
        checkpoint.load(saved)


class Trap:
    def __reduce__(self):
        return Path.touch, (Path("trap-was-sprung"),)


def test_a_checkpoint_runs_no_code(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    checkpoint.save(saved, {"model": Trap()}, description={})
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        checkpoint.load(saved)
    assert not Path("trap-was-sprung").exists()


def test_a_failed_save_leaves_the_old_checkpoint_whole(saved):
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save(saved, {"model": (step for step in ())}, description={})
    assert checkpoint.load(saved)["epoch"] == 3


def test_a_checkpoint_may_be_moved_with_its_sidecar(saved, tmp_path):
    moved = shutil.copytree(saved.parent, tmp_path / "elsewhere") / saved.name
    assert checkpoint.load(moved)["epoch"] == 3
