"""Configuration files as text: the line of each key, and checks before Hydra expands anything."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from core.errors import UsageError, first_line
from core.reading import LARGEST_YAML, UnreadableError, parse_yaml, read_bytes, text_of
from core.workspace import relative

_RESOLVER = re.compile(r"\$\{[^}]*:")


@dataclass(frozen=True)
class Source:
    """A configuration file. lines: the line of each dotted key. defaults: the files in its defaults list, without
    suffix."""

    lines: Mapping[str, int]
    defaults: tuple[str, ...]
    text: str


def read_sources(path: Path, folders: Sequence[Path], root: Path) -> dict[Path, Source]:
    """The file and all files of its defaults lists, as far as they are in `folders`; Hydra reports missing ones.

    Raises UsageError, with file and line, for text that is not YAML, a file that expands without limit, and one that
    would configure Hydra itself.
    """
    sources: dict[Path, Source] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in sources or not file.is_file():
            continue
        sources[file] = source = _read(file, relative(file, root))
        waiting += [Path(folder, f"{name}.yaml") for name in source.defaults for folder in (file.parent, *folders)]
    return sources


def calls_resolver(value: object) -> bool:
    """Whether OmegaConf would call a function, such as one that reads the environment, to resolve a value."""
    return isinstance(value, str) and _RESOLVER.search(value) is not None


def _read(file: Path, name: str) -> Source:
    try:
        return _parsed(text_of(read_bytes(file, largest=LARGEST_YAML)), name)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {first_line(error)}", hint="check its permissions") from error
    except UnreadableError as error:
        hint = (
            "indent with spaces, not with tabs"
            if "\\t" in str(error)
            else "a configuration must be a short UTF-8 text file"
        )
        raise UsageError(f"{name}: {error}", hint=hint) from error


@functools.lru_cache(maxsize=256)
def _parsed(text: str, name: str) -> Source:
    _, node = parse_yaml(text)
    if node is not None and not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{name}: line 1: no mapping of keys to values", hint="write key: value")
    if package := re.search(r"^#\s*@package\s+hydra", text, re.MULTILINE):
        raise _configures_hydra(name, text.count("\n", 0, package.start()) + 1)
    entries = node.value if node is not None else []
    lines = dict(_lines(entries, ""))
    if "hydra" in lines or any(key.startswith("hydra.") for key in lines):
        raise _configures_hydra(name, min(line for key, line in lines.items() if key.split(".")[0] == "hydra"))
    defaults = [value for key, value in entries if key.value == "defaults"]
    return Source(lines, tuple(entry for value in defaults for entry in _named(value, name)), text)


def _configures_hydra(name: str, line: int) -> UsageError:
    return UsageError(f"{name}: line {line}: would configure Hydra itself", hint="remove it")


def _lines(entries: Sequence[tuple[yaml.Node, yaml.Node]], prefix: str) -> Iterator[tuple[str, int]]:
    for key, value in entries:
        name = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _lines(value.value, f"{name}.")
        else:
            yield name, key.start_mark.line + 1


def _named(defaults: yaml.Node, name: str) -> Iterator[str]:
    """The files a defaults list names: `x`, `/x`, `group: option`, `override /group@package: [option, option]`."""
    for entry in defaults.value if isinstance(defaults, yaml.SequenceNode) else ():
        pairs = entry.value if isinstance(entry, yaml.MappingNode) else [(None, entry)]
        for key, value in pairs:
            group, _, package = (key.value if key is not None else "").split(" ")[-1].partition("@")
            options = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for option in options:
                text = f"{group}/{option.value}".strip("/") if group else str(option.value).strip("/")
                if text.startswith("hydra") or package.startswith("hydra") or "@hydra" in text:
                    raise _configures_hydra(name, entry.start_mark.line + 1)
                if calls_resolver(text):
                    raise UsageError(f"{name}: line {entry.start_mark.line + 1}: calls a resolver", hint="name a file")
                yield text.partition("@")[0]
