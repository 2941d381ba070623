import ast

import pytest

from migration.python.scopes import accesses, accesses_in, bound, read
from migration.python.source import CellSource


def _accesses(text):
    return accesses(CellSource(text))


@pytest.mark.parametrize(
    "text, names",
    [
        ("a = b = c[0] = d.e = 1", {"a", "b"}),
        ("a, (b, *c) = x", {"a", "b", "c"}),
        ("import a.b, c as d\nfrom e import f as g", {"a", "d", "g"}),
        ("for a in b:\n    c = 1\nelse:\n    d = 1", {"a", "c", "d"}),
        ("with a as b: c = 1", {"b", "c"}),
        ("def f(a):\n    b = 1\nclass A:\n    c = 1", {"f", "A"}),
        ("def f():\n    global a\n    a = b = 1", {"f", "a"}),
        ("[a for a in b if (c := a)]", {"c"}),
        ("try: pass\nexcept E as a: b = 1", {"a", "b"}),
        ("match x:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass", {"a", "b", "c", "d"}),
        ("del a", {"a"}),
        ("a: int", {"a"}),
    ],
)
def test_names_that_the_module_binds(text, names):
    assert bound(_accesses(text)) == names


@pytest.mark.parametrize(
    "text, names",
    [
        ("a += b", {"a", "b"}),
        ("def f(a, /, b, *c, d=e, **g): h = a + b + i", {"e", "i"}),
        ("def f():\n    a = 1\n    def g(): return a + b", {"b"}),
        ("class A:\n    a = 1\n    b = a\n    def f(self): return a", {"a"}),
        ("lambda a, b=c: a + d", {"c", "d"}),
        ("[a + b for a in c]", {"b", "c"}),
        ("!ls {a} $b\nc = !ls {d}", {"a", "b", "d"}),
        ("print 1", set()),
    ],
)
def test_names_of_the_module_that_are_read(text, names):
    assert read(_accesses(text)) == names


@pytest.mark.parametrize(
    "text, names",
    [
        ("def f(a, /, b, *c, d=1, **e): g = 1", {"a", "b", "c", "d", "e", "g"}),
        ("def f(a):\n    global b\n    b = c = 1", {"a", "c"}),
        ("def f():\n    def g(): h = 1", {"g"}),
    ],
)
def test_names_that_a_function_binds(text, names):
    source = CellSource(text)
    assert bound(accesses(source), source.tree.body[0]) == names


def test_functions_run_after_the_cell():
    found = _accesses("def f():\n    a\nb = c")
    assert [(access.name, access.binds) for access in found] == [("f", True), ("c", False), ("b", True), ("a", False)]
    assert [access.scope.is_deferred for access in found] == [False, False, False, True]


def test_the_value_of_an_assignment():
    found = {access.name: access.value for access in _accesses("a = b = 1\nfor c in d: pass")}
    assert isinstance(found["a"], ast.Constant)
    assert found["a"] is found["b"]
    assert found["c"] is None


def test_statements_can_be_excluded():
    source = CellSource("a = 1\nif x:\n    b = 1\nc = 1")
    body = source.tree.body
    assert bound(accesses_in(source, body, [body[1]])) == {"a", "c"}
    assert bound(accesses_in(source, body[1:])) == {"b", "c"}


def test_an_expression_that_is_nested_too_deeply():
    text = "a = 1\nb = " + "+".join(["x"] * 2500)
    assert bound(_accesses(text)) >= {"a"}
