import pytest

from migration.analysis.variables import NotebookNames
from migration.python.source import CellSource


def _names(*cells):
    return NotebookNames([CellSource(text, index=index) for index, text in enumerate(cells)], {"x"})


@pytest.mark.parametrize(
    "text",
    [
        "x = 2",
        "x += 1",
        "x: int = 2",
        "del x",
        "for x in y: pass",
        "with a as (x, b): pass",
        "import x",
        "import x.y",
        "from a import b as x",
        "def x(): pass",
        "class x: pass",
        "def f():\n    global x\n    x = 1",
        "print(x := 1)",
        "[x := y for y in z]",
        "try: pass\nexcept E as x: pass",
        "match a:\n    case [x, *_]: pass",
        "match a:\n    case {**x}: pass",
        "x = !ls",
        "%time x = 1",
        "%%capture x\nprint(1)",
        "%%bash --out x\nls",
        "%%bigquery x\nSELECT 1",
        "%R -o x",
        "print 'Python 2'\nx = 1",
        "(\nfor x in y",
    ],
)
def test_every_form_of_binding_is_found(text):
    assert [cell for cell, _ in _names("pass", text).bindings("x")] == [1]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): x = 1",
        "def f():\n    x = 1\n    return x",
        "class A:\n    x = 1",
        "[x for x in y]",
        "lambda x: x",
        "a.x = 1",
        "a['x'] = 1",
        "f(x=1)",
        "%cd x",
        "%%writefile x\nx = 1",
        "%%bash\nx=1",
        "%%timeit\nx = 1",
        "print 'Python 2', f(a, x=1)",
    ],
)
def test_a_name_in_another_scope_is_not_a_binding(text):
    assert _names(text).bindings("x") == []


@pytest.mark.parametrize(
    "text, deferred",
    [
        ("print(x)", False),
        ("x += 1", False),
        ("!echo $x", False),
        ("!echo {x + 1}", False),
        ("def f(): return x", True),
        ("lambda: x", True),
        ("def f(a=x): pass", False),
        ("class A:\n    def f(self): return x", True),
        ("if 'x' in globals(): pass", False),
        ("print 'Python 2', x", False),
    ],
)
def test_uses_are_found_and_those_in_functions_are_deferred(text, deferred):
    uses = _names(text, "x = 1").uses_before("x", (1, 0))
    assert [use.deferred for use in uses] == [deferred]


@pytest.mark.parametrize("text", ["def f(x): return x", "[x for x in y]", "!echo x", "a.x", "%%bash\necho $x"])
def test_other_objects_with_that_name_are_not_uses(text):
    assert _names(text, "x = 1").uses_before("x", (1, 0)) == []


@pytest.mark.parametrize(
    "text",
    ["from a import *", "exec(code)", "%run a.py", "%reset -f", "globals()['x'] = 1", "globals().update(a)", "%pylab"],
)
def test_statements_that_may_bind_any_name_are_reported(text):
    names = _names(text, "x = 1", text)
    assert names.anything_before((1, 0))
    assert not names.anything_before((0, 0))
