"""Pictures as they are kept and shown: PNG of at most 256 colours, a third of the bytes and to the eye the same."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from core.workspace import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = 256


def literal(text: str) -> str:
    """Text that comes from data: matplotlib would typeset what stands between two dollar signs."""
    return text.replace("$", r"\$")


def as_png(figure: Figure, *, dpi: int) -> bytes:
    from PIL import Image  # brought by matplotlib

    engine = figure.get_layout_engine()
    if engine is not None:  # savefig would draw the figure twice, the first time for its layout alone
        figure.set_dpi(dpi)
        engine.execute(figure)
        figure.set_layout_engine("none")
    full = io.BytesIO()
    figure.savefig(full, format="png", dpi=dpi, pil_kwargs={"compress_level": 0})
    reduced = Image.open(full).convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
    png = io.BytesIO()
    reduced.save(png, format="png", dpi=(dpi, dpi))
    return png.getvalue()


def save_png(figure: Figure, path: Path, *, dpi: int) -> None:
    write_bytes(path, as_png(figure, dpi=dpi))
