"""Commands with effects outside the notebook's folders or the site: reported, because only the user can decide."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import holding
from migration.python.shell_texts import ShellText, shell_texts
from migration.python.source import CellSource
from migration.python.strings import outside_comments
from migration.rules.rule import Example, Match, Rule

_OUTSIDE = re.compile(
    r"/(?!tmp(?:/|$)|dev/(?:null|std|fd|tty)|content(?:/|$)|proc/|gdrive/)|~(?:/|$)|\$HOME\b|\$\{HOME\}"
)
_INTERPRETERS = frozenset(["sh", "bash", "zsh", "dash", "python", "python2", "python3", "perl", "ruby", "node"])
_FETCHERS = frozenset({"curl", "wget"})
_SYSTEM_TOOLS = frozenset(
    [
        "dpkg",
        "add-apt-repository",
        "apt-key",
        "update-alternatives",
        "ldconfig",
        "mount",
        "umount",
        "systemctl",
        "service",
        "modprobe",
        "useradd",
        "usermod",
        "visudo",
        "sysctl",
        "swapon",
        "mkswap",
    ]
)
_MAY_WRITE_OUTSIDE = re.compile(
    r"[/~](?:(?<=^.)|(?<=[\s=\"'>].))(?:(?<=/)(?!tmp/|content/|dev/null)(?:[\w\s\"'*]|$)|(?<=~)/)"
    rf"|\$HOME|\b(?:{'|'.join(sorted(_SYSTEM_TOOLS))})\b|\binstall\b"
)
# Programs that write to their last path, to any path, or to the path after an option.
_LAST = frozenset({"cp", "mv", "ln", "install", "rsync", "gunzip"})
_ANY = frozenset({"rm", "rmdir", "mkdir", "touch", "chmod", "chown", "tee", "truncate"})
_TARGET_OPTIONS = {
    "tar": ("-C", "--directory"),
    "unzip": ("-d",),
    "unrar": (),
    "wget": ("-O", "-P", "--output-document", "--directory-prefix"),
    "curl": ("-o", "--output"),
    "aria2c": ("-d", "--dir"),
    "conda": ("-p", "--prefix"),
    "mamba": ("-p", "--prefix"),
    "pip": ("-t", "--target", "--prefix"),
    "cmake": ("--prefix",),
    "git": ("-C",),
    "gdown": ("-O",),
}
_COLAB_MACHINE = re.compile(
    r"(?<![\w.$}~:/-])(?:/root(?=[/\"'\s)]|$)|/usr/local/(?:lib/python[\d.*]*/(?:dist|site)-packages|cuda[\w.-]*|bin/python[\d.]*)"
    r"|/usr/lib/python[\d.*]*/dist-packages|/opt/(?:bin|conda|google)(?=/|[\"'\s)]|$)|/usr/lib64-nvidia|/tools/node|/datalab\b"
    r"|/env/python\b|/var/colab\b)[^\s\"'`:;,)|]*",
    re.MULTILINE,
)
# Each begins with a literal, which the engine finds fast, followed by a look-behind.
_TUNNELS = tuple(
    re.compile(pattern)
    for pattern in (
        r"ngrok(?:\.(?:connect|forward)\b|\s+(?:http|tcp)\b)",
        r"run_with_ngrok\b",
        r"localtunnel\s+--port\b",
        r"lt(?<!\wlt)\s+--port\b",
        r"cloudflared\s+tunnel\b",
        r"share(?<!\wshare)\s*=\s*True\b",
        r"--share(?<!\w--share)\b",
        r"bore(?<!\wbore)\s+local\b",
        r"ssh(?<!\wssh)\b[^\n]*-R\s*80:[^\n]*\b(?:serveo|localhost\.run|pinggy)",
    )
)
_CALLS = ("system(", "popen(", "getoutput(", "call(", "run(", "Popen(", "check_output(")


def _commands(source: CellSource, like: re.Pattern[str] | None = None) -> Iterator[tuple[ShellText, shell.Command]]:
    """The commands of the cell's shell texts, or of those that match a pattern."""
    for text in shell_texts(source):
        if like is None or like.search(text.text):
            for command in text.commands:
                yield text, command


def _match(text: ShellText, command: shell.Command, message: str, action: str) -> Match:
    return Match(*text.span(command), message, (), action)


def _find_sudo(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for text, command in _commands(source):
        if any(word.value == "sudo" for word in command.words[: command.program_at]):
            action = "run this by hand if the machine does not have what it provides, then delete it from the notebook"
            yield _match(text, command, "`sudo`: a command with administrator rights", action)


def _find_writes_outside(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for text, command in _commands(source, _MAY_WRITE_OUTSIDE):
        program = command.program
        target = next((path for path in _written(command) if _OUTSIDE.match(path)), "")
        if program in _SYSTEM_TOOLS:
            message = f"`{program}` changes the system outside the work folder"
        elif program in ("make", "ninja") and any(word.value == "install" for word in command.arguments):
            message = f"`{program} install` changes the system outside the work folder"
        elif target:
            message = f"`{program or 'a redirection'}` changes {target}, outside the work folder"
        else:
            continue
        action = "check its effect on this machine: delete it, or use a folder below WORK_DIR"
        yield _match(text, command, message, action)


def _written(command: shell.Command) -> Iterator[str]:
    """The paths that a command writes to, according to its options."""
    for redirection in command.redirections:
        if ">" in redirection.operator and redirection.target is not None:
            yield redirection.target.value
    program, values = command.program, [word.value for word in command.arguments]
    plain = [value for value in values if not value.startswith("-")]
    if program in _LAST and len(plain) > 1:
        yield plain[-1]
    elif program in _ANY:
        yield from plain
    elif program == "sed" and any(value.startswith(("-i", "--in-place")) for value in values):
        yield from plain[1:]
    options = _TARGET_OPTIONS.get(program.rstrip("0123456789."), ())
    is_installer = program in ("bash", "sh") and "-p" in values and any("conda" in value.lower() for value in plain)
    joined = tuple(f"{option}/" for option in options if len(option) == 2)  # `-d/usr` means `-d /usr`
    for at, value in enumerate(values[:-1]):
        if value in options or (value == "-p" and is_installer):
            yield values[at + 1]
    for value in values:
        name, equals, path = value.partition("=")
        if equals and (name in options or name in ("--prefix", "-DCMAKE_INSTALL_PREFIX", "--target")):
            yield path
        elif value.startswith(joined):
            yield value[2:]


def _find_remote_code(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for text in shell_texts(source):
        commands = text.commands
        for at, command in enumerate(commands):
            if command.program in _FETCHERS and _is_run(text, commands, at):
                action = "read the script it fetches, and run it by hand if you trust it; then delete the line"
                yield _match(text, command, "code from the network is executed directly", action)


def _is_run(text: ShellText, commands: tuple[shell.Command, ...], at: int) -> bool:
    """Whether the output of a command is executed: `curl … | bash`, `bash <(curl …)`, `sh -c "$(curl …)"`."""
    command = commands[at]
    follower = at
    while commands[follower].after == "|" and follower + 1 < len(commands):
        follower += 1
        program = commands[follower].program
        if program in _INTERPRETERS and not any(
            word.is_literal and not word.value.startswith("-") for word in commands[follower].arguments[:1]
        ):
            return True
    outer = [other for other in commands if other.start < command.start and command.end <= other.end]
    return any(other.program in _INTERPRETERS | {"eval", "source", "."} for other in outer) or bool(
        re.search(
            rf"\b(?:{'|'.join(_INTERPRETERS)}|source|eval)\b[^\n;|&]*(?:<\(|\$\()\s*$", text.text[: command.start]
        )
    )


def _find_deletions(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    whole = re.compile(rf"(?:\$\{{?{facts.work}\}}?/?|/content/?|\.{{1,2}}/?|/|~/?|\$HOME/?)?(?:\*|\.\*)?$")
    for text, command in _commands(source):
        if command.program != "rm":
            continue
        values = [word.value for word in command.arguments]
        is_recursive = any(re.match(r"-\w*[rR]|--recursive$", value) for value in values)
        for value in values:
            if is_recursive and not value.startswith("-") and value and whole.match(value):
                action = "delete the line: the notebook's folder contains your own files now"
                yield _match(text, command, f"`rm -r {value}` deletes everything in it", action)
    removed = re.compile(rf"\brmtree\(\s*(?:{facts.work}|[\"'](?:/content/?|\.{{1,2}}/?|/)[\"'])\s*[,)]")
    for match in _once_a_line(source, facts, removed):
        action = "delete the call: the notebook's folder contains your own files now"
        yield Match(match.start(), match.end(), "`rmtree` deletes the complete work folder", (), action)


def _find_tunnels(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    found = [match for pattern in _TUNNELS for match in _once_a_line(source, facts, pattern)]
    by_line = {source.line_of(match.start()): match for match in found}
    for match in by_line.values():
        action = (
            "open the local address instead (`share=False`, http://localhost:PORT), so that no data leaves the site"
        )
        yield Match(match.start(), match.end(), "a tunnel makes this machine reachable from the internet", (), action)


def _find_machine_paths(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for match in _once_a_line(source, facts, _COLAB_MACHINE):
        action = "use the path of this machine: `~` for the home folder, `sysconfig.get_paths()` for installed packages"
        yield Match(match.start(), match.end(), f"`{match[0]}` is a path of Colab's machine", (), action)


def _once_a_line(source: CellSource, facts: NotebookFacts, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """The first match of each line in the code of a Python notebook."""
    by_line = {source.line_of(match.start()): match for match in reversed(outside_comments(source, pattern))}
    return [by_line[line] for line in sorted(by_line)]


RULES: tuple[Rule, ...] = (
    Rule(
        "LF821",
        "administrator's rights",
        "`sudo` in a shell line",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_sudo,
        holding("sudo "),
        example=Example("!sudo service x start"),
    ),
    Rule(
        "LF822",
        "write outside the work folder",
        "`-p /usr/local`, `dpkg -i`, `tar -C /`, `> ~/.bashrc`, `make install`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_writes_outside,
        holding("!", "%", *_CALLS),
        example=Example("!tar -C /usr/local -xf a.tar"),
    ),
    Rule(
        "LF823",
        "remote code",
        "`curl … | bash`, `bash <(wget …)`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_remote_code,
        holding("curl ", "wget "),
        example=Example("!curl https://example.org/a.sh | bash"),
    ),
    Rule(
        "LF824",
        "deletion of the folder",
        "`rm -rf *`, `rm -r $WORK_DIR`, `shutil.rmtree(WORK_DIR)`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_deletions,
        holding("rm", like=r"rm[ \t]+-|rmtree\("),
        example=Example("!rm -rf *"),
    ),
    Rule(
        "LF825",
        "tunnel",
        "`ngrok.connect(…)`, `lt --port`, `cloudflared tunnel`, `launch(share=True)`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_tunnels,
        holding("ngrok", "localtunnel", "cloudflared", "share", "bore", "ssh", "lt --port"),
        example=Example("app.launch(share=True)"),
    ),
    Rule(
        "LF831",
        "path of Colab's machine",
        "`/root/…`, `/usr/local/lib/python3.x/dist-packages`, `/usr/local/cuda`, `/opt/bin`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_machine_paths,
        holding("/root", "/usr/", "/opt/", "/tools/node", "/datalab", "/env/python", "/var/colab"),
        example=Example('open("/root/.config/x")'),
    ),
)
