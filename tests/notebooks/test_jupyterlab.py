"""The local notebook in JupyterLab, in a real browser: opened, run from the first cell to the last, and read."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core import checkpoint
from core.runlog import read_metrics, read_status
from tests.notebooks.conftest import NOTEBOOK, running_lab
from tests.support import built_once

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL_PATIENCE_MS = 300_000
# The text of the displayed part of the notebook: JupyterLab removes cells outside the visible area.
WHAT_IS_SEEN = """() => {
  const all = query => [...document.querySelectorAll(".jp-Notebook " + query)];
  return {
    pictures: all(".jp-OutputArea-output img").map(img => [img.src, img.complete, img.naturalWidth, img.clientWidth]),
    bars: all(".jp-OutputArea-output progress").map(bar => [bar.parentElement.textContent.trim(), bar.value]),
    tables: all(".jp-OutputArea-output table").map(table => table.textContent),
    stderr: all('[data-mime-type="application/vnd.jupyter.stderr"]').map(output => output.innerText),
    errors: all('[data-mime-type="application/vnd.jupyter.error"]').map(output => output.innerText),
  };
}"""


@contextmanager
def opened(browser, lab, notebook):
    """The notebook as `make lab` opens it; `page.elsewhere` collects requests to other machines."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(CELL_PATIENCE_MS)
    page = context.new_page()
    page.elsewhere = []
    page.on(
        "request",
        lambda request: request.url.startswith((lab.url, "data:", "blob:")) or page.elsewhere.append(request.url),
    )
    page.goto(f"{lab.url}/lab/tree/notebooks/{notebook}?token={lab.token}&reset")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=CELL_PATIENCE_MS)
    yield page
    context.close()


def choose(page, menu, *items):
    for item in (menu, *items):
        page.get_by_role("menuitem", name=item, exact=True).click()


@pytest.fixture(scope="session")
def executed(browser, tmp_path_factory) -> Path:
    """A workspace whose notebook was run in JupyterLab and saved, and `seen.json`: what a user saw, and what the page
    requested from other machines. Read-only: all tests share it."""

    def run(folder: Path) -> None:
        with running_lab(folder) as lab, opened(browser, lab, NOTEBOOK) as page:
            seen = look_at_all_cells(page) | {"news": page.get_by_text("Jupyter news").count()}
            with page.expect_response(lambda answer: NOTEBOOK in answer.url and answer.request.method == "PUT"):
                page.keyboard.press("Control+s")
            seen["elsewhere"] = page.elsewhere
        (folder / "workspace/seen.json").write_text(json.dumps(seen), encoding="utf-8")

    return built_once(tmp_path_factory, "jupyterlab", run) / "workspace"


@pytest.fixture
def seen(executed) -> dict[str, Any]:
    return json.loads((executed / "seen.json").read_text(encoding="utf-8"))


def look_at_all_cells(page) -> dict[str, Any]:
    """Everything that a user sees after running all cells and scrolling from top to bottom."""
    choose(page, "Run", "Run All Cells")
    page.wait_for_function(
        """() => /\\[\\d+\\]/.test([...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")].at(-1)?.textContent)
              || document.querySelector('[data-mime-type="application/vnd.jupyter.error"]')""",
        timeout=CELL_PATIENCE_MS,
    )
    found: dict[str, Any] = {}
    while look_through(page, found):  # on a busy machine, a cell may be drawn after the first look
        pass
    return found


def look_through(page, found) -> bool:
    """Scrolls from top to bottom; whether there was something that had not been found."""
    panel, is_news = page.locator(".jp-NotebookPanel .jp-WindowedPanel-outer"), False
    for top in range(0, panel.evaluate("panel => panel.scrollHeight"), 600):
        panel.evaluate("(panel, top) => panel.scrollTo(0, top)", top)
        page.wait_for_timeout(250)
        page.wait_for_function("() => [...document.images].every(image => image.complete)")
        for kind, things in page.evaluate(WHAT_IS_SEEN).items():
            known = found.setdefault(kind, [])
            news = [thing for thing in things if thing not in known]
            known += news
            is_news = is_news or bool(news)
    return is_news


def test_all_cells_run_without_an_error_or_a_warning(seen):
    assert (seen["errors"], seen["stderr"]) == ([], [])


def test_pictures_are_complete_and_readable(executed, seen):
    panels = json.loads((executed / "artifacts/scores/patchtst_summary.json").read_text(encoding="utf-8"))["panels"]
    assert len({picture[0] for picture in seen["pictures"]}) == 4 + len(panels), (
        "channels, loss, a masked window, timeline, events"
    )
    assert all(complete and natural > 600 for _, complete, natural, _ in seen["pictures"])
    assert all(shown > 0.65 * natural for _, _, natural, shown in seen["pictures"]), "small print stays legible"


def test_data_frames_are_shown_as_tables(seen):
    files, splits, figures = seen["tables"]
    assert "data/fdc/test_1.csv" in files
    assert "calibration" in splits
    assert "AUROC" in figures


def test_finished_progress_bars_are_removed(seen):
    assert seen["bars"] == []


def test_no_external_requests_are_made(seen):
    assert (seen["elsewhere"], seen["news"]) == ([], 0)


def test_the_saved_notebook_is_small(executed):
    notebook = json.loads((executed / "notebooks" / NOTEBOOK).read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert len(json.dumps(outputs)) < 1_000_000
    assert all(cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code")


# --------------------------------------------------------------------------------------------------------- the ■ button
@pytest.mark.nightly
def test_the_stop_button_saves_and_the_cell_resumes(browser, lab):
    """Training is started with many epochs; ■ is clicked in the third."""
    text = (lab.root / "notebooks" / NOTEBOOK).read_text(encoding="utf-8")
    (lab.root / "notebooks/long.ipynb").write_text(re.sub(r"epochs = \d+\b", "epochs = 40", text), encoding="utf-8")
    folder, known = lab.root / "runs/patchtst_ssl", set((lab.root / "runs/patchtst_ssl").glob("*"))
    with opened(browser, lab, "long.ipynb") as page:
        choose(page, "Run", "Run All Cells")
        output = page.locator(".jp-Notebook .jp-OutputArea-output")
        output.filter(has_text="epoch 3/40").first.wait_for(timeout=CELL_PATIENCE_MS)
        page.locator('.jp-NotebookPanel-toolbar [data-command="notebook:interrupt-kernel"]').click()
        result = output.filter(has_text="StoppedError").first
        result.wait_for(timeout=CELL_PATIENCE_MS)
        assert "received SIGINT; saved checkpoints/patchtst_ssl.last.pt" in result.inner_text()
        assert "run this cell again" in result.inner_text()
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=CELL_PATIENCE_MS)
        (run,) = set(folder.glob("*")) - known
        assert read_status(run)["state"] == "stopped"
        saved = checkpoint.describe(lab.root / "checkpoints/patchtst_ssl.last.pt")["epoch"]
        assert 2 <= saved < 40

        page.locator(".jp-CodeCell", has_text="StoppedError").locator(".jp-InputArea-editor").click()
        page.keyboard.press("Control+Enter")
        output.filter(has_text=f"resuming {run.name} after {saved} epochs").first.wait_for(timeout=CELL_PATIENCE_MS)
        output.filter(has_text="epoch 40/40").first.wait_for(timeout=CELL_PATIENCE_MS)
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=CELL_PATIENCE_MS)
    assert set(folder.glob("*")) - known == {run}
    assert read_status(run)["state"] == "completed"
    steps = [record["step"] for record in read_metrics(run / "metrics.jsonl") if record["kind"] == "step"]
    assert steps == list(range(1, read_status(run)["steps"] + 1)), "no step is missing and none was done twice"
