"""Converts the outputs of a code cell to nbformat 4; `repairing` converts the rest of the notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from migration.notebook.findings import Notes, listed

INVALID = "LF106"
MANY_LINES = 200  # a list of more lines is long
# Names of output types and formats in nbformat 1 to 3.
_OLD_OUTPUTS = {"pyout": "execute_result", "pyerr": "error", "update_display_data": "display_data"}
_OLD_MIMES = {
    "text": "text/plain",
    "html": "text/html",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}
_OUTPUT_FIELDS = {
    "stream": {"output_type", "name", "text"},
    "display_data": {"output_type", "data", "metadata"},
    "execute_result": {"output_type", "data", "metadata", "execution_count"},
    "error": {"output_type", "ename", "evalue", "traceback"},
}
_JSON_MIME = re.compile(r"application/(.*\+)?json$")


def repaired_outputs(cell: Mapping[str, Any], index: int, notes: Notes, old: bool) -> list[dict[str, Any]]:
    """The valid outputs of a code cell; other values are removed."""
    outputs = cell.get("outputs")
    if not isinstance(outputs, list):
        notes.add(INVALID, "a code cell without a list of outputs was given an empty one", index)
        return []
    found = [_output(output, index, notes, old) for output in outputs]
    return [output for output in found if output is not None]


def _output(output: object, index: int, notes: Notes, old: bool) -> dict[str, Any] | None:
    kind = _output_type(output)
    if not isinstance(output, dict) or kind is None:
        notes.add(INVALID, "an output of an unknown type was removed", index)
        return None
    if kind != output.get("output_type") and not old:
        notes.add(INVALID, f"an output of the unknown type `{output.get('output_type')}` became `{kind}`", index)
    if kind == "stream":
        new = _stream(output, index, notes, old)
    elif kind == "error":
        new = _error(output, index, notes)
    else:
        new = _display(output, kind, index, notes, old)
    unknown = output.keys() - _OUTPUT_FIELDS[kind]
    if unknown and not old:
        notes.add(INVALID, f"invalid fields of a `{kind}` output were removed: {listed(unknown)}", index)
    return output if new == output else new


def _output_type(output: object) -> str | None:
    """The stated type of an output, or the type that its fields imply."""
    if not isinstance(output, dict):
        return None
    stated = output.get("output_type")
    stated = _OLD_OUTPUTS.get(stated, stated) if isinstance(stated, str) else None
    if stated in _OUTPUT_FIELDS:
        return stated
    signs = (("ename", "error"), ("data", "execute_result" if "execution_count" in output else "display_data"))
    return next((kind for sign, kind in (*signs, ("text", "stream")) if sign in output), None)


def _stream(output: dict[str, Any], index: int, notes: Notes, old: bool) -> dict[str, Any]:
    name, text = output.get("name", output.get("stream")), _stream_text(output.get("text"), old)
    if not isinstance(name, str) or text is None:
        notes.add(INVALID, "a stream without a name or a text was given one", index)
    return {"output_type": "stream", "name": name if isinstance(name, str) else "stdout", "text": text or ""}


def _error(output: dict[str, Any], index: int, notes: Notes) -> dict[str, Any]:
    name, value, trace = (output.get(key) for key in ("ename", "evalue", "traceback"))
    lines = trace if isinstance(trace, list) else [trace] if isinstance(trace, str) else []
    new = {
        "output_type": "error",
        "ename": name if isinstance(name, str) else "",
        "evalue": value if isinstance(value, str) else "" if value is None else str(value),
        "traceback": [line for line in lines if isinstance(line, str)],
    }
    if any(new[key] != output.get(key) for key in ("ename", "evalue", "traceback")):
        notes.add(INVALID, "an error's name, value or traceback was missing or not text", index)
    return new


def _display(output: dict[str, Any], kind: str, index: int, notes: Notes, old: bool) -> dict[str, Any]:
    data, metadata = output.get("data"), output.get("metadata")
    if old and not isinstance(data, dict):
        # Before nbformat 4 the formats of an output are its own fields, with short names.
        own = {"output_type", "prompt_number", "execution_count", "metadata"}
        data = {_OLD_MIMES.get(key, key): value for key, value in output.items() if key not in own}
    elif not isinstance(data, dict) or not isinstance(metadata, dict):
        notes.add(INVALID, "an output's data or metadata was missing", index)
    new = {
        "output_type": kind,
        "data": repaired_bundle(data if isinstance(data, dict) else {}, index, notes, old),
        "metadata": metadata if isinstance(metadata, dict) else {},
    }
    if kind == "execute_result":
        new["execution_count"] = repaired_count(
            output.get("execution_count", output.get("prompt_number")), index, notes
        )
    return new


def repaired_bundle(data: dict[str, Any], index: int, notes: Notes, old: bool) -> dict[str, Any]:
    """The formats of an output by MIME type: texts are joined, JSON is kept, others are removed."""
    if all(isinstance(value, str) for value in data.values()):
        return data
    new = {}
    for mime, value in data.items():
        if _JSON_MIME.match(mime):
            new[mime] = value
        elif (text := joined(value, old)) is not None:
            new[mime] = text
        else:
            notes.add(INVALID, f"an output in the format `{mime}` that is not text was removed", index)
    return new


# ------------------------------------------------------------------------------------------------------------- values
def joined(value: object, old: bool) -> str | None:
    """A text or a list of lines as one text; None for other values; a number becomes its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, list):
        return None
    lines = [line if isinstance(line, str) else "" if line is None else str(line) for line in value]
    # nbformat 3 may contain lines without line ends.
    return ("\n" if old and lines and not lines[0].endswith(("\n", "\r")) else "").join(lines)


def _stream_text(value: object, old: bool) -> str | list[str] | None:
    """As `joined`, except that a long list with non-ASCII characters stays a list, because the joined text would need
    four bytes per character."""
    is_long = isinstance(value, list) and len(value) >= MANY_LINES and not old
    if is_long and all(isinstance(line, str) for line in value) and not all(line.isascii() for line in value):
        return value
    return joined(value, old)


def repaired_count(value: object, index: int, notes: Notes) -> int | None:
    """An execution count: a number from 0, or None."""
    if value is None or is_count(value):
        return value
    count = as_int(value)
    notes.add(INVALID, "an invalid execution count was corrected or removed", index)
    return count if count is not None and count >= 0 else None


def is_count(value: object) -> bool:
    """Whether a value is an integer from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def as_int(value: object) -> int | None:
    """A JSON value as an integer, or None."""
    try:
        return int(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
