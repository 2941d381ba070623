"""Notebooks for tests: a few cells in Colab's format."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import nbformat

from migration.notebook.writing import write


def code(source: str, **fields: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
    return {**cell, **fields}


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def colab_notebook(*cells: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "nbformat": 4,
        "nbformat_minor": 0,
        "metadata": {
            "colab": {"name": "made.ipynb", "provenance": []},
            "kernelspec": {"name": "python3", "display_name": "Python 3"},
            **metadata,
        },
        "cells": [
            {**cell, "source": cell["source"].splitlines(keepends=True), "metadata": {"id": f"id{index}"}}
            for index, cell in enumerate(cells)
        ],
    }


def save(path: Path, *cells: dict[str, Any], **metadata: Any) -> Path:
    """Writes a Colab notebook of these cells; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(colab_notebook(*cells, **metadata), indent=2), encoding="utf-8")
    return path


def written(notebook: dict[str, Any]) -> str:
    """The text of the file that is written for a notebook."""
    buffer = io.BytesIO()
    write(notebook, buffer)
    return buffer.getvalue().decode()


def is_valid(notebook: dict[str, Any]) -> bool:
    """Whether nbformat accepts a notebook, and all its cells have unique ids."""
    ids = [cell.get("id") for cell in notebook["cells"]]
    return len(set(ids)) == len(ids) and nbformat.validator.isvalid(json.loads(written(notebook)))
