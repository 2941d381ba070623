import ast

import pytest

from migration.colab.names import GOOGLE, PACKAGE, RUNTIME, imported_names, path_below, read_names
from migration.python.source import CellSource


@pytest.mark.parametrize(
    "text, names",
    [
        ("import google.colab", [("google", GOOGLE)]),
        ("import google.colab.files as f, os", [("f", "files"), ("os", None)]),
        ("import google.auth", [("google", GOOGLE)]),
        ("from google import colab, auth as a", [("colab", ""), ("a", None)]),
        ("from google.colab import drive as d", [("d", "drive")]),
        ("from google.colab.patches import cv2_imshow", [("cv2_imshow", "patches.cv2_imshow")]),
        ("from .google.colab import files", [("files", None)]),
        ("from colab import files", [("files", None)]),
    ],
)
def test_names_bound_by_an_import_are_found(text, names):
    assert imported_names(ast.parse(text).body[0]) == names


def test_the_runtime_module_counts_on_request():
    node = ast.parse("from landfall_runtime import files, cv2_imshow").body[0]
    assert imported_names(node) == [("files", None), ("cv2_imshow", None)]
    assert imported_names(node, (PACKAGE, RUNTIME)) == [("files", "files"), ("cv2_imshow", "patches.cv2_imshow")]


@pytest.mark.parametrize(
    "module, below",
    [("google.colab", ""), ("google.colab.output", "output"), ("google.colabs", None), ("google", None)],
)
def test_the_path_below_the_package(module, below):
    assert path_below(module) == below


def test_the_context_of_a_use_is_found():
    text = "from google.colab import files\nfiles.upload()\nx = files.upload().keys()\nfiles"
    assert [(use.path, use.is_statement, use.call is not None) for use in read_names(CellSource(text)).uses] == [
        ("files.upload", True, True),
        ("files.upload", False, True),
        ("files", False, False),
    ]


def test_names_before_and_after_a_cell_are_found():
    source = CellSource("a()\nb()\nc()")
    found = read_names(source, before={"a": "files", "b": None}, later={"b": "drive", "c": "drive"})
    assert [use.path for use in found.uses] == ["files", "drive"]


def test_the_names_after_a_cell():
    assert read_names(CellSource("from google.colab import drive, files\ndrive = 1")).bound == {
        "drive": None,
        "files": "files",
    }
