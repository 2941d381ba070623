"""Several files are replaced in one step, even if the process is killed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from core import switching
from core.cli import root_of
from core.errors import WriteError
from core.switching import JOURNAL, finish, switch

OLD = {"checkpoints/m.pt": b"old model", "checkpoints/m.json": b"old sidecar"}
NEW = {"checkpoints/m.pt": b"new model", "checkpoints/m.json": b"new sidecar", "runs/x/status.json": b"new"}
SUFFIX = ".before-1"


@pytest.fixture
def sources(tmp_path) -> dict[str, Path]:
    found = {}
    for number, (target, content) in enumerate(NEW.items()):
        found[target] = tmp_path / f"bundle-{number}"
        found[target].write_bytes(content)
    return found


def workspace(root: Path) -> Path:
    for target, content in OLD.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        (root / target).write_bytes(content)
    return root


def held(root: Path) -> dict[str, bytes]:
    """Files without the lock of a dead process, which the next process takes over."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and ".lock" not in path.name]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


BEFORE = OLD
AFTER = NEW | {f"{target}{SUFFIX}": content for target, content in OLD.items()}


def test_all_files_are_replaced_and_the_old_ones_kept(sources, tmp_path):
    root = workspace(tmp_path / "root")
    assert sorted(switch(sources, root=root, suffix=SUFFIX)) == sorted(f"{target}{SUFFIX}" for target in OLD)
    assert held(root) == AFTER


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed after a fork")
def test_a_kill_at_any_line_leaves_all_files_old_or_new(sources, tmp_path):
    """The next start completes or removes the switch, even if it is killed once at any line."""
    outcomes = []
    for line in range(1, 400, 3):
        root = workspace(tmp_path / f"root-{line}")
        if not killed_at(line, lambda root=root: switch(sources, root=root, suffix=SUFFIX)):
            break
        for target in OLD:
            assert (root / target).is_file(), "a model is there at every moment"
        killed_at(line // 2, lambda root=root: finish(root))
        finish(root)
        assert held(root) in (BEFORE, AFTER), line
        outcomes.append(held(root) == AFTER)
    assert len(outcomes) > 20
    assert outcomes == sorted(outcomes), "first it is removed, from some line on completed"
    assert {True, False} == set(outcomes)


def killed_at(line: int, work) -> bool:
    """Runs the work in a process that is killed after the given number of lines; returns whether it was killed."""
    child = os.fork()
    if child == 0:
        left = line

        def trace(frame, event, _):
            nonlocal left
            if frame.f_code.co_filename != switching.__file__:
                return None
            if event == "line":
                left -= 1
                if left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_every_command_completes_a_switch_first(tmp_path):
    """`landfall promote` and the next completion would otherwise replace the model twice."""
    (tmp_path / "model.pt").write_bytes(b"old")
    (tmp_path / ".model.pt.incoming").write_bytes(b"new")
    move = {"target": "model.pt", "staged": ".model.pt.incoming", "kept": "model.pt.before"}
    (tmp_path / JOURNAL).write_text(json.dumps({"is_decided": True, "moves": [move]}))
    assert root_of(argparse.Namespace(repo_root=tmp_path)) == tmp_path
    assert held(tmp_path) == {"model.pt": b"new", "model.pt.before": b"old"}


def test_a_source_that_cannot_be_copied_changes_nothing(sources, tmp_path, monkeypatch):
    root = workspace(tmp_path / "root")
    (root / "runs").write_text("a file where a folder belongs")
    with pytest.raises(WriteError):
        switch(sources, root=root, suffix=SUFFIX)
    assert held(root) == BEFORE | {"runs": b"a file where a folder belongs"}


@pytest.mark.parametrize("content", [b"", b"{", b'{"moves": 5}', b'{"moves": [{"x": 1}], "is_decided": true}'])
def test_a_damaged_journal_is_removed_with_a_warning(tmp_path, content, caplog):
    root = workspace(tmp_path / "root")
    (root / JOURNAL).write_bytes(content)
    finish(root)
    assert held(root) == BEFORE
    assert JOURNAL in caplog.text
