import ast
import io
import sys
import tokenize
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migration.notebook.texts import FIELD
from migration.python.strings import as_format, characters, read_strings

SAMPLES = [
    "x = 'a' \"b\" '''c''' \"\"\"d'e\"f\"\"\"",
    "r'\\\\' + R\"\\d\" + b'x' + rb'y' + Br'z' + u'w'",
    "'it\\'s' # don't\n'x'  # 'not a string'",
    "f'{a}' f\"{b['k']:>{w}} {{q}}\" rf'{c!r}\\d' F'{d=}'",
    "f'{x:#x}' 'after' # comment",
    "f'''{a\n}{'''\n'''}'''" if sys.version_info >= (3, 12) else "f'''{a}\n'''",
    "f\"{f'{x}' + 'y'}\" f'{dict(a=1)[\"a\"]}' f'{(lambda: 1)()}'",
    "f'\\N{BULLET} {x}' '\\N{BULLET} {x}' f'\\{{x}}'",
    "'a\\\nb' 'c'",
    "return'x'if y else'z'",
    "''''a''' \"\"\"\"b\"\"\" '' \"\" ''''''",
]


def _by_tokenize(text):
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    strings, comments, opened = [], [], []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            opened.append(start)
        elif kind == "FSTRING_END":
            start = opened.pop()
            strings += [] if opened else [(start, end)]
        elif kind == "STRING" and not opened:
            strings.append((start, end))
        elif kind == "COMMENT" and not opened:
            comments.append((start, end))
    return strings, comments


@pytest.mark.parametrize("text", SAMPLES)
def test_literals_and_comments_equal_those_of_tokenize(text):
    literals, comments = read_strings(text)
    assert ([(one.start, one.end) for one in literals if not one.depth], comments) == _by_tokenize(text)


@pytest.mark.parametrize("module", [ast, tokenize, io, pytest])
def test_whole_modules_are_read_as_tokenize_reads_them(module):
    text = Path(module.__file__).read_text(encoding="utf-8")
    literals, comments = read_strings(text)
    assert ([(one.start, one.end) for one in literals if not one.depth], comments) == _by_tokenize(text)


def test_strings_inside_an_expression_follow_the_f_string():
    text = "f\"{f(f'{a}/x', 'b')}\""
    found = [(text[one.start : one.end], one.depth) for one in read_strings(text)[0]]
    assert found == [(text, 0), ("f'{a}/x'", 1), ("'b'", 1)]
    outer = read_strings(text)[0][0]
    assert [text[start:end] for start, end in outer.fields] == ["{f(f'{a}/x', 'b')}"]


def test_the_same_quotes_inside_an_expression_are_read_under_every_version():
    text = 'f"{a["b"]}" + "c"'
    assert [text[one.start : one.end] for one in read_strings(text)[0] if not one.depth] == ['f"{a["b"]}"', '"c"']


def test_invalid_python_is_read_as_far_as_possible():
    text = "print 'a'\ndon't stop\nx = 'b'\ny = 'open"
    assert [text[one.start : one.end] for one in read_strings(text)[0]] == ["'a'", "'b'"]


def _evaluated(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, {})


@given(st.text(alphabet="abfruN\\'\"{}#\n:!x0", max_size=40))
def test_literals_of_any_text_are_within_the_text(text):
    literals, comments = read_strings(text)
    for literal in literals:
        start, end = literal.body
        assert 0 <= literal.start < start <= end <= literal.end <= len(text)
        for char in characters(text, literal):
            assert start <= char.start < char.end <= end
    assert all(text[start] == "#" for start, _ in comments)


def _evaluated(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, {})


@given(st.text(alphabet="ab \\'\"{}nNx41\n", max_size=20), st.sampled_from(["", "r"]), st.sampled_from(["'", '"""']))
def test_a_literal_means_the_same_by_itself_and_as_an_f_string(body, prefix, quote):
    text = f"{prefix}{quote}{body}{quote}"
    try:
        value = _evaluated(text)
    except (SyntaxError, ValueError):
        return
    literals = read_strings(text)[0]
    if len(literals) != 1 or not isinstance(value, str):
        return
    assert "".join(char.value for char in characters(text, literals[0])) == value
    start, end = literals[0].body
    formatted = f"f{prefix}{quote}{as_format(text[start:end], raw=bool(prefix))}{quote}"
    assert _evaluated(formatted) == value


def test_the_characters_of_a_literal_know_their_source():
    text = r"f'a\n{b}\x41\u00e9\101{{\z'"
    chars = characters(text, read_strings(text)[0][0])
    assert [char.value for char in chars] == ["a", "\n", FIELD, "A", "é", "A", "{", "\\", "z"]
    assert [text[char.start : char.end] for char in chars][1:4] == [r"\n", "{b}", r"\x41"]
