import ast

import pytest

from migration.python.source import CellSource
from migration.python.statements import place_of, removal


def _removed(text, statement):
    start = text.index(statement)
    for edit in reversed(removal(CellSource(text), start, start + len(statement))):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


@pytest.mark.parametrize(
    "text, after",
    [
        ("gone()\nx = 1", "x = 1"),
        ("x = 1\ngone()", "x = 1"),
        ("gone()", ""),
        ("if a:\n  gone()\nb()\n", "b()\n"),
        ("def f():\n  if not os.path.exists('a') and a:\n    gone()\n", "def f():\n  pass\n"),
        ("if a():\n  gone()\n", "if a():\n  pass\n"),
        ("if a:  # b\n  gone()\n", "if a:  # b\n  pass\n"),
        ("if a:\n  b()\nelif c:\n  gone()\n", "if a:\n  b()\nelif c:\n  pass\n"),
        ("if a:\n  gone()\n  b()\n", "if a:\n  b()\n"),
        ("if a:\n  b()\n  gone()\nelse:\n  c()", "if a:\n  b()\nelse:\n  c()"),
        ("if a:\n  b()\nelse:\n  gone()", "if a:\n  b()\nelse:\n  pass"),
        ("try:\n  b()\nexcept E:\n  gone()\n", "try:\n  b()\nexcept E:\n  pass\n"),
        ("try:\n  b()\nfinally:\n  gone()\n", "try:\n  b()\nfinally:\n  pass\n"),
        ("match a:\n  case 1:\n    gone()\n", "match a:\n  case 1:\n    pass\n"),
        ("def f():\n  for i in r:\n    gone()\n", "def f():\n  for i in r:\n    pass\n"),
        ("x = 1; gone()", "x = 1"),
        ("  gone()\n  x = 1", "  x = 1"),
        ("é = 'é'\ngone()\nx = 'é'", "é = 'é'\nx = 'é'"),
        ("print 'old'\ngone()\n", "print 'old'\n"),
        ("print 'old'\nif a:\n  gone()\n", "print 'old'\nif a:\n  pass\n"),
    ],
)
def test_a_statement_is_removed(text, after):
    assert _removed(text, "gone()") == after


def test_the_statement_around_it_is_kept():
    text = "if a:\n  gone()\n  kept()\n"
    held = [edit for edit in removal(CellSource(text), 8, 14) if text[edit.start : edit.end] == edit.text]
    assert [text[edit.start :] for edit in held] == [text]


def test_the_blocks_around_a_statement():
    source = CellSource("class A:\n  def f(self):\n    try:\n      a()\n    except E:\n      b()\n")
    place = place_of(source, source.text.index("b()"))
    assert [type(node) for node in place.around] == [ast.ClassDef, ast.FunctionDef, ast.Try]
    assert ast.unparse(place.statement) == "b()"
    header = place_of(source, source.text.index("def"))
    assert isinstance(header.statement, ast.FunctionDef)
    assert [type(node) for node in header.around] == [ast.ClassDef]


@pytest.mark.parametrize("text, offset", [("x = 1\n\ny = 2", 6), ("print 'old'", 0), ("", 0), ("# only", 2)])
def test_a_position_without_a_statement_gives_none(text, offset):
    assert place_of(CellSource(text), offset) is None
