"""Reads notebooks of any version and quality, and reports what was repaired. Memory is limited to the file's text and
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

from core.errors import UsageError
from migration.notebook.findings import Finding, Keeps, Notes
from migration.notebook.repairing import repaired
from migration.notebook.repairing_outputs import MANY_LINES

_LARGE = 1 << 20  # bytes; above this size less memory is preferred to less time
_WIDGET_MODEL = frozenset({"model_module", "model_module_version", "model_name", "state"})
_PIECE = 1 << 20
_MAX_COMMAS = 100


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
    """As `read`, from the bytes of a file; `name` is used in errors."""
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
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _decoded(data: bytes, name: str, notes: Notes) -> str:
    for first, what in _FIRST_BYTES.items():
        if data.startswith(first):
            raise UsageError(f"{name} is not a notebook: it is {what}")
    encoding = json.detect_encoding(data)
    if encoding != "utf-8":
        notes.add("LF101", "the file began with a byte order mark" if encoding == "utf-8-sig" else f"was {encoding}")
    try:
        return _text(data, encoding, "strict")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        notes.add(
            "LF101",
            f"bytes that are not {encoding.upper()}, first in line {line} of the file, were read as Windows-1252",
            keeps=Keeps.EQUIVALENT,
            action="check the letters with accents in this notebook",
        )
    return _text(data, encoding, _windows_1252.__name__)


def _text(data: bytes, encoding: str, errors: str) -> str:
    r"""The bytes as a text.

    One emoji makes Python store a text with four bytes for each character. In a large file, non-ASCII characters are
    therefore replaced by JSON's `\u` escapes. They can occur in strings only, where the parser decodes them.
    """
    if len(data) < _LARGE or data.isascii():
        return data.decode(encoding, errors)
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    pieces = []
    for start in range(0, len(data), _PIECE):
        piece = decoder.decode(data[start : start + _PIECE], start + _PIECE >= len(data))
        pieces.append(piece if piece.isascii() else piece.encode("ascii", _json_escape.__name__).decode("ascii"))
    return "".join(pieces)


def _windows_1252(error: UnicodeError) -> tuple[str, int]:
    """Decodes bytes that are not UTF-8 as Windows-1252, and the five undefined bytes as Latin-1."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in wrong), error.end


def _json_escape(error: UnicodeError) -> tuple[str, int]:
    """Replaces non-ASCII characters by the escapes of JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return encode_basestring_ascii(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(_windows_1252.__name__, _windows_1252)
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
    text = _without_half_pairs(text, notes)
    notebook = _loaded(text, name, notes)
    del text
    if not isinstance(notebook, dict):
        raise UsageError(f"{name} is not a notebook: its JSON is a {type(notebook).__name__}, not an object with cells")
    if not any(isinstance(notebook.get(key), list) for key in ("cells", "worksheets")) and "nbformat" not in notebook:
        raise UsageError(f"{name} is not a notebook: its JSON has no cells")
    return repaired(notebook, notes)


def _without_half_pairs(text: str, notes: Notes) -> str:
    r"""The JSON text with `\ufffd` for escapes of half a surrogate pair, which cannot be encoded in UTF-8."""
    half = r"\\u[dD](?:[89abAB]\w\w(?!\\u[dD][c-fC-F])|[c-fC-F](?<!\\u[dD][89abAB]\w\w....))"
    if not re.search(half, text):
        return text
    # Complete pairs and escaped backslashes are matched first: in `\\ud83d` no escape begins at the second backslash.
    escape = r"\\(?:\\|u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w))"
    fixed = re.sub(escape, lambda match: "\\ufffd" if match[1] else match[0], text)
    if fixed != text:
        notes.add("LF102", "half surrogate pairs in texts became U+FFFD", keeps=Keeps.EQUIVALENT)
    return fixed


def _loaded(text: str, name: str, notes: Notes) -> Any:
    """The JSON value of a text, after repairing faults. Raises UsageError for faults that cannot be repaired."""
    strict, parse_int, commas = True, None, 0
    text = text.lstrip("\ufeff\0")
    while True:
        decoder = json.JSONDecoder(
            strict=strict,
            parse_int=parse_int,
            parse_constant=partial(_null, notes),
            object_hook=_compacted if len(text) >= _LARGE else None,
        )
        try:
            value, end = decoder.raw_decode(text, len(text) - len(text.lstrip()))
        except RecursionError:
            raise UsageError(f"{name} is not a notebook: its JSON is nested too deeply") from None
        except json.JSONDecodeError as error:
            comma = _trailing_comma(text, error.pos)
            missing = _missing_comma(text, error)
            if strict and error.msg.startswith("Invalid control character"):
                strict = False
                notes.add("LF102", "texts contained unescaped control characters, such as line ends; they were escaped")
            elif comma is not None and commas < _MAX_COMMAS:
                commas += 1
                text = text[:comma] + text[comma + 1 :]
                notes.add("LF102", "commas before a closing bracket were removed")
            elif missing is not None and commas < _MAX_COMMAS:
                commas += 1
                text = text[:missing] + "," + text[missing:]
                notes.add("LF102", "missing commas at the end of a line were inserted")
            else:
                raise UsageError(f"{name} is not a notebook: {_reason(text, error)}") from None
        except ValueError:
            # A number with more digits than Python converts to an integer.
            parse_int = float
        else:
            if text[end:].strip("\0 \t\r\n\x1a"):
                notes.add("LF102", "text after the end of the notebook was removed", keeps=Keeps.EQUIVALENT)
            return value


def _null(notes: Notes, constant: str) -> None:
    notes.add("LF102", f"`{constant}` became `null`", keeps=Keeps.EQUIVALENT)


def _trailing_comma(text: str, position: int) -> int | None:
    """The position of a comma before a closing bracket at or directly after `position`, or None."""
    closing = re.compile(r"\s*[\]}]").match(text, position)
    before = text[max(0, position - 10_000) : position].rstrip()
    if closing is None or not before.endswith(","):
        return None
    return text.rindex(",", 0, position)


def _missing_comma(text: str, error: json.JSONDecodeError) -> int | None:
    """The position of a missing comma between a value and one on a later line, or None."""
    before = text[max(0, error.pos - 10_000) : error.pos]
    value = before.rstrip()
    if error.msg != "Expecting ',' delimiter" or not text.startswith(('"', "{", "["), error.pos):
        return None
    if not value.endswith(('"', "}", "]")) or "\n" not in before[len(value) :]:
        return None
    return error.pos - len(before) + len(value)


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
