"""Writes a notebook with the same bytes as `nbformat`, but in blocks: a text is split into lines only while it is
encoded, and no second text of the size of the file exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from json.encoder import encode_basestring
from typing import Any, BinaryIO

_ITEMS_PER_BLOCK = 1 << 12
_PIECES_PER_BLOCK = 1 << 8
_LONG_PIECE = 1 << 13  # characters: such pieces are not collected, because 256 of them need much memory
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


_NESTED = (dict, list, _Lines)


def write(notebook: Mapping[str, Any], file: BinaryIO) -> None:
    """Writes the canonical JSON of a notebook: sorted keys, an indentation of one space, UTF-8, a newline at the end. A
    lone surrogate, which UTF-8 cannot encode, becomes a question mark.
    """

    pieces: list[str] = []

    def put(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) >= _PIECES_PER_BLOCK or len(piece) >= _LONG_PIECE:
            flush()

    def flush() -> None:
        file.write("".join(pieces).encode("utf-8", "replace"))
        pieces.clear()

    _write({**notebook, "cells": [_split_cell(cell) for cell in notebook["cells"]]}, "\n", put)
    put("\n")
    flush()


def _write(value: Any, newline: str, put: Callable[[str], None]) -> None:
    """Writes the JSON of a value; `newline` is what begins its last line. The encoder that `json` has in C writes no
    indentation, but the separator of its items can contain it if there is no list or dictionary among them.
    """
    if isinstance(value, str):
        put(encode_basestring(value))
        return
    is_text = isinstance(value, _Lines)
    if isinstance(value, _Lines):
        value = value.split()
    if not value or not isinstance(value, _NESTED):
        put(_encoder(",")(value))
        return
    inner = f"{newline} "
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    separator = opening + inner
    if isinstance(value, dict):
        for key in sorted(value):
            put(f"{separator}{encode_basestring(key)}: ")
            _write(value[key], inner, put)
            separator = f",{inner}"
    elif not is_text and any(isinstance(item, _NESTED) for item in value):
        for item in value:
            put(separator)
            _write(item, inner, put)
            separator = f",{inner}"
    else:
        for start in range(0, len(value), _ITEMS_PER_BLOCK):
            block = value[start : start + _ITEMS_PER_BLOCK]
            put(separator)
            put(f",{inner}".join(map(encode_basestring, block)) if is_text else _encoder(f",{inner}")(block)[1:-1])
            separator = f",{inner}"
    put(newline + closing)


@cache
def _encoder(separator: str) -> Callable[[Any], str]:
    return json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(separator, ": ")).encode


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
