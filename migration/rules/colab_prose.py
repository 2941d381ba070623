"""Texts about Colab, in Markdown cells and in forms, are reported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import count, takewhile

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts
from migration.analysis.mounts import SAYS_MOUNT
from migration.colab.forms import marks
from migration.notebook.findings import Finding, Keeps
from migration.python.source import CellSource
from migration.python.strings import comments, outside_comments, read_cell
from migration.rules.rule import Example, Match, Rule

# Colab as a word of a text, not a part of a name, a path or an address.
_COLAB = (
    r"(?<![a-z0-9_./@-])(?:google[ -]?)?colab(?:oratory)?(?![a-z0-9_/@]|\.[a-z]"
    r"|-(?!(?:ready|friendly|compatible|only|based|specific)\b))"
)
_MENU = (
    r"\b(?:change|set(?!up)|select|choose|restart|reset|disconnect|reconnect)\w*(?: the| your)? runtime\b"
    r"|\bruntime\W{1,12}(?:->|>|→|&gt;|➔|/|▶|\|)"
    r"|\bruntime\b\W{0,8}\bmenu\b|\bmenu\b.{0,20}\bruntime\b|\bruntime\b[^.\n]{0,40}\brun[ _-]?all\b"
)
_PANEL = r"\b(?:left (?:panel|side ?bar|pane|menu)|files? (?:icon|panel|pane|tab|explorer|browser))\b"
# The Runtime menu in other languages, whose word also means the time at which a program runs.
_MENUS = {
    "execution type": r"\bexecution type\b",
    "ejecución": r"\bentorno de ejecución\b",
    "execução": r"\b(?:ambiente|tipo) de execução\b",
    "exécution": r"\b(?:type|environnement) d.exécution\b",
    "laufzeit": r"\blaufzeit(?:typ|umgebung)\b",
    "выполнения": r"среда выполнения",
    "运行时": r"运行时类型",
    "ランタイム": r"ランタイム(?!時|エラー)",
    "런타임": r"런타임(?! ?(?:에러|오류|시에?\b))",
}
# Texts about Colab, by a word that each of them contains: it is much faster to find than the pattern.
_ABOUT_COLAB = {
    word: re.compile(pattern, re.IGNORECASE)
    for word, pattern in (
        ("runtime", rf"{_MENU}|\bruntime type\b"),
        ("hardware accelerator", r"\bhardware accelerator\b"),
        ("notebook settings", r"\bnotebook settings\b"),
        ("factory reset", r"\bfactory reset\b"),
        ("google.colab", r"\bgoogle\.colab\b"),
        ("mount", SAYS_MOUNT.pattern),
        ("files.", r"\bfiles\.(?:upload|download)\b"),
        (
            "secret",
            r"\bnotebook\W{0,3}s?\W{0,3}secrets?\b|\bsecrets? (?:tab|panel|manager|section|pane)\b"
            r"|\bsecrets?\b.{0,20}\bnotebook\W{0,3}s? settings\b",
        ),
        ("colab", _COLAB),
        ("tensorflow_version", r"\btensorflow_version\b"),
        *_MENUS.items(),
        ("colab-", r"\bcolab-(?:connect|toolbar)-button"),
        (
            "session",
            r"\brestart\w*\b[^.\n]{0,20}\bsession\b|\bsession\b[^.\n]{0,30}\brestart"
            r"|\b(?:deleted|lost|persist\w*)\b[^.\n]{0,40}\bsession\b",
        ),
        ("google drive", r"\byour google drive\b|\bgoogle drive ?(?:마운트|をマウント)"),
        ("copy", r"\bsave (?:a )?copy (?:in|to)\b.{0,12}\bdrive\b|\bcopy of this notebook\b.{0,40}\bdrive\b"),
        ("file", r"\bfiles?\W{1,3}(?:icon|panel|pane|tab|explorer|browser)\b"),
        ("folder", r"\bfolder\W{1,3}(?:icon|panel|pane|tab|explorer|browser)\b"),
        ("copy path", r"\bcopy path\b"),
        ("upload", rf"\bupload\w*\b[^.\n]{{0,60}}{_PANEL}|{_PANEL}[^.\n]{{0,60}}\bupload"),
        ("key icon", r"\bkey icon\b"),
        ("authorization code", r"\bauthorization code\b"),
    )
}
_RUNTIME = _ABOUT_COLAB["runtime"]
# Comments and messages about Colab, and words of which each of them contains one.
_SAID_WORDS = ("runtime", "secret", "colab", "upload", *_MENUS)
_IN_COMMENT = re.compile(
    "|".join([r"//colab\.research\.google\.com/", *(_ABOUT_COLAB[word].pattern for word in _SAID_WORDS)]), re.IGNORECASE
)
_IN_CODE = re.compile(rf"(?<=\w ){_COLAB}(?=[^\w\n])", re.IGNORECASE)
_PACKAGE = re.compile(r"\bgoogle\.colab\b")
_REWRITTEN = re.compile(r"@|/content|google\.colab|/drive\b", re.IGNORECASE)
_COMMENT = re.compile(r"#+[ \t]*(?P<text>[^\n]*)")
_EMPHASIS = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_ABOUT_MESSAGE = "text about Colab, or its menus, files, drive or secrets"
ABOUT_ACTION = (
    "reword the text if it matters: the menu is called Kernel, the notebook and its files are on this machine, secrets "
    "in the environment"
)
_IN_STRING = re.compile("|".join([_MENU, *_MENUS.values(), rf"(?<=[:,] ){_COLAB}(?=[^\w\n])"]), re.IGNORECASE)
_RESTART = re.compile(r"\brestart", re.IGNORECASE)
RESTART_ACTION = "after a restart of the kernel, run the added cells at the top again, then continue"
# A text that describes a test for Colab, if it stands directly above one.
_TEST = re.compile(
    r"\b(?:if|whether|when|unless|are we|am i|outside|only)\b[^.\n]{0,60}\bcolab(?:oratory)?\b(?!\.\w)"
    r"|\bcolab[- ]only\b",
    re.IGNORECASE,
)
TEST_MESSAGE = "this text describes the test for Colab that is gone"
REMOVED_MESSAGE = "the line that this comment describes is gone"
_REMOVED_ACTION = "delete the comment, or reword it for what the cell does now"
_TEST_ACTION = "reword it: the code below it does the same on every machine now"
# Words of a text about signing in, and about mounting a drive, next to a mount; on a line about no other service.
_OTHER_SERVICE = r"(?im)^(?!.*(?:hugging|ngrok|gradio|wandb|kaggle|github|openai)).*?"
_WORDS = (
    r"\bclick\w*\b.{0,20}\b(?:link|url)\b|\blink\b.{0,20}\bopen\b|\b(?:sign|log)(?:n?ing)?[ -]?in\b"
    r"|\bprompts? (?:you|for)\b|\b(?:allow|grant)\w*\b.{0,20}\baccess\b|\bpast(?:e|ing)\b.{0,30}\bcode\b"
    r"|\b(?:verification|access) code\b|\b(?:google|your) account\b"
    r"|\bauthori[sz]|\bauthenticat|\bautoriz|\bautentic|\binici\w* sesi[oó]n|\b(?:cuenta|conta) (?:de |do )?google"
    r"|\benlace\b|\bpermis[os]|認証|認可|許可|ログイン|サインイン|アカウント|貼り付け"
    r"|授[权權]|[认認][证證]|登[录錄入]|[账帳][号號户戶]|[验驗][证證][码碼]|粘[贴貼]|貼上|인증|로그인|계정|권한|붙여"
)
_MOUNTS = (
    r"\bconnect\w*\b.{0,40}\bdrive\b|\bmont(?:ar|amos|aje|agem|e)\b"
    r"|マウント|ドライブ|drive ?への接続|挂[载載]|掛載|[云雲]端?[盘盤硬]|마운트|드라이브"
)
_SIGN_IN = re.compile(rf"{_OTHER_SERVICE}(?:{_WORDS})")
_MOUNT = re.compile(rf"{_OTHER_SERVICE}(?:{_WORDS}|{_MOUNTS})")
SIGN_IN_MESSAGE = "this text describes a mount or sign-in that does not happen here"
_SIGN_IN_ACTION = "reword it: the drive is a folder of this machine, and nothing asks for an account"
_TABLE = re.compile(
    r"\binteractive\b[^.\n]{0,20}\b(?:data[ -]?frame|table)|\b(?:data[ -]?frame|table)s?\b[^.\n]{0,30}\binteractive",
    re.IGNORECASE,
)
TABLE_MESSAGE = "this text describes Colab's interactive table, but a data frame is a plain table here"
_TABLE_ACTION = "reword it, or show the data frame with a package such as itables"


def _find_texts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    tests = {}
    if source.index + 1 in facts.tests:
        tests = {source.line_of(match.start()): match for match in _TEST.finditer(source.text)}
    for match in tests.values():
        yield Match(*match.span(), TEST_MESSAGE, (), _TEST_ACTION)
    mount = _MOUNT.search(source.text) if source.index + 1 in facts.signed_in else None
    by_line = {source.line_of(match.start()): match for match in reversed(_about_colab(source.text))}
    if mount is not None:
        by_line[source.line_of(mount.start())] = mount
    paths = (path or "" for places in facts.colab.bindings.values() for _, path in places)
    table = _TABLE.search(source.text) if any(path.startswith("data_table") for path in paths) else None
    if table is not None:
        by_line[source.line_of(table.start())] = table
    for _, match in sorted(item for item in by_line.items() if item[0] not in tests):
        message, action = _about(match) if match is not mount else (SIGN_IN_MESSAGE, _SIGN_IN_ACTION)
        if match is table:
            message, action = TABLE_MESSAGE, _TABLE_ACTION
        yield Match(*match.span(), message, (), action)


def _about(match: re.Match[str]) -> tuple[str, str]:
    """The message and the action for a text about Colab."""
    rest = match.string[match.start() :].partition("\n")[0]
    return _ABOUT_MESSAGE, RESTART_ACTION if _RESTART.search(rest) else ABOUT_ACTION


def _about_colab(text: str) -> list[re.Match[str]]:
    """The places of a text that are about Colab, in order."""
    lower = text.lower()
    words = [word for word in _ABOUT_COLAB if word in lower]
    if not words:
        return []
    plain = _EMPHASIS.sub("*", text)
    found = ((word, match) for word in words for match in _ABOUT_COLAB[word].finditer(plain))
    # Other rules report a link to Colab with the text around it.
    links = {text.count("\n", 0, link.start()) for link in re.finditer(r"//colab\.research", lower)}
    return sorted(
        (match for word, match in found if word != "colab" or text.count("\n", 0, match.start()) not in links),
        key=lambda match: match.start(),
    )


def comments_about_colab(source: CellSource, new: CellSource, facts: NotebookFacts) -> Iterator[Finding]:
    """The findings for comments and messages of an original cell that are still in the new one, or for comments in the
    parameters cell."""
    described = (*_form_texts(source, facts), *_texts_of_removed(source, new), *_texts_of_tests(source, facts))
    found = {finding.line: finding for finding in described}
    moved = (line for parameter in facts.parameters for line in (*parameter.above, *parameter.below))
    left = "\n".join([new.text, *moved]) if found else ""
    yield from (found[line] for line in sorted(found) if _is_left(found[line], left))


def _is_left(finding: Finding, text: str) -> bool:
    """Whether a text contains the comment of a finding, or its line. Other rules rewrite the marks of forms, names and
    folders."""
    comment = _COMMENT.search(finding.before)
    left = comment["text"].rstrip() if comment else finding.before.strip()
    return bool(_REWRITTEN.search(comment[0] if comment else left)) or left in text


def _form_texts(source: CellSource, facts: NotebookFacts) -> Iterator[Finding]:
    """The findings for texts about Colab in an original cell: those of forms, which other rules move or make plain
    comments, comments and messages that name it, its Runtime menu or its secrets, and comments about signing in above a
    mount."""
    mount = facts.signed_in.get(source.index, -1)
    text = source.text.lower()
    is_said = any(word in text for word in _SAID_WORDS)
    if source.language != "python" or not (mount >= 0 or is_said or "markdown" in text):
        return
    rows = {source.line_of(mark.start): mark for mark in marks(source) if mark.kind == "markdown"}
    found: dict[int, tuple[str, str]] = {}
    for start, end in comments(source):
        row = source.line_of(start)
        if row <= mount and _SIGN_IN.search(source.text[start:end]):
            found[row], mount = (SIGN_IN_MESSAGE, _SIGN_IN_ACTION), -1  # the first one
        elif _PACKAGE.search(source.text, start, end):
            continue  # another rule reports it
        elif row not in rows and (match := _IN_COMMENT.search(source.text, start, end)):
            found[row] = _about(match)
    for start, end in (literal.body for literal in read_cell(source)[0]) if source.index in facts.signed_in else ():
        if " " in source.text[start:end] and (match := SAYS_MOUNT.search(source.text, start, end)):
            found.setdefault(source.line_of(match.start()), (SIGN_IN_MESSAGE, _SIGN_IN_ACTION))
    for match in _said(source) if is_said and source.is_python else ():
        found.setdefault(source.line_of(match.start()), _about(match))
    while rows:
        first = next(iter(rows))
        run = list(takewhile(rows.__contains__, count(first)))
        text = "\n".join(rows.pop(row).text for row in run)
        for match in _about_colab(text):
            found.setdefault(first + text.count("\n", 0, match.start()), _about(match))
    for row in sorted(found):
        yield _found(source, row, *found[row])


def _said(source: CellSource) -> Iterator[re.Match[str]]:
    """The places where code, mostly a message, names Colab, and where a string names it or its Runtime menu."""
    yield from outside_comments(source, _IN_CODE)
    for literal in read_cell(source)[0]:
        for match in _IN_STRING.finditer(source.text, *literal.body):
            if not any(start < match.start() < end for start, end in literal.fields):
                yield match


def _texts_of_removed(source: CellSource, new: CellSource) -> Iterator[Finding]:
    """The findings for comments directly above removed lines of code, if an empty line or the end of the cell follows:
    they describe nothing else."""
    if new is source or not source.is_python or "#" not in source.text:
        return
    lines = [line.strip() for line in source.text.split("\n")]
    left = [line.strip() for line in new.text.split("\n")]
    rows = {source.line_of(start) for start, _ in comments(source)}
    for kind, first, last, _, _ in SequenceMatcher(None, lines, left, autojunk=False).get_opcodes():
        removed = [row for row in range(first, last) if lines[row]] if kind == "delete" else []
        if not removed or all(row in rows and lines[row].startswith("#") for row in removed):
            continue
        above, below = removed[0] - 1, removed[-1] + 1
        if above in rows and lines[above].startswith("#") and not "".join(lines[below : below + 1]):
            yield _found(source, above, REMOVED_MESSAGE, _REMOVED_ACTION)


def _texts_of_tests(source: CellSource, facts: NotebookFacts) -> Iterator[Finding]:
    """The findings for comments in a cell with a test for Colab that describe the test, directly above it or at the
    beginning of its body."""
    if source.index not in facts.tests:
        return
    rows: set[int] = set()
    lines = source.text.split("\n")

    def is_comment(row: int) -> bool:
        return lines[row].lstrip().startswith("#")

    def is_import(row: int) -> bool:
        return lines[row].startswith(("import ", "from "))

    for choice in facts.colab.cell(source).choices:
        inner = choice.node.body if isinstance(choice.node, ast.IfExp) else choice.node.body[0]
        first, body = (source.line_of(source.span(node)[0]) for node in (choice.node, inner))
        above_imports = list(takewhile(is_import, range(first - 1, -1, -1)))
        above = takewhile(is_comment, range(first - 1 - len(above_imports), -1, -1))
        rows |= {*above, *filter(is_comment, range(first + 1, body))}
    for row in sorted(rows):
        if _TEST.search(lines[row]) and not _RUNTIME.search(lines[row]):
            yield _found(source, row, TEST_MESSAGE, _TEST_ACTION)


def _found(source: CellSource, row: int, message: str, action: str) -> Finding:
    before = masked(source.text[slice(*source.line_span(source.line_starts[row], source.line_starts[row]))])
    return Finding("LF704", Keeps.EQUIVALENT, source.index, row + 1, message, before=before, action=action)


RULES: tuple[Rule, ...] = (
    Rule(
        "LF704",
        "text about Colab",
        "its name, its Runtime menu, mounting a drive, the secrets or files pane, in markdown and in the texts of "
        "forms; its name and menu also in comments and messages; a comment above a removed line that describes nothing "
        "else",
        "nothing; reported",
        Keeps.EQUIVALENT,
        _find_texts,
        None,
        ("markdown",),
        any_language=True,
        example=Example("Runtime > Change runtime type"),
    ),
)
