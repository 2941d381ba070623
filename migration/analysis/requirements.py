"""Packages that a notebook installs and imports, as files for `pip install -r` and for the system's package manager."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from shlex import quote

from core.secrets.finding import masked
from migration import shell
from migration.analysis.imports import (
    CALLS_PROGRAM,
    ONLY_ON_COLAB,
    normal_name,
    preinstalled_packages,
    requests_tensorflow_1,
    spacy_models,
    system_packages,
)
from migration.analysis.names import ColabNames
from migration.analysis.variables import literal_values
from migration.colab.paths import DEFAULT_MOUNTS, find_paths
from migration.notebook.texts import FIELD, Edit, edited, holding
from migration.python.shell_texts import list_commands, shell_texts
from migration.python.source import CellSource
from migration.python.statements import end_of
from migration.shell.installs import Item, PipCall, pip_call, system_call, unquoted_bounds

_INSTALLS = holding(
    *("pip", "apt", "aptitude", "dpkg", "conda", "mamba"),
    like=r"\b(?:pip3?|apt|apt-get|aptitude|dpkg|add-apt-repository|conda|mamba)\b",
)
_RELEASE = (
    r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?"
    r"(?:[-_.]?dev[-_.]?\d*)?"
)
_BOUND = (
    rf"(?:===\s*[\w.+!-]+"
    rf"|(?:==|!=)\s*{_RELEASE}(?:\.\*|\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?|(?:[<>]=?|~=)\s*{_RELEASE})"
)
_REQUIREMENT = re.compile(
    rf"(?P<name>[a-z0-9](?:[\w.-]*[a-z0-9])?)\s*(?:\[(?P<extras>[\w\s,.-]*)\])?"
    rf"\s*(?P<bounds>{_BOUND}(?:\s*,\s*{_BOUND})*\s*,?)?\s*(?:;\s*(?P<marker>[^;#]+))?",
    re.IGNORECASE | re.ASCII,
)
_FIELD = re.compile(r"\{\w+\}")
_FILLED = re.compile(
    r"""(?<!\S)["']?(?:\{\s*(?:["'] ["']\.join\(\s*)?(\w+)(\.split\(\))?\)?\s*\}|\$(\w+))["']?(?!\S)"""
)
_AT_ADDRESS = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[\w\s,.-]*\])?\s*@\s*(?P<url>\S+)(?:\s*;.*)?")
_ADDRESS = re.compile(r"(?:(?:git|hg|svn|bzr)\+)?(?:https?|git|ssh)://[^\s/]+/\S+")
_USER = re.compile(r"://(?!git@)[^/@\s]+@")
_EGG = re.compile(r"[#&]egg=([\w.-]+)")
_FILE = re.compile(r"\.(?:whl|zip|tar\.gz|tgz|txt)$")
_WHEEL = re.compile(r"([A-Za-z0-9_.]+)-\d[^-]*-.*\.whl")
_BELOW_WORK = re.compile(r"(?:/content|\$WORK_DIR)/([\w./-]+)")
_PYPI = re.compile(r"https?://pypi\.(?:org|python\.org)/simple/?")
_PRE_RELEASES = ">=0.dev0"  # allows those of one package, unlike --pre
_WIDTH = 160
_IS_FILE = "a folder or file: run the cell that installs it"
# Only prints the version of a program: no reason to install it.
_PRINTS = re.compile(r"\s*\S+\s+(?:--?version|-[vV])\s*")
_GDAL = "# GDAL, in the version of the system's library: pip install gdal==$(gdal-config --version)"
# Pip finds version 1 for Python 3.7 only; a notebook that is ported to version 2 runs with other ones.
_TENSORFLOW_1 = ('tensorflow<2; python_version<"3.8"', 'tensorflow; python_version>="3.8"  # if ported to TensorFlow 2')
_PREINSTALLED = "# Imported or called by the notebook, and installed on Colab:"
_ONLY_ON_COLAB = frozenset({"google-colab", *(name for name, *_ in ONLY_ON_COLAB.values())})
_INDEXES = frozenset({"--index-url", "--extra-index-url", "--index", "--default-index"})


@dataclass(frozen=True)
class Requirements:
    """Requirements of a notebook: `python` lines of a requirements file, `system` packages for `apt-get install`. A
    line that begins with `#` describes a requirement that such a file cannot contain."""

    python: tuple[str, ...] = ()
    system: tuple[str, ...] = ()


def collect_requirements(sources: Sequence[CellSource], colab: ColabNames) -> Requirements:
    """The requirements of the commands of the original cells that run here, and of all imports.

    Never raises.
    """
    lines = _Lines()
    called: list[shell.Command] = []
    for source in sources:
        installs, calls = _INSTALLS.fires(source.text), CALLS_PROGRAM.fires(source.text)
        if installs or calls:
            choices = colab.cell(source).choices
            nodes = [node for choice in choices for node in choice.removed]
            removed = [(source.span(node)[0], end_of(source, node)) for node in nodes]
            for command, text in _commands(source, removed, sources):
                if installs:
                    lines.add(command, text)
                called.append(command)
    entries = lines.entries.values()
    installed = [name for one in entries for name in (one.name, *(f"{one.name}[{extra}]" for extra in one.extras))]
    preinstalled = preinstalled_packages(sources, called, installed)
    system = system_packages(sources, called, [*installed, *preinstalled], lines.system)
    others = {"gdal": (_GDAL,), **({"tensorflow": _TENSORFLOW_1} if requests_tensorflow_1(sources) else {})}
    preinstalled = [line for package in preinstalled for line in others.get(package, (package,))]
    models = [f"# a model of spaCy: python -m spacy download {name}" for name in spacy_models(sources)]
    python = (*lines.python(), *[_PREINSTALLED] * bool(preinstalled), *preinstalled, *models)
    return Requirements(python, (*lines.system.values(), *[_PREINSTALLED] * bool(system), *system))


def requirement_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """What the lines require, without what they say about it."""
    return tuple(line.partition("  #")[0] for line in lines if not line.startswith("#"))


def requirements_text(requirements: Requirements) -> str:
    """A file for `pip install -r`; empty if there is nothing to install."""
    return _text("pip install -r THIS_FILE", requirements.python)


def system_text(requirements: Requirements) -> str:
    """The list of system packages, one per line; empty if the notebook installs none."""
    return _text("grep -v '^#' THIS_FILE | xargs sudo apt-get install", requirements.system)


def _text(command: str, lines: tuple[str, ...]) -> str:
    if all(line.startswith(("#", "--")) for line in lines):
        return ""
    return "\n".join([f"# What the notebook needs: {command}", *lines, ""])


def _commands(
    source: CellSource, removed: Sequence[tuple[int, int]], sources: Sequence[CellSource]
) -> Iterator[tuple[shell.Command, str]]:
    """Every command outside the removed spans, with its text; version bounds that the shell would read as redirections
    are quoted, and names of packages replace variables."""

    def runs(at: int) -> bool:
        return not any(start <= at < end for start, end in removed)

    texts = []
    for found in filter(lambda found: runs(found.start), shell_texts(source)):
        if found.is_line and _PRINTS.fullmatch(found.text):
            continue
        fields = (_FIELD.match(source.text, found.at(at)) for at, char in enumerate(found.text) if char == FIELD)
        text = re.sub(FIELD, lambda match, fields=fields: (next(fields) or match)[0], found.text)
        is_script = found.script and found.literal is None
        texts.append((text if is_script else _filled(text, source, sources, splits=True), is_script))
    for listed in list_commands(source):
        if runs(source.span(listed.call)[0]):
            words = (quote(word.value) if word.is_literal else word.value for word in listed.command.words)
            texts.append((_filled(" ".join(words), source, sources, splits=False), False))
    for text, is_script in texts:
        spans = [
            span
            for command in shell.commands(text, script=is_script)
            if (call := pip_call(command)) is not None and call.installs
            for span in unquoted_bounds(text, call)
        ]
        text = edited(text, [Edit(start, end, f'"{text[start:end]}"') for start, end in spans])
        for command in shell.commands(text, script=is_script):
            yield command, text[command.start : command.end]


def _filled(text: str, source: CellSource, sources: Sequence[CellSource], *, splits: bool) -> str:
    """An install command with the packages that a variable names, if all its values are literals; `splits`: a shell
    splits them into words."""

    def packages(match: re.Match[str]) -> str:
        values = literal_values(match[1] or match[3], source, sources)
        words = (word for value in values for word in (value.split() if splits or match[2] else [value]))
        return " ".join(map(quote, words)) or match[0]

    return _FILLED.sub(packages, text) if "install" in text else text


@dataclass
class _Entry:
    """One line for one package: `text` in the file, `earlier`: earlier requirements in the notebook."""

    name: str
    text: str
    extras: set[str] = field(default_factory=set)
    bounds: str = ""
    marker: str = ""
    notes: dict[str, None] = field(default_factory=dict)
    earlier: dict[str, None] = field(default_factory=dict)

    def add_extras(self, extras: set[str]) -> None:
        """Adds extras of another line for the package: pip has installed both."""
        if self.bounds != "@" and not extras <= self.extras:
            self.extras = self.extras | extras
            self.write()

    def write(self) -> None:
        """Writes the text from the parts."""
        marker = f"; {self.marker}" if self.marker else ""
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        self.text = f"{self.name}{extras}{self.bounds}{marker}"

    def line(self) -> str:
        said = [f"earlier in the notebook: {', '.join(self.earlier)}"] if self.earlier else []
        comment = "; ".join([*self.notes, *said])
        line = f"{self.text}  # {comment}" if comment else self.text
        safe = masked(line)
        return line if safe == line else _comment(safe, "holds a secret")


class _Lines:
    """The lines so far; a later version of a package replaces an earlier one."""

    def __init__(self) -> None:
        self.options: dict[str, None] = {}
        self.entries: dict[str, _Entry] = {}
        self.comments: dict[str, None] = {}
        self.system: dict[str, str] = {}

    def python(self) -> tuple[str, ...]:
        return (*self.options, *(entry.line() for entry in self.entries.values()), *self.comments)

    def add(self, command: shell.Command, text: str) -> None:
        if command.is_of_other_environment:
            return
        call = pip_call(command)
        if call is not None:
            if call.installs and any(item.value == "import" for item in call.items):
                self._say(text, "a line of Python is joined to it")
            elif call.installs:
                self._add_pip(call)
            return
        if command.program in ("conda", "mamba", "micromamba"):
            if "install" in [word.value for word in command.arguments]:
                self._say(text, "pip cannot install it")
            return
        changes = system_call(command)
        if changes is None or not changes.installs:
            return
        for package in changes.packages:
            self.system[re.split("[=/]", package)[0]] = package
        if changes.others or changes.sources:
            why = "no package by name" if changes.others else "adds a package source"
            line = _comment(masked(_shown(_without_user(text)[0])), why)
            self.system.setdefault(line, line)

    def _add_pip(self, call: PipCall) -> None:
        for item in call.items:
            if item.option in ("", "--editable"):
                self._add_requirement(item, call)
            elif item.option in _INDEXES | {"--find-links", "--requirement", "--constraint", "--trusted-host"}:
                self._add_option(item)

    def _add_option(self, item: Item) -> None:
        value, credentials = _without_user(item.value)
        below_work = _BELOW_WORK.fullmatch(value)
        value = below_work[1] if below_work else value
        option = "--extra-index-url" if item.option in _INDEXES else item.option
        line = f"{option} {value}"
        short = {"--requirement": "-r", "--constraint": "-c"}.get(option)
        if short:
            line = f"{short} {value}"
        if item.option in _INDEXES and _PYPI.fullmatch(value):
            return
        if not (item.is_known or below_work):
            self._say(line, "a part of it is a Python expression")
        elif option != "--trusted-host" and not re.match(r"https?://", value) and not _ADDRESS.fullmatch(value):
            self._say(line, _IS_FILE)
        elif credentials or masked(line) != line:
            self._say(line, "needs credentials")
        else:
            self.options[line] = None

    def _add_requirement(self, item: Item, call: PipCall) -> None:
        value, credentials = _without_user(item.value)
        prefix = "-e " if item.option == "--editable" else ""
        value = " ".join(value.split())
        known = _REQUIREMENT.fullmatch(value) if not prefix else None
        address = _AT_ADDRESS.fullmatch(value)
        url = address["url"] if address else value
        if not item.is_known:
            self._say(prefix + value, "a part of it is a Python expression")
        elif known and (known["name"].lower() in sys.stdlib_module_names or iskeyword(known["name"])):
            self._say(value, "is part of Python")  # pip finds nothing, or an old copy
        elif known and not _FILE.search(value):
            marker = (known["marker"] or "").strip()
            extras = {extra.strip() for extra in (known["extras"] or "").split(",")} - {""}
            bounds = re.sub(r"\s+", "", known["bounds"] or "").rstrip(",")
            entry = _Entry(known["name"], value.rstrip(" ,"), extras, bounds, marker)
            if call.option("--pre") and "==" not in bounds:
                entry.bounds = ",".join(filter(None, [bounds, _PRE_RELEASES]))
                entry.write()
            if entry.name != "install":  # of a second command, as in `pip install a!pip install b`
                self._put(entry, call)
        elif credentials:
            self._say(prefix + value, "needs credentials")
        elif _ADDRESS.fullmatch(url):
            self._put(_Entry(address["name"] if address else _name_in(url), prefix + value, bounds="@"), call)
        elif prefix or re.match(r"[.~/]|file:", url) or "/" in url or _FILE.search(url):
            self._say(prefix + value, _IS_FILE)
        else:
            self._say(prefix + value, "pip does not accept it")

    def _put(self, new: _Entry, call: PipCall) -> None:
        if call.option("--no-deps", "--no-dependencies"):
            new.notes["the notebook installs it with --no-deps"] = None
        name = normal_name(new.name)
        if name in _ONLY_ON_COLAB:
            return
        key = name + (f";{new.marker}" if new.marker else "")
        old = self.entries.get(key)
        if old is None:
            self.entries[key] = new
            return
        if not new.bounds and old.bounds and not call.option("--upgrade"):
            # Pip keeps an installed version if none is requested.
            old.notes = old.notes if new.notes else {}
            old.add_extras(new.extras)
            return
        new.add_extras(old.extras)
        new.earlier = dict(old.earlier)
        if old.bounds and old.text != new.text:
            new.earlier[old.text] = None
        new.earlier.pop(new.text, None)
        self.entries[key] = new

    def _say(self, text: str, why: str) -> None:
        self.comments[_comment(masked(_shown(_without_user(text)[0])), why)] = None


def _without_user(value: str) -> tuple[str, bool]:
    """A URL without user name and password, and whether it had any."""
    bare = _USER.sub("://", value)
    return bare, bare != value


def _name_in(url: str) -> str:
    """The most likely package of a URL: named in it, by its wheel, or by its repository."""
    if egg := _EGG.search(url):
        return egg[1]
    last = re.split(r"[#?]", url)[0].rstrip("/").rsplit("/", 1)[-1]
    if wheel := _WHEEL.fullmatch(last):
        return wheel[1]
    return re.split(r"\.git\b|@", last)[0] if "+" in url.split("://")[0] else url


def _shown(text: str) -> str:
    """The text on one line, with `{…}` for Python expressions, and the names of the folders as the cells have them."""
    line = " ".join(text.replace("\\\n", " ").replace(FIELD, "{…}").split()).rstrip("\\")
    names = [Edit(span.start, span.end, f"${span.folder.upper()}_DIR") for span in find_paths(line, DEFAULT_MOUNTS)]
    line = re.sub(r'"(\$(?:WORK|DRIVE)_DIR)"', r"\1", edited(line, names))
    return line if len(line) <= _WIDTH else line[:_WIDTH] + " …"


def _comment(text: str, why: str) -> str:
    return f"# {text} ({why})"
