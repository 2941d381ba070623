"""Writes a notebook with the same bytes as `nbformat`, but in blocks: a text is split into lines only while it is
encoded, and no second text of the size of the file exists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_PIECES_PER_WRITE = 1 << 13  # parts of the JSON that are written together
_SPLIT_MIMES = frozenset({"application/javascript", "image/svg+xml"})


@dataclass(frozen=True, slots=True)
class _Lines:
    """A text, or a list of lines, that is written as a list of its lines."""

    text: str | list[str]

    def split(self) -> list[str]:
        if isinstance(self.text, str):
            return self.text.splitlines(keepends=True)
        if not all(line.endswith("\n") for line in self.text[:-1]):
            return "".join(self.text).splitlines(keepends=True)
        return [line for part in self.text for line in part.splitlines(keepends=True)]


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, indent=1, sort_keys=True, separators=(",", ": "), default=lambda lines: lines.split()
)


def write(notebook: Mapping[str, Any], file: BinaryIO) -> None:
    """Writes the canonical JSON of a notebook: sorted keys, an indentation of one space, UTF-8, a newline at the end. A
    lone surrogate, which UTF-8 cannot encode, becomes a question mark.
    """
    pieces: list[str] = []
    for piece in _ENCODER.iterencode({**notebook, "cells": [_split_cell(cell) for cell in notebook["cells"]]}):
        pieces.append(piece)
        if len(pieces) >= _PIECES_PER_WRITE:
            file.write("".join(pieces).encode("utf-8", "replace"))
            pieces.clear()
    file.write("".join([*pieces, "\n"]).encode("utf-8", "replace"))


def _split_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    new = {**cell, "source": _Lines(cell["source"])}
    if "attachments" in cell:
        new["attachments"] = {name: _split_bundle(bundle) for name, bundle in cell["attachments"].items()}
    if "outputs" in cell:
        new["outputs"] = [_split_output(output) for output in cell["outputs"]]
    return new


def _split_output(output: Mapping[str, Any]) -> Mapping[str, Any]:
    if output["output_type"] == "stream":
        return {**output, "text": _Lines(output["text"])}
    return {**output, "data": _split_bundle(output["data"])} if "data" in output else output


def _split_bundle(bundle: Mapping[str, Any]) -> dict[str, Any]:
    return {
        mime: _Lines(value) if mime.startswith("text/") or mime in _SPLIT_MIMES else value
        for mime, value in bundle.items()
    }
