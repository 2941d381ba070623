"""Reads YAML and JSON from files that may be untrusted or damaged.

Such a file may be made to hang or crash its reader. Therefore bytes, values, depth and the length of numbers are
limited before anything is built from them. Every fault is an `UnreadableError` with one line of text; errors of the
file system (`FileNotFoundError`, `PermissionError`) are passed on.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.secrets.redaction import printable

if TYPE_CHECKING:
    import yaml

LARGEST_JSON = 1 << 28
LARGEST_YAML = 1 << 18
# Maximum depth; our deepest file nests seven values.
_MAX_DEPTH = 60
# Values of a YAML file with all aliases expanded; our longest file has a hundred.
_MAX_VALUES = 20_000
# Values of a JSON text, counted by its signs. An empty list of three bytes takes 64 bytes of memory.
_MAX_JSON_VALUES = 10_000_000
_MAX_DIGITS = 40
_YAML_NUMBER = re.compile(r"[-+]?[0-9][0-9_:]{40,}")


class UnreadableError(ValueError):
    """A file or text is invalid; `line`, if it is known."""

    def __init__(self, message: str, *, line: int | None = None):
        self.line = line
        place = f"line {line}: " if line is not None else ""
        super().__init__(printable(f"{place}{message}"))


def read_bytes(path: Path, *, largest: int = LARGEST_JSON) -> bytes:
    """The bytes of a file. Raises UnreadableError if it is too large, and for pipes and devices, which never end."""
    if path.exists() and not path.is_file():
        raise UnreadableError("is not a regular file")
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise UnreadableError(f"is larger than {largest >> 10} KiB")
        return file.read()


def text_of(content: bytes) -> str:
    """The text of UTF-8 bytes, with or without a byte order mark. Raises UnreadableError."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8 text: byte {error.start}") from error


# ----------------------------------------------------------------------------------------------------------------- JSON
def read_json(path: Path, *, largest: int = LARGEST_JSON) -> Any:
    """The value in a JSON file. Raises UnreadableError and OSError."""
    return parse_json(read_bytes(path, largest=largest))


def read_json_object(path: Path) -> dict[str, Any]:
    """Like `read_json`, but only for an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UnreadableError("is not a JSON object")
    return value


def json_object_or_none(path: Path) -> dict[str, Any] | None:
    """Like `read_json_object`; None for a file that is missing, unreadable or no JSON object."""
    try:
        return read_json_object(path)
    except (OSError, ValueError):
        return None


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text. Raises UnreadableError for text that is not JSON, is nested too deeply, or has too many
    values or numbers of more than 40 digits."""
    text = text_of(content) if isinstance(content, bytes) else content
    if sum(map(text.count, ",[{")) > _MAX_JSON_VALUES:
        raise UnreadableError(f"is not usable JSON: more than {_MAX_JSON_VALUES} values")
    try:
        value = json.loads(text, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"is not JSON: {error.msg}", line=error.lineno) from error
    except RecursionError as error:
        raise UnreadableError("is not usable JSON: values nest too deep") from error
    _refuse_deep(value)
    return value


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise UnreadableError(f"is not usable JSON: a number of {len(text)} digits")
    return int(text)


def _refuse_deep(value: Any) -> None:
    """Limits the depth, because other code visits values by recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        members = (inner for each in level for inner in (each.values() if isinstance(each, dict) else each))
        level = [inner for inner in members if isinstance(inner, dict | list)]
    raise UnreadableError(f"is not usable: values nest deeper than {_MAX_DEPTH}")


# ----------------------------------------------------------------------------------------------------------------- YAML
def read_yaml(path: Path) -> Any:
    """The value in a YAML file; None if it is empty. Raises UnreadableError and OSError."""
    return parse_yaml(text_of(read_bytes(path, largest=LARGEST_YAML)))[0]


def parse_yaml(text: str) -> tuple[Any, yaml.Node | None]:
    """The value of a YAML text, and its nodes with their lines.

    Only plain values are constructed. Raises UnreadableError for text that is not YAML, and, before expanding it, for
    text with too many aliases or too much depth.
    """
    import yaml

    if len(text) > LARGEST_YAML:
        raise UnreadableError(f"is larger than {LARGEST_YAML >> 10} KiB")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None, None
        if (size := _num_values(node, {}, 0)) > _MAX_VALUES:
            raise UnreadableError(f"its aliases expand to {size:.3g} values")
        return loader.construct_document(node), node
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else None
        raise UnreadableError(str(error.problem or error.context), line=line) from error
    except yaml.YAMLError as error:
        raise UnreadableError(f"is not YAML text: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise UnreadableError("is not usable YAML: values nest too deep") from error
    except UnreadableError:
        raise
    except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError) as error:
        raise UnreadableError(f"is not usable YAML: a value that cannot be read ({type(error).__name__})") from error


def _num_values(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Number of values with every alias expanded. Raises RecursionError if a value contains itself or nests too
    deep."""
    import yaml

    if depth > _MAX_DEPTH:
        raise RecursionError
    if isinstance(node, yaml.ScalarNode):
        if node.style is None and _YAML_NUMBER.fullmatch(node.value):
            raise UnreadableError("a number of more than 40 digits", line=node.start_mark.line + 1)
        return 1
    if id(node) not in known:
        pairs = isinstance(node, yaml.MappingNode)
        inner = [part for pair in node.value for part in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_num_values(part, known, depth + 1) for part in inner)
    return known[id(node)]


# ------------------------------------------------------------------------------------------------------------- archives
# Sensor data, weights and logs hardly compress; a file that unpacks to a hundred times its size was made to fill a
# disk.
LARGEST_RATIO, _ALWAYS_UNPACKED = 100, 10**8


def unpacks_too_far(num_bytes: int, packed_bytes: int) -> bool:
    """Whether the content of a compressed file is more than 100 MB and more than `LARGEST_RATIO` times its size."""
    return num_bytes > max(_ALWAYS_UNPACKED, LARGEST_RATIO * packed_bytes)


def refuse_packed(file: BinaryIO) -> None:
    """For archives that Landfall writes without compression (checkpoints, detectors): their content may not exceed
    their size, so that loading them takes no more memory than their size.

    Raises UnreadableError if it does, and for a damaged archive.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise UnreadableError(f"is not a complete archive: {error}") from error
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise UnreadableError("is compressed; Landfall writes uncompressed files")
    if sum(member.file_size for member in members) > file.seek(0, os.SEEK_END):
        raise UnreadableError("declares more bytes than it has")
    file.seek(0)
