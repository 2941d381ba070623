"""New recordings of vibration get the scores and events of `landfall score`, each file once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from core.errors import EXIT_OK
from inference.watch.watching import Watch
from tests.inference.watch.following import assert_equal_to_files, lines_of, monitor_of, scored_by_files, watch_once

STREAM = "swinmae"
LIVE = "data.splits.test.files=[data/live/*]"
KINDS = {
    "charts": ("charts", []),
    "model and charts": ("model", ["scoring.model_weight=0.3", "scoring.event_gap=1"]),
    "model": ("model", ["scoring.model_weight=1.0"]),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("charts", marks=pytest.mark.nightly),
        "model and charts",
        pytest.param("model", marks=pytest.mark.nightly),
    ],
)
def test_scores_and_events_are_those_of_complete_files(trained, kind):
    detector, more = KINDS[kind]
    scored = scored_by_files(trained, *more, detector=detector, stream=STREAM)
    assert len(scored.events)
    for _ in range(2):  # the second one has nothing new
        assert watch_once(trained, "--detector", detector, *more, stream=STREAM) == EXIT_OK
        assert_equal_to_files(trained, scored)


@pytest.fixture
def live(trained) -> Path:
    (trained / "data/live").mkdir()
    return trained / "data/live"


def rounds(watch: Watch) -> None:
    watch._looked_at = -np.inf
    while watch.round():
        pass


def test_a_recording_is_scored_when_it_is_complete_and_never_again(trained, live, caplog):
    source = (trained / "data/vib/test_loud.npy").read_bytes()
    monitor = monitor_of(trained, LIVE, stream=STREAM)
    watch = Watch(monitor, root=trained, keeps_scores=True, complete_after_s=100.0)
    growing, damaged = live / "a.npy", live / "b.npy"
    growing.write_bytes(source[:5000])
    damaged.write_bytes(source[:5000])
    rounds(watch)
    assert lines_of(trained, "scores", STREAM) == []
    growing.write_bytes(source)
    for path in (growing, damaged):
        os.utime(path, (1e9, 1e9))
    rounds(watch)
    found = lines_of(trained, "scores", STREAM)
    assert {line["recording"] for line in found} == {"data/live/a.npy"}
    assert any(str(damaged) in said and "not followed any more" in said for said in caplog.messages)
    again = Watch(monitor, root=trained, keeps_scores=True, complete_after_s=100.0)
    shutil.copy2(growing, live / "c.npy")
    rounds(again)
    more = lines_of(trained, "scores", STREAM)[len(found) :]
    assert [line | {"recording": "data/live/a.npy"} for line in more] == found
    again.store()
    size = again.paths.state.stat().st_size
    growing.unlink()
    rounds(again)
    again.store()
    assert again.paths.state.stat().st_size < size


def test_a_recording_of_another_rate_is_refused(trained, live, caplog):
    wave_ta = np.random.default_rng(1).normal(size=(3000, 3)).astype(np.float32)
    np.save(live / "fast.npy", wave_ta)
    (live / "fast.json").write_text('{"sampling_rate_hz": 2000}')
    monitor = monitor_of(trained, LIVE, stream=STREAM)
    watch = Watch(monitor, root=trained, keeps_scores=True, complete_after_s=0.0)
    rounds(watch)
    assert lines_of(trained, "scores", STREAM) == []
    assert any("2000 Hz" in said for said in caplog.messages)
