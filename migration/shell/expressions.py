"""`{expression}` in a `!` line: IPython replaces it by its value before the shell reads the line."""

from __future__ import annotations

import re
import warnings

MAX_NESTING = 40

_METACHARACTER = re.compile(r"[\s'\"()<>|&;$`\\]")
_FORMAT = re.compile(r"(?:![rsa])?(?::[^{}'\"]*)?$")


def end_of_expression(text: str, start: int) -> int | None:
    """The end of the expression that the brace at `start` opens; None if there is none."""
    depth = 0
    for found in re.compile(r"[{}\n]").finditer(text, start):
        if found[0] == "\n":
            return None
        depth += 1 if found[0] == "{" else -1
        if depth > MAX_NESTING:
            return None
        if depth <= 0:
            inner = text[start + 1 : found.start()]
            return found.end() if inner.strip() and _is_expression(inner) else None
    return None


def _is_expression(text: str) -> bool:
    if not _METACHARACTER.search(text):
        return True
    for candidate in (text, _FORMAT.sub("", text)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(candidate.strip(), "<expression>", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return True
    return False
