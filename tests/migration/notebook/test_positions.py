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
    ],
    "nbformat": 4,
}


@pytest.mark.parametrize("indent", [1, 2, "\t"])
def test_lines_are_those_of_the_file(indent):
    text = json.dumps(NOTEBOOK, indent=indent)
    file = text.split("\n")
    cells = lines_of_cells(text.encode(), 4, range(4))
    assert [len(lines) for lines in cells] == [3, 2, 0, 3]
    assert [file[line - 1].strip() for line in cells[0]] == ['"a = 1\\n",', '"b = \'\\"],[\'\\n",', '"c = 3"']
    assert [file[line - 1].strip() for line in cells[1]] == ['"source": "one\\ntwo"'] * 2
    assert [file[line - 1].strip() for line in cells[3]] == ['"first\\nsecond\\n",'] * 2 + ['"third"']


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "nonsense",
        "[]",
        '{"cells": {}}',
        '{"cells": [',
        '{"worksheets": []}',
        '{"cells": [1, ',
        "{" * 10_000,
        json.dumps(NOTEBOOK),
    ],
)
def test_invalid_notebooks_have_no_line_numbers(text):
    assert lines_of_cells(text.encode(), 4, range(4)) == []


def test_a_cell_without_source_leaves_no_wrong_lines():
    text = json.dumps({**NOTEBOOK, "cells": [*NOTEBOOK["cells"], {"cell_type": "code"}]}, indent=1)
    assert lines_of_cells(text.encode(), 5, range(5)) == []


def test_non_ascii_letters_and_byte_order_marks_keep_positions():
    text = json.dumps({"größe": "“\x85”", "cells": [{"source": ["é\u2028\n", "😀 = 1"]}]}, indent=1, ensure_ascii=False)
    lines = [row for row, line in enumerate(text.split("\n"), start=1) if line.strip().startswith(('"é', '"😀'))]
    for data in (text.encode(), text.encode("utf-8-sig")):
        assert lines_of_cells(data, 1, [0]) == [lines]
    assert lines_of_cells(text.encode("utf-16"), 1, [0]) == []
