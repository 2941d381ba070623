import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import UsageError
from core.owner import Owner
from core.workspace import atomic_file, find_root, new_run_id, relative, remove_abandoned, write_json, write_text
from tests.support import REPO_ROOT


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -------------------------------------------------------------------------------------------------------------- writing
def test_a_write_creates_folders_and_replaces_files(tmp_path):
    path = tmp_path / "a" / "b" / "text.txt"
    write_text(path, "old")
    write_text(path, "né")
    assert path.read_text(encoding="utf-8") == "né"
    assert names(path.parent) == ["text.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "text.txt"
    write_text(path, "old")
    with suppress(RuntimeError), atomic_file(path) as part:
        part.write_text("ne")
        raise RuntimeError("half way")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["text.txt"]


def test_a_killed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "text.txt"
    write_text(path, "old")
    program = f"""
import pathlib, sys, time
from core.workspace import atomic_file
with atomic_file(pathlib.Path({str(path)!r})) as part:
    part.write_text("ne")
    print("half way", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=REPO_ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"half way\n"
        writer.kill()
    assert writer.returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_leftover_files_match_no_glob_of_real_files(tmp_path):
    with atomic_file(tmp_path / "curve.png") as part:
        assert part.parent == tmp_path
        assert part not in tmp_path.glob("*.png")


def test_leftovers_of_dead_processes_are_removed_and_others_stay(tmp_path):
    """Whether a writer of another machine still runs is unknown: its file stays until it is silent for an hour."""
    program = "from core.owner import Owner; print(Owner.this_process().token)"
    ended = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    dead, own = ended.stdout.strip(), Owner.this_process().token
    elsewhere = Owner("0" * 8, 1, 1).token
    for name in (f".a.{dead}.0.part", f".b.{own}.0.part", f".c.{elsewhere}.0.part", f".d.{elsewhere}.1.part"):
        (tmp_path / name).touch()
    (tmp_path / f".e.{dead}.2.part").mkdir()
    two_hours_ago = time.time() - 7200
    for owner, name in ((own, "b"), (elsewhere, "d")):
        (file,) = tmp_path.glob(f".{name}.{owner}*")
        os.utime(file, (two_hours_ago, two_hours_ago))
    remove_abandoned(tmp_path)
    assert names(tmp_path) == [f".b.{own}.0.part", f".c.{elsewhere}.0.part"]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_json_is_strict_and_readable(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"name": "Kühlung", "value": 0.1})
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            write_json(path, {"value": bad})
    assert json.loads(path.read_text(encoding="utf-8")) == {"name": "Kühlung", "value": 0.1}
    assert "Kühlung" in path.read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------- paths
def test_the_root_is_found_from_any_folder_inside(workspace, monkeypatch):
    inside = workspace / "notebooks" / "deep"
    inside.mkdir(parents=True)
    assert find_root(inside) == workspace.resolve()
    monkeypatch.chdir(inside)
    assert find_root() == workspace.resolve()


def test_the_error_outside_a_workspace_has_a_hint(tmp_path):
    with pytest.raises(UsageError, match="--repo-root"):
        find_root(tmp_path)


def test_paths_are_written_relative_with_forward_slashes(tmp_path):
    assert relative(tmp_path / "data" / "a.csv", tmp_path) == "data/a.csv"
    assert relative("data/../configs/x.yaml", tmp_path) == "configs/x.yaml"
    assert relative(tmp_path.parent / "elsewhere.csv", tmp_path) == "../elsewhere.csv"


def test_a_linked_data_folder_keeps_its_name(tmp_path):
    drive = tmp_path / "drive"
    root = tmp_path / "root"
    drive.mkdir()
    root.mkdir()
    (root / "data").symlink_to(drive)
    assert relative(root / "data" / "a.csv", root) == "data/a.csv"


def test_a_linked_root_is_the_same_root(tmp_path):
    root, link = tmp_path / "root", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    assert relative(link / "data" / "a.csv", root) == "data/a.csv"


def test_run_ids_are_unique_and_sort_by_time():
    ids = {new_run_id() for _ in range(5)}
    assert len(ids) == 5
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", run_id) for run_id in ids)
