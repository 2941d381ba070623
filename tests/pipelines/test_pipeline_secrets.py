"""A secret in the environment, in an override and in a notebook is in no file or message of the pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from core.secrets.redaction import HIDDEN
from tests.canary import CANARY, SHARE, files_that_hold_it, run
from tests.pipelines.executed_notebooks import write_notebook
from tests.support import built_once
from tests.support.small_workspace import PIPELINE_ARGUMENTS, RUN_ID, build_small_workspace, install_page

pytestmark = pytest.mark.nightly

NOTEBOOK = "notebooks/local_patchtst_ssl.ipynb"
DUMP = f"import os\nprint(dict(os.environ))\napi_key = '{CANARY}'\ndict(os.environ)"
# Of the other stream there is no data: what the checklist says of that names the folder.
PIPELINE = ("pipelines.run_local_training_pipeline", *PIPELINE_ARGUMENTS, "--skip", "*swinmae", "--jobs", "1",
            "--run-id", RUN_ID, "training.epochs=1")  # fmt: skip
# The same share, opened with another password.
OTHER_SHARE = SHARE.replace(CANARY, f"{CANARY}-new")


class Piped(NamedTuple):
    root: Path
    said: str
    said_of_next: str


@pytest.fixture(scope="module")
def piped(tmp_path_factory: pytest.TempPathFactory) -> Piped:
    """A workspace that lies on the share, after the pipeline, and what that says of another run of it."""
    folder = built_once(tmp_path_factory, "pipeline-secrets", run_twice)
    return Piped(folder / "workspace", *json.loads((folder / "said.json").read_text(encoding="utf-8")))


def run_twice(folder: Path) -> None:
    root = build_small_workspace(folder / "workspace")
    (root / SHARE / "data").mkdir(parents=True)
    (root / "data/fdc").rename(root / SHARE / "data/fdc")
    install_page(root)
    notebook = nbformat.read(root / NOTEBOOK, as_version=4)
    notebook.cells += [nbformat.v4.new_markdown_cell(f"## token={CANARY}"), nbformat.v4.new_code_cell(DUMP)]
    nbformat.write(notebook, root / NOTEBOOK)
    said = run(*PIPELINE, "--repo-root", str(root), f"data.root={SHARE}")
    (root / OTHER_SHARE).parent.mkdir()
    (root / OTHER_SHARE).symlink_to(root / SHARE)
    of_next = run(*PIPELINE, "--repo-root", str(root), f"data.root={OTHER_SHARE}", "seed=3", "--resume", "--dry-run")
    said_by_each = [said.stdout + said.stderr, of_next.stdout + of_next.stderr]
    (folder / "said.json").write_text(json.dumps(said_by_each), encoding="utf-8")


def test_the_pipeline_succeeded(piped):
    artifacts = piped.root / "artifacts"
    steps = {path.stem for path in (artifacts / "pipeline/steps").iterdir()}
    logs = {path.stem for path in (artifacts / "pipeline" / RUN_ID).glob("*.log")}
    assert steps == {"quality-patchtst", "notebook-patchtst", "scores-patchtst", "checklist", "dashboard"}, piped.said
    assert logs == steps
    assert (artifacts / "report.html").is_file()
    assert (piped.root / "training_dashboard/data/runs" / f"{RUN_ID}.json").is_file()
    assert "no data: share/smb:/reader:***@plant.example" in piped.said
    assert "run: configuration: patchtst seed was 42, is 3\n" in piped.said_of_next


def test_the_pipeline_prints_no_secret(piped):
    assert CANARY not in piped.said
    assert CANARY not in piped.said_of_next


def test_no_file_of_the_pipeline_contains_a_secret(piped):
    """Except the original notebook, and checkpoints, which contain the path of the data for resuming."""
    given = [piped.root / NOTEBOOK, *piped.root.glob("checkpoints/*.pt"), *piped.root.glob("runs/*/*/model.pt")]
    assert files_that_hold_it(piped.root, but=given) == []


def test_an_executed_notebook_shows_where_a_secret_was(piped):
    executed = nbformat.read(piped.root / "artifacts/notebooks" / RUN_ID / Path(NOTEBOOK).name, as_version=4)
    nbformat.validate(executed)
    dump = executed.cells[-1]
    assert f"api_key = '{HIDDEN}'" in dump.source
    assert f"'WANDB_API_KEY': '{HIDDEN}'" in dump.outputs[0].text
    assert f"'WANDB_API_KEY': '{HIDDEN}'" in dump.outputs[1].data["text/plain"]
    assert "OMP_NUM_THREADS" in dump.outputs[0].text


@pytest.mark.parametrize("last", ["1 / 0", "os._exit(3)"], ids=["fails", "dies"])
def test_a_notebook_that_ends_badly_leaves_no_secret(last, tmp_path):
    """A traceback quotes the cell, in colours; the kernel's death is written into the copy afterwards."""
    cell = f"import os\nsmtp_password = '{CANARY}'  # {last}\nprint('said', name, flush=True); {last}"
    notebook, executed = write_notebook(tmp_path / "given.ipynb", cell), tmp_path / "executed.ipynb"
    words = ("-p", f'name="https://me:{CANARY}@plant.example/"', "--repo-root", str(tmp_path))
    ended = run("pipelines.execute_notebook", str(notebook), str(executed), *words)
    assert ended.returncode == 1
    assert nbformat.read(executed, as_version=4).cells[-1].outputs[-1].output_type == "error"
    assert files_that_hold_it(tmp_path, but=[notebook]) == []
    assert CANARY not in ended.stdout
