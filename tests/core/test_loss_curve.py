"""The loss curve during a run, and the file at its end."""

import io
from contextlib import suppress

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from core import loss_curve
from core.loss_curve import LossCurve, loss_figure
from core.pictures import as_png, save_png
from core.runlog import EpochRecord

FIRST = EpochRecord(1, 0.3, 1 / 3, 1e-3, 1.25, 100.0)
SECOND = EpochRecord(2, 0.25, 2 / 7, 1e-5, 1.5, 90.5)
THIRD = EpochRecord(3, 0.2, 0.5, 0.0, 1.0, 95.0)
WITHOUT_NUMBER = EpochRecord(1, 0.3, float("nan"), 1e-3, 1.25, 100.0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test controls; drawing takes no time on it."""
    now = [100.0]
    monkeypatch.setattr(loss_curve.time, "monotonic", lambda: now[0])
    return now


def curves(figure: Figure) -> dict[str, list[float]]:
    return {line.get_label().partition(":")[0]: list(line.get_xdata()) for line in figure.axes[0].lines}


@pytest.mark.parametrize("history", [[FIRST], [FIRST, SECOND, THIRD], [WITHOUT_NUMBER]])
def test_the_picture_is_a_valid_png_with_a_palette(tmp_path, history):
    path = tmp_path / "loss" / "curve.png"
    save_png(loss_figure(history, title="patchtst"), path, dpi=120)
    with Image.open(path) as picture:
        picture.load()
        assert (picture.size, picture.mode) == ((840, 480), "P")
    assert [entry.name for entry in path.parent.iterdir()] == ["curve.png"]


def test_a_palette_causes_no_visible_change():
    figure = loss_figure([FIRST, SECOND, THIRD], title="patchtst")
    full = io.BytesIO()
    figure.savefig(full, format="png", dpi=120)
    reduced = as_png(figure, dpi=120)
    before, after = (
        np.asarray(Image.open(picture).convert("RGB"), dtype=int) for picture in (full, io.BytesIO(reduced))
    )
    assert len(reduced) < 0.5 * len(full.getvalue())
    assert np.abs(before - after).max() <= 16
    assert (before == after).mean() > 0.95


def test_the_best_epoch_is_marked_and_steps_come_before_epochs():
    assert curves(loss_figure([FIRST, SECOND, THIRD], title="x")) == {
        "training": [1, 2, 3],
        "validation": [1, 2, 3],
        "best": [2],
    }
    assert curves(loss_figure([], title="x", steps=[(0.1, 1.0), (0.2, 0.9)])) == {"steps": [0.1, 0.2]}


def test_a_curve_is_drawn_after_a_second_periodically_and_at_the_end(clock):
    drawn = []
    with LossCurve(drawn.append, title="x") as curve:
        curve.steps(0.1, 1.0)
        assert drawn == []
        clock[0] += 1.0
        curve.steps(0.2, 0.9)
        assert len(drawn) == 1
        clock[0] += 2.0
        curve.steps(0.3, 0.8)
        assert curves(drawn[-1]) == {"steps": [0.1, 0.2, 0.3]}
        curve.epoch([FIRST])
        assert len(drawn) == 2
    assert curves(drawn[-1]) == {"steps": [0.1, 0.2, 0.3], "training": [1], "validation": [1], "best": [1]}
    assert len(drawn) == 3


def test_a_curve_shows_all_epochs_and_is_drawn_once(clock):
    drawn = []
    with suppress(RuntimeError), LossCurve(drawn.append, title="x") as curve:
        clock[0] += 1.0
        curve.epoch([FIRST])
        curve.epoch([FIRST, SECOND])
        raise RuntimeError("lost power")
    assert [len(curves(figure)["training"]) for figure in drawn] == [1, 2]
    with LossCurve(drawn.append, title="x"):
        pass
    assert len(drawn) == 2


def test_slow_drawing_takes_a_small_share_of_the_time(clock):
    drawn = []

    def slowly(figure):
        drawn.append(figure)
        clock[0] += 1.0

    with LossCurve(slowly, title="x") as curve:
        for step in range(100):
            clock[0] += 1.0
            curve.steps(step / 100, 1.0)
    assert len(drawn) <= 5
