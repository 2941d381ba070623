import json
import shutil
from pathlib import Path

import pytest

from migration.contract import breaches, is_repository_path
from tests.support import REPO_ROOT

HOME = "/".join(["", "home", "someone"])


@pytest.fixture
def copy(workspace: Path) -> Path:
    """The configurations and notebooks of this repository."""
    shutil.copytree(REPO_ROOT / "notebooks", workspace / "notebooks")
    return workspace


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def append_cell(notebook: Path, source: str) -> None:
    content = json.loads(notebook.read_text())
    content["cells"].append({"cell_type": "code", "source": [source], "metadata": {}, "outputs": []})
    notebook.write_text(json.dumps(content))


def test_this_repository_keeps_the_contract():
    assert breaches(REPO_ROOT) == []


@pytest.mark.parametrize(
    "old, new, rule, problem",
    [
        ("runs/patchtst_ssl", f"{HOME}/runs", "TR-01", "logging.log_dir"),
        ("runs/patchtst_ssl", "runs/elsewhere", "TR-01", "logging.log_dir = 'runs/elsewhere', expected"),
        ("checkpoints/patchtst_ssl.pt", "C:/models/patchtst_ssl.pt", "TR-01", "logging.checkpoint_path"),
        ("checkpoints/patchtst_ssl.pt", "checkpoints/other.pt", "TR-01", "logging.checkpoint_path"),
        ("data/fdc/test_*", "sensors/test_*", "TR-01", "data.parts.test.files = sensors/test_* is not under data/"),
        ("data/fdc/test_*", "data/../../test_*", "TR-01", "data.parts.test.files"),
        ("artifacts/dqvl/fdc", "reports/fdc", "TR-01", "dqvl.report_dir = reports/fdc is not under artifacts/dqvl/"),
        ("logging:\n", "device: {amp: false}\nlogging:\n", "TR-01", "device.amp = False, expected True"),
        ("logging:\n", "device: {prefer_cuda: false}\nlogging:\n", "TR-01", "device.prefer_cuda = False"),
        ("logging:\n", "logging:\n  artifacts_dir: ../shared\n", "TR-01", "logging.artifacts_dir = ../shared"),
        ("# PatchTST-SSL", "# was /content/drive/MyDrive", "TR-02", "names /content"),
        ("  - local: default\n", "", "TR-02", "logging.artifacts_dir = /content/drive"),
    ],
)
def test_each_breach_of_a_configuration_is_caught(copy, old, new, rule, problem):
    rewrite(copy / "configs/patchtst_ssl_local.yaml", old, new)
    found = [breach for breach in breaches(copy) if breach.rule == rule]
    assert any(problem in breach.problem for breach in found), found
    assert {breach.file for breach in found} == {"configs/patchtst_ssl_local.yaml"}


@pytest.mark.parametrize(
    "source, rule, problem",
    [
        ("from google.colab import drive", "TR-02", "names google.colab"),
        ("data = '/content/drive/data.csv'", "TR-02", "names /content"),
        (f"data = '{HOME}/data.csv'", "TR-01", f"{HOME}/data.csv is not relative"),
        ('data = "D:\\\\data.csv"', "TR-01", "D:"),
        ("data = Path('~/data.csv')", "TR-01", "~/data.csv"),
    ],
)
def test_each_breach_of_a_notebook_is_caught(copy, source, rule, problem):
    append_cell(copy / "notebooks/local_swinmae_ssl.ipynb", source)
    (breach,) = [breach for breach in breaches(copy) if breach.rule == rule]
    assert breach.file == "notebooks/local_swinmae_ssl.ipynb"
    assert problem in breach.problem


@pytest.mark.parametrize(
    "file, rule",
    [
        ("notebooks/colab_patchtst_ssl.ipynb", "TR-03"),
        ("notebooks/local_swinmae_ssl.ipynb", "TR-04"),
        ("configs/swinmae_ssl_local.yaml", "TR-05"),
    ],
)
def test_each_missing_file_is_caught(copy, file, rule):
    (copy / file).unlink()
    assert [(breach.rule, breach.file) for breach in breaches(copy)] == [(rule, file)]


def test_a_missing_colab_configuration_is_caught(copy):
    for name in ("swinmae_ssl", "swinmae_ssl_local"):
        (copy / f"configs/{name}.yaml").unlink()
    assert [breach.rule for breach in breaches(copy)] == ["TR-03", "TR-05"]


@pytest.mark.parametrize("text", ["data/fdc/train_*", ".", "runs/x", "a..b/c"])
def test_paths_inside_the_repository(text):
    assert is_repository_path(text)


@pytest.mark.parametrize(
    "text", ["/data", "~/data", "C:\\data", "C:data", "\\\\server\\data", "../data", "data/../../x"]
)
def test_paths_outside_of_the_repository(text):
    assert not is_repository_path(text)
