import ast

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from migration.analysis.facts import NotebookFacts
from migration.python.source import CellSource
from migration.rules import indentation
from migration.rules.rewriting import rewrite


def _rewritten(text):
    source, _ = rewrite(CellSource(text), cell_type="code", rules=indentation.RULES, facts=NotebookFacts())
    return source.text


@pytest.mark.parametrize(
    "text, expected",
    [
        ("  x = 1\ny = 2", "x = 1\ny = 2"),
        ("  # a\n  !ls\n\n!git clone b\nx = 1", "# a\n!ls\n\n!git clone b\nx = 1"),
        ("\n\tif x:\n\t\ty = 1\nz = 2", "\nif x:\n\ty = 1\nz = 2"),
        ('  x = """\n  a\nb"""\ny = 1', 'x = """\na\nb"""\ny = 1'),
        ("  %%bash\n  ls\ncd x", "%%bash\nls\ncd x"),
        (" %%time\nx = 1", "%%time\nx = 1"),
    ],
)
def test_the_indentation_of_the_first_line_is_removed_from_all_lines_that_have_it(text, expected):
    assert _rewritten(text) == expected
    ast.parse(TransformerManager().transform_cell(expected))


@pytest.mark.parametrize(
    "text",
    [
        "  x = 1\n  y = 2",  # every IPython removes what all lines have
        "  # a comment\nx = 1",
        "x = 1\n  # a comment\nif x:\n    y = 1",
        "    x = 1\n  y = 2\nz = (",  # no IPython runs it
        "%%bash\n  ls\ncd x",
        "  %%bash\n  ls",
        "  x = 1 +\ny = 2",
        "  x = 1\ny = '\0'",
    ],
)
def test_other_cells_stay(text):
    assert _rewritten(text) == text
