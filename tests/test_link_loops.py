"""Links that lead to themselves or to a folder above, in data, in artifacts and among notebooks to migrate."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.data.files import expand
from core.data.labels import label_file
from core.errors import EXIT_DATA, EXIT_OK, EXIT_OUTPUT, EXIT_USAGE, DataError
from migration.planning import make_plan
from pipelines import check_data_quality, export_training_dashboard_state, import_artifacts, list_runs
from tests.support.small_workspace import CONFIGS, build_small_workspace, install_page, write_process_data


@pytest.fixture
def workspace(tmp_path) -> Path:
    return build_small_workspace(tmp_path / "workspace")


def quality(workspace: Path, *overrides: str) -> int:
    return check_data_quality.main(["--config", CONFIGS["patchtst"], "--repo-root", str(workspace), *overrides])


def test_each_sensor_file_is_found_once(tmp_path):
    folder = tmp_path / "data/fdc"
    write_process_data(folder)
    (folder / "loop").symlink_to(".")
    (folder / "up").symlink_to("../..")
    (folder / "itself").symlink_to("itself")
    assert [path.name for path in expand(["data/**/train_*.csv"], tmp_path)] == ["train_1.csv", "train_2.csv"]


@pytest.mark.parametrize(
    "link, code",
    [
        ("data/fdc/train_3.csv", EXIT_DATA),
        ("data/fdc/train_1.json", EXIT_DATA),
        ("artifacts", EXIT_OUTPUT),
        ("artifacts/dqvl/fdc", EXIT_OUTPUT),
    ],
)
def test_a_link_to_itself_is_named(workspace, capsys, link, code):
    path = workspace / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.name)
    assert quality(workspace) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert "unexpected" not in last
    assert "link" in last
    assert path.name in last


def test_a_data_folder_that_leads_to_itself_is_named(workspace, capsys):
    (workspace / "self").symlink_to("self")
    assert quality(workspace, "data.root=self") in (EXIT_DATA, EXIT_OUTPUT)  # from 3.13 on, Python resolves such links
    last = capsys.readouterr().err.splitlines()[-1]
    assert "self: Too many levels of symbolic links" in last or "self: is a broken link" in last


@pytest.mark.parametrize(
    "name, code",
    [("data", EXIT_DATA), ("data/fdc", EXIT_DATA), ("configs", EXIT_USAGE), (CONFIGS["patchtst"], EXIT_USAGE)],
)
def test_a_link_to_a_drive_that_is_not_connected_is_named(workspace, capsys, name, code):
    path = workspace / name
    path.rename(workspace / "elsewhere")
    path.symlink_to("/drive/gone")
    assert quality(workspace) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{name} is a broken link" in last.replace(f"{name}: is", f"{name} is")


@pytest.mark.slow
def test_results_below_themselves_are_exported_and_imported_once(workspace, tmp_path, capsys):
    drive = tmp_path / "drive"
    losses = drive / "artifacts/loss/patchtst_loss_history.csv"
    losses.parent.mkdir(parents=True)
    losses.write_text("epoch,train_loss,val_loss,lr,seconds,windows_per_second\n1,0.9,0.8,0.001,2.5,40.0\n")
    for folder in (drive, drive / "artifacts", workspace / "artifacts", workspace / "runs", workspace / "checkpoints"):
        folder.mkdir(exist_ok=True)
        (folder / "loop").symlink_to(".")
        (folder / "itself").symlink_to("itself")
    (workspace / "runs/up").symlink_to("..")
    assert import_artifacts.main([str(drive), "--repo-root", str(workspace)]) == EXIT_OK
    shutil.copytree(Path("training_dashboard"), workspace / "training_dashboard", ignore=shutil.ignore_patterns("data"))
    assert export_training_dashboard_state.main(["--repo-root", str(workspace)]) == EXIT_OK
    assert capsys.readouterr().out.count("patchtst_loss_history.csv") == 1


def linked_run(workspace: Path) -> Path:
    """The folder of a run, in a workspace with a dashboard."""
    install_page(workspace)
    folder = workspace / "runs/patchtst_ssl/first"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text('{"state": "completed", "started_at": "2026-11-26T08:00:00+00:00"}')
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "runs/patchtst_ssl/first/metrics.jsonl",
        "runs/patchtst_ssl/first/status.json",
        "runs/patchtst_ssl/first/config.yaml",
        "runs/patchtst_ssl/second",
        "runs/patchtst_ssl",
        "runs",
        "artifacts/dqvl/fdc/train_1.json",
        "artifacts/dqvl",
        "artifacts/scores/patchtst_summary.json",
        "checkpoints/patchtst_ssl.json",
    ],
)
def test_an_export_continues_at_a_link_to_itself_and_names_it(workspace, name, caplog):
    linked_run(workspace)
    path = workspace / name
    if path.exists():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.name)
    assert export_training_dashboard_state.main(["--repo-root", str(workspace)]) == EXIT_OK
    assert name in caplog.text


def test_the_list_of_runs_names_links_that_lead_nowhere(workspace, capsys, caplog):
    """Such as to a drive that is not connected."""
    folder = linked_run(workspace)
    (folder.parent / "archived").symlink_to("/drive/archived")
    assert list_runs.main(["--repo-root", str(workspace)]) == EXIT_OK
    assert "first" in capsys.readouterr().out
    assert "archived" in caplog.text
    shutil.rmtree(workspace / "runs")
    (workspace / "runs").symlink_to("/drive/runs")
    assert list_runs.main(["--repo-root", str(workspace)]) == EXIT_USAGE
    assert str(workspace / "runs") in capsys.readouterr().err


def test_each_notebook_is_migrated_once(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.ipynb").write_text("{}")
    (tmp_path / "tree/loop").symlink_to(".")
    (tmp_path / "tree/up").symlink_to("..")
    (tmp_path / "tree/itself").symlink_to("itself")
    (tmp_path / "tree/b.ipynb").symlink_to("b.ipynb")
    plan = make_plan([tmp_path / "tree"], out_dir=tmp_path / "out")
    assert [task.input.name for task in plan.tasks] == ["a.ipynb", "b.ipynb"]  # b is reported when it is read


def test_labels_that_lead_nowhere_are_not_left_out(tmp_path):
    write_process_data(tmp_path / "fdc")
    assert label_file(tmp_path / "fdc/test_1.csv") == tmp_path / "fdc/test_1.labels.csv"
    (tmp_path / "fdc/test_2.labels.csv").symlink_to("gone.csv")
    with pytest.raises(DataError, match=r"test_2\.labels\.csv.*link"):
        label_file(tmp_path / "fdc/test_2.csv")
