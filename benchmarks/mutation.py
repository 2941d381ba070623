"""Mutation testing of the code whose slips show in no error: every small change to it must break a test.

    python -m benchmarks.mutation                              all subjects
    python -m benchmarks.mutation scaling --seconds 300        one of them, for so long

A mutant is one change of one node of a module's syntax tree: another comparison, operator, constant, sign or branch, or
no result. The tests of the subject are loaded once; then each mutant runs them in a fork, in which the functions of the
module get the code of the mutant, up to the first failure. Writes one JSON object a line to stdout: the mutants that
lived, and the counts in the end. A mutant that takes far longer than the tests do is counted as killed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import json
import os
import random
import signal
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SUBJECTS = {
    "masking": ("core.models.masking", ["tests/core/models/test_masking.py"]),
    "scaling": ("core.data.scaling", ["tests/core/data/test_scaling.py"]),
    "thresholds": ("inference.thresholds", ["tests/inference/test_thresholds.py"]),
    "checkpoint": ("core.checkpoint", ["tests/core/test_checkpoint.py"]),
    "resuming": ("trainers.resuming", ["tests/trainers/test_resuming.py"]),
}
_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- mutants
def changes_of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node may become, in words and as a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        new = _COMPARISONS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} to {new.__name__}", _with(node, ops=[new(), *node.ops[1:]])
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        new = _OPERATORS[type(node.op)]
        yield f"{type(node.op).__name__} to {new.__name__}", _with(node, op=new())
    elif isinstance(node, ast.BoolOp):
        new = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{type(node.op).__name__} to {new.__name__}", _with(node, op=new())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield f"without {type(node.op).__name__}", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", _with(node, value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield f"{node.value} to {node.value + 1}", _with(node, value=node.value + 1)
    elif isinstance(node, ast.IfExp | ast.If):
        yield "condition negated", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "returns None", _with(node, value=ast.Constant(None))
    elif isinstance(node, ast.Continue):
        yield "continue to break", ast.Break()
    elif isinstance(node, ast.Break):
        yield "break to continue", ast.Continue()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def mutants_of(source: str) -> Iterator[tuple[int, str, ast.Module]]:
    """Line, what was changed, and the tree, of every mutant inside of a function."""
    number = 0
    while True:
        tree = ast.parse(source)
        mutator = _Mutator(number)
        tree = mutator.visit(tree)
        if mutator.told is None:
            return
        yield mutator.line, mutator.told, ast.fix_missing_locations(tree)
        number += 1


class _Mutator(ast.NodeTransformer):
    """Makes the change with this number, counted through the functions of a module."""

    def __init__(self, number: int):
        self.left, self.told, self.line = number, None, 0
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._depth += 1
        node.body = [self.visit(statement) for statement in node.body]  # neither its annotations nor its defaults
        self._depth -= 1
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # messages are no results

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if self._depth and self.told is None:
            for told, changed in changes_of(node):
                if self.left == 0:
                    self.told, self.line = told, node.lineno
                    return ast.copy_location(changed, node)
                self.left -= 1
        return super().generic_visit(node)


# ------------------------------------------------------------------------------------------------------------ the tests
def put_in_place(module: types.ModuleType, tree: ast.Module) -> None:
    """Gives every function of the module the code of the mutant, wherever it is held by now."""
    codes = dict(_codes(compile(tree, module.__file__, "exec")))
    for function in [each for each in gc.get_objects() if type(each) is types.FunctionType]:
        code = function.__code__
        if code.co_filename == module.__file__ and code.co_qualname in codes:
            function.__code__ = codes[code.co_qualname]


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


class _Collected:
    """Keeps pytest's session, so that a fork can run its tests without loading them again."""

    def __init__(self):
        self.session: pytest.Session | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.judge(session)
        return True

    def judge(self, session: pytest.Session) -> None:
        raise NotImplementedError


def passes(session: pytest.Session) -> bool:
    """Whether all tests pass, in this process; ends at the first that does not."""
    for place, item in enumerate(session.items):
        following = session.items[place + 1] if place + 1 < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return False
    return True


def survives(session: pytest.Session, module: types.ModuleType, tree: ast.Module, limit_s: int) -> bool:
    """Whether all tests pass with the mutant, in a fork."""
    pid = os.fork()
    if not pid:
        signal.alarm(limit_s)  # kills it: an endless loop is a difference
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1), os.dup2(nowhere.fileno(), 2)
        try:
            put_in_place(module, tree)
            os._exit(0 if passes(session) else 1)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class _Judge(_Collected):
    def __init__(self, name: str, seconds: float):
        super().__init__()
        self.name, self.seconds = name, seconds
        self.module = importlib.import_module(SUBJECTS[name][0])

    def judge(self, session: pytest.Session) -> None:
        began = time.monotonic()
        source = Path(self.module.__file__).read_text(encoding="utf-8")
        if not survives(session, self.module, ast.parse(source), 600):
            raise SystemExit(f"the tests of {self.name} fail without a change")
        limit_s = int(5 * (time.monotonic() - began)) + 5
        mutants = list(mutants_of(source))
        random.Random(0).shuffle(mutants)  # so that a part of them is a sample
        lived, num_tried = 0, 0
        for line, told, tree in mutants:
            if time.monotonic() - began > self.seconds:
                break
            num_tried += 1
            if survives(session, self.module, tree, limit_s):
                lived += 1
                say({"subject": self.name, "line": line, "change": told})
        seconds = round(time.monotonic() - began)
        say({"subject": self.name, "mutants": len(mutants), "tried": num_tried, "lived": lived, "seconds": seconds})


def say(fact: dict[str, object]) -> None:
    sys.__stdout__.write(json.dumps(fact) + "\n")
    sys.__stdout__.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("subjects", nargs="*", default=list(SUBJECTS), choices=[*SUBJECTS, []], metavar="SUBJECT")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each subject (default: to the end)")
    arguments = parser.parse_args()
    for name in arguments.subjects:
        if not os.fork():
            os.chdir(REPOSITORY)
            options = [
                "-q",
                "-p",
                "no:cacheprovider",
                "-W",
                "ignore",
                "-p",
                "no:terminalreporter",
                "-p",
                "no:xdist",
                "--capture=no",
            ]
            pytest.main([*options, "-m", "not slow", *SUBJECTS[name][1]], plugins=[_Judge(name, arguments.seconds)])
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
