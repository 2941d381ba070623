import logging
from types import SimpleNamespace

import pytest

from core import progress
from core.progress import Progress, span


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test controls."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_half_minute(clock, caplog):
    caplog.set_level(logging.INFO)
    with Progress(10, "reading", unit="files", mode="lines") as bar:
        for _ in range(4):
            clock[0] += 20.0
            bar.advance(note="loss 0.5")
    assert [record.getMessage() for record in caplog.records] == [
        "reading: 2 of 10 files, 160 s left loss 0.5",
        "reading: 4 of 10 files, 120 s left loss 0.5",
    ]


def test_a_bar_counts_to_its_end(capsys):
    with Progress(3, "training", unit="windows", mode="bar") as bar:
        bar.advance(2, "loss 0.5")
        bar.advance()
    text = capsys.readouterr().err
    assert "training: 100%" in text
    assert "3/3" in text
    assert "loss 0.5" in text


@pytest.mark.parametrize(
    ("done", "left"), [(3, ""), (2, "reading: 67%, 2 of 3 files · 0.333 files/s · stopped after 00:06")]
)
def test_a_notebook_keeps_the_bar_of_stopped_work_only(clock, monkeypatch, done, left):
    shown = []
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress.LiveOutput, "show", lambda self, content: shown.append(content["text/plain"]))
    with Progress(3, "reading", unit="files", mode="bar") as bar:
        for _ in range(done):
            clock[0] += 6.0 / done
            bar.advance()
    assert shown[0].startswith("reading: 33%, 1 of 3 files")
    assert shown[-1] == left


def test_off_is_silent_and_still_counts(capsys, caplog, clock):
    caplog.set_level(logging.INFO)
    with Progress(3, "training", unit="windows", mode="off") as bar:
        clock[0] += 100.0
        bar.advance(3)
    assert bar.done == 3
    assert capsys.readouterr() == ("", "")
    assert caplog.text == ""


@pytest.mark.parametrize("is_terminal, mode", [(True, "bar"), (False, "lines")])
def test_a_terminal_is_watched_and_a_pipe_is_not(monkeypatch, is_terminal, mode):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.delitem(progress.sys.modules, "IPython", raising=False)
    assert Progress(1, "x", unit="y").mode == mode


def test_ipython_outside_a_kernel_is_not_a_notebook(monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False, raising=False)
    monkeypatch.setitem(progress.sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    assert Progress(1, "x", unit="y").mode == "lines"


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_times_are_written_in_readable_units(seconds, expected):
    assert span(seconds) == expected
