"""Commands that are harmless on Colab, where each notebook has its own machine. They are reported, because only the
user can decide whether this machine needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import holding
from migration.python.shell_texts import list_commands, shell_texts
from migration.python.source import CellSource
from migration.python.strings import outside_comments
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import only_looks

# Another rule reports what is below `/root`.
_OUTSIDE = re.compile(
    r"/(?!(?:tmp|content|root)(?:/|$)|dev/(?:null|std|fd|tty)|proc/|gdrive/)|~(?:/|$)|\$HOME\b|\$\{HOME\}"
)
_SYSTEM_TOOLS = re.compile(
    r"dpkg|add-apt-repository|apt-key|update-alternatives|ldconfig|u?mount|systemctl|service|modprobe|useradd|usermod|"
    r"visudo|sysctl|swapon|mkswap"
)
_MANAGERS = re.compile(r"npm|yarn|gem|cargo|go|brew|snap|yum|dnf|apk|pacman|easy_install")
_MAY_CHANGE_MACHINE = re.compile(
    r"[/~](?:(?<=^.)|(?<=[\s=\"'>].))(?:(?<=/)(?!tmp/|content/|dev/null)(?:[\w\s\"'*]|$)|(?<=~)/)"
    rf"|\$HOME|\b(?:{_SYSTEM_TOOLS.pattern}|{_MANAGERS.pattern}|sudo|install|rm|config|conda|mamba)\b"
)
_WEB_SCRIPT = re.compile(
    r"\b(?:curl|wget)\b(?P<address>[^|\n]*)"
    r"\|\s*(?!sudo)(?:(?:env|-\w+)\s+|\w+=(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'])*\s+)*"
    r"(?:(?:ba)?sh\b|python[\d.]*(?:[ \t]+-(?![\w-])|[ \t]*(?=[\n;&|)\"']|$)))"
)
# Scripts that add a package source, or set up Colab's machine.
_CHANGES_MACHINE = re.compile(r"\bscript\.(?:deb|rpm)\.sh|\bnodesource\.com|(?<![a-zA-Z])colab(?![a-zA-Z])")
_CONDA_SETTINGS = re.compile(r"init\b|config\b(?!.*--(?:env|file)\b)(?=.* --(?:set|add|append|prepend|remove)\b)")
# What changes the settings of the user, by program.
_CHANGES_SETTINGS = {
    "conda": _CONDA_SETTINGS,
    "mamba": _CONDA_SETTINGS,
    "git": re.compile(r"config\b(?=.* --(?:global|system)\b)(?!.* (?:-l|--list|--get[\w-]*)\b)"),
}
_OF_THIS_MACHINE = (
    "use the path of this machine: `~` for the home folder, `sysconfig.get_paths()` for installed packages, "
    "`ldconfig -p` for libraries"
)
_CHECK = "check its effect on this machine: delete it, run it once by hand, or use a folder below WORK_DIR"
_SETTINGS = "delete the line, unless you want these settings in every notebook and terminal of yours"
_ALL = "all of the folder: the notebook, `landfall_runtime.py` and your files"
_DELETES = "delete the line, or make it a comment: this machine has your own files there"
_DELETES_UNKNOWN = "delete the line if this is yours: Colab starts in an empty folder, the notebook here in its own"
# Programs that write to their last path, to any path, or to the path after an option.
_LAST = re.compile(r"cp|mv|ln|install|rsync|gunzip")
_ANY = re.compile(r"rm|rmdir|mkdir|touch|chmod|chown|tee|truncate")
_NAMED = re.compile(r"tar|unzip|wget|curl|aria2c|conda|mamba|pip[\d.]*|cmake|git|gdown|bash|sh|configure")
_TARGET = re.compile(
    r"-[a-zA-Z]*[CdOPopt]|--(?:directory|directory-prefix|output|output-document|dir|prefix|target)|-DCMAKE_INSTALL_PREFIX"
)
_COLAB_MACHINE = re.compile(
    r"(?<![\w.$}~/-])(?<!\w:)(?P<path>(?:/root(?=[/\"'\s)]|$)|/usr/local/(?:[\w.-]+\.sh\b|lib/python(?:[\d.*]|\$?\{\w+\})*/(?:dist|site)-packages|cuda[\w.-]*|bin/python[\d.]*|envs/[\w.-]+(?=/))"
    r"|/usr/lib/(?:x86_64-linux-gnu/lib[\w.+-]+\.so[\d.]*|python[\d.*]+|python/dist-packages|jvm|chromium-browser)(?=/|[\"'\s)]|$)|/opt/(?:bin|conda|google)(?=/|[\"'\s)]|$)|(?:\.\./)+content\b|/usr/lib64-nvidia|/tools/node|/datalab\b"
    r"|/env/python\b|/var/colab\b)[^\s\"'`:;,)|]*)",
    re.MULTILINE,
)
# The root as the current folder.
_AT_ROOT = re.compile(
    r"(?:\bchdir\(\s*[\"'](?=/[\"'])|^[ \t]*%cd[ \t]+(?=/[ \t]*(?:\n(?!\s*%?cd\b)|\Z)))(?P<path>/[^\"'\s]*)",
    re.MULTILINE,
)
_CHANGES_FOLDER = re.compile(r"^(?P<indent>[ \t]*)%?cd[ \t]+[\"']?(?P<folder>[^\"'\n]*)", re.MULTILINE)
# A search path with a folder that does not exist still works.
_EXTENDS = re.compile(r"\b(?:C|(?:LD_)?LIBRARY_)?PATH\b[\"'\]]*\s*\+?=(?!=)")
# As many folders up as a path has: from `/content` to `/`.
_CLIMB = re.compile(r"""(?P<path>(?P<quote>["'])\.\./(?P=quote)\s*\*\s*\w+)""")


def _find_changes(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for listed in list_commands(source):
        for script in filter(None, (_WEB_SCRIPT.search(word.value) for word in listed.command.words)):
            yield _web_script(*source.span(listed.words), script["address"])
    for text in shell_texts(source):
        for script in _WEB_SCRIPT.finditer(text.text):
            yield _web_script(text.at(script.start()), text.at(script.end()), script["address"])
        for command in text.commands if _MAY_CHANGE_MACHINE.search(text.text) else ():
            arguments = " ".join(word.value for word in command.arguments)
            if (settings := _CHANGES_SETTINGS.get(command.program)) and settings.match(arguments):
                yield Match(*text.span(command), f"changes your own settings of {command.program}", (), _SETTINGS)
            elif what := _change(command):
                yield Match(*text.span(command), what, (), _CHECK)


def _web_script(start: int, end: int, address: str) -> Match:
    if _CHANGES_MACHINE.search(address):
        return Match(start, end, "a downloaded script adds a package source or sets up Colab's machine", (), _CHECK)
    return Match(start, end, "a downloaded script runs on this machine", (), _CHECK, Keeps.EQUIVALENT)


def _find_deletions(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    mounts = "|".join(map(re.escape, facts.mounts))
    drive = rf"(?:\$\{{?{facts.drive}\}}?|{mounts})(?:/My ?Drive)?/?"
    folders = re.compile(
        rf"(?P<named>\$\{{?{facts.work}\}}?/?|/content/?|{drive}|/|~/?|\$HOME/?)?(?:\.{{1,2}}/?)?(?:\*|\.\*)?"
    )
    for start, commands in _deleting(source):
        is_below = False
        for command, span in commands:
            is_below |= command.program == "cd" and not folders.fullmatch(
                " ".join(word.value for word in command.arguments)
            )
            if unknown := " ".join(value for value in command.deleted if value in facts.deletes_unknown):
                what = f"`rm -r {unknown}` deletes what no cell creates"
                yield Match(*span, what, (), _DELETES_UNKNOWN)
            for value in command.deleted:
                if (found := folders.fullmatch(value)) and (found["named"] or not is_below):
                    is_other = value.startswith(("/", "~", "$HOME")) or re.match(drive, value)
                    what = "everything in it" if is_other else _ALL
                    yield Match(*span, f"`rm -r {value}` deletes {what}", (), _DELETES)
            if not is_below and not command.deleted and (globs := " ".join(_globs(source, start, command, facts))):
                yield Match(*span, f"`rm {globs}` deletes such files of yours, too", (), _DELETES)
    if "rmtree" in source.text:
        folder = rf"{facts.work}|{facts.drive}|[\"'](?:/content/?|\.{{1,2}}/?|/|(?:{mounts})(?:/My ?Drive)?/?)[\"']"
        named = re.findall(rf"^[ \t]*(\w+)[ \t]*=[ \t]*(?:{folder})[ \t]*(?:#|$)", source.text, re.MULTILINE)
        removed = re.compile(rf"\brmtree\(\s*(?:{'|'.join([folder, *named])})\s*[,)]")
        for match in outside_comments(source, removed):
            what = "everything in the folder of the drive" if re.search("rive|mount", match[0]) else _ALL
            yield Match(*match.span(), f"`rmtree` deletes {what}", (), _DELETES)


def _deleting(source: CellSource) -> Iterator[tuple[int, list[tuple[shell.Command, tuple[int, int]]]]]:
    """The texts that may run `rm`, by their start in the cell, with their commands and the positions of those."""
    for text in shell_texts(source):
        if "rm" in text.text:
            yield text.start, [(command, text.span(command)) for command in text.commands]
    for magic in source.commands:
        if magic.kind == "magic" and magic.name == "rm":
            commands = shell.commands(source.text[magic.body : magic.end])
            yield magic.start, [(command, (magic.start, magic.end)) for command in commands]


def _globs(source: CellSource, start: int, command: shell.Command, facts: NotebookFacts) -> list[str]:
    """The patterns in the current folder that `rm` deletes, if the cell may have changed it to the work folder."""
    if command.program != "rm":
        return []
    above: list[str] = []
    for found in _CHANGES_FOLDER.finditer(source.text, 0, start):
        above = [*above, found["folder"]] if found["indent"] else [found["folder"]]
    if not any(re.fullmatch(rf"/content/?|\$\{{?{facts.work}\}}?/?", folder) for folder in above):
        return []
    return [word.value for word in command.arguments if word.value.startswith("*") and "/" not in word.value]


def _change(command: shell.Command) -> str:
    """The message about what a command changes outside the work folder; empty if nothing."""
    program = command.program
    if any(word.value == "sudo" for word in command.words[: command.program_at]):
        return f"`sudo {program}`: a command with administrator rights" if program else "`sudo`: administrator rights"
    if _SYSTEM_TOOLS.fullmatch(program) and not only_looks(program, [word.value for word in command.arguments]):
        return f"`{program}` changes the system outside the work folder"
    if program in ("make", "ninja") and any(word.value == "install" for word in command.arguments):
        return f"`{program} install` changes the system outside the work folder"
    if _MANAGERS.fullmatch(program) and _installs(program, {word.value for word in command.arguments}):
        return f"installs a program with {program} for the whole machine"
    target = next((path for path in _written(command) if _OUTSIDE.match(path)), "")
    return f"`{program or 'a redirection'}` changes {target}, outside the work folder" if target else ""


def _installs(program: str, arguments: set[str]) -> bool:
    if program == "npm":
        return not arguments.isdisjoint({"-g", "--global", "--location=global"})
    return program == "easy_install" or not arguments.isdisjoint({"install", "global", "add", "-S"})


def _written(command: shell.Command) -> Iterator[str]:
    """The paths that a command writes to, according to its options."""
    for redirection in command.redirections:
        if ">" in redirection.operator and redirection.target is not None:
            yield redirection.target.value
    program, values = command.program, [word.value for word in command.arguments]
    plain = [value for value in values if not value.startswith("-")]
    if _LAST.fullmatch(program) and len(plain) > 1:
        yield plain[-1]
    elif _ANY.fullmatch(program):
        yield from plain
    elif program == "git" and "clone" in plain and len(plain) > 2:
        yield plain[-1]
    elif program == "sed" and any(value.startswith(("-i", "--in-place")) for value in values):
        yield from plain[1:]
    elif program == "aria2c" and any(before == "-o" and path[:1] in ("{", "$") for before, path in pairwise(values)):
        return  # `-d / -o {path}`: a complete path
    elif _NAMED.fullmatch(program):
        for value, following in pairwise([*values, ""]):
            name, equals, path = value.partition("=")
            if _TARGET.fullmatch(name):
                yield path if equals else following


def _find_machine_paths(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    found = outside_comments(source, _COLAB_MACHINE)
    at_root = [*outside_comments(source, _AT_ROOT), *_named_at_root(source, facts)]
    found += [*at_root, *outside_comments(source, _CLIMB)]
    by_line = {source.line_of(match.start("path")): match for match in reversed(found)}
    for _, match in sorted(by_line.items()):
        action = _OF_THIS_MACHINE
        if match in at_root:
            action = "use a folder below WORK_DIR: only an administrator of this machine may write to its root"
        elif match.re is _CLIMB:
            action = "use a path below WORK_DIR: the notebook's folder is not directly below the root of this machine"
        elif match["path"].startswith(".."):
            action = "use the notebook's folder in place of `/content`, and your copy of what is on the Drive"
        message = f"`{match['path']}` is a path of the machine that the notebook ran on"
        line = source.text[source.text.rfind("\n", 0, match.start()) + 1 : match.start("path")]
        keeps = Keeps.EQUIVALENT if _EXTENDS.search(line) else None
        yield Match(*match.span("path"), message, (), action, keeps)


def _named_at_root(source: CellSource, facts: NotebookFacts) -> list[re.Match[str]]:
    """The strings of a cell that name a path below the root; none that is appended to another text."""
    if not (paths := facts.root_paths.get(source.index)):
        return []
    named = "|".join(map(re.escape, sorted(paths)))
    return outside_comments(source, re.compile(rf"""(?<![\w+])(?<!\+ )\w{{0,2}}["']+(?P<path>{named})["']"""))


RULES: tuple[Rule, ...] = (
    Rule(
        "LF822",
        "change of the machine",
        "`sudo`, `dpkg -i`, `tar -C /`, `-p /usr/local`, `> ~/.bashrc`, `make install`, `npm install -g`, "
        '`curl https://… | bash`, also in `subprocess.run(["bash", "-c", …])`, `conda init`, '
        "`conda config --set …`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_changes,
        holding("!", "%", "rmtree(", "system(", "popen(", "getoutput(", "call(", "run(", "Popen(", "check_output("),
        example=Example("!tar -C /usr/local -xf a.tar"),
    ),
    Rule(
        "LF823",
        "deletion of files that may be yours",
        "`rm -rf *`, `%rm -r /content`, `rm -r /content/drive/*`, `shutil.rmtree(WORK_DIR)`, "
        "`rm -r src` if no other code names `src`, "
        "`rm *.zip` below `%cd /content`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_deletions,
        holding("rm"),
        example=Example("!rm -rf *"),
    ),
    Rule(
        "LF831",
        "path of another machine",
        "`/root/…`, `/usr/local/lib/python3.x/dist-packages`, `/usr/local/cuda`, `/usr/local/x.sh`, "
        "`/usr/local/envs/x/bin/python`, `/usr/lib/python3.x/…`, "
        "`/usr/lib/jvm/…`, `/opt/bin`, `open('/data/x')`, `out_dir = '/x'`, `%cd /`, `'../' * depth`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_machine_paths,
        holding(
            *("/root", "/usr/", "/opt/", "/tools/node", "/datalab", "/env/python", "/var/colab", "../content"),
            *('"/', "'/", "%cd /", '../" *', "../' *"),
        ),
        example=Example('open("/root/.config/x")'),
    ),
)
