"""A secret in the environment, in a path and in a notebook is in no file or message of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbformat
import pytest

from core import checkpoint
from core.secrets.redaction import HIDDEN, redacted_text
from tests.canary import CANARY, SHARE, contents, files_that_hold_it, run
from tests.inference.trained_workspace import OVERRIDES, SHARED, write_process
from tests.support import REPO_ROOT, built_once

pytestmark = pytest.mark.nightly


def said_by(*command: str) -> str:
    """The output of a command on both streams."""
    done = run(*command)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A workspace after every step that writes, and the output of each step."""
    folder = built_once(tmp_path_factory, "secrets", run_every_step)
    return folder / "workspace", json.loads((folder / "said.json").read_text(encoding="utf-8"))


def run_every_step(folder: Path) -> None:
    root = folder / "workspace"
    root.mkdir()
    shutil.copytree(REPO_ROOT / "configs", root / "configs")
    shutil.copytree(
        REPO_ROOT / "training_dashboard", root / "training_dashboard", ignore=shutil.ignore_patterns("data")
    )
    write_process(root / SHARE)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"HF_TOKEN = 'hf_{CANARY}'\nprint('x')")])
    nbformat.write(notebook, root / "colab_mine.ipynb")
    files = {name: f"data.splits.{name}.files=[{kind}*.csv]" for name, kind in
             {"train": "train_", "validation": "train_", "calibration": "train_", "test": "test_"}.items()}  # fmt: skip
    local = ["--repo-root", str(root), "--config", str(root / "configs/patchtst_ssl_local.yaml"), *files.values(),
             f"data.root={SHARE}", *OVERRIDES["patchtst"],
             *(each for each in SHARED if "tensorboard" not in each)]  # fmt: skip
    said = {
        "train": said_by("trainers.train_patchtst_ssl", *local),
        "score": said_by("inference.run_scoring_example", "--stream", "patchtst", *local),
        "quality": said_by("pipelines.check_data_quality", *local),
        "print": said_by("trainers.train_patchtst_ssl", "--print-config", *local),
        "missing": said_by("trainers.train_patchtst_ssl", "--debug", *local, f"data.root={SHARE}/nowhere"),
        "devices": said_by("pipelines.devices.command", "--json"),
        "migrate": said_by("migration", str(root / "colab_mine.ipynb"), "--out-dir", str(root / "migrated"),
                       "--report", str(root / "migrated/report.json")),
        "export": said_by(
            "pipelines.export_training_dashboard_state", "--persist-run-history", "--repo-root", str(root),
            "--single-file", str(root / "page.html"),
        ),
    }  # fmt: skip
    (folder / "said.json").write_text(json.dumps(said), encoding="utf-8")


def test_every_step_succeeded(workspace):
    root, said = workspace
    written = {path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file()}
    assert {"checkpoints", "runs", "artifacts", "page.html"} <= written, said
    assert list(root.glob("runs/*/*/events.out.tfevents*"))
    assert "Traceback" in said["missing"]
    assert json.loads(said["devices"][: said["devices"].rindex("}") + 1])


def test_no_step_prints_a_secret(workspace):
    _, said = workspace
    assert [step for step, text in said.items() if CANARY in text] == []


def test_no_file_contains_a_secret(workspace):
    """Except the original notebook, and checkpoints, which contain the path of the data for resuming."""
    root, _ = workspace
    given = [root / "colab_mine.ipynb", *root.glob("checkpoints/*.pt"), *root.glob("runs/*/*/model.pt")]
    assert files_that_hold_it(root, but=given) == []


def test_a_checkpoint_contains_no_secret_except_in_paths(workspace):
    root, _ = workspace
    config = checkpoint.load(root / "checkpoints/patchtst_ssl.pt")["config"]
    assert config["data"]["root"] == SHARE
    for path in root.glob("checkpoints/*.pt"):
        for part in contents(path):
            assert part.count(CANARY.encode()) == part.count(SHARE.encode())


@pytest.mark.parametrize("text", ["smb://a:{}@host/x", "smb:/a:{}@host/x", "'postgresql+psycopg://a:{}@host'"])
def test_passwords_in_urls_and_paths_are_hidden(text):
    assert redacted_text(text.format(CANARY)) == text.format(HIDDEN)
