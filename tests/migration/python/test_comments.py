import re

import pytest

from migration.python.source import CellSource
from migration.python.strings import comments, outside_comments


def test_comments_below_a_shell_line_keep_their_positions():
    text = "!a long command, much longer than its placeholder\n# here\nx = 1  # there\n"
    assert [text[start:end] for start, end in comments(CellSource(text))] == ["# here", "# there"]


@pytest.mark.parametrize(
    "text, found",
    [
        ("x = 1  # x here", ["x"]),
        ("# x\nx\n'# x'", ["x", "x"]),
        ("# x\n%%bash\n# x\nx", ["x"]),
        ("%%writefile f\n# x", ["x"]),
        ("%%bash\nx # x\necho '# x'", ["x", "x"]),
    ],
)
def test_matches_outside_comments_are_found(text, found):
    assert [match[0] for match in outside_comments(CellSource(text), re.compile(r"\bx\b"))] == found
