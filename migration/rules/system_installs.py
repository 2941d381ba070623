"""Rules for packages that pip does not install: those of the system, and those of conda; and for samples of Colab.

A notebook cannot install packages without administrator rights, so its lines become comments or do nothing, and the
finding lists what to install by other means.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.analysis.imports import ONLY_ON_COLAB
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.shell_texts import ShellText, list_commands, shell_texts
from migration.python.source import CellSource, Command
from migration.python.statements import blocks, take_out
from migration.python.trees import imported_packages
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import SystemCall, pipelines, system_call

_CONDA = frozenset({"conda", "mamba", "micromamba"})
_CONDA_CHANGES = frozenset({"install", "create", "update", "upgrade", "remove", "uninstall", "env"})
_INTO_KERNEL = (
    "install these packages into the kernel's environment, with conda if it is a conda environment and else with pip, "
    "then delete the line"
)
_CREATES = (
    "create the environment once on this machine by hand, delete the line, and adapt the paths of what the cells below "
    "call in it, such as its `python`"
)
_HARMLESS = frozenset({"command", "which", "type", "hash", "test", "[", "[[", "true", ":"})
_CHOOSES = frozenset({"ldconfig", "update-alternatives"})
_PYTHON = re.compile(r"\bpython(3\.\d+)\b")
_VARIABLE = re.compile(r"\{(\w+)\}|\$\{?(\w+)\}?")
_DELETES = r"rm(?:\s+-\w+)+\s+([\"']?)(?:{})(?:/\*?)?\1/?"
_RMTREE_SAMPLES = re.compile(r"(?:shutil\.)?rmtree\([ \t]*[\"'](?:/content/|\./)?sample_data/?[\"'][^()\n]*\)")
_SAMPLES = re.compile(_DELETES.format(r"(?:/content/|\./)?sample_data"))


def _lines(found: ShellText) -> list[tuple[shell.Command, ...]]:
    """The commands of each line of a text; a `!` line and its continued lines are one."""
    lines: list[tuple[shell.Command, ...]] = []
    for command in found.commands:
        if not lines or (found.script and command.before in ("", "\n")):
            lines.append(())
        lines[-1] = (*lines[-1], command)
    return lines


def _becomes_comment(found: ShellText, line: tuple[shell.Command, ...], calls: list[SystemCall]) -> bool:
    """Whether a line only changes the system, tests whether it must (`command -v x || apt install x`), or ignores that
    it failed (`apt install x || true`), and no block could become empty without it."""
    is_script = found.script and not found.literal and not shell.read(found.text, script=True).blocks
    if not (found.is_line or is_script) or any(part.body for command in line for part in command.redirections):
        return False
    changes = {call.command for call in calls}
    return all(
        any(part in changes for part in pipe) or all(part.words and part.words[0].value in _HARMLESS for part in pipe)
        for pipe in pipelines(line)
    )


def _description(calls: list[SystemCall]) -> tuple[str, str, Keeps]:
    """The message, the action, and whether the behaviour is kept."""
    packages = list(dict.fromkeys(name for call in calls for name in call.packages))
    others = [_VARIABLE.fullmatch(name) or name for call in calls for name in call.others]
    others = [name if isinstance(name, str) else f"what the variable `{name[1] or name[2]}` names" for name in others]
    wanted = ", ".join(dict.fromkeys([*packages, *others]))
    sources = ", ".join(dict.fromkeys(f"`{name}`" for call in calls for name in call.sources))
    if not wanted and not sources:
        if chosen := sorted({call.command.program for call in calls} & _CHOOSES):
            message = f"`{chosen[0]}` changes which libraries or programs the system uses"
            action = "run it by hand if this machine needs it"
            if version := _PYTHON.search(" ".join(word.value for call in calls for word in call.command.arguments)):
                action = f"start the notebook in a kernel of Python {version[1]}, whose pip and python are used here"
            return message, action, Keeps.NEEDS_HUMAN
        return "changes the system's packages, and installs none", "", Keeps.EQUIVALENT
    adds = f"adds a package source to the system: {sources}"
    if not wanted:
        action = "add this package source to the system's package manager if you install packages from it"
        return adds, action, Keeps.NEEDS_HUMAN
    message = f"installs into the system: {wanted}" + f"; {adds}" * bool(sources)
    before = f"; before that, add the package source {sources}" * bool(sources)
    listed = " (the list of system requirements next to the notebook contains them)" if packages else ""
    return message, f"install {wanted} with the system's package manager{listed}{before}", Keeps.NEEDS_HUMAN


def _find_installs(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    texts = [found for found in shell_texts(source) if not (found.magic or found.automagic or found.is_colab_magic)]
    lines = [(found, line, [*filter(None, map(system_call, line))]) for found in texts for line in _lines(found)]
    changing = [(found, line, calls) for found, line, calls in lines if calls]
    removed = [_becomes_comment(found, line, calls) for found, line, calls in changing]
    gone = [found.command for (found, _, _), is_removed in zip(changing, removed, strict=True) if is_removed]
    for (found, line, calls), is_removed in zip(changing, removed, strict=True):
        if not is_removed:
            yield from (_without_effect(found, call) for call in calls)
            continue
        message, action, keeps = _description(calls)
        if found.command is not None:
            edits = as_comment(source, found.command, needs_pass=_needs_pass(source, facts, found.command, gone))
            yield Match(found.command.start, found.command.end, message, edits, action, keeps)
        else:
            start, end = found.at(line[0].start), found.span(line[-1])[1]
            yield Match(start, end, message, _commented(source, start, end), action, keeps)
    for listed in list_commands(source):
        if isinstance(listed.words, ast.List) and (call := system_call(listed.command)) is not None:
            message, action, keeps = _description([call])
            start = source.span(listed.words.elts[0])[0]
            yield Match(*source.span(listed.words), message, (Edit(start, start, '"true", '),), action, keeps)


def _needs_pass(source: CellSource, facts: NotebookFacts, command: Command, gone: Sequence[Command | None]) -> bool:
    """Whether the block of a command could be empty without it and the commands `gone`. In a cell with Colab's parts,
    other rules may remove the rest of it."""
    if not command.indent or source.tree is None or facts.colab.cell(source).concerned:
        return bool(command.indent)
    inner_first = ([source.command_of(node) for node in block.statements] for block in reversed(blocks(source)))
    return all(one in gone for one in next((found for found in inner_first if command in found), [command]))


def as_comment(source: CellSource, command: Command, *, needs_pass: bool) -> tuple[Edit, ...]:
    """Edits that make the lines of a command comments."""
    first = "pass  # " if needs_pass else "# "
    return _commented(source, command.start, command.end, first, len(command.indent))


def _commented(source: CellSource, start: int, end: int, first: str = "# ", indent: int = 0) -> tuple[Edit, ...]:
    edits = [Edit(start, start, first)]
    for line in range(source.line_of(start) + 1, source.line_of(end) + 1):
        at = source.line_starts[line]
        at += min(len(source.text[at:]) - len(source.text[at:].lstrip(" \t")), indent)
        edits.append(Edit(at, at, "# "))
    return tuple(edits)


def _without_effect(found: ShellText, call: SystemCall) -> Match:
    message, action, keeps = _description([call])
    start, end = found.span(call.command)
    nothing = "true " if found.words else ": "  # a colon is the shell's own
    return Match(start, end, message, (Edit(start, start, nothing),), action, keeps)


def _find_conda(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found in shell_texts(source):
        for command in found.commands:
            values = [word.value for word in command.arguments if not word.value.startswith("-")]
            is_conda = command.program in _CONDA and not command.is_of_other_environment
            if is_conda and values[:1] and values[0] in _CONDA_CHANGES:
                message = "changes a conda environment, which this machine's kernel need not have"
                action = _INTO_KERNEL
                if "create" in values[:2]:
                    message, action = "creates a conda environment, which the kernel does not use", _CREATES
                yield Match(*found.span(command), message, action=action)
    names = ONLY_ON_COLAB if any(name in source.masked for name in ONLY_ON_COLAB) else ()
    for node in source.nodes if names else ():
        for name in imported_packages(node) & set(names):
            _, message, action = ONLY_ON_COLAB[name]
            yield Match(*source.span(node), message, action=action)


def _find_samples(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Lines that only delete Colab's samples, which are not on this machine, unless a cell creates the folder: then it
    is the notebook's own; or what is at the mount point before a mount."""
    mount = re.compile(_DELETES.format("|".join(map(re.escape, facts.mounts))))
    samples = "deletes Colab's samples: here it would delete a folder of yours with their name"
    drive = "deletes the mount point of the drive: here it would delete your files"
    found = {
        text.command: samples if is_samples else drive
        for text in shell_texts(source)
        if text.is_line and text.command is not None
        if (is_samples := _SAMPLES.fullmatch(text.text.strip()) and not facts.makes_samples)
        or mount.fullmatch(text.text.strip())
    }
    for command, message in found.items():
        edits = as_comment(source, command, needs_pass=_needs_pass(source, facts, command, list(found)))
        yield Match(command.start, command.end, message, edits)
    for node in source.nodes if "rmtree" in source.text and not facts.makes_samples else ():
        if isinstance(node, ast.Expr) and _RMTREE_SAMPLES.fullmatch(source.segment(node)):
            yield Match(*source.span(node), samples, take_out(source, [node], f"# {source.segment(node)}", always=True))


_SYSTEM = holding(
    *("apt", "dpkg", "gdebi", "ldconfig", "update-alternatives"),
    like=r"\b(?:apt|aptitude|dpkg|gdebi|ldconfig|update-alternatives|add-apt-repository)\b",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="LF524",
        name="deletion of Colab's samples or mount point",
        matches="`!rm -r /content/sample_data`, `!rm -rf sample_data`, alone on the line, "
        "`shutil.rmtree('sample_data')`, if no cell creates the folder, as `!mkdir sample_data` and "
        "`os.makedirs('sample_data')` do; `!rm -rf /content/drive`",
        writes="a comment",
        keeps=Keeps.EQUIVALENT,
        find=_find_samples,
        trigger=holding("sample_data", "rm", like=r"\brm[ \t]+-|\brmtree\("),
        example=Example("!rm -r /content/sample_data", "# !rm -r /content/sample_data"),
    ),
    Rule(
        id="LF520",
        name="system packages",
        matches="`!apt-get install …`, `!dpkg -i …`, `!ldconfig`, `!add-apt-repository …`, also in `%%bash`, next to "
        'other commands, and in `os.system("apt-get …")` and `subprocess.run(["apt-get", …])`',
        writes="a comment; next to other commands and in scripts "
        "`: apt-get …` or `true apt-get …`, which does nothing and succeeds. The packages are listed in the system "
        "requirements",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_installs,
        trigger=_SYSTEM,
        example=Example("!apt-get install cmake", "# !apt-get install cmake"),
    ),
    Rule(
        id="LF523",
        name="conda, and packages for Colab only",
        matches="`conda install …`, `mamba install …`, without the path of an environment; `import condacolab`, "
        "`import colab_transfer`, `import kora`",
        writes="nothing: the user must decide which environment the kernel uses, or create one, and delete "
        "what names the package",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_conda,
        trigger=holding("conda", "mamba", *ONLY_ON_COLAB),
        example=Example("!conda install x"),
    ),
)
