"""The report that a workspace stores about its migrated notebooks."""

from __future__ import annotations

import json

import pytest

from migration.command import main
from migration.report.kept import FOLDER
from pipelines.dashboard.migrations import read_migration
from pipelines.problems import Problems
from tests.migration.made_notebooks import code, save

COLAB = code("open('/content/x.txt')")
SECRET = code("token = 'hf_" + "a1B2" * 9 + "'")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty workspace, seen from a folder in it."""
    for name in ("configs/local", "configs/trainer", "notebooks"):
        (tmp_path / "workspace" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "workspace/notebooks")
    return tmp_path / "workspace"


def kept(root):
    return sorted((root / FOLDER).glob("*"))


def test_a_workspace_keeps_findings_and_manual_steps(root):
    save(root / "notebooks/colab_a.ipynb", COLAB, SECRET)
    assert main(["colab_a.ipynb"]) == 0
    (path,) = kept(root)
    assert path.is_file()
    (notebook,) = read_migration(root, Problems(root)).notebooks
    assert (notebook.source, notebook.target) == ("notebooks/colab_a.ipynb", "notebooks/local_a.ipynb")
    assert {"LF402", "LF801"} <= set(notebook.findings)
    assert notebook.needs_you[0].startswith("cell 3 (in the original cell 1, line 1): ")
    assert notebook.report == path.relative_to(root).as_posix()
    assert notebook.at is not None
    assert "a1B2" not in path.read_text()


def test_migrating_again_replaces_the_report_of_the_same_notebook(root):
    save(root / "notebooks/colab_a.ipynb", COLAB)
    save(root / "notebooks/colab_b.ipynb", COLAB)
    main(["colab_a.ipynb"])
    main(["colab_a.ipynb", "--force"])
    assert len(kept(root)) == 1
    main(["colab_a.ipynb", "colab_b.ipynb", "--force"])
    assert len(kept(root)) == 2
    notebooks = read_migration(root, Problems(root)).notebooks
    assert [notebook.source for notebook in notebooks] == ["notebooks/colab_a.ipynb", "notebooks/colab_b.ipynb"]


@pytest.mark.parametrize("words", [["--check"], ["--diff"], ["--out-dir", "../../elsewhere"]])
def test_no_report_is_kept_without_output_in_the_workspace(root, words):
    save(root / "notebooks/colab_a.ipynb", COLAB)
    main(["colab_a.ipynb", *words])
    assert kept(root) == []


def test_an_external_input_is_named_without_its_path(root, monkeypatch):
    monkeypatch.chdir(root.parent)
    save(root.parent / "plant/a.ipynb", COLAB)
    main(["plant/a.ipynb", "-o", "workspace/notebooks/local_a.ipynb"])
    assert read_migration(root, Problems(root)).notebooks[0].source == "plant/a.ipynb"


def test_an_unwritable_report_causes_only_a_warning(root, caplog):
    save(root / "notebooks/colab_a.ipynb", COLAB)
    (root / "artifacts").write_text("a file where the folder should be")
    assert main(["colab_a.ipynb"]) == 0
    assert "dashboard will not show" in caplog.text
    assert json.loads((root / "notebooks/local_a.ipynb").read_text())["cells"]


def test_bundled_notebooks_are_shown_without_a_kept_report(root):
    save(root / "notebooks/colab_a.ipynb", COLAB)
    save(root / "notebooks/local_a.ipynb", code("open('x.txt')"))
    save(root / "notebooks/colab_alone.ipynb", COLAB)
    (notebook,) = read_migration(root, Problems(root)).notebooks
    assert (notebook.source, notebook.target, notebook.report) == (
        "notebooks/colab_a.ipynb", "notebooks/local_a.ipynb", None,
    )  # fmt: skip
    assert notebook.findings["LF402"] == 1
    (root / "notebooks/colab_a.ipynb").write_text("{")
    problems = Problems(root)
    assert read_migration(root, problems) is None
    assert [problem.path for problem in problems.found] == ["notebooks/colab_a.ipynb"]
