"""LF3xx: conditions that ask "does this run on Colab?" are replaced by one of their branches, usually the local one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from types import UnionType

from migration.analysis.facts import NotebookFacts
from migration.colab.effects import Effect, different, effects, of_expression, uncovered
from migration.colab.local_branch import Choice
from migration.colab.local_value import Answer, FlagOf, answer, asks_for_content
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.python.scopes import own_nodes
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.statements import take_out
from migration.python.trees import children
from migration.rules.folding import fold
from migration.rules.magics import TENSORFLOW_1_ACTION
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import pipelines

_DOWNLOADS, _SHELLS = frozenset({"curl", "wget"}), frozenset({"sh", "bash"})
_TENSORFLOW_1 = re.compile(r"%tensorflow_version\s+1")
_CALLERS_ACTION = "check what the callers of this function do on Colab only, because this machine may need it too"


# ------------------------------------------------------------------------------------------------------------- branches
def _find_ifs(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.choices(source):
        if isinstance(choice.node, ast.If) and not choice.colab:
            yield _local(source, choice, "the branch that runs outside Colab replaces the condition")


def _find_tries(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.choices(source):
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
    for choice in facts.colab.choices(source):
        if not choice.colab:
            continue
        edits = fold(source, choice, keep_import=facts.colab.spelt_out)
        if edits or isinstance(choice.node, ast.If):
            message = f"the branch for Colab is kept: {_reason(choice)}"
            scripts = _scripts(source, choice)
            action = f"read the script before you run it here, because it was made for Colab's machine: {scripts}"
            keeps = Keeps.NEEDS_HUMAN if scripts else None
            yield Match(*source.span(choice.node), message, edits, action if scripts else "", keeps)


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
    if choice.because == "places":
        return "the folders of the other branch do not fit the other kept branches for Colab"
    if choice.effects:
        return f"it {choice.because}, which this machine needs too"
    return f"only it defines {choice.because}, which the notebook needs"


def _local(source: CellSource, choice: Choice, message: str) -> Match:
    """The match that keeps the local branch; the user must check effects that only the branch for Colab has."""
    start, end = source.span(choice.node)
    edits = fold(source, choice)
    if any(_TENSORFLOW_1.match(command) for command in _magics(source, choice.removed)):
        return Match(start, end, message, edits, TENSORFLOW_1_ACTION, Keeps.NEEDS_HUMAN)
    if any(isinstance(node, ast.Return) for node in choice.kept) and isinstance(choice.scope, ast.FunctionDef):
        return Match(start, end, message, edits, _CALLERS_ACTION, Keeps.NEEDS_HUMAN)
    if not choice.effects:
        return Match(start, end, message, edits)
    return Match(start, end, message, edits, _action(source, choice.effects), Keeps.NEEDS_HUMAN)


def _action(source: CellSource, lost: Sequence[Effect]) -> str:
    """The action for effects that exist on Colab only."""
    lines = "; ".join(f"`{_line(source, effect)}`" for effect in lost)
    return f"check whether this machine needs these removed lines: {lines}" if lost else ""


def _line(source: CellSource, effect: Effect) -> str:
    return " ".join(source.text[effect.start : effect.end].split()).replace("`", "'")


def _magics(source: CellSource, removed: Sequence[ast.stmt]) -> list[str]:
    spans = [source.span(node) for node in removed]
    return [
        source.text[command.start : command.end]
        for command in source.commands
        if command.kind == "magic" and any(start <= command.start < end for start, end in spans)
    ]


# ---------------------------------------------------------------------------------------------------------- expressions
def _find_conditionals(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for node in _expressions(source, facts, ast.IfExp):
        found = answer(node.test, facts.colab.flag_of(source))
        if found is None:
            continue
        kept, removed = (node.body, node.orelse) if found.value else (node.orelse, node.body)
        message = "the value for a run outside Colab replaces the choice"
        if uncovered(of_expression(source, removed), of_expression(source, kept)):
            kept, message = removed, "the value for Colab replaces the choice: it is needed here"
        text = source.segment(kept)
        if isinstance(kept, ast.NamedExpr | ast.Yield | ast.YieldFrom) or ("\n" in text and text[0] not in "([{"):
            text = f"({text})"
        start, end = source.span(node)
        yield Match(start, end, message, (Edit(start, end, text),))


def _find_operands(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    flag_of = facts.colab.flag_of(source)
    tests = _tests(source)
    for node in _expressions(source, facts, ast.BoolOp):
        if answer(node, flag_of) is not None:
            continue
        for index, operand in enumerate(node.values):
            found = answer(operand, flag_of)
            if found is None:
                continue
            start, end = source.span(operand)
            message = f"`{ast.unparse(operand)}` is {bool(found.value)} here and has no effect"
            edit = _without_operand(source, node, index) if id(node) in tests else None
            if bool(found.value) is isinstance(node.op, ast.Or) or edit is None:
                if _only_flags(operand, flag_of):
                    continue
                message = f"`{ast.unparse(operand)}` is {found.value} here"
                edit = Edit(start, end, repr(found.value))
            lost = _lost_with_operand(source, node, found)
            yield Match(start, end, message, (edit,), _action(source, lost), Keeps.NEEDS_HUMAN if lost else None)
            break


def _lost_with_operand(source: CellSource, test: ast.BoolOp, found: Answer) -> list[Effect]:
    """Effects of the body of `if x or IN_COLAB:` that happen on Colab regardless of `x`, and differ in other
    branches."""
    owner = next((node for node in source.nodes if isinstance(node, ast.If) and node.test is test), None)
    if owner is None or found.value or not isinstance(test.op, ast.Or):
        return []
    return different(effects(source, owner.body), effects(source, owner.orelse))


def _tests(source: CellSource) -> set[int]:
    """The ids of the expressions of which only the truth value is used."""
    found: set[int] = set()
    for node in source.nodes if source.tree else ():
        tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert) else []
        if isinstance(node, ast.comprehension):
            tests = node.ifs
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            tests = [node.operand]
        elif isinstance(node, ast.BoolOp) and id(node) in found:
            tests = node.values
        found |= {id(test) for test in tests}
    return found


def _without_operand(source: CellSource, node: ast.BoolOp, index: int) -> Edit | None:
    """The edit that removes an operand; None if the expression takes several lines."""
    start, end = source.span(node)
    if re.search(r"[\n#]", source.text[start:end]):
        return None
    others = [operand for at, operand in enumerate(node.values) if at != index]
    loose = ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr
    texts = [f"({text})" if isinstance(part, loose) else text for part in others for text in [source.segment(part)]]
    return Edit(start, end, (" or " if isinstance(node.op, ast.Or) else " and ").join(texts))


def _find_values(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    flag_of = facts.colab.flag_of(source)
    returned = {id(node.value) for node in source.nodes if isinstance(node, ast.Return)}
    for node in _expressions(source, facts, ast.Compare | ast.Call | ast.UnaryOp | ast.BoolOp):
        found = answer(node, flag_of)
        if found is None or _only_flags(node, flag_of):
            continue
        start, end = source.span(node)
        message = f"`{ast.unparse(node)}` is {found.value!r} here"
        action = _CALLERS_ACTION if id(node) in returned else ""
        keeps = Keeps.NEEDS_HUMAN if action else None
        yield Match(start, end, message, (Edit(start, end, repr(found.value)),), action, keeps)
    yield from _find_hand_written(source, facts)


def _find_hand_written(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """`IN_COLAB = True`: a flag that is set by hand."""
    if source.tree is None or not facts.colab.flags:
        return
    removed = [statement for choice in facts.colab.choices(source) for statement in choice.removed]
    for node in own_nodes(source.tree.body, removed):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if asks_for_content(call):
                if facts.colab.flags.get(name) is False:
                    edit = Edit(*source.span(call), "False")
                    yield Match(*source.span(node), f"`{name}` is False here", (edit,))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool(value)) as literal):
                if facts.colab.flags.get(name, value) is not value:
                    edit = Edit(*source.span(literal), repr(not value))
                    yield Match(*source.span(node), f"`{name}` is {not value} here", (edit,))


def _find_asserts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    flag_of = facts.colab.flag_of(source)
    removed = facts.colab.removed(source)
    for node in source.nodes if source.tree else ():
        if isinstance(node, ast.Assert) and id(node) not in removed:
            found = answer(node.test, flag_of)
            if found is not None and "TPU" not in source.segment(node):
                edits = take_out(source, [node])
                yield Match(*source.span(node), "the check that the notebook runs on Colab is removed", edits)


def _expressions(source: CellSource, facts: NotebookFacts, kinds: type[ast.expr] | UnionType) -> Iterator[ast.expr]:
    """The expressions of some kinds that run here, without the tests of branches. Those in f-strings are omitted: up to
    Python 3.11 their positions are not exact."""
    skipped = facts.colab.removed(source) | {
        id(choice.node.test) for choice in facts.colab.choices(source) if isinstance(choice.node, ast.If)
    }
    waiting: list[ast.AST] = [source.tree] if source.tree else []
    while waiting:
        node = waiting.pop()
        if id(node) in skipped or isinstance(node, ast.Assert | ast.JoinedStr):
            continue
        if isinstance(node, kinds):
            yield node
        waiting += reversed(children(node))


def _only_flags(node: ast.expr, flag_of: FlagOf) -> bool:
    """Whether an expression asks about Colab only through flags; then it stays if no branch depends on it."""
    return answer(node) is None and isinstance(answer(node, flag_of), Answer)


RULES: tuple[Rule, ...] = (
    Rule(
        "LF301",
        "A branch for Colab",
        '`if "google.colab" in sys.modules:`, `if IN_COLAB:`, `if os.getenv("COLAB_RELEASE_TAG"):` and the like, with '
        "`not`, `and`, `or`, `elif` and `else`",
        "the branch that runs outside Colab, instead of the whole statement, if the other one only sets flags and "
        "values or shows something; the user decides if both install or run different things",
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
        "whose other branch refuses to run",
        "the branch for Colab, instead of the whole statement; its calls are replaced by local ones, its flags stay "
        "False",
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
        '`"COLAB_GPU" in os.environ`, `IN_COLAB = True`',
        "`IN_COLAB = False`: the value outside Colab",
        Keeps.EQUIVALENT,
        _find_values,
        of_colab=True,
        example=Example('IN_COLAB = "google.colab" in sys.modules', "IN_COLAB = False"),
    ),
    Rule(
        "LF307",
        "An assertion that this is Colab",
        "`assert IN_COLAB`",
        "nothing",
        Keeps.EQUIVALENT,
        _find_asserts,
        of_colab=True,
        example=Example('assert "google.colab" in sys.modules\ntrain()', "train()"),
    ),
)
