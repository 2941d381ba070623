"""Pictures are stored as PNG with at most 256 colours: a third of the bytes without a visible difference."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from core.numbers import plain
from core.secrets.redaction import printable
from core.workspace import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_COLORS = 256


def literal(text: str) -> str:
    """Escapes text from data: control characters, and dollar signs, between which matplotlib would typeset text."""
    return printable(text).replace("$", r"\$")


def tidy(axes: Axes) -> None:
    """The look of every curve over time."""
    axes.margins(x=0)
    axes.grid(axis="y", alpha=0.25)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def label_decades(axis: Axis, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis from `low` to `high`; no minor ticks, each of which costs as much as a
    label."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value, 1)))
    axis.set_minor_locator(NullLocator())


def as_png(figure: Figure, *, dpi: int) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image  # a dependency of matplotlib

    own_canvas, own_dpi = figure.canvas, figure.dpi
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")  # drawing would compute it again
    canvas.draw()
    full = Image.frombytes("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    figure.set_canvas(own_canvas)
    figure.set_dpi(own_dpi)
    reduced = full.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
    png = io.BytesIO()
    reduced.save(png, format="png", dpi=(dpi, dpi))
    return png.getvalue()


def save_png(figure: Figure, path: Path, *, dpi: int) -> None:
    write_bytes(path, as_png(figure, dpi=dpi))
