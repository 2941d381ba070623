import copy
import json
import random
import warnings

import nbformat
import pytest

from migration.notebook.findings import Notes
from migration.notebook.reading import read_bytes
from migration.notebook.repairing import repaired
from migration.notebook.structure import clean
from tests.migration.made_notebooks import is_valid, written
from tests.support import most_nightly


def repair(notebook):
    notes = Notes()
    return repaired(notebook, notes), notes.findings()


def of_cells(*cells, **fields):
    return {"nbformat": 4, "nbformat_minor": 0, "metadata": {}, "cells": list(cells), **fields}


def code(**fields):
    return {"cell_type": "code", "metadata": {}, "source": "", "execution_count": None, "outputs": [], **fields}


def output_of(output):
    notebook, findings = repair(of_cells(code(outputs=[output])))
    return notebook["cells"][0]["outputs"], [finding.message for finding in findings]


def test_a_valid_notebook_is_kept_with_the_same_output_objects():
    output = {"output_type": "stream", "name": "stdout", "text": "a"}
    cell = code(outputs=[output], metadata={"tags": ["a"], "collapsed": True, "scrolled": "auto", "mine": {"a": 1}})
    notebook = of_cells(cell, {"cell_type": "markdown", "metadata": {}, "source": "x"})
    fixed, findings = repair(notebook)
    assert (fixed, findings) == (notebook, [])
    assert fixed["cells"][0]["outputs"][0] is output


def test_the_input_is_not_changed():
    notebook = of_cells({"cell_type": "code", "source": None, "outputs": [{"output_type": "pyout"}]}, extra=1)
    before = copy.deepcopy(notebook)
    repair(notebook)
    assert notebook == before


@pytest.mark.parametrize(
    "cell, expected",
    [
        ({"cell_type": "code", "source": "x"}, code(source="x")),
        ({"cell_type": "code", "metadata": None, "source": None, "outputs": None, "execution_count": "3"},
         code()),
        (code(execution_count=-1), code()),
        (code(execution_count=True), code()),
        (code(source=["a\n", None, 3]), code(source="a\n3")),
        (code(language="python", attachments={}), code()),
        ({"cell_type": "markdown", "metadata": {}, "source": "x", "outputs": [], "execution_count": None},
         {"cell_type": "markdown", "metadata": {}, "source": "x"}),
        ({"cell_type": "sql", "metadata": {}, "source": "select"},
         {"cell_type": "raw", "metadata": {}, "source": "select"}),
        ({"metadata": {}, "source": "x", "outputs": []}, code(source="x")),
        (code(metadata={"tags": ["a", "a", "b,c", "", 3], "name": "", "collapsed": "no", "scrolled": 7, "jupyter": []}),
         code(metadata={"tags": ["a"]})),
        (code(metadata={"tags": "solo", "execution": {"a": 1}}), code()),
        ({"cell_type": "raw", "metadata": {"format": 1}, "source": "",
          "attachments": {"a": {"image/png": ["x", "y"]}, "b": 1}},
         {"cell_type": "raw", "metadata": {}, "source": "", "attachments": {"a": {"image/png": "xy"}}}),
    ],
)  # fmt: skip
def test_an_invalid_cell_is_repaired_and_reported(cell, expected):
    notebook, findings = repair(of_cells(cell))
    assert notebook["cells"] == [expected]
    assert {finding.rule for finding in findings} == {"LF106"}
    assert all(finding.cell == 0 and finding.changed for finding in findings)


@pytest.mark.parametrize(
    "output, expected",
    [
        ({"output_type": "stream", "text": ["a\n", "b"]},
         [{"output_type": "stream", "name": "stdout", "text": "a\nb"}]),
        ({"output_type": "stream", "name": "stderr", "text": None},
         [{"output_type": "stream", "name": "stderr", "text": ""}]),
        ({"output_type": "stream", "name": "stdout", "text": "a", "metadata": {"tags": None}},
         [{"output_type": "stream", "name": "stdout", "text": "a"}]),
        ({"output_type": "error", "ename": "E", "evalue": None, "traceback": "t", "errorDetails": {"actions": []}},
         [{"output_type": "error", "ename": "E", "evalue": "", "traceback": ["t"]}]),
        ({"output_type": "display_data", "data": {"text/plain": 3, "text/html": {}, "application/x+json": {"a": [1]}}},
         [{"output_type": "display_data", "metadata": {},
           "data": {"application/x+json": {"a": [1]}}}]),
        ({"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": "2"},
         [{"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": None}]),
        ({"output_type": "clear_output"}, []),
        ("text", []),
        (None, []),
    ],
)  # fmt: skip
def test_an_invalid_output_is_repaired_and_reported(output, expected):
    outputs, messages = output_of(output)
    assert outputs == expected
    assert messages


def test_joining_a_text_is_not_a_repair():
    outputs, messages = output_of({"output_type": "stream", "name": "stdout", "text": ["a\n", "b"]})
    assert (outputs[0]["text"], messages) == ("a\nb", [])


def test_a_long_list_of_lines_is_not_joined_into_a_wide_text():
    wide, plain = ["é\n"] * 500, ["e\n"] * 500
    assert output_of({"output_type": "stream", "name": "stdout", "text": wide})[0][0]["text"] is wide
    assert output_of({"output_type": "stream", "name": "stdout", "text": plain})[0][0]["text"] == "e\n" * 500


def test_nbformat_3_is_converted_to_4():
    cells = [
        {"cell_type": "heading", "level": 3, "metadata": {}, "source": ["Title"]},
        {"cell_type": "markdown", "metadata": {}, "source": ["one", "two"]},
        {"cell_type": "code", "collapsed": True, "language": "python", "metadata": {}, "prompt_number": 2,
         "input": ["x = 1\n", "x"],
         "outputs": [
             {"output_type": "pyout", "prompt_number": 2, "text": ["1"], "html": ["<b>", "1"], "metadata": {}},
             {"output_type": "stream", "stream": "stderr", "text": ["w\n"]},
             {"output_type": "pyerr", "ename": "E", "evalue": "v", "traceback": ["t"]},
             {"output_type": "display_data", "png": "aGk=", "metadata": {}},
         ]},
    ]  # fmt: skip
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": "n"}, "worksheets": [{"cells": cells}]}
    notebook, findings = repair(old)
    assert [finding.rule for finding in findings] == ["LF103"]
    assert clean(notebook)[0]["metadata"].keys() == {"kernelspec", "language_info"}
    assert notebook["cells"] == [
        {"cell_type": "markdown", "metadata": {}, "source": "### Title"},
        {"cell_type": "markdown", "metadata": {}, "source": "one\ntwo"},
        code(
            source="x = 1\nx",
            execution_count=2,
            metadata={"collapsed": True},
            outputs=[
                {"output_type": "execute_result", "execution_count": 2, "metadata": {},
                 "data": {"text/plain": "1", "text/html": "<b>\n1"}},
                {"output_type": "stream", "name": "stderr", "text": "w\n"},
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t"]},
                {"output_type": "display_data", "data": {"image/png": "aGk="}, "metadata": {}},
            ],
        ),
    ]  # fmt: skip


def test_unknown_fields_metadata_and_versions_of_a_notebook_are_reported():
    notebook, findings = repair({"nbformat": "4", "cells": [7], "worksheets": [], "metadata": {"title": 3, "mine": 1}})
    assert notebook == {"nbformat": 4, "nbformat_minor": 0, "cells": [], "metadata": {"mine": 1}}
    assert len(findings) == 3


JUNK = [None, 0, -1, 1.5, True, float("nan"), 10**20, "", "x", "3", "a,b", "Python 2", "é🚀", "\ud83d", [], [None],
        [1, "a"], ["a,b", "a", "a"], {}, {"a": None}, {"metadata": 1}, {"output_type": "stream"},
        {"cell_type": "code"}]  # fmt: skip
FIELDS = ("id", "outputs", "source", "metadata", "extra", "name", "text", "input", "tags", "cells", "output_type")
VALID = of_cells(
    {
        "cell_type": "markdown",
        "metadata": {"id": "a"},
        "source": ["# T\n"],
        "attachments": {"i": {"image/png": "aGk="}},
    },
    code(
        id="abc",
        source="x\r\n",
        metadata={"cellView": "form", "executionInfo": {"user": {"displayName": "A B"}}, "tags": ["a"], "jupyter": {}},
        outputs=[
            {"output_type": "stream", "name": "stdout", "text": ["a\n"]},
            {"output_type": "execute_result", "execution_count": 1, "data": {"text/plain": ["x"]}, "metadata": {}},
            {"output_type": "display_data", "data": {"application/json": {"a": [1]}}, "metadata": {"tags": []}},
            {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t"]},
        ],
    ),
    {"cell_type": "raw", "metadata": {"format": "x"}, "source": []},
    metadata={"kernelspec": {"name": "python2", "display_name": "Python 2"}, "language_info": {"name": "python"}},
)


def places(value, path=()):
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*path, key))


def damaged(seed):
    """A valid notebook with a few of its parts replaced, removed or added."""
    choose = random.Random(seed)
    notebook = copy.deepcopy(VALID)
    for _ in range(choose.randint(1, 4)):
        *path, last = choose.choice([place for place in places(notebook) if place])
        owner = notebook
        for key in path:
            owner = owner[key]
        deed = choose.random()
        if deed < 0.6:
            owner[last] = copy.deepcopy(choose.choice(JUNK))
        elif deed < 0.8:
            del owner[last]
        elif isinstance(owner, dict):
            owner[choose.choice(FIELDS)] = copy.deepcopy(choose.choice(JUNK))
    return notebook if "nbformat" in notebook else {**notebook, "nbformat": 4}


@pytest.mark.parametrize("seed", most_nightly(range(10), but=4))
def test_any_invalid_notebook_is_repaired_to_a_stable_valid_one(seed):
    for number in range(100):
        notebook = damaged(f"{seed}.{number}")
        found, _ = read_bytes(json.dumps(notebook).encode(), "a.ipynb")
        before = copy.deepcopy(found)
        cleaned, _, _ = clean(found)
        assert found == before
        assert is_valid(cleaned)
        text = written(cleaned)
        again, repairs = read_bytes(text.encode(), "a.ipynb")
        second, _, findings = clean(again)
        assert (written(second), repairs + findings) == (text, [])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nbformat.validate(json.loads(text))
        assert nbformat.writes(nbformat.reads(text, as_version=4)) + "\n" == text


def test_a_long_list_of_html_lines_is_joined_for_searching():
    lines = ["<td>é</td>\n"] * 500
    outputs, _ = output_of({"output_type": "display_data", "data": {"text/html": lines}, "metadata": {}})
    assert outputs[0]["data"]["text/html"] == "".join(lines)
