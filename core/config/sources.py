"""Configuration files as text: which line sets which key, and what is refused before Hydra expands anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from core.errors import UsageError
from core.workspace import relative

_LARGEST_BYTES = 1 << 18
# Values of a file with all its aliases written out; the longest of ours has a hundred.
_MOST_VALUES = 20_000
_RESOLVER = re.compile(r"\$\{[^}]*:")


@dataclass(frozen=True)
class Source:
    """A file's dotted keys, each with its line, and the files its defaults list names, without their suffix."""

    lines: dict[str, int]
    defaults: tuple[str, ...]


def read_sources(path: Path, folders: Sequence[Path], root: Path) -> dict[Path, Source]:
    """The file and all that its defaults lists name, as far as they lie in `folders`; what Hydra misses it reports.

    Raises UsageError, with file and line, for text that is no YAML, a file that expands without end, and one that
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
    """Whether OmegaConf would call a function, such as one that reads the environment, to fill a value in."""
    return isinstance(value, str) and _RESOLVER.search(value) is not None


def _read(file: Path, name: str) -> Source:
    if file.stat().st_size > _LARGEST_BYTES:
        raise UsageError(f"{name}: larger than {_LARGEST_BYTES >> 10} KiB", hint="a configuration is a page of text")
    try:
        text = file.read_text(encoding="utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        size = _num_values(node, {}) if node is not None else 0
    except yaml.MarkedYAMLError as error:
        raise _fault(name, error) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: no YAML text: {str(error).splitlines()[0]}", hint="save it as UTF-8") from error
    except RecursionError as error:
        raise UsageError(f"{name}: values within values without end", hint="write it flat") from error
    if size > _MOST_VALUES:
        raise UsageError(f"{name}: its aliases expand to {size:.3g} values", hint="write the values out")
    if node is not None and not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{name}: line 1: no mapping of keys to values", hint="write key: value")
    if package := re.search(r"^#\s*@package\s+hydra", text, re.MULTILINE):
        raise _configures_hydra(name, text.count("\n", 0, package.start()) + 1)
    entries = node.value if node is not None else []
    lines = dict(_lines(entries, ""))
    if "hydra" in lines or any(key.startswith("hydra.") for key in lines):
        raise _configures_hydra(name, min(line for key, line in lines.items() if key.split(".")[0] == "hydra"))
    defaults = [value for key, value in entries if key.value == "defaults"]
    return Source(lines, tuple(entry for value in defaults for entry in _named(value, name)))


def _fault(name: str, error: yaml.MarkedYAMLError) -> UsageError:
    line = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
    hint = "indent with blanks, not with tabs" if "'\\t'" in str(error.problem) else None
    return UsageError(f"{name}: {line}{error.problem or error.context}", hint=hint)


def _configures_hydra(name: str, line: int) -> UsageError:
    return UsageError(f"{name}: line {line}: would configure Hydra itself", hint="remove it; Landfall composes alone")


def _num_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Scalars with every alias written out. Raises RecursionError where a value holds itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        pairs = isinstance(node, yaml.MappingNode)
        inner = [part for pair in node.value for part in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_num_values(part, known) for part in inner)
    return known[id(node)]


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
