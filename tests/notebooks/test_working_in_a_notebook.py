"""A person works in the local notebook, cell by cell, in a real kernel: bars, curves, ■, and failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from core import checkpoint
from core.runlog import read_metrics, read_status
from tests.support.small_workspace import CONFIGS, build_small_workspace

pytestmark = pytest.mark.slow

PATIENCE_S = 300
# A window longer than any split.
WIDE = "wide = load_config(config, ['data.window=8192'], root=root).config"


# Training waits where it has logged some words until a file exists, so that it cannot end before the test acts.
_HOLD = """\
import logging, pathlib, time

class Hold(logging.Handler):
    def emit(self, record):
        if {words!r} in record.getMessage():
            logging.getLogger().removeHandler(self)
            while not pathlib.Path({file!r}).exists():
                time.sleep(0.01)

logging.getLogger().addHandler(Hold())
"""


class Answer(NamedTuple):
    """The output of a cell (display data by id, as on a page), its messages and its end."""

    shown: dict[str, list[dict[str, Any]]]
    said: str
    complained: str
    reply: dict[str, Any]


class Page:
    """The local notebook of process sensors, open in a kernel over a small workspace."""

    def __init__(self, root: Path, client: BlockingKernelClient, manager: KernelManager):
        self.root, self.client, self.manager = root, client, manager
        notebook = nbformat.read(root / "notebooks/local_patchtst_ssl.ipynb", as_version=4)
        self.cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]

    def cell(self, words: str) -> str:
        (found,) = [cell for cell in self.cells if words in cell]
        return found

    def hold(self, words: str) -> Path:
        """Makes the next cell that logs `words` wait until the returned file exists."""
        file = self.root / "go_on"
        file.unlink(missing_ok=True)
        self.run(_HOLD.format(words=words, file=str(file)))
        return file

    def run(self, code: str, *, stop_when: str | None = None) -> Answer:
        """stop_when: interrupts the kernel when the cell has logged these words."""
        file = self.hold(stop_when) if stop_when is not None else None
        shown: dict[str, list[dict[str, Any]]] = {}
        said = {"stdout": "", "stderr": ""}

        def look(message: dict[str, Any]) -> None:
            nonlocal stop_when
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                said[content["name"]] += content["text"]
                if stop_when is not None and stop_when in said["stdout"]:
                    self.manager.interrupt_kernel()
                    file.touch()
                    stop_when = None
            elif kind in ("display_data", "update_display_data", "execute_result"):
                name = content.get("transient", {}).get("display_id", f"output {len(shown)}")
                shown.setdefault(name, []).append(content["data"])

        reply = self.client.execute_interactive(code, output_hook=look, timeout=PATIENCE_S)["content"]
        return Answer(shown, said["stdout"], said["stderr"], reply)

    def open(self, *overrides: str, epochs: int | None = None) -> None:
        """Runs the cells before training, with small models."""
        settings = self.cells[0].replace("configs/patchtst_ssl_local.yaml", CONFIGS["patchtst"])
        settings = settings.replace("overrides = []", f"overrides = {list(overrides)}")
        self.run(re.sub(r"(?m)^epochs = \d+", f"epochs = {epochs}", settings))
        last = self.cells.index(self.cell("data.plot()"))
        for cell in self.cells[1 : last + 1]:
            answer = self.run(cell)
            assert (answer.reply["status"], answer.complained) == ("ok", "")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One kernel for all tests, as in normal work; each test runs the cells above training again."""
    folder = tmp_path_factory.mktemp("page")
    root = build_small_workspace(folder / "workspace")
    manager = KernelManager(kernel_name="python3", transport="ipc", connection_file=str(folder / "kernel.json"))
    manager.start_kernel(cwd=str(root / "notebooks"))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        yield Page(root, client, manager)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def runs(page: Page) -> set[Path]:
    folder = page.root / "runs/patchtst_ssl"
    return set(folder.iterdir()) if folder.is_dir() else set()


def test_stop_saves_a_checkpoint_and_the_cell_resumes(page):
    page.open(epochs=5)
    training, before = page.cell("from trainers.run import train"), runs(page)

    stopped = page.run(training, stop_when="epoch 2/5")
    assert (stopped.reply["status"], stopped.reply["ename"]) == ("error", "StoppedError")
    cause, cure = "\n".join(stopped.reply["traceback"]).splitlines()
    assert "received SIGINT; saved checkpoints/patchtst_ssl.last.pt" in cause
    assert "run this cell again" in cure
    (folder,) = runs(page) - before
    assert read_status(folder)["state"] == "stopped"
    saved = checkpoint.describe(page.root / "checkpoints/patchtst_ssl.last.pt")
    assert 2 <= saved["epoch"] < 5
    assert page.run("print(6 * 7)").said == "42\n", "the kernel is as good as before"

    again = page.run(training)
    assert again.reply["status"] == "ok", again.reply
    assert f"resuming {folder.name} after {saved['epoch']} epochs" in again.said
    assert runs(page) - before == {folder}
    assert read_status(folder)["state"] == "completed"
    steps = [record["step"] for record in read_metrics(folder / "metrics.jsonl") if record["kind"] == "step"]
    assert steps == list(range(1, read_status(folder)["steps"] + 1))

    again = page.run(training, stop_when="epoch 1/5")
    assert "resuming" not in again.said, "a completed run is not resumed"
    assert len(runs(page) - before) == 2


@pytest.mark.nightly
def test_another_configuration_does_not_continue_with_a_stopped_run(page):
    training, before = page.cell("from trainers.run import train"), runs(page)
    page.open("training.resume=never", epochs=30)
    page.run(training, stop_when="epoch 1/30")
    page.open("training.weight_decay=0.01", epochs=30)
    changed = page.run(training, stop_when="epoch 1/30")
    assert "training.weight_decay was 0.05, is 0.01" in changed.said
    assert "restarting from the beginning" in changed.said
    assert len(runs(page) - before) == 2


@pytest.mark.nightly
def test_bar_and_curve_update_in_place_without_stderr(page):
    page.open("training.resume=never", epochs=30)
    trained = page.run(page.cell("from trainers.run import train"))
    assert (trained.reply["status"], trained.complained) == ("ok", "")
    bars = [versions for versions in trained.shown.values() if "text/html" in versions[0]]
    (training,) = [versions for versions in bars if versions[0]["text/plain"].startswith("patchtst:")]
    *running, finished = training
    shares = [float(re.search(r'value="([\d.]+)"', version["text/html"])[1]) for version in running]
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert re.search(r"of \d+ windows .* left · epoch \d+/30 loss 0\.\d+", running[-1]["text/plain"])
    assert finished == {"text/html": "", "text/plain": ""}, "the log of the cell is one block"
    (curve,) = [versions for versions in trained.shown.values() if "image/png" in versions[0]]
    assert len({version["image/png"] for version in curve}) == len(curve) > 1


def test_a_failure_starts_with_cause_and_remedy(page):
    page.open(epochs=2)
    failed = page.run(f"{WIDE}\n" + page.cell("load_stream_data").replace("loaded.config", "wide"))
    cause, cure, blank, *trace = "\n".join(failed.reply["traceback"]).splitlines()
    assert "DataError: the split validation" in cause
    assert cure.startswith("\x1b[1m→ ")
    assert "data.splits.validation" in cure
    assert blank == ""
    assert any("load_stream_data" in line for line in trace)
    assert failed.reply["ename"] == "DataError"

    (output, *_) = page.run("no_such_name").reply["traceback"]
    assert output.splitlines()[1].startswith("\x1b[1m→ run the cells above")
    assert page.run("raise ValueError()").reply["traceback"][0] == "\x1b[1;31mValueError\x1b[0m"
    assert page.run("1 +").reply["ename"] == "SyntaxError"


def test_a_warning_is_shown_in_the_cell(page):
    page.open(epochs=2)
    warned = page.run("import warnings; warnings.warn('getting warm')")
    assert "getting warm" in warned.said
    assert warned.complained == ""
