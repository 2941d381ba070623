"""LF3xx: conditions that ask "does this run on Colab?" are replaced by one of their branches, usually the local one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts
from migration.analysis.unused import SYS, is_import
from migration.colab.effects import ADVICE, MESSAGE, Effect, different, effects, lost
from migration.colab.local_branch import Choice, asks_if_missing
from migration.colab.local_value import Answer, answer, asks_for_content
from migration.notebook.findings import Finding, Keeps, listed
from migration.notebook.texts import Edit, holding
from migration.python.scopes import accesses
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.statements import blocks, take_out
from migration.rules.folding import NOT_HERE, fold, operands_text
from migration.rules.magics import TENSORFLOW_1_ACTION
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import pipelines

_DOWNLOADS, _SHELLS = frozenset({"curl", "wget"}), frozenset({"sh", "bash"})
_TENSORFLOW_1 = re.compile(r"%tensorflow_version\s+1")
_BLANK_LINES = re.compile(r"(?<=\n)(?:[ \t]*\n)+")
_QUESTIONS = (ast.Compare, ast.Call, ast.UnaryOp, ast.BoolOp)
_CALLERS_ACTION = "check what the callers of this function do on Colab only, because this machine may need it too"


# ------------------------------------------------------------------------------------------------------------- branches
def _find_ifs(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.cell(source).choices:
        if not isinstance(choice.node, ast.Try) and not choice.colab:
            yield _local(source, choice, "the branch that runs outside Colab replaces the condition")


def _find_tries(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.cell(source).choices:
        if isinstance(choice.node, ast.Try) and not choice.colab:
            what = "`%tensorflow_version`" if isinstance(choice.failing, ast.Expr) else "`google.colab`"
            found = _local(source, choice, f"{what} is not available here, so ")
            if found.edits:
                yield replace(found, message=found.message + _instead(choice, choice.node, found.edits))


def _instead(choice: Choice, node: ast.Try, edits: Sequence[Edit]) -> str:
    """What the edits write instead of a `try` or a part of it."""
    if edits[0].text.startswith(NOT_HERE):
        return "an error that the `except` handles replaces the lines from its import on"
    ends_empty = choice.handler is not None and all(isinstance(part, ast.Pass) for part in choice.handler.body)
    has_lines = ends_empty and node.body[0] in choice.kept
    return f"{'the lines above its import replace' if has_lines else 'the handler replaces'} the `try`"


def _find_kept(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    yield from (match for choice, match in _kept(source, facts) if match.edits or not isinstance(choice.node, ast.Try))


def tries_as_written(source: CellSource, facts: NotebookFacts) -> Iterator[Finding]:
    """The findings for each `try` of an original cell that stays: the rules that replace its import find no test."""
    for choice, match in _kept(source, facts):
        if isinstance(choice.node, ast.Try) and not match.edits:
            first = source.segment(choice.node).partition("\n")[0]
            keeps, row = match.keeps or Keeps.EQUIVALENT, source.line_of(match.start) + 1
            yield Finding("LF303", keeps, source.index, row, match.message, before=masked(first), action=match.action)


def _kept(source: CellSource, facts: NotebookFacts) -> Iterator[tuple[Choice, Match]]:
    """The choices for Colab, and what becomes of each."""
    for choice in facts.colab.cell(source).choices:
        if not choice.colab:
            continue
        edits = fold(source, choice, keep_import=facts.colab.spelt_out)
        gone = lost(source, choice.removed, choice.kept, facts.colab.context.functions)
        said = listed(_line(source, effect) for effect in gone if effect.kind in (MESSAGE, ADVICE))
        message = f"the branch for Colab is kept: {_reason(choice)}"
        message += f"; removed with the other branch: {said}" if said else ""
        if isinstance(choice.node, ast.Try) and choice.stays:
            message += "; the `except` stays, for other errors than a missing Colab"
        scripts = _scripts(source, choice)
        action = f"read the script before you run it here, because it was made for Colab's machine: {scripts}"
        refuses = choice.because == "refuses"
        needed = [found for found in gone if found.kind == ADVICE or not (refuses or found.kind == MESSAGE)]
        action = action if scripts else _action(source, needed)
        keeps = Keeps.NEEDS_HUMAN if action else None
        yield choice, Match(*source.span(choice.node), message, edits, action, keeps)


def _scripts(source: CellSource, choice: Choice) -> str:
    """The lines of a branch that download a script and run it."""
    spans = [source.span(node) for node in choice.kept]
    found = [
        f"`{source.text[text.start : text.end].strip()}`"
        for text in shell_texts(source)
        if text.command is not None
        and any(start <= text.command.start < end for start, end in spans)
        and any(line[0].program in _DOWNLOADS and line[-1].program in _SHELLS for line in pipelines(text.commands))
    ]
    return "; ".join(dict.fromkeys(found))


def _reason(choice: Choice) -> str:
    if choice.because == "refuses":
        return "the other branch refuses to run outside Colab"
    if choice.because == "mounts":
        return "it mounts the drive for the first time, but the drive's folder exists here before that"
    if choice.effects:
        kinds = list(dict.fromkeys(effect.kind for effect in choice.effects))
        words = " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
        return f"it {words}, which this machine needs too"
    return f"only it defines {choice.because}, which the notebook needs"


def _local(source: CellSource, choice: Choice, message: str) -> Match:
    """The match that keeps the local branch; the user must check effects that only the branch for Colab has."""
    start, end = source.span(choice.node)
    edits = fold(source, choice)
    if any(_TENSORFLOW_1.match(source.text, effect.start) for effect in lost(source, choice.removed, choice.kept)):
        return Match(start, end, message, edits, TENSORFLOW_1_ACTION, Keeps.NEEDS_HUMAN)
    if any(isinstance(node, ast.Return) for node in choice.kept) and isinstance(choice.scope, ast.FunctionDef):
        return Match(start, end, message, edits, _CALLERS_ACTION, Keeps.NEEDS_HUMAN)
    if choice.effects:
        action = _action(source, (*choice.effects, *choice.uploads))
        return Match(start, end, message, edits, action, Keeps.NEEDS_HUMAN)
    if choice.uploads:
        uploads = listed(_line(source, effect) for effect in choice.uploads)
        action = f"put the files that the branch for Colab uploads, {uploads}, where this branch looks for them"
        return Match(start, end, message, edits, action, Keeps.NEEDS_HUMAN)
    return Match(start, end, message, edits)


def _action(source: CellSource, needed: Sequence[Effect], what: str = "these removed lines") -> str:
    """The action for what only the removed branch does, or Colab in every case."""
    lines = "; ".join(dict.fromkeys(f"`{_line(source, effect)}`" for effect in needed))
    return f"check whether this machine needs {what}: {lines}" if lines else ""


def _line(source: CellSource, effect: Effect) -> str:
    return " ".join(source.text[effect.start : effect.end].split()).replace("`", "'")


# ---------------------------------------------------------------------------------------------------------- expressions
def _find_operands(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    cell = facts.colab.cell(source)
    tests = _tests(source)
    for node in (node for node in cell.expressions if isinstance(node, ast.BoolOp)):
        known = [(operand, found) for operand in node.values if (found := cell.answer(operand)) is not None]
        if cell.answer(node) is not None:
            continue
        for operand, found in known:
            what = "these lines without the rest of the condition, too"
            action = _action(source, _lost_with_operand(source, node, found), what)
            in_a_line = not re.search(r"[\n#]", source.segment(node))
            if bool(found.value) is not isinstance(node.op, ast.Or) and id(node) in tests and in_a_line:
                text = operands_text(source, node, [part for part in node.values if part is not operand])
                message = f"`{ast.unparse(operand)}` is {bool(found.value)} here and has no effect"
                yield _replaced(source, node, text, message, shown=operand, action=action)
                break


def _lost_with_operand(source: CellSource, test: ast.BoolOp, found: Answer) -> list[Effect]:
    """Effects of the body of `if x or IN_COLAB:` that happen on Colab regardless of `x`, and differ in other
    branches."""
    owner = next((node for node in source.nodes if isinstance(node, ast.If) and node.test is test), None)
    if owner is None or found.value or not isinstance(test.op, ast.Or) or any(map(asks_if_missing, test.values)):
        return []
    return different(effects(source, owner.body), effects(source, owner.orelse))


def _tests(source: CellSource) -> set[int]:
    """The ids of the expressions of which only the truth value is used."""
    found: set[int] = set()
    for node in source.nodes:
        match node:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                found.add(id(node.test))
            case ast.comprehension():
                found |= {id(test) for test in node.ifs}
            case ast.UnaryOp(op=ast.Not()):
                found.add(id(node.operand))
            case ast.BoolOp() if id(node) in found:
                found |= {id(test) for test in node.values}
    return found


def _find_values(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    cell = facts.colab.cell(source)
    returned = {id(node.value) for node in source.nodes if isinstance(node, ast.Return)}
    for node in cell.expressions:
        found = cell.answer(node) if isinstance(node, _QUESTIONS) else None
        if found is None or answer(node) is None:
            continue  # a question through flags stays if no branch depends on it
        message = f"`{ast.unparse(node)}` is {found.value!r} here"
        action = _CALLERS_ACTION if id(node) in returned else ""
        yield _replaced(source, node, repr(found.value), message, action=action)
    yield from _find_hand_written(source, facts)
    for node in source.nodes:
        if not isinstance(node, ast.Assert) or id(node) in cell.removed or "TPU" in source.segment(node):
            continue
        if cell.answer(node.test) is not None:
            message = "the check that the notebook runs on Colab is removed"
            yield Match(*source.span(node), message, take_out(source, [node]))


def _find_hand_written(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """`IN_COLAB = True`: a flag that is set by hand."""
    flags, removed = facts.colab.flags, facts.colab.cell(source).removed
    for access in accesses(source) if flags else ():
        value, name = access.value, access.name
        if value is None or name not in flags or access.owner.parent is not None or id(access.node) in removed:
            continue
        local = flags[name]
        is_other = isinstance(value, ast.Constant) and isinstance(value.value, bool) and value.value is not local
        if is_other or (local is False and asks_for_content(value)):
            yield _replaced(source, value, repr(local), f"`{name}` is {local} here", shown=access.assignment)


def _replaced(
    source: CellSource,
    node: ast.expr,
    text: str,
    message: str,
    *,
    shown: ast.expr | ast.stmt | None = None,
    action: str = "",
) -> Match:
    """The match that replaces an expression; `shown` is the part of the cell that the finding is about."""
    keeps = Keeps.NEEDS_HUMAN if action else None
    return Match(*source.span(shown or node), message, (Edit(*source.span(node), text),), action, keeps)


def _find_unused(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Imports of `sys` that only the replaced questions used."""
    for block in blocks(source) if facts.unused_sys else ():
        for node in filter(is_import, block.statements):
            others = [ast.unparse(alias) for alias in node.names if alias.name != SYS]
            edits = (Edit(*source.span(node), f"import {', '.join(others)}"),) if others else take_out(source, [node])
            end = source.span(node)[1]
            blanks = _BLANK_LINES.match(source.text, end + 1)
            if blanks and not others and not source.text[: source.span(node)[0]].strip():
                edits = (*edits, Edit(*blanks.span(), ""))
            yield Match(source.span(node)[0], end, "only the test for Colab that is gone used `sys`", edits)


RULES: tuple[Rule, ...] = (
    Rule(
        "LF301",
        "A branch for Colab",
        '`if "google.colab" in sys.modules:`, `if IN_COLAB:`, `if os.getenv("COLAB_RELEASE_TAG"):` and the like, with '
        "`not`, `and`, `or`, `elif` and `else`; `a if IN_COLAB else b`",
        "the branch that runs outside Colab, instead of the whole statement or expression, if the other one only sets "
        "flags and values, shows something, calls functions of the notebook that compute, or deletes what it does not "
        "create; the user decides if both install or run different things.",
        Keeps.EQUIVALENT,
        _find_ifs,
        of_colab=True,
        example=Example('if "google.colab" in sys.modules:\n    workers = 2\nelse:\n    workers = 8', "workers = 8"),
    ),
    Rule(
        "LF302",
        "A guarded import of Colab",
        "`try: import google.colab …` with a handler that catches ImportError; the same for `%tensorflow_version`",
        "the handler, instead of the whole statement",
        Keeps.EQUIVALENT,
        _find_tries,
        of_colab=True,
        example=Example(
            ("try:\n    import google.colab\n    IN_COLAB = True\nexcept ImportError:\n    IN_COLAB = False"),
            "IN_COLAB = False",
        ),
    ),
    Rule(
        "LF303",
        "A branch for Colab that is needed",
        "`if IN_COLAB:`, or `try:` with an import of Colab, whose body downloads, installs, reads secrets, names "
        "folders or sets the environment, and the other branch does not; or binds names that nothing else binds; or "
        'whose other branch refuses to run; the same for `if not os.path.exists("/content/drive"):` around the first '
        "mount and other statements",
        "the branch for Colab, instead of the whole statement or expression; its calls are replaced by local ones, its "
        "flags stay False",
        Keeps.EQUIVALENT,
        _find_kept,
        of_colab=True,
        example=Example(
            'if "google.colab" in sys.modules:\n    !git clone https://example.org/a/b.git\n    %cd b',
            "!git clone https://example.org/a/b.git\n%cd b",
        ),
    ),
    Rule(
        "LF305",
        "A test for Colab without effect",
        "`cond or IN_COLAB`, `cond and not IN_COLAB`",
        "`cond`",
        Keeps.EQUIVALENT,
        _find_operands,
        of_colab=True,
        example=Example(
            'IN_COLAB = "google.colab" in sys.modules\nif fast or IN_COLAB:\n    steps = 10',
            'IN_COLAB = "google.colab" in sys.modules\nif fast:\n    steps = 10',
        ),
    ),
    Rule(
        "LF306",
        "A value that says whether this is Colab",
        '`IN_COLAB = "google.colab" in sys.modules`, `find_spec("google.colab") is not None`, '
        '`"COLAB_GPU" in os.environ`, `IN_COLAB = True`, `assert IN_COLAB`',
        "`IN_COLAB = False`: the value outside Colab; nothing instead of an assertion",
        Keeps.EQUIVALENT,
        _find_values,
        of_colab=True,
        example=Example('IN_COLAB = "google.colab" in sys.modules', "IN_COLAB = False"),
    ),
    Rule(
        "LF312",
        "An import for a test for Colab",
        '`import sys`, if only tests such as `"google.colab" in sys.modules` use it in the notebook',
        "nothing",
        Keeps.EQUIVALENT,
        _find_unused,
        holding("sys"),
        example=Example(
            'import sys\nIN_COLAB = "google.colab" in sys.modules', 'IN_COLAB = "google.colab" in sys.modules'
        ),
    ),
)
