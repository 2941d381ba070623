import gc
import json
import tracemalloc

import nbformat
import pytest

from core.errors import EXIT_USAGE, UsageError
from migration.notebook.reading import language_of, read, read_bytes, source_text
from tests.support import most_nightly

NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Größe 🚀\n", "x"]}],
}


def notebook(source="x = 1", **cell):
    code = {"cell_type": "code", "id": "a", "metadata": {}, "source": source, "execution_count": None, "outputs": []}
    return {**NOTEBOOK, "cells": [{**code, **cell}]}


def encoded(value=NOTEBOOK, encoding="utf-8", **options):
    return json.dumps(value, ensure_ascii=False, **options).encode(encoding)


def rules(findings):
    return [finding.rule for finding in findings]


def test_a_valid_notebook_is_read_unchanged_with_joined_texts(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_bytes(encoded())
    found, findings = read(path)
    assert findings == []
    assert found == {**NOTEBOOK, "cells": [{**NOTEBOOK["cells"][0], "source": "# Größe 🚀\nx"}]}
    assert path.read_bytes() == encoded()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_unicode_encodings_are_read_and_reported(encoding):
    found, findings = read_bytes(encoded(encoding=encoding), "a.ipynb")
    assert source_text(found["cells"][0]) == "# Größe 🚀\nx"
    assert rules(findings) == ["LF101"]


def test_windows_line_ends_are_not_a_finding():
    found, findings = read_bytes(encoded(indent=1).replace(b"\n", b"\r\n"), "a.ipynb")
    assert source_text(found["cells"][0]) == "# Größe 🚀\nx"
    assert findings == []


@pytest.mark.parametrize("constant", ["NaN", "-Infinity"])
def test_constants_that_json_does_not_have_become_null(constant):
    found, findings = read_bytes(json.dumps(notebook()).replace("null", constant).encode(), "a.ipynb")
    assert rules(findings) == ["LF101"]
    assert found["cells"][0]["execution_count"] is None


def test_control_characters_in_texts_are_read():
    found, _ = read_bytes(json.dumps(notebook("x\ny")).replace("\\n", "\n\t\x01").encode(), "a.ipynb")
    assert source_text(found["cells"][0]) == "x\n\t\x01y"


def test_complete_surrogate_pairs_and_escaped_backslashes_stay():
    source = "print('🚀', '\\ud83d', '\\\\ud83d')"
    found, findings = read_bytes(json.dumps(notebook(source)).encode(), "a.ipynb")
    assert "\\ud83d\\ude80" in json.dumps(source)
    assert (source_text(found["cells"][0]), findings) == (source, [])


def test_trailing_null_bytes_and_blanks_are_not_a_finding():
    assert read_bytes(encoded() + b"\n\n\0\0\x1a", "a.ipynb")[1] == []


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"\0" * 100, "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n", "Git LFS pointer"),
        (b"\n<!DOCTYPE html>\n<html></html>", "HTML page"),
        (b"PK\x03\x04abc", "ZIP archive"),
        (b"\x1f\x8babc", "gzip archive"),
        (b"import os\nprint(1)\n", "no JSON at line 1, column 1"),
        (b'{"cells": [\n  oops\n]}', "no JSON at line 2, column 3"),
        (b'{"cells": [{"cell_type": "code", "source": "pri', "cut off"),
        (b'{"cells": [', "cut off"),
        (b'{"cells": [\n<<<<<<< HEAD\n {}\n=======\n', "at line 2"),
        (json.dumps(NOTEBOOK).encode() + b"\n}garbage", "after its JSON"),
        (json.dumps(notebook("gr\xfc\xdfe"), ensure_ascii=False).encode("latin-1"), "UTF-8"),
        (json.dumps(notebook()).replace("null", "1" * 5000).encode(), "digits"),
        (b"[1, 2]", "is a list"),
        (b'"text"', "is a str"),
        (b"null", "is a NoneType"),
        (b'{"name": "package", "version": 4}', "no cells"),
        (b'{"cells": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_not_a_notebook_is_rejected_by_name(tmp_path, data, why):
    path = tmp_path / "some file.ipynb"
    path.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read(path)
    message = str(refused.value)
    assert message.startswith(str(path))
    assert why in message
    assert "\n" not in message
    assert refused.value.exit_code == EXIT_USAGE


def test_a_folder_and_a_missing_file_are_rejected(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "none.ipynb")


def test_an_empty_notebook_without_cells_is_a_notebook():
    found, findings = read_bytes(b'{"nbformat": 4, "nbformat_minor": 2, "metadata": {}}', "a")
    assert found["cells"] == []
    assert rules(findings) == ["LF106"]


@pytest.mark.parametrize(
    "metadata, language",
    [
        (None, "python"),
        ([], "python"),
        ({}, "python"),
        ({"kernelspec": None, "language_info": 3}, "python"),
        ({"kernelspec": "python3"}, "python"),
        ({"kernelspec": {"name": "python2"}}, "python"),
        ({"kernelspec": {"name": "conda", "language": "Python"}}, "python"),
        ({"language_info": {"name": "ipython3"}}, "python"),
        ({"language_info": {"name": ""}}, "python"),
        ({"kernelspec": {"name": "ir"}}, "r"),
        ({"kernelspec": {"name": "julia-1.6"}, "language_info": {}}, "julia"),
        ({"kernelspec": {"name": "swift"}, "language_info": {"name": "python"}}, "swift"),
        ({"kernelspec": {"name": "x", "language": ["a"]}, "language_info": {"name": "R"}}, "r"),
    ],
)
def test_the_language_is_read_from_any_metadata(metadata, language):
    assert language_of({"metadata": metadata}) == language
    assert language_of({}) == "python"


@pytest.mark.parametrize(
    "cell, text",
    [({"source": "a\nb"}, "a\nb"), ({"source": ["a\n", "b"]}, "a\nb"), ({"source": ["a", None, 3]}, "a"), ({}, ""),
     ({"source": None}, ""), ({"source": {"a": 1}}, "")],
)  # fmt: skip
def test_the_source_of_every_cell_is_a_string(cell, text):
    assert source_text(cell) == text


def big_notebook(kind, megabytes):
    size = megabytes * 1_000_000
    lines = [f"step {step} loss 0.123456789 of the training run, with some words\n" for step in range(size // 75)]
    picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0K" * 12_500}}
    outputs = {
        "picture": [picture] * (size // 100_000),
        "stream": [{"output_type": "stream", "name": "stdout", "text": lines}],
        "emoji": [{"output_type": "stream", "name": "stdout", "text": [*lines, "done 🚀\n"]}],
    }[kind]  # fmt: skip
    value = notebook("print('🚀')", outputs=outputs)
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


@pytest.mark.slow
@pytest.mark.parametrize("kind", most_nightly(["stream", "picture", "emoji"], but=1))
def test_a_large_notebook_needs_less_than_five_times_its_size(tmp_path, kind):
    path = tmp_path / "big.ipynb"
    path.write_bytes(big_notebook(kind, 12))
    gc.collect()
    tracemalloc.start()
    try:
        found, findings = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4.5 * path.stat().st_size
    assert findings == []
    assert source_text(found["cells"][0]) == "print('🚀')"
    nbformat.validate(found)


def test_large_and_small_notebooks_are_read_alike():
    value = notebook(
        "s = 'é🚀\\u00e9\\ud83d'", outputs=[{"output_type": "stream", "name": "stdout", "text": ["é\n", "🚀"]}]
    )
    small, _ = read_bytes(encoded(value), "a")
    large, findings = read_bytes(encoded(value) + b" " * 5_000_000, "a")
    assert (large, findings) == (small, [])


def test_widget_state_of_a_large_notebook_is_dropped_while_it_is_read():
    model = {"model_module": "m", "model_module_version": "1", "model_name": "n", "state": {"value": "x" * 1000}}
    state = {"application/vnd.jupyter.widget-state+json": {str(number): model for number in range(5000)}}
    found, _ = read_bytes(encoded({**NOTEBOOK, "metadata": {"widgets": state}}), "a")
    (kept,) = found["metadata"]["widgets"].values()
    assert not any(kept.values())
