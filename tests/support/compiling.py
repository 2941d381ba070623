"""Whether a kernel accepts a cell."""

from __future__ import annotations

import ast
import warnings


def compiles(text: str) -> bool:
    """Whether the cell compiles after IPython's transform, as a kernel checks before it runs a cell."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = TransformerManager().transform_cell(text)
            compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError, RuntimeError):
        return False
    return True
