import pytest

from migration.analysis.variables import names_of
from migration.python.source import CellSource


def _names(text, **options):
    return names_of(CellSource(text), **options)


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
        "  x = 1",
        "%%time\nx = 1",
    ],
)
def test_every_form_of_binding_is_found(text):
    assert "x" in _names(text).bound


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
    assert "x" not in _names(text).bound


@pytest.mark.parametrize(
    "text, deferred",
    [
        ("print(x)", False),
        ("[y for y in x]", False),
        ("[x for y in z]", False),
        ("!echo $x", False),
        ("!echo {x + 1}", False),
        ("def f(): return x", True),
        ("lambda: x", True),
        ("def f(a=x): pass", False),
        ("class A:\n    def f(self): return x", True),
        ("class A:\n    y = x", False),
        ("if 'x' in globals(): pass", False),
        ("print 'Python 2', x", False),
    ],
)
def test_uses_are_found_and_those_in_functions_are_deferred(text, deferred):
    found = _names(text)
    assert ("x" in found.used, "x" in found.deferred) == (not deferred, deferred)


@pytest.mark.parametrize("text", ["def f(x): return x", "[x for x in y]", "!echo x", "a.x", "%%bash\necho $x"])
def test_other_objects_with_that_name_are_not_uses(text):
    found = _names(text)
    assert "x" not in found.used | found.deferred


@pytest.mark.parametrize(
    "text",
    [
        *("from a import *", "exec(code)", "%run a.py", "%reset -f", "globals()['x'] = 1", "globals().update(a)"),
        *("%pylab", "get_ipython().run_line_magic('run', 'a.py')", "get_ipython().push(a)"),
    ],
)
def test_statements_that_may_bind_any_name_are_reported(text):
    assert _names(text).anything


@pytest.mark.parametrize(
    "text", ["# from a import *", "execute(1)", "get_ipython().run_line_magic('cd', 'x')", "%cd x"]
)
def test_other_statements_bind_their_own_names_only(text):
    assert not _names(text).anything


def test_statements_can_be_left_out_and_the_end_too():
    source = CellSource("y = 1\nx = 2 ;\nprint(x, z)")
    assert names_of(source, without=[source.tree.body[1]]).bound == {"y"}
    assert "z" not in names_of(source, until=source.span(source.tree.body[2])[0]).used
