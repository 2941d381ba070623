import io
import json
import tracemalloc

import nbformat
import pytest
from nbformat.notebooknode import from_dict

from migration.notebook.writing import write
from tests.migration.made_notebooks import written

LINES = 'plain\r\nnext\x0bpage\x0cend\u2028para\x85é🚀\\ "quoted" \t\x00\x1b[0m last'


def notebook(*outputs, source=LINES, metadata=None):
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"z": 1, "a": {"deep": [[], {}, [1, 2.5, None, True, "x"], {"k": []}]}, **(metadata or {})},
        "cells": [
            {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "source": source,
             "outputs": list(outputs)},
            {"cell_type": "markdown", "id": "b", "metadata": {}, "source": "",
             "attachments": {"p.svg": {"image/svg+xml": "<svg>\n</svg>", "image/png": "aGk=\n"}}},
        ],
    }  # fmt: skip


OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": "a\nb\n"},
    {"output_type": "stream", "name": "stdout", "text": ["a\n", "b", "c\n", ""]},
    {"output_type": "error", "ename": "E", "evalue": "a\nb", "traceback": ["a\n", "b"]},
    {
        "output_type": "display_data",
        "metadata": {"image/png": {"width": 3}},
        "data": {
            "text/plain": LINES,
            "text/html": "<b>\n</b>",
            "application/javascript": "a\nb",
            "image/png": "aGk=\naGk=",
            "application/json": {"b": ["x\n", {"a": [1e300, -0.0, 1, {"c": {}}]}], "a": "x\ny"},
        },
    },
]


def canonical(value):
    """The output of nbformat for a notebook that it has read."""
    return nbformat.writes(nbformat.reads(json.dumps(value), as_version=4)) + "\n"


def test_a_notebook_is_written_as_nbformat_writes_it():
    assert written(notebook(*OUTPUTS)) == canonical(notebook(*OUTPUTS))
    assert written(notebook(source="")) == nbformat.writes(from_dict(notebook(source=""))) + "\n"


@pytest.mark.slow
def test_long_values_are_written_in_pieces_to_the_same_json():
    text = "".join(f"line {number} é\n" for number in range(200_000)) + "no end"
    value = notebook(
        {"output_type": "stream", "name": "stdout", "text": text},
        {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)},
        {
            "output_type": "display_data",
            "metadata": {},
            "data": {"application/json": [*range(9000), {"a": 1}, [], "x"]},
        },
    )
    buffer = io.BytesIO()
    write(value, buffer)
    assert buffer.getvalue().decode() == canonical(value)


def test_a_lone_surrogate_is_written_as_valid_utf8():
    buffer = io.BytesIO()
    write(notebook(source="x = '\ud83d'"), buffer)
    assert json.loads(buffer.getvalue())["cells"][0]["source"] == ["x = '?'"]


def peak_of_writing(value, path):
    """The most memory that writing a notebook takes, in bytes."""
    tracemalloc.start()
    try:
        with path.open("wb") as file:
            write(value, file)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_writing_many_long_texts_needs_memory_for_one_of_them(tmp_path):
    image = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "0123456789abcdef" * 10_000}}
    value = notebook(*[image] * 200)
    assert peak_of_writing(value, tmp_path / "out.ipynb") < 3_000_000
    assert (tmp_path / "out.ipynb").stat().st_size > 30_000_000


@pytest.mark.nightly
def test_writing_needs_memory_for_the_lines_of_one_text_only(tmp_path):
    text = "0123456789" * 7 + "\n"
    value = notebook({"output_type": "stream", "name": "stdout", "text": text * 300_000})
    assert peak_of_writing(value, tmp_path / "out.ipynb") < 50_000_000
    assert (tmp_path / "out.ipynb").stat().st_size > 20_000_000
