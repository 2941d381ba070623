"""Writes a notebook with the same bytes as `nbformat`, but faster and in blocks. The encoder of the standard library is
pure Python if it indents; a notebook is mostly lists of lines, which its C part can encode. Texts of any size are
written in blocks, so that writing needs hardly any memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, BinaryIO

_PIECE = 1 << 17  # characters
_BATCH = 4096  # items of a list
_SPLIT_MIMES = frozenset({"application/javascript", "image/svg+xml"})

_Put = Callable[[str], None]


def write(notebook: Mapping[str, Any], file: BinaryIO) -> None:
    """Writes the canonical JSON of a notebook: sorted keys, one blank of indentation, UTF-8, a newline at the end."""
    buffer: list[str] = []
    size = 0

    def flush() -> None:
        nonlocal size
        file.write(_encoded(buffer))
        buffer.clear()
        size = 0

    def put(piece: str) -> None:
        nonlocal size
        if len(piece) >= _PIECE:
            flush()  # an image joined with an emoji would need four bytes per character
        buffer.append(piece)
        size += len(piece)
        if size >= _PIECE:
            flush()

    _put({**notebook, "cells": [_split_cell(cell) for cell in notebook["cells"]]}, "\n", put)
    put("\n")
    flush()


def _put_notebook(notebook: Mapping[str, Any], put: _Put) -> None:
    """The canonical JSON, in blocks."""
    _put({**notebook, "cells": [_split_cell(cell) for cell in notebook["cells"]]}, "\n", put)
    put("\n")


def _encoded(buffer: list[str]) -> bytes:
    # Half a surrogate pair cannot be encoded as UTF-8; this handler writes the JSON escape for it.
    return "".join(buffer).encode("utf-8", "backslashreplace")


# --------------------------------------------------------------------------------------------------- texts into lines
@dataclass(frozen=True, slots=True)
class _Lines:
    """A text that is written later as a list of its lines."""

    text: str | list[str]


def _split_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    new = {**cell, "source": _lines(cell["source"])}
    if "attachments" in cell:
        new["attachments"] = {name: _split_bundle(bundle) for name, bundle in cell["attachments"].items()}
    if "outputs" in cell:
        new["outputs"] = [_split_output(output) for output in cell["outputs"]]
    return new


def _split_output(output: Mapping[str, Any]) -> Mapping[str, Any]:
    if output["output_type"] == "stream":
        return {**output, "text": _lines(output["text"])}
    return {**output, "data": _split_bundle(output["data"])} if "data" in output else output


def _split_bundle(bundle: Mapping[str, Any]) -> dict[str, Any]:
    return {
        mime: _lines(value) if mime.startswith("text/") or mime in _SPLIT_MIMES else value
        for mime, value in bundle.items()
    }


def _lines(text: Any) -> Any:
    is_text = isinstance(text, str) or (isinstance(text, list) and all(isinstance(line, str) for line in text))
    return _Lines(text) if is_text else text


# --------------------------------------------------------------------------------------------------------------- JSON
def _put(value: Any, newline: str, put: _Put) -> None:
    """The JSON of a value; `newline` is a line end with the indentation of the parent."""
    inner = newline + " "
    if isinstance(value, _Lines):
        _put_lines(value.text, newline, put)
    elif isinstance(value, dict) and value:
        start = "{"
        for key in sorted(value):
            head = f"{start}{inner}{encode_basestring(key)}: "
            leaf = _scalar(value[key])
            if leaf is not None:
                put(head + leaf)
            else:
                put(head)
                _put(value[key], inner, put)
            start = ","
        put(newline + "}")
    elif isinstance(value, list | tuple) and value:
        head = "["
        for start in range(0, len(value), _BATCH):
            batch = value[start : start + _BATCH]
            leaves = [_scalar(item) for item in batch]
            if None not in leaves:
                put(head + inner + f",{inner}".join(leaves))
                head = ","
                continue
            for leaf, item in zip(leaves, batch, strict=True):
                put(head + inner)
                if leaf is not None:
                    put(leaf)
                else:
                    _put(item, inner, put)
                head = ","
        put(newline + "]")
    else:
        put(_scalar(value) or ("{}" if isinstance(value, dict) else "[]"))


def _scalar(value: Any) -> str | None:
    """The JSON of a scalar; None for other values."""
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        # JSON has no NaN.
        return float.__repr__(value) if math.isfinite(value) else "null"
    return None


def _put_lines(text: str | list[str], newline: str, put: _Put) -> None:
    """The list of the lines of a text, which may be long."""
    inner = newline + " "
    head = "["
    for part in _parts(text):
        put(head + inner + f",{inner}".join(map(encode_basestring, part.splitlines(True))))
        head = ","
    put(newline + "]" if head == "," else "[]")


def _parts(text: str | list[str]) -> Iterator[str]:
    """The text in blocks of limited size that end at line ends."""
    if isinstance(text, str):
        start = 0
        while start < len(text):
            end = text.find("\n", start + _PIECE) + 1 or len(text)
            yield text[start:end]
            start = end
        return
    part: list[str] = []
    for line in text:
        part.append(line)
        if len(part) >= _BATCH and line.endswith("\n"):
            yield "".join(part)
            part = []
    if any(part):
        yield "".join(part)
