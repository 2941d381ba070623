"""Parses install commands: the arguments of pip, and the packages of a system's package manager."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from migration.shell.words import Command, Word, is_known, is_option

_PIP = re.compile(r"(?:/usr(?:/local)?/bin/)?pip3?")
_PYTHON = re.compile(r"(?:/usr(?:/local)?/bin/)?python3?")
_ANY_PIP = re.compile(r"(?:\S*/)?pip(?:\d+(?:\.\d+)*)?")
_ANY_PYTHON = re.compile(r"(?:\S*/)?python(?:\d+(?:\.\d+)*)?|\{\s*sys\.executable\s*\}|\$sys\.executable")

_VALUE_LETTERS = frozenset("rceifdbtCp")
_VALUE_OPTIONS = re.compile(
    r"--(?:requirement|requirements|constraint|constraints|editable|index-url|extra-index-url|find-links|target|"
    r"prefix|root|src|platform|python-version|implementation|abi|upgrade-strategy|no-binary|only-binary|progress-bar|"
    r"root-user-action|report|config-settings|global-option|install-option|build-option|trusted-host|cert|"
    r"client-cert|cache-dir|log|log-file|proxy|retries|timeout|default-timeout|exists-action|use-feature|"
    r"use-deprecated|keyring-provider|python|build|dest|torch-backend|prerelease|resolution|index|default-index|"
    r"index-strategy|link-mode|override|overrides|with|python-platform|exclude-newer|upgrade-package|"
    r"reinstall-package|format|path|exclude|group|build-constraint)"
)
_LONG_NAMES = {
    "r": "--requirement",
    "c": "--constraint",
    "e": "--editable",
    "i": "--index-url",
    "f": "--find-links",
    "t": "--target",
    "U": "--upgrade",
    "I": "--ignore-installed",
    "q": "--quiet",
    "v": "--verbose",
    "y": "--yes",
}

_SYSTEM_PROGRAMS = frozenset(
    {
        "apt",
        "apt-get",
        "aptitude",
        "apt-key",
        "apt-mark",
        "add-apt-repository",
        "apt-add-repository",
        "dpkg",
        "gdebi",
        "ldconfig",
        "update-alternatives",
    }
)
_LOOKS = re.compile(
    r"(?:apt|apt-get|aptitude) (?:list|show|search|policy|depends|rdepends|changelog|download|source|help)\b"
    r"|\S+ (?:-h|-v|--help|--version)$"
    r"|(?:dpkg|dpkg-query) (?:-[lLsSIcxpWC]|--(?:list|listfiles|status|search|info|contents|extract|print\S*|get-\S*"
    r"|version|help|verify|audit))(?:\s|$)|ldconfig (?:-p|--print-cache|-V|--version)"
    r"|update-alternatives --(?:list|display|query|get-selections)|apt-mark show|apt-key (?:list|finger|export)"
)

_UNPACKS = re.compile(r"-[a-zA-Z]*i|--(?:install|unpack)$")
_SYSTEM_VALUES = frozenset({"-t", "-o", "-c", "--target-release", "--default-release", "--option", "--config-file"})

_VERSION = r"(?:\d|\{[^{}]*\}|\$\w)[\w.*+!{}$-]*"
_BOUND = rf"[ \t]*(?:[<>=~!]=[ \t]*|[<>])(?:{_VERSION})"
_SPEC = re.compile(rf"[A-Za-z0-9][\w.-]*(?:\[[\w, .-]*\])?{_BOUND}(?:[ \t]*,{_BOUND})*(?=[\s;|)]|&&|$)")


@dataclass(frozen=True)
class Item:
    """One argument of `pip install`: an option by its long name with its value, or a requirement (`option` empty).

    `words` are its words; `value` is "" for an option without one.
    """

    option: str
    value: str
    words: tuple[Word, ...]

    @property
    def is_known(self) -> bool:
        return all(is_known(word) for word in self.words)


@dataclass(frozen=True)
class PipCall:
    """A pip command.

    `last` is the index of the word `pip`. `is_plain`: it is `pip` or `python -m pip` with the Python on the `PATH`,
    possibly after `sudo`, and Python has no other options. `items` are pip's own options and the arguments after the
    subcommand.
    """

    command: Command
    last: int
    subcommand: str = ""
    subcommand_at: int = 0
    items: tuple[Item, ...] = ()
    uv: bool = False
    is_plain: bool = False

    @property
    def installs(self) -> bool:
        return self.subcommand == "install"

    def option(self, *names: str) -> bool:
        return any(item.option in names for item in self.items)


def pip_call(command: Command) -> PipCall | None:
    """A shell command as a pip command, including `python -m pip`, `sudo pip` and `uv pip`."""
    words = command.words
    at = command.program_at
    if at >= len(words):
        return None
    value = words[at].value
    if value == "uv" or value.endswith("/uv"):
        return _parsed(command, at + 1, uv=True) if _value(words, at + 1) == "pip" else None
    if _ANY_PIP.fullmatch(value):
        return _parsed(command, at, is_plain=bool(_PIP.fullmatch(value)))
    if not _ANY_PYTHON.fullmatch(value):
        return None
    last = at + 1
    while last < len(words) and words[last].value.startswith("-") and words[last].value != "-m":
        last += 2 if words[last].value in ("-W", "-X") else 1
    uv = _value(words, last + 1) == "uv"
    last += 2 if uv else 1
    if _value(words, last) != "pip" or "-m" not in (_value(words, last - 1), _value(words, last - 2)):
        return None
    return _parsed(command, last, uv=uv, is_plain=last == at + 2 and bool(_PYTHON.fullmatch(value)))


def unquoted_bounds(text: str, call: PipCall) -> list[tuple[int, int]]:
    """The spans of requirements whose `<` or `>` the shell reads as a redirection: `pip install x>=1`."""
    found = []
    ends = {word.end: word for word in call.command.words[call.subcommand_at + 1 :]}
    for redirection in call.command.redirections:
        blank = len(text[: redirection.start]) - len(text[: redirection.start].rstrip(" \t"))
        word = ends.get(redirection.start - blank)
        if word is None or redirection.number or redirection.operator not in ("<", ">") or set(word.quotes) != {"u"}:
            continue
        target = redirection.target.value if redirection.target else ""
        spec = _SPEC.match(text, word.start)
        if spec and spec.end() > redirection.start and (not blank or target.startswith("=")):
            found.append(spec.span())
    return found


def _parsed(command: Command, last: int, *, uv: bool = False, is_plain: bool = False) -> PipCall:
    items = list(_items(command.words[last + 1 :]))
    found = next((item for item in items if not item.option), None)
    before = [word.value for word in command.words[: command.program_at]]
    return PipCall(
        command=command,
        last=last,
        subcommand=found.value if found else "",
        subcommand_at=command.words.index(found.words[0]) if found else last,
        items=tuple(item for item in items if item is not found),
        uv=uv,
        is_plain=is_plain and before[:1] in ([], ["sudo"]) and all(word.startswith("-") for word in before[1:]),
    )


def _items(words: tuple[Word, ...]) -> Iterator[Item]:
    at = 0
    only_requirements = False
    while at < len(words):
        word = words[at]
        at += 1
        if only_requirements or not is_option(word) or word.value == "-":
            yield Item("", word.value, (word,))
        elif not word.value.startswith("-"):
            yield Item(word.value, "", (word,))
        elif word.value == "--":
            only_requirements = True
        elif word.value.startswith("--"):
            name, equals, value = word.value.partition("=")
            if not equals and _VALUE_OPTIONS.fullmatch(name) and at < len(words):
                yield Item(name, words[at].value, (word, words[at]))
                at += 1
            else:
                yield Item(name, value, (word,))
        else:
            for index, letter in enumerate(word.value[1:], 2):
                name = _LONG_NAMES.get(letter, "-" + letter)
                if letter not in _VALUE_LETTERS:
                    yield Item(name, "", (word,))
                    continue
                value = word.value[index:].removeprefix("=")
                if not value and at < len(words):
                    yield Item(name, words[at].value, (word, words[at]))
                    at += 1
                else:
                    yield Item(name, value, (word,))
                break


@dataclass(frozen=True)
class SystemCall:
    """A command that changes the system's packages.

    `packages` are the installed packages (`name` or `name=version`), `others` other ones (files), `sources` the
    repositories that it adds to those of the package manager; `installs` is False for one that installs nothing
    (`apt-get update`).
    """

    command: Command
    packages: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    installs: bool = False


def only_looks(name: str, values: list[str]) -> bool:
    """Whether a system program with these arguments only prints: `ldconfig -p`, `dpkg -l`."""
    return any(_LOOKS.match(" ".join([name, *given])) for given in (values, _without_options(values)))


def system_call(command: Command) -> SystemCall | None:
    """The changes of a command to the system; None if it only reads, or is another program."""
    name = command.program
    arguments = command.arguments
    values = [word.value for word in arguments]
    written = [found.target.value for found in command.redirections if found.target]
    written += values if name in ("tee", "cp", "mv") else []
    if sources := tuple(value for value in written if value.startswith("/etc/apt/")):
        return SystemCall(command, sources=sources, installs=True)
    if name not in _SYSTEM_PROGRAMS or only_looks(name, values):
        return None
    if name in ("dpkg", "gdebi"):
        installs = name == "gdebi" or any(map(_UNPACKS.match, values))
        files = tuple(value for value in values if installs and not value.startswith("-"))
        return SystemCall(command, others=files, installs=bool(files))
    if name in ("add-apt-repository", "apt-add-repository"):
        added = {"-r", "--remove"}.isdisjoint(values)
        sources = tuple(value for value in values if added and not value.startswith("-"))
        return SystemCall(command, sources=sources, installs=added)
    if name not in ("apt", "apt-get", "aptitude"):
        return SystemCall(command)
    given = [value for option, value in pairwise(arguments) if option.value in _SYSTEM_VALUES]
    plain = [word for word in arguments if not is_option(word) and word not in given]
    if not plain or plain[0].value not in ("install", "build-dep", "reinstall"):
        return SystemCall(command)
    # A digit alone is the number of a redirection, apart from it by mistake: `> /dev/null 2 >&1`.
    named = [word for word in plain[1:] if not re.fullmatch(r"\d", word.value)]
    known = [word.value for word in named if is_known(word)]
    packages = tuple(value for value in known if re.fullmatch(r"[a-z0-9][\w.+:~-]*(?:=\S+)?(?:/\w\S*)?", value))
    others = tuple(word.value for word in named if word.value not in packages)
    return SystemCall(command, packages, others, installs=True)


def pipelines(commands: tuple[Command, ...]) -> list[list[Command]]:
    """The commands of a text, those joined by `|` together."""
    groups: list[list[Command]] = []
    for command in commands:
        if groups and command.before in ("|", "|&"):
            groups[-1].append(command)
        else:
            groups.append([command])
    return groups


def _without_options(values: list[str]) -> list[str]:
    """The arguments from the first one that is not an option."""
    return values[next((index for index, value in enumerate(values) if not value.startswith("-")), len(values)) :]


def _value(words: tuple[Word, ...], at: int) -> str:
    return words[at].value if at < len(words) else ""
