"""Rules for the arguments of pip: quoted for the shell, and not downloaded again if installed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.shell_texts import ShellText
from migration.python.source import CellSource
from migration.rules.pip_matches import match, pip_calls, without
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import Item, PipCall, unquoted_bounds

_URL = re.compile(r"(?:[\w.\[\], -]+@\s*)?(?P<url>(?:git|hg|svn|bzr)\+\w+://\S+|https?://\S+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PINNED = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]*\])?==\d[\w.+!-]*")
_QUIET = frozenset(
    {"--quiet", "--verbose", "--no-deps", "--no-dependencies", "--no-cache-dir", "--no-build-isolation", "--editable"}
)
_AGAIN = frozenset({"--upgrade", "--force-reinstall", "--ignore-installed"})
_CUDA = re.compile(r"(?:\+|/|-|\b)cu(\d{2,3})(?!\d)|\bcuda(\d{2,3})(?!\d)", re.IGNORECASE)


# ---------------------------------------------------------------------------------------------- requirements as written
def _find_bounds(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        if call.subcommand not in ("install", "download", "wheel") or found.words:
            continue
        quote = "'" if found.literal and found.literal.quote[0] == '"' else '"'
        spans = unquoted_bounds(found.text, call)
        edits = [found.edit(start, end, f"{quote}{found.text[start:end]}{quote}") for start, end in spans]
        if edits:
            specs = ", ".join(f"`{found.text[start:end]}`" for start, end in spans)
            yield from match(found, call, f"without quotes the shell reads the bound of {specs} as a file name", edits)


def _requirements(call: PipCall) -> list[Item]:
    return [item for item in call.items if item.option in ("", "--editable", "--requirement")]


def _find_pinned(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        upgrades = [item for item in call.items if item.option == "--upgrade"]
        if not call.installs or call.uv or not upgrades or not _only_pinned(call):
            continue
        edits = []
        for item in upgrades:
            word = item.words[0]
            if word.value in ("-U", "--upgrade"):
                edits.append(without(found, word))
            elif "U" in word.raw:
                edits.append(found.edit(word.start, word.end, word.raw.replace("U", "")))
        message = "`-U` has no effect on exact versions, but makes pip query its index in every run"
        yield from match(found, call, message, edits)


def _only_pinned(call: PipCall) -> bool:
    requirements = _requirements(call)
    return (
        bool(requirements)
        and all(item.is_known and not item.option and _PINNED.fullmatch(item.value) for item in requirements)
        and not call.option("--upgrade-strategy", "--force-reinstall", "--ignore-installed", "--constraint")
    )


# ---------------------------------------------------------------------------------------------------- fetched only once
def _frozen(call: PipCall) -> str | None:
    """The output of `pip freeze` for the only requirement of this command after installation; None if there are more,
    or if it does not contain the requested revision, or if the command requests a new download."""
    requirements = _requirements(call)
    if not call.installs or call.uv or call.interpreter == "other" or len(requirements) != 1:
        return None
    if not all(item.is_known for item in call.items) or any(
        item.option and item.option not in _QUIET for item in call.items
    ):
        return None
    found = _URL.fullmatch(requirements[0].value)
    if requirements[0].option == "--requirement" or found is None:
        return None
    address, _, fragment = found["url"].partition("#")
    if "subdirectory" in fragment or "@" in address.split("://", 1)[1].split("/", 1)[0]:
        return None
    if not re.match(r"\w+\+", address):
        return address if re.search(r"\.(?:whl|zip|tar\.gz|tgz)$", address) else None
    # For a branch or a tag, pip stores only its commit.
    address, _, revision = address.partition("@")
    return None if revision and not _COMMIT.fullmatch(revision) else f"{address}@{revision}"


def _guard(found: ShellText, call: PipCall) -> tuple[str, str] | None:
    """Text around the command so that it remains one unit for its neighbours; None if impossible."""
    command = call.command
    if not (found.is_line or found.magic or (found.script and found.literal is None)):
        return None
    if command.depth or command.keywords or command.before not in ("", ";", "\n", "&&"):
        return None
    if command.after in ("", ";", "\n") and command.before != "&&":
        return "", ""
    if command.after in ("", ";", "\n", "&&", "||"):
        return "(", ")"
    rest = [other for other in found.commands if other.start > command.start]
    ends_alone = next((other.after for other in rest if other.after != "|"), "") in ("", ";", "\n")
    return ("", "") if command.after == "|" and ends_alone and command.before != "&&" else None


def _find_addresses(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        frozen = _frozen(call)
        around = _guard(found, call) if frozen else None
        if frozen is None or around is None:
            continue
        head = f"{around[0]}pip freeze | grep -qF {shlex.quote(frozen)} || "
        words, command = call.command.words, call.command
        if found.magic and found.command:
            edits: list[Edit | None] = [
                Edit(found.command.start, found.at(words[call.last].end), f"!{head}pip"),
            ]
        else:
            edits = [found.edit(command.start, command.start, head)]
        edits += [found.edit(command.end, command.end, around[1])] if around[1] else []
        yield from match(found, call, "pip downloads a URL again in every run, even if it is installed", edits)


def _find_again(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Commands that need the network in every run on purpose, and are not changed."""
    for found, call in pip_calls(source):
        if not call.installs or call.command.before == "||":
            continue
        reasons = [f"`{item.option}`" for item in call.items if item.option in _AGAIN]
        reasons += [
            "an address" for item in _requirements(call) if _URL.match(item.value) and item.option != "--requirement"
        ]
        if reasons and not _only_pinned(call):
            names = " and ".join(dict.fromkeys(reasons))
            yield from match(
                found, call, f"{names}: pip queries the network in every run, and installs newer versions", []
            )


def _find_cuda(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        if not call.installs:
            continue
        values = " ".join(item.value for item in call.items)
        versions = dict.fromkeys(first or second for first, second in _CUDA.findall(values))
        if versions:
            # `cu118` and `cu92` name a release, `cuda12` a series.
            named = " and ".join(re.sub(r"^(9|1\d)(?=\d)", r"\1.", version) for version in versions)
            message = f"installs builds for CUDA {named}; they need a driver of the machine that supports it"
            yield from match(found, call, message)


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF503",
        name="version bounds in quotes",
        matches="`pip install x>=1`, where the shell would write a file named `=1`",
        writes='`pip install "x>=1"`',
        keeps=Keeps.EQUIVALENT,
        find=_find_bounds,
        trigger=holding("pip", like=r"pip(?<=\bpip)\b[^\n]*(?:\\\n[^\n]*)*[<>]"),
        opt_in=True,
        example=Example("%pip install x>=1", '%pip install "x>=1"'),
    ),
    Rule(
        id="LF505",
        name="URLs are downloaded once",
        matches="`!pip install git+https://…` without a branch or tag, or the address of a wheel",
        writes="`!pip freeze | grep -qF ADDRESS || pip install ADDRESS`",
        keeps=Keeps.EQUIVALENT,
        find=_find_addresses,
        trigger=holding("pip", like=r"pip(?<=\bpip)\b[^\n]*(?:\\\n[^\n]*)*://"),
        opt_in=True,
        example=Example(
            "!pip install git+https://example.org/x.git",
            "!pip freeze | grep -qF git+https://example.org/x.git@ || pip install git+https://example.org/x.git",
        ),
    ),
    Rule(
        id="LF506",
        name="no upgrade of exact versions",
        matches="`pip install -U x==1`, every requirement pinned",
        writes="`pip install x==1`, which pip skips without the network once it is installed",
        keeps=Keeps.EXACT,
        find=_find_pinned,
        trigger=holding("pip", like=r"pip(?<=\bpip)\b[^\n]*(?:\\\n[^\n]*)*(?:-\w*U|--upgrade)"),
        opt_in=True,
        example=Example("%pip install -U x==1", "%pip install x==1"),
    ),
    Rule(
        id="LF509",
        name="installs at every run",
        matches="`-U` without exact versions, `--force-reinstall`, an address with a branch",
        writes="nothing: the newest version is requested, which needs the network",
        keeps=Keeps.EQUIVALENT,
        find=_find_again,
        trigger=holding("pip", like=r"\bpip"),
        opt_in=True,
        example=Example("%pip install -U x"),
    ),
    Rule(
        id="LF510",
        name="builds for one CUDA version",
        matches="`torch==2.0.1+cu118`, `--index-url https://download.pytorch.org/whl/cu118`",
        writes="nothing: the report names the CUDA version that the driver must support",
        keeps=Keeps.EQUIVALENT,
        find=_find_cuda,
        trigger=holding("pip", like=r"pip(?<=\bpip)\b[^\n]*(?:\\\n[^\n]*)*(?i:cu(?:da)?)\d"),
        example=Example("%pip install torch==2.0.1+cu118"),
    ),
)
