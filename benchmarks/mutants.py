"""Mutants of a module: each is its code with one small change, such as another comparison, constant or sign.

What no result depends on stays: annotations, decorators, texts, and what is told by `log.info` and `log.debug`.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import gc
import types
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

# Of a comparison its neighbour at the boundary and its opposite.
_COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "maximum": "minimum", "minimum": "maximum",
}  # fmt: skip
_TOLERANCE = 1e-5
_NO_RESULTS = ("annotation", "returns", "decorator_list", "format_spec")


class Mutant(NamedTuple):
    """line: where the change is. reach: the lines of its statement, None outside of functions, where every test depends
    on it. before, after: the expression around the change."""

    line: int
    reach: range | None
    before: str
    after: str
    code: CodeType


def mutants_of(source: str, file: str) -> Iterator[Mutant]:
    """All of a module, in the order of its lines."""
    tree = ast.parse(source)
    for place in _places(tree, None):
        original = place.get()
        shown = place.parent if isinstance(place.parent, ast.expr) else original
        before = ast.unparse(shown)
        for changed in _changes(place, original):
            place.put(ast.fix_missing_locations(ast.copy_location(changed, original)))
            after = ast.unparse(shown if shown is place.parent else changed)
            after = "(left out)" if after.startswith("if False:") else after
            code = compile(tree, file, "exec")
            place.put(original)
            inside = place.statement
            reach = range(inside.lineno, inside.end_lineno + 1) if inside else None
            yield Mutant(original.lineno, reach, before, after, code)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a node hangs in the tree; statement: the innermost one around it, of those in functions."""

    parent: ast.AST
    field: str
    index: int | None
    statement: ast.stmt | None

    def get(self) -> ast.AST:
        value = getattr(self.parent, self.field)
        return value if self.index is None else value[self.index]

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def _places(parent: ast.AST, statement: ast.stmt | None) -> Iterator[_Place]:
    for field, value in ast.iter_fields(parent):
        if field in _NO_RESULTS:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or _has_no_result(node):
                continue
            in_function = statement is not None or isinstance(node, ast.FunctionDef)
            inner = node if in_function and isinstance(node, ast.stmt) else statement
            if hasattr(node, "lineno"):
                yield _Place(parent, field, index, inner)
            yield from _places(node, inner)


def _has_no_result(node: ast.AST) -> bool:
    told = ast.unparse(node) if isinstance(node, ast.Expr | ast.Raise) else ""
    return told.startswith(("log.info(", "log.debug(")) or told == "raise NotImplementedError"


def _changes(place: _Place, node: ast.AST) -> Iterator[ast.AST]:
    if place.field in ("test", "ifs") and not isinstance(node, ast.Compare | ast.UnaryOp):  # theirs is below
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.Compare(ops=[operator, *others]):
            for new in _COMPARISONS[type(operator)]:
                yield _with(node, ops=[new(), *others])
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATORS:
            yield _with(node, op=_OPERATORS[type(operator)]())
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield _with(node, value=not value)
        case ast.Constant(value=int(value)):
            yield _with(node, value=value + 1)
        case ast.Constant(value=float(value)):  # of a tolerance, the double would be as good
            yield _with(node, value=2 * value if abs(value) > _TOLERANCE else value + 1)
        case ast.Name(id=name) if name in _NAMES:
            yield _with(node, id=_NAMES[name])
        case ast.Attribute(attr=name) if name in _NAMES:
            yield _with(node, attr=_NAMES[name])
        case ast.Return(value=ast.expr()) if ast.unparse(node) != "return None":
            yield _with(node, value=ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield ast.If(ast.Constant(False), [node], [])  # left out, but for the names that it closes over


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


# ------------------------------------------------------------------------------------------------------------- in place
def put_in_place(module: types.ModuleType, code: CodeType) -> None:
    """Gives the module's functions, wherever they are held by now, and its numbers those of the mutant.

    Raises what importing the mutant would.
    """
    fresh = types.ModuleType(module.__name__)
    fresh.__file__ = module.__file__
    exec(code, vars(fresh))
    codes = dict(_codes(code))
    functions = [each for each in gc.get_objects() if type(each) is types.FunctionType]
    defaults = {each.__qualname__: each for each in functions if each.__globals__ is vars(fresh)}
    for function in functions:
        if function.__globals__ is vars(module) and function.__code__.co_filename == module.__file__:
            function.__code__ = codes[function.__code__.co_qualname]
            if new := defaults.get(function.__qualname__):
                function.__defaults__, function.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    for name, value in vars(fresh).items():
        if isinstance(value, int | float):
            setattr(module, name, value)
        elif dataclasses.is_dataclass(value) and value.__module__ == module.__name__:
            getattr(module, name).__init__.__defaults__ = value.__init__.__defaults__


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)
