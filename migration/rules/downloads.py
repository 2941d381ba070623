"""Clones and downloads: on Colab every session starts with an empty disk, here earlier downloads still exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import FIELD, holding
from migration.python.shell_texts import ShellText
from migration.python.source import CellSource
from migration.rules.guards import edits, guard, is_conditional_on_files, is_repeated, run_texts
from migration.rules.rule import Example, Match, Rule
from migration.shell import Word

_TAKES_VALUE = {
    "git": re.compile(
        r"-[obcju]|--(?:origin|branch|revision|depth|config|jobs|reference|reference-if-able|template|separate-git-dir|"
        r"upload-pack|shallow-since|shallow-exclude|filter|server-option|bundle-uri|ref-format)"
    ),
    "wget": re.compile(r"-[oaeiBtOTwQPUlARDIX]|--output-document"),
    "curl": re.compile(r"-[AbcCdDeEFHKmoPQrtTuUwxXyYz]|--(?:output|user-agent|header|referer|cookie|max-time|retry)"),
    "gdown": re.compile(r"-O|--(?:output|id|proxy|speed|user-agent|format)"),
}
_CLUSTERS = frozenset({"wget", "curl"})  # `-qO-` is `-q -O -`

_WGET_STAYS = re.compile(
    r"-n?c|-[NmOVh]|--(?:no-clobber|timestamping|continue|mirror|spider|output-document|post-data|post-file|method|"
    r"delete-after|backups|start-pos|version|help)"
)
"""Options with which wget's `-nc` is an error or has no effect."""
_NOT_ONE_FILE = {
    "wget": re.compile(r"-n?c|-[Ni]|--(?:no-clobber|timestamping|continue|input-file|post-data|post-file|method)"),
    "curl": re.compile(
        r"-[dFTXIGCzJ]|--(?:data.*|json|form|upload-file|request|head|get|continue-at|time-cond|output-dir|"
        r"remote-header-name|remote-name-all)"
    ),
    "gdown": re.compile(r"--folder|-c|--continue"),
}
"""Options that send data, or do not create a single file with a known name."""

_REMOTE = re.compile(r"(?:https?|ftp)://(?!(?:localhost|127\.|0\.0\.0\.0|\[::1\]))", re.IGNORECASE)
_REMOVAL = re.compile(r"rm(?<=\brm)[ \t]+-\w*[rR][^\n]*|rmtree(?<=\brmtree)\([^\n]*")
_NAME = re.compile(r"(?:[\w.+@%~-]|\{[\w.\[\]]+\})+")
_GIVES_NO_FILE = frozenset({"-", ".", ".."})


@dataclass
class _Arguments:
    """A command's arguments: options with their values, as written, and the others."""

    options: dict[str, str | None] = field(default_factory=dict)
    positional: list[Word] = field(default_factory=list)

    def has(self, options: re.Pattern[str]) -> bool:
        return any(options.fullmatch(option) for option in self.options)


def _arguments(program: str, words: Sequence[Word]) -> _Arguments:
    found = _Arguments()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.value.startswith("-") or word.value == "-":
            found.positional.append(word)
        elif word.value.startswith("--") or program not in _CLUSTERS:
            name, equals, value = word.raw.partition("=")
            takes = not equals and rest and _TAKES_VALUE[program].fullmatch(name)
            found.options[name] = value if equals else rest.pop(0).raw if takes else None
        else:
            _read_cluster(program, word, rest, found)
    return found


def _read_cluster(program: str, word: Word, rest: list[Word], found: _Arguments) -> None:
    """Reads `-qO-` as `-q -O -`, and wget's `-nvc` as `-nv -nc`."""
    for at, letter in enumerate(word.value[1:], 1):
        if letter == "n" and program == "wget":
            found.options.update({f"-n{negated}": None for negated in word.value[at + 1 :]})
            return
        if _TAKES_VALUE[program].fullmatch(f"-{letter}"):
            attached = word.raw[at + 1 :]
            found.options[f"-{letter}"] = attached or (rest.pop(0).raw if rest else None)
            return
        found.options[f"-{letter}"] = None


def _find_clone(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    texts = [text for text, _ in run_texts(source) if "clone" in text.text]
    removals = [(found.start(), found[0]) for found in _REMOVAL.finditer(source.text)] if texts else []
    for text in texts:
        commands = text.commands
        for index, command in enumerate(commands):
            folder = _cloned_folder(command, text)
            if folder is None or _is_tested(commands[:index]) or is_conditional_on_files(source, text):
                continue
            start, end = text.span(command)
            if any(at < start and folder in line for at, line in removals):
                continue  # the cell has just removed the folder, to clone it again
            guarded = guard(text, command, f"[ -d {folder.removesuffix('/')}/.git ]")
            if guarded:
                message = "`git clone` fails if its folder exists from an earlier run"
                yield Match(start, end, message, guarded)


def _cloned_folder(command: shell.Command, text: ShellText) -> str | None:
    """The folder that `git clone` creates, as shell text; None if unknown."""
    if command.program != "git":
        return None
    words = list(command.arguments)
    base = ""
    while words and words[0].value.startswith("-"):
        option = words.pop(0)
        if option.value in ("-C", "-c") and words:
            value = words.pop(0)
            base = value.raw.removesuffix("/") + "/" if option.value == "-C" else base
    if words and words[0].value == "lfs":
        words.pop(0)
    if not words or words[0].value != "clone":
        return None
    found = _arguments("git", words[1:])
    if {"--bare", "--mirror", "--separate-git-dir", "-h"} & found.options.keys():
        return None
    if len(found.positional) == 2:
        folder = found.positional[1].raw
    elif len(found.positional) == 1:
        folder = _name_in_url(found.positional[0].value, text)
    else:
        return None
    return base + folder if folder and not re.search(rf"\$\(|`|{FIELD}", base + folder) else None


def _name_in_url(url: str, text: ShellText) -> str:
    """The folder's name that git derives from a URL; "" if unknown."""
    path = re.sub(r"(?:/\.git)?/*$", "", url)
    if not re.search(r"[/:]", path) or "?" in path or "#" in path:
        return ""
    name = re.split(r"[/:](?![^{]*\})", path)[-1].removesuffix(".git")
    return name if _NAME.fullmatch(name) and not (text.script and "{" in name) else ""


def _is_tested(before: Sequence[shell.Command]) -> bool:
    """Whether the script already tests for a file or folder, except by the conditions of these rules."""
    tests = [command for command in before if command.program in ("[", "[[", "test")]
    return any(not re.search(r"/\.git[\"']?$", command.words[-2].raw) for command in tests if len(command.words) > 2)


def _find_wget(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    found: list[tuple[ShellText, shell.Command, list[Word]]] = []
    addresses: dict[str, set[str]] = {}
    for text, _ in run_texts(source):
        for command in text.commands if "wget" in text.text else ():
            if command.program != "wget" or is_conditional_on_files(source, text):
                continue
            arguments = _arguments("wget", command.arguments)
            if arguments.has(_WGET_STAYS) or not (arguments.positional or "-i" in arguments.options):
                continue
            found.append((text, command, arguments.positional))
            for word in arguments.positional:
                addresses.setdefault(_saved_as(word), set()).add(word.value)
    for text, command, words in found:
        names = [_saved_as(word) for word in words]
        repeats = is_repeated(source, text)
        if any(len(addresses[name]) > 1 or (repeats and not re.search(rf"[{{$]|{FIELD}", name)) for name in names):
            # Several addresses share one file name: wget numbers the files, and later lines may use them.
            continue
        program = command.words[command.program_at]
        message = "`wget` saves a second copy under another name if the file exists from an earlier run"
        yield Match(*text.span(command), message, edits(text, (program.end, program.end, " -nc")))


def _saved_as(address: Word) -> str:
    return address.value.rstrip("/").rsplit("/", 1)[-1]


def _find_named_download(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    found: list[tuple[ShellText, shell.Command, str]] = []
    addresses: dict[str, set[str]] = {}
    for text, _ in run_texts(source):
        for command in text.commands if re.search("wget|curl|gdown", text.text) else ():
            file, address = _named_download(command)
            if file:
                found.append((text, command, file))
                addresses.setdefault(file, set()).add(address)
    for text, command, file in found:
        before = [other for other in text.commands if other.start < command.start]
        if len(addresses[file]) > 1 or _is_tested(before) or is_repeated(source, text):
            continue
        guarded = () if is_conditional_on_files(source, text) else guard(text, command, f"[ -s {file} ]")
        if guarded:
            message = f"`{command.program}` would download {file} in every run; delete the file to download it again"
            yield Match(*text.span(command), message, guarded)


def _named_download(command: shell.Command) -> tuple[str, str]:
    """The output file of a download, as written, and its URL; empty unless both are literal."""
    program = command.program
    if program not in _NOT_ONE_FILE:
        return "", ""
    found = _arguments(program, command.arguments)
    options, words = found.options, found.positional
    file = (
        options.get("-o" if program == "curl" else "-O") or options.get("--output") or options.get("--output-document")
    )
    if program == "curl" and file is None and {"-O", "--remote-name"} & options.keys() and words:
        file = _saved_as(words[0]) if _NAME.fullmatch(_saved_as(words[0])) else None
    address = words[0].value if len(words) == 1 else "" if words else options.get("--id")
    is_literal = (
        file and address and not re.search(f"[{{}}$`*{FIELD}]", address) and not re.search(f"[{{}}$`*?{FIELD}]", file)
    )
    if not is_literal or found.has(_NOT_ONE_FILE[program]) or (program != "gdown" and not _REMOTE.match(address)):
        return "", ""
    name = file.strip("\"'")
    # Folders such as /tmp are shared by all notebooks of this machine, and others may use the same names there.
    is_elsewhere = name.startswith(("/", "~")) and not name.startswith("/content/")
    return ("", "") if name in _GIVES_NO_FILE or name.endswith("/") or is_elsewhere else (file, address)


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF535",
        name="`git clone`",
        matches="`git clone address [folder]` without a condition",
        writes="`[ -d folder/.git ] || git clone address`, so that a second run keeps the clone",
        keeps=Keeps.EQUIVALENT,
        find=_find_clone,
        trigger=holding("clone", like=r"\bgit\b.*\bclone\b"),
        opt_in=True,
        example=Example(
            "!git clone https://example.org/a/x.git", "![ -d x/.git ] || git clone https://example.org/a/x.git"
        ),
    ),
    Rule(
        id="LF536",
        name="`wget` without a file name",
        matches="`wget address`",
        writes="`wget -nc address`, so that a second run keeps the file",
        keeps=Keeps.EQUIVALENT,
        find=_find_wget,
        trigger=holding("wget"),
        opt_in=True,
        example=Example("!wget https://example.org/a.csv", "!wget -nc https://example.org/a.csv"),
    ),
    Rule(
        id="LF537",
        name="download to a named file",
        matches="`wget -O file address`, `curl -o file address`, `curl -O address`, `gdown -O file …`, not in a loop",
        writes="`[ -s file ] || curl -o file address`, so that a second run keeps the file",
        keeps=Keeps.EQUIVALENT,
        find=_find_named_download,
        trigger=holding("wget", "curl", "gdown"),
        opt_in=True,
        example=Example("!curl -o a.csv https://example.org/b", "![ -s a.csv ] || curl -o a.csv https://example.org/b"),
    ),
)
