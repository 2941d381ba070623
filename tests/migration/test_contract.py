import json
import shutil
from pathlib import Path

import pytest

from core.workspace import write_text
from migration.contract import colab_originals, digest_of, is_repository_path, violations
from tests.support import REPO_ROOT, copy_notebooks, most_nightly

HOME = "/".join(["", "home", "someone"])


@pytest.fixture
def copy(workspace: Path) -> Path:
    """The configurations and notebooks of this repository."""
    copy_notebooks(workspace / "notebooks")
    return workspace


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def append_cell(notebook: Path, source: str) -> None:
    content = json.loads(notebook.read_text())
    content["cells"].append({"cell_type": "code", "source": [source], "metadata": {}, "outputs": []})
    notebook.write_text(json.dumps(content))


@pytest.mark.slow
@pytest.mark.nightly  # `make validate` checks the same
def test_this_repository_keeps_the_contract():
    of_the_user = "notebooks/local_"
    assert [violation for violation in violations(REPO_ROOT) if not violation.file.startswith(of_the_user)] == []


@pytest.mark.slow
def test_the_sample_data_of_a_fresh_workspace_break_no_rule(copy):
    write_text(copy / "samples/data/fdc/train_1.csv", "t,a\n0,1\n")
    shutil.rmtree(copy / "data", ignore_errors=True)
    assert violations(copy, rules=("paths", "Colab leftovers")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "old, new, rule, problem",
    most_nightly(
        [
            ("runs/patchtst_ssl", f"{HOME}/runs", "paths", "logging.log_dir"),
            ("runs/patchtst_ssl", "runs/elsewhere", "paths", "logging.log_dir = 'runs/elsewhere', expected"),
            ("checkpoints/patchtst_ssl.pt", "C:/models/patchtst_ssl.pt", "paths", "logging.checkpoint_path"),
            ("checkpoints/patchtst_ssl.pt", "checkpoints/other.pt", "paths", "logging.checkpoint_path"),
            (
                "data/fdc/test_*",
                "sensors/test_*",
                "paths",
                "data.splits.test.files = sensors/test_* is not under data/",
            ),
            ("data/fdc/test_*", "data/../../test_*", "paths", "data.splits.test.files"),
            (
                "artifacts/dqvl/fdc",
                "reports/fdc",
                "paths",
                "dqvl.report_dir = reports/fdc is not under artifacts/dqvl/",
            ),
            ("logging:\n", "device: {amp: false}\nlogging:\n", "paths", "device.amp = False, expected True"),
            ("logging:\n", "device: {prefer_cuda: false}\nlogging:\n", "paths", "device.prefer_cuda = False"),
            ("logging:\n", "logging:\n  artifacts_dir: ../shared\n", "paths", "logging.artifacts_dir = ../shared"),
            ("# PatchTST-SSL", "# was /content/drive/MyDrive", "Colab leftovers", "names /content"),
            ("  - local: default\n", "", "Colab leftovers", "logging.artifacts_dir = /content/drive"),
        ],
        but=2,
    ),
)
def test_each_violation_in_a_configuration_is_reported(copy, old, new, rule, problem):
    rewrite(copy / "configs/patchtst_ssl_local.yaml", old, new)
    found = violations(copy, rules=[rule])
    assert any(problem in violation.problem for violation in found), found
    assert "configs/patchtst_ssl_local.yaml" in {violation.file for violation in found}, "with those that build on it"


@pytest.mark.parametrize(
    "source, rule, problem",
    [
        ("from google.colab import drive", "Colab leftovers", "names google.colab"),
        ("data = '/content/drive/data.csv'", "Colab leftovers", "names /content"),
        (f"data = '{HOME}/data.csv'", "paths", f"{HOME}/data.csv is not relative"),
        ('data = "D:\\\\data.csv"', "paths", "D:"),
        ("data = Path('~/data.csv')", "paths", "~/data.csv"),
    ],
)
def test_each_violation_in_a_notebook_is_reported(copy, source, rule, problem):
    append_cell(copy / "notebooks/local_swinmae_ssl.ipynb", source)
    (violation,) = violations(copy, rules=[rule])
    assert violation.file == "notebooks/local_swinmae_ssl.ipynb"
    assert problem in violation.problem


ORIGINALS = sorted(colab_originals())


@pytest.mark.parametrize("file", ORIGINALS)
@pytest.mark.parametrize("damage", [
    lambda text: text[: len(text) // 2],
    lambda text: text.replace("a", "b", 1),
    lambda text: f"{text}\n# more\n",
    lambda text: "",
], ids=["truncated", "another text", "an added line", "empty"])  # fmt: skip
def test_a_changed_colab_original_is_reported(copy, file, damage):
    path = copy / file
    path.write_text(damage(path.read_text()))
    assert [violation.file for violation in violations(copy, rules=["Colab originals"])] == [file]


def test_a_changed_value_of_a_colab_configuration_is_reported(copy):
    rewrite(copy / "configs/patchtst_ssl.yaml", "learning_rate: 3.0e-3", "learning_rate: 3.1e-3")
    assert [violation.file for violation in violations(copy, rules=["Colab originals"])] == [
        "configs/patchtst_ssl.yaml"
    ]


def test_line_ends_are_ignored(copy):
    for file in ORIGINALS:
        path = copy / file
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert violations(copy, rules=["Colab originals"]) == []


def test_the_digests_equal_those_of_the_originals():
    """After an intended change of an original: python -m migration.contract --write."""
    assert {file: digest_of(REPO_ROOT / file) for file in ORIGINALS} == colab_originals()


@pytest.mark.slow
@pytest.mark.parametrize("file, text, rule", most_nightly([
    ("notebooks/local_patchtst_ssl.ipynb", "", "local notebooks"),
    ("notebooks/local_patchtst_ssl.ipynb", '{"cells": [', "local notebooks"),
    ("notebooks/local_patchtst_ssl.ipynb", '{"cells": []}', "local notebooks"),
    ("configs/trainer/quick.yaml", "training: [", "configurations"),
    ("configs/trainer/quick.yaml", "", "configurations"),
    ("configs/trainer/quick.yaml", "# @package _global_\ntraining: {epoch: 3}\n", "configurations"),
    ("configs/local/hpc.yaml", "# @package _global_\ntraining: {promote: sometimes}\n", "configurations"),
    ("configs/local/devices/mps.yaml", "# @package _global_\nprecision: many\n", "configurations"),
    ("configs/hardware/sizes/swinmae/full.yaml", "# @package _global_\nmodel: {embedding: 3}\n", "configurations"),
    ("configs/hardware/tiers.yaml", "tiers: []\n", "configurations"),
    ("configs/local/devices/cpu.yaml", "# @package _global_\nprefer: /content/x\n", "Colab leftovers"),
    ("configs/patchtst_ssl_pool.yaml", "defaults: [nothing]\n", "configurations"),
    ("configs/patchtst_ssl_pool.yaml", "defaults: [patchtst_ssl_local, _self_]\nseed: many\n", "configurations"),
    ("configs/examples/skab_patchtst.yaml",
     "defaults: [/patchtst_ssl_local, _self_]\nlogging: {artifacts_dir: ../x}\n", "paths"),
], but=2))  # fmt: skip
def test_every_local_asset_is_checked(copy, file, text, rule):
    (copy / file).write_text(text)
    assert file in {violation.file for violation in violations(copy, rules=[rule])}


@pytest.mark.slow
@pytest.mark.parametrize("file, rule", most_nightly([
    ("notebooks/local_third_ssl.ipynb", "local notebooks"), ("configs/trainer/mine.yaml", "configurations"),
    ("configs/third_ssl_local.yaml", "configurations"),
], but=1))  # fmt: skip
def test_tracked_files_must_exist(copy, file, rule):
    assert [violation.file for violation in violations(copy, [file, "core/x.py"], rules=[rule])] == [file]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "file, rule",
    [
        ("notebooks/colab_patchtst_ssl.ipynb", "Colab originals"),
        ("notebooks/local_swinmae_ssl.ipynb", "local notebooks"),
        ("configs/swinmae_ssl_local.yaml", "configurations"),
    ],
)
def test_each_missing_file_is_reported(copy, file, rule):
    (copy / file).unlink()
    assert (rule, file) in {(violation.rule, violation.file) for violation in violations(copy)}


@pytest.mark.nightly
def test_a_missing_colab_configuration_is_reported(copy):
    (copy / "configs/swinmae_ssl.yaml").unlink()
    found = {(violation.rule, violation.file) for violation in violations(copy)}
    assert ("Colab originals", "configs/swinmae_ssl.yaml") in found
    assert ("configurations", "configs/swinmae_ssl_local.yaml") in found


@pytest.mark.parametrize("text", ["data/fdc/train_*", ".", "runs/x", "a..b/c"])
def test_paths_inside_the_repository(text):
    assert is_repository_path(text)


@pytest.mark.parametrize(
    "text", ["/data", "~/data", "C:\\data", "C:data", "\\\\server\\data", "../data", "data/../../x"]
)
def test_paths_outside_of_the_repository(text):
    assert not is_repository_path(text)
