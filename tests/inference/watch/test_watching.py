"""A monitor gives the scores and events of complete files, however it reads them and however often it is killed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import pytest

from core.errors import EXIT_OK, EXIT_OUTPUT, EXIT_USAGE, WriteError
from inference.watch import watching
from inference.watch.state_file import write_state
from inference.watch.watching import Watch
from tests.inference.watch.following import (
    arguments_of,
    assert_equal_to_files,
    lines_of,
    monitor_of,
    num_lines_of,
    scored_by_files,
    watch_once,
    watch_process,
)
from tests.support.waiting import until

LIVE = "data.splits.test.files=[data/live/*.csv]"
KINDS = {
    "charts": ("charts", []),
    "charts by operating context": ("charts", ["scoring.operating_context=on"]),
    "model": ("model", ["scoring.model_weight=1.0"]),
    "model and charts": ("model", ["scoring.model_weight=0.3", "data.score_stride=4", "scoring.event_release=0.6"]),
    "model without weight": ("model", ["scoring.model_weight=0.0"]),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("charts", marks=pytest.mark.nightly),
        pytest.param("charts by operating context", marks=pytest.mark.nightly),
        pytest.param("model", marks=pytest.mark.nightly),
        pytest.param("model and charts", marks=pytest.mark.slow),
        pytest.param("model without weight", marks=pytest.mark.nightly),
    ],
)
def test_scores_and_events_are_those_of_complete_files(trained, kind):
    """The files have a gap, missing values, a fault, and a last patch that is not complete."""
    detector, more = KINDS[kind]
    scored = scored_by_files(trained, *more, detector=detector)
    for limit in ("1000", "7"):
        assert watch_once(trained, "--detector", detector, "--limit", limit, *more) == EXIT_OK
        assert_equal_to_files(trained, scored)
        shutil.rmtree(trained / "artifacts/watch")


# ------------------------------------------------------------------------------------------------------------- growing
class Logger:
    """Appends the rows of complete files to new ones, some bytes at a time, also in the middle of a row."""

    def __init__(self, root: Path):
        self.texts = {root / "data/live" / path.name: path.read_bytes() for path in sorted(_complete(root))}
        (root / "data/live").mkdir()
        self.written = dict.fromkeys(self.texts, 0)

    def write(self, num_bytes: int) -> bool:
        """Whether there was something to write."""
        for path, text in self.texts.items():
            start = self.written[path]
            with path.open("ab") as file:
                file.write(text[start : start + num_bytes])
            self.written[path] = min(start + num_bytes, len(text))
        return any(self.written[path] < len(text) for path, text in self.texts.items())


def _complete(root: Path) -> list[Path]:
    return [path for path in (root / "data/fdc").glob("test_*.csv") if ".labels." not in path.name]


def scored_live(root: Path) -> Any:
    """The scores of the complete files, under the names of the growing ones."""
    shutil.copytree(root / "data/fdc", root / "data/kept")
    (root / "data/live").rename(root / "data/grown")
    (root / "data/live").mkdir()
    for path in _complete(root):
        shutil.copy(path, root / "data/live")
    return scored_by_files(root, LIVE)


@pytest.mark.slow
def test_rows_of_a_growing_file_are_scored_as_soon_as_they_are_complete(trained):
    logger, monitor = Logger(trained), monitor_of(trained, LIVE)
    watch = Watch(monitor, root=trained, keeps_scores=True)
    chance = random.Random(3)
    while logger.write(chance.randint(1, 900)):
        while watch.round():
            pass
        for path, text in logger.texts.items():
            rows = max(0, text[: logger.written[path]].count(b"\n") - 1)
            mine = [line for line in lines_of(trained, "scores") if line["recording"].endswith(path.name)]
            assert len(mine) in (rows, 0), "the first row shows no columns until it is complete"
        watch._looked_at = 0.0
    while watch.round():
        pass
    watch.finish()
    assert_equal_to_files(trained, scored_live(trained))


@pytest.mark.nightly
def test_no_event_is_lost_or_repeated_when_the_process_is_killed(trained):
    logger, chance = Logger(trained), random.Random(5)
    more, kills = ["--detector", "charts", "--limit", "5", LIVE], 0
    while logger.write(7000):
        process, before = watch_process(trained, *more), num_lines_of(trained, "scores")
        try:
            until(lambda before=before: num_lines_of(trained, "scores") != before)
            time.sleep(chance.uniform(0.0, 0.3))
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL, (trained / "said.log").read_text()
        kills += 1
    assert kills >= 3
    assert watch_once(trained, *more) == EXIT_OK
    assert_equal_to_files(trained, scored_live(trained))


@pytest.mark.nightly
def test_no_event_is_lost_or_repeated_when_it_is_killed_at_any_line(trained):
    """Forty processes, each killed before some line of what reads, scores, appends or stores."""
    logger, chance, monitor = Logger(trained), random.Random(7), monitor_of(trained, LIVE)
    for _ in range(40):
        logger.write(chance.randint(100, 1500))
        child = os.fork()
        if child == 0:
            try:
                _live(monitor, trained, die_at=chance.randint(1, 6000))
            finally:
                os._exit(0)
        chance.random()
        os.waitpid(child, 0)
    while logger.write(10**6):
        pass
    assert watch_once(trained, "--detector", "charts", LIVE) == EXIT_OK
    assert_equal_to_files(trained, scored_live(trained))


def _live(monitor: Any, root: Path, *, die_at: int) -> None:
    left = iter(range(die_at))

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        ours = ("inference/watch/", "core/workspace.py")
        return on_line if any(part in frame.f_code.co_filename for part in ours) else None

    sys.settrace(on_call)
    watch = Watch(monitor, root=root, keeps_scores=True, limit=6)
    while watch.round():
        watch._stored_at = 0.0 if next(left, 0) % 2 else watch._stored_at  # some store after every round


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_that_wait(trained, monkeypatch):
    monkeypatch.setattr(watching, "STORE_EVERY_S", 3600.0)  # not in the rounds that are measured
    monitor, peaks, states = monitor_of(trained, LIVE), [], []
    (trained / "data/live").mkdir()
    for number, rows in enumerate((5000, 50_000)):
        times = pd.Timestamp("2026-02-01") + pd.to_timedelta(range(rows), "s")
        frame = pd.DataFrame({"timestamp": times, **dict.fromkeys("pqrs", 0.5)})
        frame.to_csv(trained / f"data/live/{number}.csv", index=False)
        watch = Watch(monitor, root=trained, keeps_scores=False, limit=200)
        tracemalloc.start()
        for _ in range(10):
            assert watch.round()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        watch.store()
        states.append(watch.paths.state.stat().st_size)
        watch.paths.state.unlink()
        (trained / f"data/live/{number}.csv").unlink()
    assert peaks[1] < 1.3 * peaks[0]
    assert states[1] < states[0] + 200


def test_a_slow_disk_does_not_delay_scores_and_a_full_one_is_an_error(trained, live, monkeypatch):
    """The state is stored by a thread. What it could not write is raised before the next state is stored."""
    released, answers = threading.Event(), []

    def write_slowly(path: Path, *state: Any) -> None:
        assert released.wait(60)
        if answers:
            raise answers.pop()
        write_state(path, *state)

    watch = Watch(monitor_of(trained, LIVE), root=trained, keeps_scores=True)
    monkeypatch.setattr(watching, "write_state", write_slowly)
    monkeypatch.setattr(watching, "STORE_EVERY_S", 0.0)
    for second in range(20, 23):
        with live.open("a") as file:
            file.write(rows(second, 1))
        assert watch.round()
    assert len(lines_of(trained, "scores")) == 23, "no state is on the disk yet"
    answers.append(WriteError(watch.paths.state, OSError(errno.ENOSPC, "No space left on device")))
    released.set()
    with live.open("a") as file:
        file.write(rows(23, 1))

    def go_on() -> None:
        watch._is_stored = False
        watch.round()

    with pytest.raises(WriteError):
        until(go_on)


# ------------------------------------------------------------------------------------------------------------ the rules
def rows(first: int, count: int, value: float = 0.5, start: str = "2026-02-01") -> str:
    """Lines of a logger, one per second."""
    lines = []
    for second in range(first, first + count):
        cells = ",".join(f"{value + 0.1 * (second * channel % 7):.1f}" for channel in range(1, 5))
        lines.append(f"{pd.Timestamp(start) + pd.Timedelta(second, 's')},{cells}\n")
    return "".join(lines)


@pytest.fixture
def live(trained) -> Path:
    (trained / "data/live").mkdir()
    path = trained / "data/live/day.csv"
    path.write_text("timestamp,p,q,r,s\n" + rows(0, 20), encoding="utf-8")
    return path


def test_late_repeated_and_bad_rows_are_left_out_and_named(trained, live, caplog):
    with live.open("a") as file:
        file.write(rows(19, 1, 9.0) + rows(5, 1, 9.0) + "2026-02-01 00:00:20,1,2,3,4,5\n" + "soon,1,2,3,4\n")
        file.write("2026-02-01 00:00:21,1,none,3,4\n" + "2026-02-01 00:00:22,1,2\n" + rows(23, 2))
        file.write(rows(30, 1, start="2026-01-31 23:00"))
    assert watch_once(trained, "--detector", "charts", LIVE) == EXIT_OK
    found = lines_of(trained, "scores")
    assert [line["row"] for line in found] == list(range(24))
    assert [line["time"][-6:-4] for line in found[-4:]] == ["21", "22", "23", "24"]
    for row, words in {
        22: "repeats the time stamp", 23: "older than", 24: "6 cells", 25: "'soon'", 26: "'none'", 27: "3 cells",
        30: "local time was set back",
    }.items():  # fmt: skip
        assert any(f"{live}, row {row}" in said and words in said for said in caplog.messages), words
    assert sum("local time" in said for said in caplog.messages) == 1


@pytest.mark.slow
def test_a_gap_begins_a_segment_and_a_missing_row_does_not(trained, live):
    with live.open("a") as file:
        file.write(rows(22, 20) + rows(100, 20))
    scored = scored_by_files(trained, LIVE)
    assert scored.scores["segment"].nunique() == 2
    assert watch_once(trained, "--detector", "charts", LIVE) == EXIT_OK
    assert_equal_to_files(trained, scored)


def test_a_file_that_is_silent_or_removed_has_ended(trained, live):
    """Its open event is closed, and a patch that is not complete is scored."""
    with live.open("a") as file:
        file.write(rows(20, 6, 90.0))
    monitor = monitor_of(trained, LIVE)
    watch = Watch(monitor, root=trained, keeps_scores=True, finished_after_s=100.0)
    while watch.round():
        pass
    assert [report["state"] for report in lines_of(trained, "events")] == ["open"]
    os.utime(live, (1e9, 1e9))
    assert watch.round()
    assert [report["state"] for report in lines_of(trained, "events")] == ["open", "closed"]
    with live.open("a") as file:
        file.write(rows(26, 6, 90.0))
    while watch.round():
        pass
    live.unlink()
    watch.round()
    assert [report["state"] for report in lines_of(trained, "events")] == ["open", "closed"] * 2


def test_a_file_that_became_shorter_is_not_followed(trained, live, caplog):
    watch = Watch(monitor_of(trained, LIVE), root=trained, keeps_scores=True)
    assert watch.round()
    live.write_text("timestamp,p,q,r,s\n", encoding="utf-8")
    assert not watch.round()
    assert any(str(live) in said and "shorter" in said for said in caplog.messages)


@pytest.mark.slow
def test_files_that_the_detector_was_fitted_to_are_not_followed(trained, caplog):
    """They have rows after the reference, so each has separate charts; the other files have those of all."""
    parts = ["data.splits.calibration.stop=0.85", "data.splits.test.start=0.9", "data.splits.test.files=[data/fdc/*]"]
    assert watch_once(trained, "--detector", "charts", *parts) == EXIT_OK
    assert {line["recording"] for line in lines_of(trained, "scores")} == {
        "data/fdc/test_1.csv", "data/fdc/test_2.csv"
    }  # fmt: skip
    assert any("train_1.csv is not followed" in said for said in caplog.messages)
    assert any("for 2 recordings" in said for said in caplog.messages)


@pytest.mark.slow
def test_what_cannot_be_watched_is_refused(trained, live, capsys):
    from inference.watch.command import main

    def refused(*more: str) -> tuple[int, str]:
        code = main(arguments_of(trained, "--once", *more))
        return code, capsys.readouterr().err.splitlines()[-1]

    assert refused(LIVE)[0] == EXIT_OUTPUT  # no detector is stored before the first scoring
    assert refused(LIVE, "--detector", "charts", "scoring.look_ahead=true")[0] == EXIT_USAGE
    assert refused(LIVE, "--detector", "charts", "--checkpoint", "x.pt")[0] == EXIT_USAGE
    assert main(["swinmae", "--once", "--mqtt", "x.yaml", "--repo-root", str(trained)]) == EXIT_USAGE
    assert watch_once(trained, "--detector", "charts", LIVE) == EXIT_OK
    code, said = refused(LIVE, "--detector", "charts", "scoring.smoothing_span=4")
    assert (code, "another detector" in said) == (EXIT_USAGE, True)
    state = trained / "artifacts/watch/patchtst_state.bin"
    state.write_bytes(state.read_bytes()[:-1])
    code, said = refused(LIVE, "--detector", "charts")
    assert (code, str(state) in said) == (EXIT_OUTPUT, True)
