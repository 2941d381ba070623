"""Output in notebooks: messages in cells, progress bars and curves that update in place, errors that begin with a
remedy. IPython is used only in a process that already runs it."""

from __future__ import annotations

import base64
import html
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.errors import LandfallError, StoppedError
from core.secrets.redaction import RedactingFormatter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from core.loss_curve import LossCurve

# By the name of the class, so that nothing has to be imported; other errors have their own hint.
_REMEDIES = {
    "FileNotFoundError": "paths in configurations are relative to the root of the repository; use `root / path`",
    "MemoryError": "set training.gradient_checkpointing=true, model.size=reduced or a smaller training.batch_size",
    "ModuleNotFoundError": "`make setup` installs what Landfall needs; is this the kernel of its .venv?",
    "NameError": "run the cells above first (Run → Run All Above Selected Cell)",
    "OutOfMemoryError": "set training.gradient_checkpointing=true, model.size=reduced or device.memory.strategy",
    "StoppedError": "run this cell again, here or in a new kernel, to resume",
}


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    shell = _shell()
    return shell is not None and hasattr(shell, "kernel")


def start_notebook() -> None:
    """Call this first in a notebook: messages, warnings and figures appear in its cells, and the first line of a
    failure names the problem and the remedy."""
    import pandas as pd

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(RedactingFormatter("%(severity)s%(message)s"))
    handler.addFilter(_OnceAboutData())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    pd.set_option("display.max_colwidth", None)  # messages in tables are shown completely
    shell = _shell()
    if shell is not None:
        shell.set_custom_exc((Exception,), _show_cause_first)
        # A figure that was not made by pyplot has no picture otherwise.
        pictures = shell.display_formatter.formatters["image/png"]
        pictures.for_type_by_name("matplotlib.figure", "Figure", _picture_of)


class _OnceAboutData(logging.Filter):
    """Leaves out information about the data that an earlier cell has shown: training and scoring read it again."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_known = text in self._shown
        if record.name.startswith("core.data."):
            self._shown.add(text)
        return not is_known or record.levelno > logging.INFO


def _picture_of(figure: Figure) -> bytes:
    from core.pictures import as_png

    return as_png(figure, dpi=100)


def cause_and_remedy(error: BaseException) -> str:
    """The error and, if known, its remedy: one line each."""
    cause, own_remedy = (error.message, error.hint) if isinstance(error, LandfallError) else (str(error), None)
    cause = cause.strip().partition("\n")[0]
    remedy = _REMEDIES.get(type(error).__name__, own_remedy)
    named = f"{type(error).__name__}: {cause}" if cause else type(error).__name__
    return f"\x1b[1;31m{named}\x1b[0m" + (f"\n\x1b[1m→ {remedy}\x1b[0m" if remedy else "")


def _show_cause_first(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: int | None = None) -> None:
    """Shows the cause and the remedy above the traceback; a run that was stopped on request has no traceback."""
    lines = [cause_and_remedy(error)]
    if not isinstance(error, StoppedError):
        lines += ["", *shell.InteractiveTB.structured_traceback(kind, error, trace, tb_offset=tb_offset)]
    shell._showtraceback(kind, error, lines)


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


class LiveOutput:
    """An area in the output of a cell whose content can be replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, content: Mapping[str, str]) -> None:
        """content: by MIME type; pictures in base 64."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(dict(content), raw=True, display_id=True)
        else:
            self._handle.update(dict(content), raw=True)

    def clear(self) -> None:
        self.show({"text/html": "", "text/plain": ""})

    def show_bar(self, label: str, share: float, text: str) -> None:
        bar = f'<progress value="{share:.4f}" max="1" style="width: 16em"></progress>'
        page = f"<div>{html.escape(label)} {bar} {html.escape(text)}</div>"
        self.show({"text/html": page, "text/plain": f"{label}: {share:.0%}, {text}"})


def live_loss() -> LossCurve:
    """The loss curve of a run in the output of a cell, redrawn in place during training."""
    from core.loss_curve import LossCurve
    from core.pictures import as_png

    output = LiveOutput()

    def show(figure: Figure) -> None:
        picture = base64.b64encode(as_png(figure, dpi=100)).decode("ascii")
        output.show({"image/png": picture, "text/plain": "training"})

    return LossCurve(show, title="training")
