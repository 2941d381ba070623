"""The fast scanner finds the same commands in a cell as IPython."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migration.python import scanning
from migration.python.scanning import find_commands
from migration.python.source import CellSource

CELLS = {
    "a shell line": "!ls -l",
    "in a block": "if x:\n    !ls\n    %cd ..\nelse:\n    y = !pwd\n",
    "continued": "!pip install a \\\n   b \\\n   c\nx = 1",
    "a quote below a quote": "!echo it's\nx = 'a'\n!echo \"\n%time f(1)",
    "inside a string": 's = """\n!ls\n%cd x\n"""\n!ls',
    "inside brackets": "x = (10\n  % y)\nz = [\n  1, # )\n]\n!ls",
    "assignments": "a = !ls\nb = %env X\nc = d = !ls\ne.f[0] = !ls\ng = x % y\nh == !k",
    "keywords": "f(x=1, y=2)\nf(x = 5 % 3)\nz=%pwd",
    "help": "x?\n?x\nx.y??\n%timeit?\nf(a)?",
    "help in a string": "print('really?')\n!ls",
    "comments": "# it's !x\nx = 1 # what?\n!ls # ?",
    "half a string": "x = 'half\n!ls\ny = 2",
    "half a bracket": "x = (1,\n!ls\n",
    "operators": "x /= 2\nx %= 3\nx = y != z\n%matplotlib inline",
    "escapes": "/f x\n,f a b\n;f a b\n!!ls",
    "continued assignment": "x = \\\n  !ls\ny = 1",
    "dedented": "def f():\n    if x:\n        !ls\n    !pwd\nx = 1",
    "a magic that runs code": "%time x = f('?')\n%timeit -n 3 g()\nresult = %time 5",
    "only a percent sign": "%\nx = 1",
    "Python 2": "print 'x'\n!ls\nprint y?\n",
}


def by_ipython(monkeypatch, text):
    def nothing_is_sure(*arguments):
        raise scanning._UnsureError

    with monkeypatch.context() as patch:
        patch.setattr(scanning, "_offset_of_next", nothing_is_sure)
        return find_commands(text)


@pytest.mark.parametrize("text", CELLS.values(), ids=CELLS.keys())
def test_the_scanner_agrees_with_ipython(text, monkeypatch):
    assert find_commands(text) == by_ipython(monkeypatch, text)


PIECES = st.sampled_from(
    [
        "!ls",
        "%cd x",
        "x = !ls",
        "y = 1",
        "'a'",
        '"""',
        "(",
        ")",
        "# c",
        "\n",
        "\n",
        "\n    ",
        " ",
        "it's",
        "\\\n",
        "=",
        "%",
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
@example('=%"""')  # IPython itself fails on it
def test_placeholders_are_as_long_as_the_original_text(text):
    commands, masked = find_commands(text)
    assert len(masked) == len(text)
    assert masked.count("\n") == text.count("\n")
    at = 0
    for command in commands:
        assert masked[at : command.start] == text[at : command.start]
        at = command.end


def test_positions_of_tree_nodes_are_those_of_the_cell():
    source = CellSource("!echo 'é' \\\n  more\nü = f('é', 2)\nz = !ls\ng(ü)")
    assignment, _, call = source.tree.body[1:]
    assert source.segment(assignment) == "ü = f('é', 2)"
    assert source.segment(call) == "g(ü)"
    assert source.segment(assignment.value.args[1]) == "2"
    assert [command.target for command in source.commands] == ["", "z"]


def test_an_indented_cell_parses_as_ipython_runs_it():
    source = CellSource("  x = 1\n  !ls\n  f(x)\ny = 2")
    assert [source.segment(node) for node in source.tree.body] == ["x = 1", "!", "f(x)", "y = 2"]
    error = CellSource("  x = 1\n  if x:\n  y = 2").error
    assert (error.lineno, error.msg) == (3, "expected an indented block after 'if' statement on line 2")
    assert CellSource("  x = 1\nelse:\n  y = 2").tree is None


@pytest.mark.parametrize("text", ["print 'x'", "x = (", "def f(:", "\0", "é = 'half"])
def test_unparsable_code_has_no_tree_but_a_reason(text):
    source = CellSource(text)
    assert source.tree is None
    assert isinstance(source.error, SyntaxError)
    assert source.nodes == []


def test_walking_equals_ast_walk_without_operators_and_contexts():
    import ast
    import inspect

    plain = ast.expr_context | ast.operator | ast.unaryop | ast.boolop | ast.cmpop
    source = CellSource(inspect.getsource(scanning))
    assert [id(node) for node in source.nodes] == [
        id(node) for node in ast.walk(source.tree) if not isinstance(node, plain)
    ]
