"""Colour on a terminal; none in a pipe, with NO_COLOR (https://no-color.org) or on a terminal without colours."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TextIO

# First character of a line of a report, and its colour.
_MARKS: Mapping[str, str] = {"✗": "31", "!": "33", "✓": "32"}
_MARKED = re.compile(rf"^(\s*)([{''.join(_MARKS)}])(?= )((?: +(?:FAIL|WARN|PASS)\b)?)", re.MULTILINE)


def has_colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def with_colour(text: str, stream: TextIO) -> str:
    """The text with its marks (✗ ! ✓) in colour, if `stream` shows colours."""
    if not has_colour(stream):
        return text
    return _MARKED.sub(lambda mark: f"{mark[1]}\x1b[{_MARKS[mark[2]]}m{mark[2]}{mark[3]}\x1b[0m", text)
