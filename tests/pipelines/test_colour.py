"""Marks are coloured on terminals only."""

from __future__ import annotations

import io
import os

import pytest

from pipelines.colour import has_colour, with_colour

TEXT = "  ✗ FAIL  a ! b\n  ✓ V-01\n  a ✗ b\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "environment, coloured",
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_shows_colours_unless_disabled(monkeypatch, environment, coloured):
    monkeypatch.setattr(os, "environ", environment)
    assert has_colour(Terminal()) == coloured
    assert not has_colour(io.StringIO())


def test_only_marks_at_the_start_of_a_line_are_coloured(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert with_colour(TEXT, io.StringIO()) == TEXT
    text = with_colour(TEXT, Terminal())
    assert text.count("\x1b[0m") == 2
    assert "\x1b[31m✗ FAIL\x1b[0m" in text
    assert "  a ✗ b" in text
