import errno
import gc
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import psutil
import pytest
import torch

from core import checkpoint
from core.errors import CheckpointError
from tests.support import REPO_ROOT
from tests.support.waiting import until


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "model.pt"
    payload = {"model": {"weight": torch.arange(1000.0)}, "epoch": 3, "channels": ["a", "b"]}
    checkpoint.save(path, payload, description={"stream": "patchtst", "epoch": 3})
    return path


def rewrite_sidecar(path: Path, **changes) -> None:
    sidecar = checkpoint.sidecar_path(path)
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | changes))


def test_a_saved_checkpoint_is_loaded_unchanged(saved):
    payload = checkpoint.load(saved)
    assert torch.equal(payload["model"]["weight"], torch.arange(1000.0))
    assert (payload["epoch"], payload["channels"]) == (3, ["a", "b"])
    assert torch.load(saved, weights_only=True)["epoch"] == 3


def test_names_of_the_files_around_a_checkpoint():
    path = Path("checkpoints/patchtst_ssl.pt")
    assert checkpoint.last_path(path) == Path("checkpoints/patchtst_ssl.last.pt")
    assert checkpoint.sidecar_path(path) == Path("checkpoints/patchtst_ssl.json")
    assert checkpoint.sidecar_path(checkpoint.last_path(path)) == Path("checkpoints/patchtst_ssl.last.json")
    assert checkpoint.detector_path(path) == Path("checkpoints/patchtst_ssl.detector.npz")


def test_the_sidecar_reads_without_torch(saved):
    program = f"""
import pathlib, sys
from core import checkpoint
description = checkpoint.verify(pathlib.Path({str(saved)!r}))
assert description["stream"] == "patchtst" and description["epoch"] == 3
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, check=True)


def test_a_missing_checkpoint_is_an_error(tmp_path):
    for ask in (checkpoint.describe, checkpoint.verify, checkpoint.load):
        with pytest.raises(CheckpointError, match=r"nope\.pt: .*not exist"):
            ask(tmp_path / "nope.pt")


def test_a_truncated_checkpoint_is_rejected(saved):
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=f"{re.escape(saved.name)}.* damaged"):
        checkpoint.load(saved)


def test_one_changed_byte_is_detected(saved):
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 1
    saved.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{re.escape(saved.name)}.* damaged"):
        checkpoint.verify(saved)


@pytest.mark.parametrize("text", [None, "{", "[]", "[" * 100_000], ids=["none", "torn", "list", "deep"])
def test_a_checkpoint_without_a_readable_sidecar_is_rejected(saved, text):
    sidecar = checkpoint.sidecar_path(saved)
    sidecar.unlink() if text is None else sidecar.write_text(text)
    with pytest.raises(CheckpointError, match=r"its sidecar model\.json"):
        checkpoint.load(saved)


def test_a_file_that_is_not_a_checkpoint_is_rejected_despite_a_right_checksum(saved):
    saved.write_bytes(b"not a checkpoint at all")
    rewrite_sidecar(saved, **checkpoint._identity(saved))
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        checkpoint.load(saved)


def test_another_format_version_is_rejected(saved, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 2)
    with pytest.raises(CheckpointError, match=r"version 1\b.* 2\b"):
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


def test_a_failed_save_keeps_the_old_checkpoint(saved):
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save(saved, {"model": (step for step in ())}, description={})
    assert checkpoint.load(saved)["epoch"] == 3


def test_a_checkpoint_may_be_moved_with_its_sidecar(saved, tmp_path):
    moved = shutil.copytree(saved.parent, tmp_path / "elsewhere") / saved.name
    assert checkpoint.load(moved)["epoch"] == 3


# ------------------------------------------------------------------------------------------ killed, and read meanwhile
def save_epoch(path: Path, epoch: int, keep: int = 1) -> None:
    """One of several checkpoints that differ by their epoch, in file and sidecar."""
    payload = {"weight": torch.full((2000,), float(epoch)), "epoch": epoch}
    checkpoint.save(path, payload, description={"epoch": epoch}, keep=keep)


def epoch_of(path: Path) -> int:
    """The epoch of a valid checkpoint, after checking that file and sidecar match."""
    payload, description = checkpoint.load_described(path)
    assert (payload["weight"] == payload["epoch"]).all()
    assert description["epoch"] == payload["epoch"] == checkpoint.describe(path)["epoch"]
    return payload["epoch"]


class Killed(BaseException):
    """Replaces a system call: nothing after it is executed, as after kill -9."""


def die_at_call(monkeypatch, number: int) -> None:
    """From the call `number` on, nothing is written to disk."""
    calls = count()

    def counted(function):
        def call(*arguments, **named):
            if next(calls) >= number:
                raise Killed
            return function(*arguments, **named)

        return call

    for owner, name in (
        (os, "fsync"), (os, "link"), (Path, "replace"), (Path, "unlink"), (Path, "touch"), (Path, "write_bytes"),
        (torch, "save"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_save_killed_at_any_system_call_leaves_the_old_or_new_file(tmp_path, monkeypatch, keep):
    """Tests all calls in turn; the next save after each kill also succeeds."""
    path, seen = tmp_path / "model.pt", []
    for epoch in range(4):
        save_epoch(path, epoch, keep)
    for number in count():
        with monkeypatch.context() as patched:
            die_at_call(patched, number)
            try:
                save_epoch(path, 4 + number, keep)
            except Killed:
                pass
            else:
                break
        seen.append(epoch_of(path) - number)
        assert 3 <= epoch_of(path) <= 4 + number
        for age in range(1, keep):
            assert epoch_of(checkpoint.previous_path(path, age)) <= epoch_of(path)
    assert number > 10, "there are so many calls to die at"
    assert epoch_of(path) == 4 + number
    assert len(list(tmp_path.glob("*.pt"))) == keep
    assert min(seen) < 4 <= max(seen), "some kills came before the checkpoint was replaced, some after"


def test_a_reader_never_sees_file_and_sidecar_of_different_saves(tmp_path):
    path, done = tmp_path / "model.pt", threading.Event()
    save_epoch(path, 0)

    def write() -> None:
        for epoch in count(1):
            save_epoch(path, epoch, keep=2)
            if done.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    seen = []

    def read() -> bool:
        payload, description = checkpoint.load_described(path)
        assert payload["epoch"] == description["epoch"]
        seen.append(checkpoint.verify(path)["epoch"])
        return len(set(seen)) > 20

    try:
        until(read)
    finally:
        done.set()
        writer.join()
    assert seen == sorted(seen)


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    path, read, savings = tmp_path / "model.pt", checkpoint._sidecars, iter([2])
    save_epoch(path, 1)

    def read_and_be_late(path):
        found = read(path)
        for epoch in savings:
            save_epoch(path, epoch)
        return found

    monkeypatch.setattr(checkpoint, "_sidecars", read_and_be_late)
    assert epoch_of(path) == 2


def test_the_requested_number_of_previous_states_is_kept(tmp_path):
    path = tmp_path / "run.last.pt"
    for epoch in range(5):
        save_epoch(path, epoch, keep=3)
    kept = [checkpoint.previous_path(path, age) for age in range(4)]
    assert [file.name for file in kept] == ["run.last.pt", "run.last.1.pt", "run.last.2.pt", "run.last.3.pt"]
    assert [epoch_of(file) for file in kept[:3]] == [4, 3, 2]
    save_epoch(path, 5, keep=2)
    assert {file.name for file in tmp_path.iterdir()} == {
        *("run.last.pt", "run.last.json", "run.last.1.pt", "run.last.1.json")
    }


def test_a_damaged_state_does_not_replace_a_valid_one(tmp_path):
    path = tmp_path / "run.last.pt"
    save_epoch(path, 1, keep=2)
    save_epoch(path, 2, keep=2)
    path.write_bytes(path.read_bytes()[:-1])
    save_epoch(path, 3, keep=2)
    assert [epoch_of(path), epoch_of(checkpoint.previous_path(path, 1))] == [3, 1]


def test_states_are_copied_on_file_systems_without_links(tmp_path, monkeypatch):
    def refuse(*names):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "run.last.pt"
    save_epoch(path, 1, keep=2)
    save_epoch(path, 2, keep=2)
    assert [epoch_of(path), epoch_of(checkpoint.previous_path(path, 1))] == [2, 1]


def test_each_rename_is_flushed_before_the_next(saved, monkeypatch):
    """After a power failure, the sidecar matches the present checkpoint, or also contains the old one."""
    done, fsync, replace = [], os.fsync, Path.replace

    def flushed(handle: int) -> None:
        done.append("flush folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "flush file")
        fsync(handle)

    def renamed(part: Path, path: Path) -> Path:
        done.append(path.name)
        return replace(part, path)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", renamed)
    save_epoch(saved, 4)
    sidecar, file = ["flush file", "model.json", "flush folder"], ["flush file", "model.pt", "flush folder"]
    assert done == [*sidecar, *file, *sidecar[:2]]


def test_a_replaced_sidecar_leaves_no_open_handle(tmp_path):
    gc.collect()  # closes what other tests left open
    path, handles = tmp_path / "run.last.pt", psutil.Process().num_fds()
    for epoch in range(4):
        save_epoch(path, epoch, keep=3)
    sidecars = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
    assert [sidecar.keys() for sidecar in sidecars] == [{"format_version", "epoch", "sha256", "bytes"}] * 3
    assert psutil.Process().num_fds() <= handles


def test_previous_states_are_kept_only_on_request(tmp_path):
    path = tmp_path / "run.last.pt"
    for orphan in ("run.last.1.json", "run.last.2.pt"):
        (tmp_path / orphan).touch()
    for epoch in range(2):
        save_epoch(path, epoch, keep=1)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.last.json", "run.last.pt"]


def test_saving_without_previous_states_changes_no_other_file(tmp_path):
    """`model_v1.1.pt` is not an older state of `model_v1.pt`."""
    for name in ("model_v1.1.pt", "model_v1.pt"):
        checkpoint.save(tmp_path / name, {"name": name}, description={})
    assert checkpoint.load(tmp_path / "model_v1.1.pt")["name"] == "model_v1.1.pt"


@pytest.mark.parametrize("number, is_saved", [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_checkpoints_work_on_file_systems_without_folder_flush(tmp_path, monkeypatch, number, is_saved):
    fsync, path = os.fsync, tmp_path / "model.pt"

    def flush(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", flush)
    with nullcontext() if is_saved else pytest.raises(OSError, match=os.strerror(number)):
        save_epoch(path, 1)
    assert path.exists() is is_saved


def test_previous_states_are_not_copied(tmp_path, monkeypatch):
    monkeypatch.delattr(shutil, "copyfile")
    path = tmp_path / "run.last.pt"
    save_epoch(path, 1, keep=2)
    before = path.stat().st_ino
    save_epoch(path, 2, keep=2)
    assert checkpoint.previous_path(path, 1).stat().st_ino == before
