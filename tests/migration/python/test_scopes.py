import ast

import pytest

from migration.python.scopes import local_names, own_nodes, stored_names


@pytest.mark.parametrize(
    "text, names",
    [
        ("a = b = c[0] = d.e = 1", {"a", "b"}),
        ("a, (b, *c) = x", {"a", "b", "c"}),
        ("import a.b, c as d\nfrom e import f as g", {"a", "d", "g"}),
        ("for a in b:\n    c = 1\nelse:\n    d = 1", {"a", "c", "d"}),
        ("with a as b: c = 1", {"b", "c"}),
        ("def f(a):\n    b = 1\nclass A:\n    c = 1", {"f", "A"}),
        ("[a for a in b if (c := a)]", {"c"}),
        ("try: pass\nexcept E as a: b = 1", {"a", "b"}),
        ("match x:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass", {"a", "b", "c", "d"}),
        ("del a", {"a"}),
    ],
)
def test_stored_names(text, names):
    assert stored_names(ast.parse(text).body) == names


def test_statements_can_be_excluded():
    body = ast.parse("a = 1\nif x:\n    b = 1\nc = 1").body
    assert stored_names(body, [body[1]]) == {"a", "c"}


@pytest.mark.parametrize(
    "text, names",
    [
        ("def f(a, /, b, *c, d=1, **e): g = 1", {"a", "b", "c", "d", "e", "g"}),
        ("def f(a):\n    global b\n    b = c = 1", {"a", "c"}),
        ("def f():\n    def g(): h = 1", {"g"}),
        ("lambda a, b=c: d", {"a", "b"}),
        ("[a for a, b in c]", {"a", "b"}),
        ("x = 1", set()),
    ],
)
def test_local_names(text, names):
    node = ast.parse(text).body[0]
    assert local_names(node.value if isinstance(node, ast.Expr) else node) == names


def test_own_nodes_are_in_text_order():
    nodes = own_nodes(ast.parse("a\ndef f():\n    b\nif c:\n    d").body)
    assert [node.id for node in nodes if isinstance(node, ast.Name)] == ["a", "c", "d"]
