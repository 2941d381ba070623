"""The value on this machine of an expression that asks "does this run on Colab?". Only expressions with such a question
are evaluated, and only if nothing else affects the value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from migration.python.trees import last_name, walk

_MODULE_NAME = re.compile(r"google\.?colab|\bcolab\b", re.IGNORECASE)
_ENVIRONMENT_NAME = re.compile(r"^_?COLAB(?:_\w*)?$|^COLAB_", re.IGNORECASE)
_ASKS_FOR_FOLDER = re.compile(
    r"(?:(?:os\.)?path\.)?(?:isdir|exists)\(([^()]*)\)|(?:pathlib\.)?Path\(([^()]*)\)\.(?:exists|is_dir)\(\)"
)
_MODULES = re.compile(r"\bmodules\b|iter_modules|working_set|installed|distributions|packages")
_ENVIRONMENT = re.compile(r"\benviron\b|\bgetenv\b")
_SHELL = re.compile(r"get_ipython|InteractiveShell|\bshell\b|\bipy(?:thon)?\b|\bip\b|\b_ih\b|__module__", re.IGNORECASE)
_SPEC = frozenset({"find_spec", "find_loader", "find_module", "get_loader"})
# Calls without side effects: they can be removed together with the question.
_QUESTION = re.compile(
    r"^(?:is|has|in|can|exists|get|getenv|len|str|int|bool|float|any|all|lower|upper|strip|startswith|endswith|keys|"
    r"values|items|join|find|find_spec|type|isinstance|isfile|isdir|getcwd|get_ipython|device_count|list_physical_devices|"
    r"list|set|tuple|format|split|max|min|sum|abs)(?:_\w+)?$"
)


@dataclass(frozen=True)
class Answer:
    """The value on this machine; `asks`: the expression contains a question about Colab."""

    value: Any
    asks: bool = True


FlagOf = Callable[[ast.Name | ast.Call], Answer | None]
AnswerOf = Callable[[ast.expr], Answer | None]


def answer(node: ast.expr, flag_of: FlagOf = lambda node: None) -> Answer | None:
    """The value of an expression that asks about Colab; None if it does not, or if its value is unknown. `flag_of`
    returns the value of names that only contain such an answer, and of calls that are such a question in their place,
    and None for all others.
    """
    found = _value(node, flag_of)
    return found if found is not None and found.asks else None


def asks_for_content(node: ast.expr | None) -> bool:
    """Whether an expression tests if Colab's folder exists, such as `os.path.isdir("/content")`."""
    return node is not None and folder_asked_for(node) in ("'/content'", "'/content/'")


def folder_asked_for(node: ast.expr) -> str:
    """The text of the folder of which an expression asks whether it exists; empty for any other expression."""
    found = _ASKS_FOR_FOLDER.fullmatch(ast.unparse(node))
    return (found[1] or found[2]) if found else ""


def only_looks(node: ast.expr) -> bool:
    """Whether the expression has no side effects, as far as its text shows."""
    for part in walk(node):
        if isinstance(part, ast.Call):
            name = last_name(part.func)
            if not _QUESTION.match(name):
                return False
        elif isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
    return True


def _value(node: ast.expr, flag_of: FlagOf) -> Answer | None:
    match node:
        case ast.Constant():
            return Answer(node.value, asks=False)
        case ast.Name() | ast.Call() if (flag := flag_of(node)) is not None:
            return flag
        case ast.UnaryOp(op=ast.Not()):
            inner = _value(node.operand, flag_of)
            return Answer(not inner.value, inner.asks) if inner else None
        case ast.BoolOp():
            return _of_operands(node, flag_of)
        case ast.Compare():
            return _of_comparison(node, flag_of)
        case ast.Call():
            return _of_call(node, flag_of)
    return None


def _of_operands(node: ast.BoolOp, flag_of: FlagOf) -> Answer | None:
    """`a and b`, `a or b`: decided by one operand if those before it have no side effects, else if all are known."""
    decides = isinstance(node.op, ast.Or)
    known: list[Answer] = []
    for operand in node.values:
        found = _value(operand, flag_of)
        if found is None:
            if not only_looks(operand):
                return None
            continue
        if bool(found.value) is decides:
            return found
        known.append(found)
    if len(known) < len(node.values):
        return None
    return Answer(known[-1].value, any(found.asks for found in known))


def _of_comparison(node: ast.Compare, flag_of: FlagOf) -> Answer | None:
    if len(node.ops) != 1:
        return None
    left, right, op = node.left, node.comparators[0], node.ops[0]
    if isinstance(op, ast.In | ast.NotIn):
        return Answer(isinstance(op, ast.NotIn)) if _membership(left, right) else None
    if isinstance(op, ast.Eq | ast.NotEq):
        for one, other in ((left, right), (right, left)):
            text = one.value if isinstance(one, ast.Constant) else None
            if isinstance(text, str) and "google.colab" in text and not isinstance(other, ast.Constant):
                return Answer(isinstance(op, ast.NotEq))
    first, second = _value(left, flag_of), _value(right, flag_of)
    if first is None or second is None or not isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return None
    is_equal = first.value == second.value
    return Answer(is_equal is isinstance(op, ast.Eq | ast.Is), first.asks or second.asks)


def _membership(left: ast.expr, right: ast.expr) -> Answer | None:
    """`"google.colab" in sys.modules`, `"COLAB_GPU" in os.environ`, `"colab" in str(get_ipython())`: never
    here."""
    if not isinstance(left, ast.Constant) or not isinstance(left.value, str):
        return None
    text, where = left.value, ast.unparse(right)
    if _ENVIRONMENT.search(where) and (_ENVIRONMENT_NAME.search(text) or _MODULE_NAME.search(text)):
        return Answer(False)
    if _MODULE_NAME.search(text) and (_MODULES.search(where) or _SHELL.search(where)):
        return Answer(False)
    if text.startswith("google.colab._"):
        return Answer(False)
    return None


def _of_call(node: ast.Call, flag_of: FlagOf) -> Answer | None:
    name = last_name(node.func)
    base = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    first = node.args[0] if node.args else None
    text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    if text is not None and name in _SPEC and text.startswith("google.colab"):
        return Answer(None)
    if text is not None and _looks_up(name, base, text):
        defaults = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "default")]
        given = _value(defaults[0], flag_of) if defaults else Answer(None)
        return Answer(given.value) if given else None
    if text is not None and name in ("startswith", "endswith") and _MODULE_NAME.search(text):
        return Answer(False) if _SHELL.search(base) else None
    if name == "any" and isinstance(first, ast.GeneratorExp | ast.ListComp):
        return _of_search(first)
    if name == "bool" and first is not None and (inner := _value(first, flag_of)):
        return Answer(bool(inner.value), inner.asks)
    return None


def _looks_up(name: str, base: str, text: str) -> bool:
    """`os.environ.get("COLAB_GPU")`, `os.getenv("COLAB_GPU")`, `sys.modules.get("google.colab")`."""
    if name == "getenv" or (name == "get" and _ENVIRONMENT.search(base)):
        return bool(_ENVIRONMENT_NAME.search(text))
    return name == "get" and base.endswith("modules") and text.startswith("google.colab")


def _of_search(searched: ast.GeneratorExp | ast.ListComp) -> Answer | None:
    """`any("COLAB" in key for key in os.environ)`: false here."""
    if len(searched.generators) != 1:
        return None
    where = searched.generators[0].iter
    texts = (part for part in walk(searched.elt) if isinstance(part, ast.Constant))
    return next(filter(None, (_membership(text, where) for text in texts)), None)
