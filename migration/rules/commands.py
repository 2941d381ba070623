"""Shell commands with another effect on a local machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import holding
from migration.python.shell_texts import ShellText, shell_texts
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

_KERNEL_PROCESS = re.compile(r"(?:python[\d.]*|ipykernel\S*|jupyter\S*|colab\S*)$")
_BY_NAME = ("pkill", "killall")
_CLOUD_PROGRAMS = {"gsutil": "Cloud Storage", "gcloud": "Google Cloud", "bq": "BigQuery"}
_ONLY_BASH = re.compile(
    r"\[\[|[<>]\(|<<<|&>|\|&|>&(?![\d-])|\$'|\$\{[^}]*(?://|:\d|\^|,,|!)|\$(?:RANDOM|EUID|BASH\w*|HOSTNAME)\b|"
    r"\bpipefail\b|=(?<=\w=)\("
)
_BASH_PROGRAMS = frozenset({"source", "pushd", "popd", "shopt", "declare", "let", "disown", "function", "[["})
_WORDS_OF_BASH = "|".join(["echo", *sorted(_BASH_PROGRAMS - {"[["})])
_MAYBE_ONLY_BASH = holding(
    *("!", "%"), like=rf"(?:^|=)[ \t]*[!%](?:\\\n|[^\n])*?(?:[{{[<&|$]|=\(|\b(?:{_WORDS_OF_BASH})\b)"
)
_EXPANSION = re.compile(r"\{[^{}\s'\"]*(?:,|\.\.)[^{}\s'\"]*\}")


def needs_bash(source: CellSource) -> bool:
    """Whether a `!` line or `%pip` of the cell needs bash: IPython runs it with the shell in `$SHELL`, by default `sh`;
    Colab uses bash."""
    if not _MAYBE_ONLY_BASH.fires(source.text):
        return False
    return any(_is_only_bash(text) for text in shell_texts(source) if text.command is not None)


def _lines(source: CellSource) -> list[ShellText]:
    """The texts of the `!` lines."""
    texts = shell_texts(source)
    return [text for text in texts if not (text.magic or text.automagic) and text.command is not None]


def _is_only_bash(text: ShellText) -> bool:
    found = shell.read(text.text, script=text.script)
    for match in _ONLY_BASH.finditer(text.text):
        context = found.quotes[match.start()]
        if context == "u" or (context == "d" and match[0][:2] in ("${", "$R", "$E", "$B", "$H")):
            return True
    return any(map(_is_only_for_bash, found.commands))


def _is_only_for_bash(command: shell.Command) -> bool:
    program, words = command.program, [word.value for word in command.words]
    # The `echo` of other shells prints `-e`.
    if program in _BASH_PROGRAMS or (program == "echo" and words[1:2] in (["-e"], ["-ne"], ["-en"])):
        return True
    if program == "[" and "==" in words:
        return True
    expansions = ((word, found) for word in command.words for found in _EXPANSION.finditer(word.raw))
    return any(word.quotes[found.start()] == "u" for word, found in expansions)


def _find_background(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for text in _lines(source):
        level = [command for command in text.commands if command.depth == 0]
        stripped = text.text.rstrip()
        # In `(a; b) &` no command is outside the brackets.
        is_detached = level[-1].after == "&" if level else stripped.lstrip().startswith("(")
        if stripped.endswith("&") and is_detached and not any(map(_ends_the_runtime, text.commands)):
            start, end = len(text.text) - len(text.text.lstrip()), len(stripped[:-1].rstrip())
            opening, closing = _detached(text, is_group=stripped.lstrip().startswith("("))
            edits = (text.edit(start, start, opening), text.edit(end, len(stripped), closing))
            message = "IPython raises for a command in the background (`&`)"
            yield Match(text.start, text.end, message, tuple(filter(None, edits)))


def _detached(text: ShellText, *, is_group: bool) -> tuple[str, str]:
    """Text around a command, instead of its `&`, so that it continues after the line. The terminal of the line sends
    SIGHUP when the line ends: a command that ignores it continues, unless it writes to the terminal. On Colab, too, its
    output is lost in that case.
    """
    words = text.commands[-1].words
    is_simple = len(text.commands) == 1 and not shell.read(text.text).blocks
    # nohup itself would write there, on a terminal.
    writes = is_simple and words and words[0].value == "nohup" and not text.commands[-1].redirections
    output = ">> nohup.out" if writes else "> /dev/null"
    # A redirection of the command itself has priority over that of the group; bash calculates in `((`.
    return f'(trap "" HUP; ({" " * is_group}', f") {output} 2>&1 &)"


def _find_kill(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for text in shell_texts(source):
        for command in text.commands:
            if _ends_the_runtime(command):
                # In the background, it would be a group of commands for nothing.
                end = len(text.text.rstrip()) if re.fullmatch(r"[ \t]*&\s*", text.text[command.end :]) else command.end
                yield Match(
                    *text.span(command),
                    f"`{command.program}` ends Colab's machine or the kernel; here it would also end other processes",
                    tuple(filter(None, [text.edit(command.start, end, "true")])),
                    "restart the kernel here (Kernel, Restart), then continue with the next cell",
                )


def _ends_the_runtime(command: shell.Command) -> bool:
    program = command.program
    words = [word.value for word in command.arguments]
    targets = [word for word in words if not word.startswith("-")]
    if program == "kill":
        return "-1" in words[1:] or any(
            re.search(r"\$\$|\$PPID|getpid|pidof python|pgrep python", word) for word in targets
        )
    if program in _BY_NAME:
        return bool(targets) and all(_KERNEL_PROCESS.match(word) for word in targets)
    return program in ("shutdown", "reboot", "poweroff", "halt")


def _find_cloud_program(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Reports the first use in a cell only: the programs are installed once."""
    found = [
        (*text.span(command), command.program)
        for text in shell_texts(source)
        for command in (text.commands if re.search("gsutil|gcloud|bq", text.text) else ())
        if command.program in _CLOUD_PROGRAMS
    ]
    for start, end, program in sorted(found)[:1]:
        yield Match(
            start,
            end,
            f"`{program}` ({_CLOUD_PROGRAMS[program]}) is installed on Colab, and signed in by its own dialogue",
            action="install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install) and sign in once with "
            "`gcloud auth login`, for data that is not public",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF540",
        name="background command",
        matches="`!command &`, `!nohup command > file &`",
        writes='`!(trap "" HUP; (command) > /dev/null 2>&1 &)`, which returns immediately; a named file is kept',
        keeps=Keeps.EQUIVALENT,
        find=_find_background,
        trigger=holding("&", like=r"&[ \t]*[\"']?\)?[ \t]*$"),
        example=Example("!serve --port 80 &", '!(trap "" HUP; (serve --port 80) > /dev/null 2>&1 &)'),
    ),
    Rule(
        id="LF541",
        name="end of the runtime",
        matches="`!kill -9 -1`, `!pkill python`, `!shutdown now`",
        writes="`true`: restart the kernel at this cell",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_kill,
        trigger=holding("kill", "shutdown", "reboot", "poweroff", "halt"),
        example=Example("!kill -9 -1", "!true"),
    ),
    Rule(
        id="LF545",
        name="Google Cloud program",
        matches="`gsutil`, `gcloud`, `bq`",
        writes="nothing: the program has to be installed",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_cloud_program,
        trigger=holding(*_CLOUD_PROGRAMS),
        example=Example("!gsutil cp gs://x/y ."),
    ),
)
