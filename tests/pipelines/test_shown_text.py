"""The page shows text of documents as it is written."""

from __future__ import annotations

import pytest

from pipelines.problems import Problem


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\u200f", "\x1b", "\x07", "\x9b"])
def test_misleading_characters_are_escaped(letter):
    problem = Problem(path=f"a{letter}b", message="one\ntwo\tü日 \u200d")
    assert problem.path == f"a{letter.encode('unicode_escape').decode()}b"
    assert problem.message == "one\ntwo\tü日 \u200d"
    assert Problem(**problem.model_dump()) == problem
