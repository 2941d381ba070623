"""The loss curve of a run as a figure that is updated: a file next to the loss history, or a display in a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from core.runlog import EpochRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TRAINING, _VALIDATION = "#4477aa", "#ee6677"
# Maximum share of the run time for drawing, and the minimum time before and between drawings.
_DRAWING_SHARE, _SHORTEST_WAIT_S = 0.03, 1.0


class LossCurve:
    """Follows a run (see `trainers.context.Watcher`); a context manager, which draws the last state at the end.

    show: receives each drawing. It is called with the first data after a second, and then so often that drawing takes
    at most `_DRAWING_SHARE` of the run time.
    """

    def __init__(self, show: Callable[[Figure], None], *, title: str):
        self._show, self._title = show, title
        self._steps: list[tuple[float, float]] = []
        self._history: Sequence[EpochRecord] = ()
        self._next_drawing = 0.0
        self._is_current = True

    def __enter__(self) -> Self:
        self._next_drawing = time.monotonic() + _SHORTEST_WAIT_S
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_current:
            self._draw()

    def steps(self, epochs_done: float, loss: float) -> None:
        self._steps.append((epochs_done, loss))
        self._draw_if_due()

    def epoch(self, history: Sequence[EpochRecord]) -> None:
        self._history = history
        self._draw_if_due()

    def _draw_if_due(self) -> None:
        self._is_current = False
        started = time.monotonic()
        if started >= self._next_drawing:
            self._draw()
            ended = time.monotonic()
            self._next_drawing = ended + max((ended - started) / _DRAWING_SHARE, _SHORTEST_WAIT_S)

    def _draw(self) -> None:
        self._show(loss_figure(self._history, title=self._title, steps=self._steps))
        self._is_current = True


def loss_figure(history: Sequence[EpochRecord], *, title: str, steps: Sequence[tuple[float, float]] = ()) -> Figure:
    """Training and validation loss over epochs, the best epoch marked.

    steps: (epochs done by then, mean loss of the steps before); they show a run before its first epoch ends.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    if steps:
        axes.plot(*zip(*steps, strict=True), label="steps", color=_TRAINING, alpha=0.4, linewidth=1)
    if history:
        _draw_epochs(axes, history)
    axes.set(title=title, xlabel="epoch", ylabel="masked error (MSE, scaled units)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _draw_epochs(axes: Axes, history: Sequence[EpochRecord]) -> None:
    epochs = [record.epoch for record in history]
    best = min(history, key=lambda record: record.val_loss)
    axes.plot(epochs, [record.train_loss for record in history], label="training", color=_TRAINING, marker=".")
    axes.plot(epochs, [record.val_loss for record in history], label="validation", color=_VALIDATION, marker=".")
    if np.isfinite(best.val_loss):
        axes.plot(
            best.epoch, best.val_loss, "o", markersize=10, markerfacecolor="none", color=_VALIDATION,
            label=f"best: {best.val_loss:.4g} at epoch {best.epoch}",
        )  # fmt: skip
