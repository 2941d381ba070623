import json

import pytest

from migration.notebook.positions import lines_of_cells

NOTEBOOK = {
    "metadata": {"cells": [1, "cells", {"source": ["no"]}], "kernelspec": {"name": "python3"}},
    "cells": [
        {"cell_type": "code", "source": ["a = 1\n", "b = '\"],['\n", "c = 3"], "outputs": [{"text": ["source\n"]}]},
        {"cell_type": "markdown", "metadata": {"source": "x"}, "source": "one\ntwo"},
        {"cell_type": "code", "source": []},
        {"cell_type": "code", "source": ["first\nsecond\n", "third"]},
        {"cell_type": "code"},
    ],
    "nbformat": 4,
}


@pytest.mark.parametrize("indent", [1, 2, "\t"])
def test_lines_are_those_of_the_file(indent):
    text = json.dumps(NOTEBOOK, indent=indent)
    file = text.split("\n")
    cells = lines_of_cells(text.encode())
    assert [len(lines) for lines in cells] == [3, 2, 0, 3, 0]
    assert [file[line - 1].strip() for line in cells[0]] == ['"a = 1\\n",', '"b = \'\\"],[\'\\n",', '"c = 3"']
    assert [file[line - 1].strip() for line in cells[1]] == ['"source": "one\\ntwo"'] * 2
    assert [file[line - 1].strip() for line in cells[3]] == ['"first\\nsecond\\n",'] * 2 + ['"third"']


def test_a_file_of_one_line():
    assert lines_of_cells(b"\n" + json.dumps(NOTEBOOK).encode()) == [[2, 2, 2], [2, 2], [], [2, 2, 2], []]


@pytest.mark.parametrize(
    "text",
    ["", "[", "nonsense", "[]", '{"cells": {}}', '{"cells": [', '{"worksheets": []}', '{"cells": [1, ', "{" * 10_000],
)
def test_invalid_notebooks_have_no_line_numbers(text):
    assert lines_of_cells(text.encode()) == []


def test_non_ascii_letters_and_byte_order_marks_keep_positions():
    text = json.dumps({"größe": "“\x85”", "cells": [{"source": ["é\u2028\n", "😀 = 1"]}]}, indent=1, ensure_ascii=False)
    lines = [row for row, line in enumerate(text.split("\n"), start=1) if line.strip().startswith(('"é', '"😀'))]
    for data in (text.encode(), text.encode("utf-8-sig")):
        assert lines_of_cells(data) == [lines]
    assert lines_of_cells(text.encode("utf-16")) == []
