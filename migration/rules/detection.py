"""LF3xx: conditions that ask "does this run on Colab?" are replaced by one of their branches, usually the local one."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts
from migration.colab.effects import ADVICE, MESSAGE, Effect, different, effects, lost, of_expression, uncovered
from migration.colab.local_branch import Choice, asks_if_missing, missing_names
from migration.colab.local_value import Answer, answer, asks_for_content
from migration.notebook.findings import Finding, Keeps, listed
from migration.notebook.texts import Edit
from migration.python.scopes import accesses, accesses_in
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.statements import take_out
from migration.rules.folding import fold, operands_text
from migration.rules.magics import TENSORFLOW_1_ACTION
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import pipelines

_DOWNLOADS, _SHELLS = frozenset({"curl", "wget"}), frozenset({"sh", "bash"})
_TENSORFLOW_1 = re.compile(r"%tensorflow_version\s+1")
_ALWAYS_DEFINED = frozenset({*dir(builtins), "display", "get_ipython"})
_QUESTIONS = (ast.Compare, ast.Call, ast.UnaryOp, ast.BoolOp)
_CALLERS_ACTION = "check what the callers of this function do on Colab only, because this machine may need it too"


# ------------------------------------------------------------------------------------------------------------- branches
def _find_ifs(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.cell(source).choices:
        if choice.as_written:
            message = "the condition stays as written: it is false here, and the text around it refers to it"
            yield Match(*source.span(choice.node), message)
        elif isinstance(choice.node, ast.If) and not choice.colab:
            yield _local(source, choice, "the branch that runs outside Colab replaces the condition")


def _find_tries(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.cell(source).choices:
        if isinstance(choice.node, ast.Try) and not choice.colab:
            what = "a variable that Colab sets"
            if isinstance(choice.failing, ast.Import | ast.ImportFrom):
                what = "`google.colab`"
            elif choice.failing is not None and source.command_of(choice.failing) is not None:
                what = "`%tensorflow_version`"
            found = _local(source, choice, f"{what} is not available here, so the handler replaces the `try`")
            if found.edits:
                yield found


def _find_kept(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.cell(source).choices:
        if not choice.colab:
            continue
        edits = fold(source, choice, keep_import=facts.colab.spelt_out)
        if edits or isinstance(choice.node, ast.If):
            gone = lost(source, choice.removed, choice.kept, facts.colab.context.functions)
            said = listed(_line(source, effect) for effect in gone if effect.kind in (MESSAGE, ADVICE))
            message = f"the branch for Colab is kept: {_reason(choice)}"
            message += f"; removed with the other branch: {said}" if said else ""
            scripts = _scripts(source, choice)
            action = f"read the script before you run it here, because it was made for Colab's machine: {scripts}"
            refuses = choice.because == "refuses"
            needed = [found for found in gone if found.kind == ADVICE or not (refuses or found.kind == MESSAGE)]
            action = action if scripts else _action(source, needed)
            keeps = Keeps.NEEDS_HUMAN if action else None
            yield Match(*source.span(choice.node), message, edits, action, keeps)


def undefined_names(source: CellSource, facts: NotebookFacts) -> Iterator[Finding]:
    """The findings for names that the notebook needs although only the branch binds them that is not kept."""
    context = facts.colab.context
    for choice in facts.colab.cell(source).choices if context.needed else ():
        names = missing_names(source, choice, context) - _ALWAYS_DEFINED if choice.colab else set()
        if not names:
            continue
        places = [access.node for access in accesses_in(source, choice.idle) if access.binds and access.name in names]
        lines = [source.line_span(*source.span(node)) for node in places]
        shown = "; ".join(f"`{source.text[start:end].strip().splitlines()[0]}`" for start, end in sorted(set(lines)))
        start = source.span(choice.node)[0]
        yield Finding(
            "LF309",
            Keeps.NEEDS_HUMAN,
            source.index,
            source.line_of(start) + 1,
            f"the branch for Colab is kept, but only the other branch defines {listed(names)}, which later code reads",
            before=masked(source.text[slice(*source.line_span(start, start))]),
            action=masked(f"add these lines of the other branch, or remove what needs them: {shown}"),
        )


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
    if choice.because == "places":
        return "the folders of the other branch do not fit the other kept branches for Colab"
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


def _action(source: CellSource, needed: Sequence[Effect]) -> str:
    """The action for what only the removed branch does."""
    lines = "; ".join(dict.fromkeys(f"`{_line(source, effect)}`" for effect in needed))
    return f"check whether this machine needs these removed lines: {lines}" if lines else ""


def _operand_action(source: CellSource, needed: Sequence[Effect]) -> str:
    """The action for what Colab does in every case, and this machine only under the rest of a condition."""
    lines = "; ".join(dict.fromkeys(f"`{_line(source, effect)}`" for effect in needed))
    return (
        f"check whether this machine needs these lines without the rest of the condition, too: {lines}" if lines else ""
    )


def _line(source: CellSource, effect: Effect) -> str:
    return " ".join(source.text[effect.start : effect.end].split()).replace("`", "'")


# ---------------------------------------------------------------------------------------------------------- expressions
def _find_conditionals(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    cell = facts.colab.cell(source)
    for node in (node for node in cell.expressions if isinstance(node, ast.IfExp)):
        found = cell.answer(node.test)
        if found is None:
            continue
        kept, removed = (node.body, node.orelse) if found.value else (node.orelse, node.body)
        message = "the value for a run outside Colab replaces the choice"
        if uncovered(of_expression(source, removed), of_expression(source, kept)):
            kept, message = removed, "the value for Colab replaces the choice: it is needed here"
        text = source.segment(kept)
        if isinstance(kept, ast.NamedExpr | ast.Yield | ast.YieldFrom) or ("\n" in text and text[0] not in "([{"):
            text = f"({text})"
        yield _replaced(source, node, text, message)


def _find_operands(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    cell = facts.colab.cell(source)
    tests = _tests(source)
    for node in (node for node in cell.expressions if isinstance(node, ast.BoolOp)):
        known = [(operand, found) for operand in node.values if (found := cell.answer(operand)) is not None]
        if cell.answer(node) is not None:
            continue
        for operand, found in known:
            action = _operand_action(source, _lost_with_operand(source, node, found))
            in_a_line = not re.search(r"[\n#]", source.segment(node))
            if bool(found.value) is not isinstance(node.op, ast.Or) and id(node) in tests and in_a_line:
                text = operands_text(source, node, [part for part in node.values if part is not operand])
                message = f"`{ast.unparse(operand)}` is {bool(found.value)} here and has no effect"
                yield _replaced(source, node, text, message, shown=operand, action=action)
                break
            if answer(operand) is not None:
                message = f"`{ast.unparse(operand)}` is {found.value} here"
                yield _replaced(source, operand, repr(found.value), message, action=action)
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
    assigned = {id(node.value): node for node in source.nodes if isinstance(node, ast.Assign | ast.AnnAssign)}
    for node in cell.expressions:
        found = cell.answer(node) if isinstance(node, _QUESTIONS) else None
        if found is None or answer(node) is None:
            continue  # a question through flags stays if no branch depends on it
        message = f"`{ast.unparse(node)}` is {found.value!r} here"
        action = _CALLERS_ACTION if id(node) in returned else ""
        match = _replaced(source, node, repr(found.value), message, action=action)
        yield _without_parentheses(source, match, assigned[id(node)]) if id(node) in assigned else match
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


def _without_parentheses(source: CellSource, match: Match, assignment: ast.Assign | ast.AnnAssign) -> Match:
    """The match whose edit also replaces the parentheses around the value of an assignment."""
    (edit,) = match.edits
    start, end = source.span(assignment)
    closing = source.text[edit.end : end]
    opening = re.search(r"[(\s]*\Z", source.text[start : edit.start])
    if not closing or closing.strip(")\n\t ") or opening is None or opening[0].count("(") != closing.count(")"):
        return match
    first = start + opening.start() + opening[0].index("(")
    return replace(match, start=start, end=end, edits=(Edit(first, end, edit.text),))


RULES: tuple[Rule, ...] = (
    Rule(
        "LF301",
        "A branch for Colab",
        '`if "google.colab" in sys.modules:`, `if IN_COLAB:`, `if os.getenv("COLAB_RELEASE_TAG"):` and the like, with '
        "`not`, `and`, `or`, `elif` and `else`",
        "the branch that runs outside Colab, instead of the whole statement, if the other one only sets flags and "
        "values or shows something; the user decides if both install or run different things. A set-up of Colab's TPU "
        "stays as written if an `else` or a comment above refers to it",
        Keeps.EQUIVALENT,
        _find_ifs,
        of_colab=True,
        example=Example('if "google.colab" in sys.modules:\n    workers = 2\nelse:\n    workers = 8', "workers = 8"),
    ),
    Rule(
        "LF302",
        "A guarded import of Colab",
        "`try: import google.colab …` with a handler that catches ImportError; the same for `%tensorflow_version` and "
        '`os.environ["COLAB_TPU_ADDR"]`',
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
        "the branch for Colab, instead of the whole statement; its calls are replaced by local ones, its flags stay "
        "False. The other branch, if the one for Colab only names folders, and another condition downloads their files "
        "outside Colab",
        Keeps.EQUIVALENT,
        _find_kept,
        of_colab=True,
        example=Example(
            'if "google.colab" in sys.modules:\n    !git clone https://example.org/a/b.git\n    %cd b',
            "!git clone https://example.org/a/b.git\n%cd b",
        ),
    ),
    Rule(
        "LF304",
        "A choice of values for Colab",
        "`a if IN_COLAB else b`",
        "`b`; `a` if it downloads, reads a secret or names a folder and `b` does not",
        Keeps.EQUIVALENT,
        _find_conditionals,
        of_colab=True,
        example=Example(
            'IN_COLAB = "google.colab" in sys.modules\nworkers = 2 if IN_COLAB else 8',
            'IN_COLAB = "google.colab" in sys.modules\nworkers = 8',
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
        "LF309",
        "A name of the other branch",
        "a name that only the branch for other machines defines, such as `import wandb` in a handler, if the branch "
        "for Colab is kept and later code reads the name",
        "nothing: define the name, or remove what needs it",
        Keeps.NEEDS_HUMAN,
    ),
)
