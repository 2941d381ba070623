"""Figures as PNG."""

from __future__ import annotations

import io

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from PIL import Image, ImageChops

from core.pictures import as_png


@pytest.fixture(params=["constrained", None])
def figure(request):
    """Lines in few colours."""
    figure = Figure(figsize=(4, 3), dpi=73, layout=request.param)
    axes = figure.subplots()
    axes.plot([1, 3, 2], color="black")
    axes.set_title("three points")
    return figure


def test_a_picture_shows_what_matplotlib_saves(figure):
    expected = io.BytesIO()
    figure.savefig(expected, format="png", dpi=100)
    picture = Image.open(io.BytesIO(as_png(figure, dpi=100)))
    assert picture.mode == "P"
    assert picture.size == (400, 300)
    difference = ImageChops.difference(Image.open(expected).convert("RGB"), picture.convert("RGB"))
    assert max(high for _, high in difference.getextrema()) <= 8, "levels of 255"


def test_a_figure_keeps_its_canvas_and_resolution(figure):
    canvas = figure.canvas
    as_png(figure, dpi=100)
    assert figure.canvas is canvas
    assert figure.dpi == 73


def test_a_figure_of_pyplot_can_be_closed_after_it_was_shown():
    shown = pyplot.figure()
    as_png(shown, dpi=100)
    pyplot.close(shown)
    assert shown.number not in pyplot.get_fignums()
