import pytest

from migration.notebook.texts import apply
from migration.python.source import CellSource
from migration.python.statements import blocks, take_out
from tests.support.compiling import compiles


def _without(text, *numbers, block=0, **options):
    """The text without some statements of a block."""
    source = CellSource(text)
    statements = blocks(source)[block].statements
    edits = take_out(source, [statements[number] for number in numbers], **options)
    new = apply(text, sorted(edits), list(range(1, text.count("\n") + 2)))[0]
    assert compiles(new)
    return new


@pytest.mark.parametrize(
    "text, numbers, after",
    [
        ("a()\nb()\nc()", [1], "a()\nc()"),
        ("a()\nb()\nc()", [1, 2], "a()"),
        ("a()\nb()\n", [0, 1], ""),
        ("a()\n# of b\nb()  # b\n\nc()", [1], "a()\n# of b\n\nc()"),
        ("a(); b(); c()  # d", [1], "a(); c()  # d"),
        ("a(); b(); c()  # d", [0, 2], "b()  # d"),
        ("a(); b(); c()", [1, 2], "a()"),
        ("a(); \\\n  b()\nc()", [1], "a()\nc()"),
        ("a()\n!pip install b \\\n  c\nd()", [1], "a()\nd()"),
        ("a(\n)\nb()", [0], "b()"),
        ("  a()\n  b()", [0], "  b()"),
        ("  a()\nb()", [1], "  a()"),
        ("%%time\na()\nb()", [0, 1], "%%time"),
    ],
)
def test_statements_are_taken_out_by_lines(text, numbers, after):
    assert _without(text, *numbers) == after


@pytest.mark.parametrize(
    "text, numbers, after",
    [
        ("if x:\n    a()\n    b()", [0], "if x:\n    b()"),
        ("if x():\n    a()\n    b()", [0, 1], "if x():\n    pass"),
        ("if x(): a(); b()", [0, 1], "if x(): pass"),
        ("if x: a(); b()", [1], "if x: a()"),
        ("with x:\n    a()  # why\ny()", [0], "with x:\n    pass  # why\ny()"),
    ],
)
def test_a_block_is_never_empty(text, numbers, after):
    assert _without(text, *numbers, block=1) == after


def test_removed_statements_are_replaced_by_a_note():
    assert _without("a()\nb()", 0, 1, note="# Gone.") == "# Gone."
    assert _without("a()\nb()", 0, note="# Gone.") == "b()"
    assert _without("# a\na()", 0, note="# Gone.") == "# a"
    assert _without("a()\nb()", 0, note="# Gone.", always=True) == "# Gone.\nb()"
    assert _without("if x:\n    a()", 0, block=1, note="# Gone.", always=True) == "if x:\n    # Gone.\n    pass"


def test_two_removals_from_one_block_overlap():
    source = CellSource("if x:\n    a()\n    b()")
    statements = blocks(source)[1].statements
    first, second = (take_out(source, [statement]) for statement in statements)
    assert {(edit.start, edit.end) for edit in first} & {(edit.start, edit.end) for edit in second}
