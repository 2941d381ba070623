"""Reads notebooks of any version, and reports what was repaired. Memory is limited to the file's text and
the parsed notebook, a few times the file's size: the bytes are released before the text is parsed, long outputs are
joined into one text as soon as they are parsed, and saved widget state is dropped. Only long outputs with non-ASCII
characters stay lists of lines: one emoji would make the complete text four times as large.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from functools import partial
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any

from core.errors import UsageError, first_line
from core.reading import UnreadableError
from core.reading import read_bytes as read_foreign
from migration.notebook.findings import Finding, Keeps, Notes
from migration.notebook.repairing import MANY_LINES, repaired

_LARGE_BYTES = 1 << 20  # from this size on, memory is saved at the cost of time
_WIDGET_MODEL = frozenset({"model_module", "model_module_version", "model_name", "state"})
_BLOCK_BYTES = 1 << 20
_FIRST_BYTES = {
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip archive",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a picture",
}
# The language of kernels that do not specify it, by the prefix of the kernel's name.
KERNEL_LANGUAGES = {
    "ir": "R", "r": "R", "julia": "julia", "swift": "swift", "bash": "bash", "octave": "octave", "matlab": "matlab",
    "javascript": "javascript", "deno": "typescript", "tslab": "typescript", "jslab": "javascript",
    "xcpp": "c++", "rust": "rust", "gophernotes": "go", "java": "java", "ijava": "java", "kotlin": "kotlin",
    "scala": "scala", "spylon": "scala", "ruby": "ruby", "perl": "perl", "haskell": "haskell", "sos": "sos",
    "sql": "sql",
}  # fmt: skip


def read(path: Path) -> tuple[dict[str, Any], list[Finding]]:
    """The notebook in a file, as nbformat 4 with texts joined, and the repairs.

    Raises UsageError, one line that names the file, for anything that is not a notebook.
    """
    notes = Notes()
    # No variable refers to the bytes or the text, so that each is released as early as possible.
    return _parsed(_decoded(_bytes_of(path), str(path), notes), str(path), notes), notes.findings()


def read_bytes(data: bytes, name: str) -> tuple[dict[str, Any], list[Finding]]:
    """Like `read`, from the bytes of a file; `name` is used in errors."""
    notes = Notes()
    return _parsed(_decoded(data, name, notes), name, notes), notes.findings()


def source_text(cell: Mapping[str, Any]) -> str:
    """A cell's source as one text (notebooks store a list of lines or a string); empty if it is neither."""
    source = cell.get("source")
    if isinstance(source, str):
        return source
    return "".join(line for line in source if isinstance(line, str)) if isinstance(source, list | tuple) else ""


def language_of(notebook: Mapping[str, Any]) -> str:
    """The language of the kernel in lower case; `python` if the notebook does not specify it."""
    language = stated_language(notebook.get("metadata")) or "python"
    return "python" if re.match(r"i?python\d?\b", language, re.IGNORECASE) else language.lower()


def stated_language(metadata: object) -> str | None:
    """The language from the notebook's metadata, or from its kernel's name; None if unknown."""
    kernel, info = as_dict(as_dict(metadata).get("kernelspec")), as_dict(as_dict(metadata).get("language_info"))
    name = re.match(r"[a-z]+", str(kernel.get("name") or "").lower())
    answers = (kernel.get("language"), KERNEL_LANGUAGES.get(name[0]) if name else None, info.get("name"))
    return next((answer for answer in answers if isinstance(answer, str) and answer.strip()), None)


def as_dict(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


# -------------------------------------------------------------------------------------------------------------- bytes
def _bytes_of(path: Path) -> bytes:
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a notebook")
    try:
        return read_foreign(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, UnreadableError) as error:
        raise UsageError(f"{path} cannot be read: {first_line(error)}") from None


def _decoded(data: bytes, name: str, notes: Notes) -> str:
    r"""The bytes as a text.

    One emoji makes Python store a text with four bytes for each character. In a large file, non-ASCII characters are
    therefore replaced by JSON's `\u` escapes. They can occur in strings only, where the parser decodes them.
    """
    for first, what in _FIRST_BYTES.items():
        if data.startswith(first):
            raise UsageError(f"{name} is not a notebook: it is {what}")
    encoding = json.detect_encoding(data)
    if encoding != "utf-8":
        notes.add("LF101", "the file began with a byte order mark" if encoding == "utf-8-sig" else f"was {encoding}")
    try:
        if len(data) < _LARGE_BYTES or data.isascii():
            return data.decode(encoding)
        decoder = codecs.getincrementaldecoder(encoding)()
        pieces = []
        for start in range(0, len(data), _BLOCK_BYTES):
            piece = decoder.decode(data[start : start + _BLOCK_BYTES], start + _BLOCK_BYTES >= len(data))
            pieces.append(piece if piece.isascii() else piece.encode("ascii", _json_escape.__name__).decode("ascii"))
        return "".join(pieces)
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not a notebook: its text is not {encoding.upper()} ({error.reason})") from None


def _json_escape(error: UnicodeError) -> tuple[str, int]:
    """Replaces non-ASCII characters by the escapes of JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return encode_basestring_ascii(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(_json_escape.__name__, _json_escape)


# --------------------------------------------------------------------------------------------------------------- JSON
def _parsed(text: str, name: str, notes: Notes) -> dict[str, Any]:
    start = text[:300].lstrip("\ufeff \t\r\n\0").lower()
    if not start:
        raise UsageError(f"{name} is not a notebook: the file is empty")
    if start.startswith("version https://git-lfs"):
        raise UsageError(f"{name} is a Git LFS pointer instead of a notebook", hint="git lfs pull")
    if start.startswith("<") and not start.startswith("<<<"):
        raise UsageError(
            f"{name} is an HTML page instead of a notebook", hint="download the raw file, not the page about it"
        )
    notebook = _loaded(text, name, notes)
    del text
    if not isinstance(notebook, dict):
        raise UsageError(f"{name} is not a notebook: its JSON is a {type(notebook).__name__}, not an object with cells")
    if not any(isinstance(notebook.get(key), list) for key in ("cells", "worksheets")) and "nbformat" not in notebook:
        raise UsageError(f"{name} is not a notebook: its JSON has no cells")
    return repaired(notebook, notes)


def _loaded(text: str, name: str, notes: Notes) -> Any:
    """The JSON value of a text. Raises UsageError for damaged JSON; control characters in texts are accepted."""
    decoder = json.JSONDecoder(
        strict=False,
        parse_constant=partial(_null, notes),
        object_hook=_compacted if len(text) >= _LARGE_BYTES else None,
    )
    text = text.lstrip("\ufeff\0")
    try:
        value, end = decoder.raw_decode(text, len(text) - len(text.lstrip()))
    except RecursionError:
        raise UsageError(f"{name} is not a notebook: its JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{name} is not a notebook: {_reason(text, error)}") from None
    except ValueError as error:
        raise UsageError(f"{name} is not a notebook: {error}") from None  # a number of thousands of digits
    if text[end:].strip("\0 \t\r\n\x1a"):
        line = text.count("\n", 0, end) + 1
        raise UsageError(f"{name} is not a notebook: there is text after its JSON, which ends in line {line}")
    return value


def _null(notes: Notes, constant: str) -> None:
    notes.add("LF101", f"`{constant}` became `null`", keeps=Keeps.EQUIVALENT)


def _reason(text: str, error: json.JSONDecodeError) -> str:
    where = f"line {error.lineno}, column {error.colno}"
    line = text[text.rfind("\n", 0, error.pos) + 1 :][:7]
    if line.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return f"a merge conflict is not resolved at {where}"
    unfinished = error.msg.startswith("Unterminated string") or not text[error.pos :].strip()
    if text.lstrip()[:1] == "{" and unfinished:
        return f"the file is cut off, its JSON ends in the middle ({where})"
    return f"no JSON at {where}: {error.msg}"


def _compacted(record: dict[str, Any]) -> dict[str, Any]:
    """Reduces an object of a large file as soon as it is parsed: joins long lists of lines, drops widget state."""
    if "output_type" in record:
        _join(record, "text")
        data = record.get("data")
        for mime in data if isinstance(data, dict) else ():
            if not mime.endswith("json"):
                _join(data, mime)
    elif "cell_type" in record:
        _join(record, "source")
    elif record.keys() >= _WIDGET_MODEL:
        return {}
    return record


def _join(record: dict[str, Any], key: str) -> None:
    lines = record.get(key)
    if not isinstance(lines, list) or len(lines) < MANY_LINES:
        return
    # Lines without line ends, as in nbformat 3, are joined by the repair, which knows the format.
    if all(isinstance(line, str) and line.isascii() for line in lines) and lines[0].endswith(("\n", "\r")):
        record[key] = "".join(lines)
