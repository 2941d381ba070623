"""Remaining Colab code in a notebook: an independent check of the migrator, which imports nothing from `migration`. It
searches the output with regular expressions, so that an error of the rules' parser is not repeated here. It may report
too much, but not too little.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple


class Leftover(NamedTuple):
    """A remaining Colab-only construct: its cell (None: the notebook), its kind, and the text around it."""

    cell: int | None
    construct: str
    text: str


_URL = re.compile(r"""\w+://[^\s"'`<>)]*""")
_CODE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("google.colab", re.compile(r"google\s*\.\s*colab|from\s+google\s+import\s+[^\n#]*\bcolab\b")),
    ("/content", re.compile(r"(?<![\w.\-/\\}\])])/content(?![\w\-.])|(?<=\s-[A-Za-z])/content(?=[/\s\"']|$)")),
    ("mounted drive", re.compile(r"(?<![\w.\-/])(?:\./)?g?drive/My ?Drive\b|(?<![\w.\-/])/g?drive/My\\? ?Drive\b")),
    ("form", re.compile(r"#\s*@\s*(?:param|title|markdown)\b")),
    ("detection", re.compile(r"\bCOLAB_(?:GPU|TPU|RELEASE|JUPYTER|BACKEND|NOTEBOOK)|[\"']COLAB_?[\"']")),
    ("magic", re.compile(r"^\s*(?:%tensorflow_version|%%shell|%shell\b)", re.MULTILINE)),
    ("apt", re.compile(r"^\s*!\s*(?:sudo\s+(?:-\S+\s+)*)?(?:apt|apt-get|add-apt-repository)\s", re.MULTILINE)),
    ("background command", re.compile(r"^\s*![^\n]*[^&\s\\]\s*&[ \t]*$", re.MULTILINE)),
    ("restart", re.compile(r"os\.kill\(\s*os\.getpid\(\)|\.do_shutdown\(")),
    ("comment above a cell magic", re.compile(r"\A(?:[ \t]*\n)*[ \t]*#[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*%%\w")),
)
_MESSAGE = re.compile(r"\s*print\(f?([\"'])(?:(?!\1).)*\1\)\s*$")
_MARKDOWN = re.compile(r"colab\.research\.google\.com/(?:github|gist|drive)/|colab-badge\.svg")
_OUTPUT = re.compile(r"application/vnd\.google\.colab|application/vnd\.colab|google\.colab\.kernel|colab-df-")
_NOTEBOOK_KEYS = ("colab", "accelerator", "gpuClass", "gpuType")
_WIDGETS = "application/vnd.jupyter.widget-state+json"
_CELL_KEYS = ("colab", "colab_type", "outputId", "executionInfo", "cellView", "id")


def leftovers(notebook: dict[str, Any]) -> Iterator[Leftover]:
    """All Colab-only constructs in a notebook of nbformat 4."""
    metadata = notebook.get("metadata", {})
    yield from (Leftover(None, f"metadata.{key}", key) for key in _NOTEBOOK_KEYS if key in metadata)
    if "widgets" in metadata and "state" not in metadata["widgets"].get(_WIDGETS, {}):
        yield Leftover(None, "metadata.widgets", "widgets")  # Jupyter saves the models in `state`, Colab without it
    for index, cell in enumerate(notebook["cells"]):
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        if cell["cell_type"] == "code":
            found = code_leftovers(source)
            yield from (Leftover(index, *each) for each in found if not _MESSAGE.match(each[1]))  # texts are not code
            outputs = json.dumps(cell.get("outputs", []))
            yield from (Leftover(index, "output", found.group()) for found in _OUTPUT.finditer(outputs))
        elif badge := _MARKDOWN.search(source):
            yield Leftover(index, "badge or link", badge.group())
        yield from (Leftover(index, f"cell metadata.{key}", key) for key in _CELL_KEYS if key in cell["metadata"])


def code_leftovers(source: str) -> Iterator[tuple[str, str]]:
    """Construct and line of each Colab-only construct in a code cell."""
    text = _URL.sub(lambda url: "u" * len(url.group()), source)
    for construct, pattern in _CODE:
        for found in pattern.finditer(text):
            start = source.rfind("\n", 0, found.start()) + 1
            yield construct, source[start : source.find("\n", found.end()) if "\n" in source[found.end() :] else None]
