"""The local notebooks as files, and one of them in a real JupyterLab."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from typing import Any

import nbformat
import pytest
import websocket

from core.config.schema import STREAMS
from migration.migrate import migrate
from pipelines.init_workspace import init_workspace
from tests.notebooks.conftest import NOTEBOOK
from tests.support import REPO_ROOT, committed
from tests.support.compiling import compiles

PARAMETERS = ["work_dir", "config", "overrides", "epochs", "run_id", "bundle"]
each_stream = pytest.mark.parametrize("stream", STREAMS)


def text_of(stream: str, place: str = "local") -> str:
    """The notebook as it was committed."""
    return committed(f"notebooks/{place}_{stream}_ssl.ipynb").decode()


def code_cells(stream: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.reads(text_of(stream), as_version=4).cells if cell.cell_type == "code"]


# ------------------------------------------------------------------------------------------------------------ the files
@each_stream
def test_the_notebook_is_valid_and_every_cell_has_its_own_name(stream):
    notebook = nbformat.reads(text_of(stream), as_version=4)
    nbformat.validate(notebook)
    assert notebook.nbformat_minor >= 5
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


@each_stream
def test_one_cell_contains_the_papermill_parameters(stream):
    (cell,) = [cell for cell in code_cells(stream) if "parameters" in cell.metadata.get("tags", ())]
    assert re.findall(r"^(\w+) =", cell.source, flags=re.MULTILINE) == PARAMETERS
    assert f'"configs/{stream}_ssl_local.yaml"' in cell.source


@each_stream
def test_every_parameter_is_used(stream):
    (cell,) = [cell for cell in code_cells(stream) if "parameters" in cell.metadata.get("tags", ())]
    others = "\n".join(each.source for each in code_cells(stream) if each is not cell)
    assert [name for name in PARAMETERS if not re.search(rf"\b{name}\b", others)] == []


@pytest.mark.slow
@each_stream
def test_a_work_folder_elsewhere_needs_a_workspace_and_the_error_says_how_to_make_one(stream, tmp_path):
    """In a separate process, because the set-up cell changes the folder and the module path."""
    cells = [cell.source for cell in code_cells(stream) if cell.metadata.get("tags")]
    program = "\n".join([*cells[:1], f"work_dir = {str(tmp_path / 'mine')!r}", *cells[1:],
                         "from core.workspace import find_root", "print(find_root())"])  # fmt: skip

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True)

    assert "landfall init DIR" in run().stderr
    (tmp_path / "mine").rmdir()
    init_workspace(tmp_path / "mine")
    assert run().stdout.strip() == str((tmp_path / "mine").resolve())


@each_stream
def test_no_outputs_or_execution_counts_are_committed(stream):
    assert [(cell.outputs, cell.execution_count) for cell in code_cells(stream)] == [([], None)] * len(
        code_cells(stream)
    )


@each_stream
def test_no_colab_code_is_left(stream):
    colab = re.compile(r"/content\b|google\.colab|drive\.mount|^\s*[!%]|pip install", flags=re.MULTILINE)
    assert colab.findall(text_of(stream)) == []


@each_stream
def test_every_code_cell_compiles_and_is_tidy(stream):
    for cell in code_cells(stream):
        assert compiles(cell.source), cell.source
    name = f"notebooks/local_{stream}_ssl.ipynb"
    check = [sys.executable, "-m", "ruff", "check", "--no-force-exclude", "--output-format=concise"]
    result = subprocess.run(
        [*check, "--stdin-filename", name, "-"], cwd=REPO_ROOT, input=text_of(stream), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


def meaning(notebook: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """The content of a notebook for readers and kernels: kind, source and tags of each cell."""
    return [
        (cell["cell_type"], "".join(cell["source"]).strip(), cell["metadata"].get("tags", []))
        for cell in notebook["cells"]
    ]


@each_stream
def test_the_notebook_equals_the_migrated_colab_notebook(stream):
    made = migrate(json.loads(text_of(stream, "colab")), workspace=REPO_ROOT)
    assert meaning(json.loads(text_of(stream))) == meaning(made.notebook), (
        f"landfall migrate notebooks/colab_{stream}_ssl.ipynb -o notebooks/local_{stream}_ssl.ipynb --force, and commit"
    )
    assert made.needs_human == []


# ------------------------------------------------------------------------------------------- through a Jupyter server
def execute(channel: websocket.WebSocket, code: str) -> list[dict[str, Any]]:
    """Runs a cell as a browser does; the output messages, each with its `msg_type` and `content`."""
    request = uuid.uuid4().hex
    header = {"msg_id": request, "msg_type": "execute_request", "session": "test", "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    channel.send(json.dumps(message))
    outputs = []
    while True:
        answer = json.loads(channel.recv())
        if answer["parent_header"].get("msg_id") != request or answer["channel"] != "iopub":
            continue
        if answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle":
            return outputs
        if answer["msg_type"] in ("stream", "execute_result", "display_data", "error"):
            outputs.append(answer)


def kinds(outputs: list[dict[str, Any]]) -> set[str]:
    """Types of the messages, and of the data in them."""
    return {output["msg_type"] for output in outputs} | {
        kind for output in outputs for kind in output["content"].get("data", {})
    }


@pytest.mark.nightly
def test_a_person_opens_the_notebook_in_jupyter_and_looks_at_the_data(lab):
    assert {"configs", "data", "notebooks"} <= {entry["name"] for entry in lab.ask("/api/contents")["content"]}
    path = f"notebooks/{NOTEBOOK}"
    notebook = nbformat.from_dict(lab.ask(f"/api/contents/{path}")["content"])
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    parameters = cells.pop(0)
    told_at = next(at for at, cell in enumerate(cells) if "device_reason" in cell)
    environment, table, sizes, picture = cells[told_at : told_at + 4]
    kernel = notebook.metadata.kernelspec.name
    session = {"path": path, "name": NOTEBOOK, "type": "notebook", "kernel": {"name": kernel}}
    channel = lab.connect(lab.ask("/api/sessions", session)["kernel"]["id"])
    try:
        assert execute(channel, parameters) == []
        for cell in cells[:told_at]:
            assert "error" not in kinds(execute(channel, cell))
        result = execute(channel, environment)
        assert kinds(result) == {"stream"}
        assert "precision 32" in "".join(output["content"]["text"] for output in result)
        shown = execute(channel, table)
        assert {"execute_result", "text/html"} <= kinds(shown)
        assert "error" not in kinds(shown)
        html = next(o["content"]["data"]["text/html"] for o in shown if o["msg_type"] == "execute_result")
        assert html.count("data/fdc/") == 4
        assert {"execute_result", "text/html"} <= kinds(execute(channel, sizes))
        assert {"execute_result", "image/png"} <= kinds(execute(channel, picture))
        assert "NameError" in execute(channel, "no_such_name")[0]["content"]["ename"]
    finally:
        channel.close()
