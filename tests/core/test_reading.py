"""Foreign files are read within limits, or rejected in one line."""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.reading import (
    UnreadableError,
    parse_json,
    parse_yaml,
    read_json,
    read_json_object,
    read_yaml,
    refuse_packed,
)

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
)
BAD_JSON = {
    "cut": '{"a": [1, ',
    "deep": "[" * 100_000,
    "nested deeper than others walk": "[" * 200 + "]" * 200,
    "a number of 100,000 digits": '{"pid": ' + "9" * 100_000 + "}",
    "a number of 100 digits": "9" * 100,
    "more values than fit in memory": "[" + "[]," * 10_000_000 + "[]]",
    "empty": "",
}
BAD_YAML = {
    "aliases": ALIASES,
    "holds itself": "a: &a [*a]",
    "deep": "[" * 1_500 + "]" * 1_500,
    "a tag that runs code": "a: !!python/object/apply:os.system ['true']",
    "a number of 100,000 digits": "a: " + "9" * 100_000,
    "no date": "a: 2001-99-99",
    "no timestamp": "a: !!timestamp x",
    "no bool": "a: !!bool x",
    "an empty number": "a: !!int ''",
    "an unhashable key": "? [a]\n: b",
    "tab": "a:\n\tb: 1",
    "large": "# " + "x" * 300_000,
}


@pytest.mark.parametrize("text", BAD_JSON.values(), ids=BAD_JSON)
def test_invalid_json_is_rejected_in_one_line(text):
    with pytest.raises(UnreadableError) as caught:
        parse_json(text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", BAD_YAML.values(), ids=BAD_YAML)
def test_invalid_yaml_is_rejected_in_one_line_immediately(text):
    started = time.process_time()
    with pytest.raises(UnreadableError) as caught:
        parse_yaml(text)
    assert str(caught.value).isprintable()
    assert time.process_time() - started < 60


def test_a_fault_names_its_line():
    with pytest.raises(UnreadableError) as caught:
        parse_json('{"a": 1,\n "b": }')
    assert caught.value.line == 2
    with pytest.raises(UnreadableError) as caught:
        parse_yaml("a: 1\nb: [1\n")
    assert caught.value.line == 3


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_pipes_devices_folders_and_large_files_are_rejected(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(UnreadableError):
            read(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing")
    (tmp_path / "latin").write_bytes(b"a: \xe9")
    with pytest.raises(UnreadableError, match="UTF-8"):
        read(tmp_path / "latin")


def test_too_large_a_file_is_not_read(tmp_path):
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnreadableError, match="larger"):
        read_json(tmp_path / "sparse.json", largest=1000)
    with pytest.raises(UnreadableError, match="larger"):
        read_yaml(tmp_path / "sparse.json")


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=_PLAIN)
def test_any_json_value_is_read_unchanged(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(b"\xef\xbb\xbf" + json.dumps(value, ensure_ascii=True).encode()) == value


@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_rejected(content, tmp_path_factory):
    path = Path(tmp_path_factory.getbasetemp(), "any")
    path.write_bytes(content)
    for read in (read_json, read_json_object, read_yaml):
        with suppress(UnreadableError):
            read(path)


def archive(compression: int, content: bytes) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        made.writestr("a", content)
    file.seek(0)
    return file


def test_a_decompression_bomb_is_rejected():
    refuse_packed(file := archive(zipfile.ZIP_STORED, bytes(1000)))
    assert file.tell() == 0
    with pytest.raises(UnreadableError, match="compressed"):
        refuse_packed(archive(zipfile.ZIP_DEFLATED, bytes(10**6)))
    with pytest.raises(UnreadableError, match="archive"):
        refuse_packed(io.BytesIO(b"PK"))
