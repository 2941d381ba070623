import signal
import threading
import time

import pytest
import torch

from core.errors import UsageError
from trainers import signals
from trainers.distributed import World
from trainers.signals import Meeting, StopRequest


@pytest.mark.parametrize("number, interrupted", [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_the_first_signal_is_a_request(number, interrupted):
    with StopRequest() as stop:
        assert stop.reason is None
        signal.raise_signal(number)
        assert stop.reason == f"received {number.name}"
        assert stop.interrupted is interrupted


def test_the_second_interrupt_aborts():
    with StopRequest():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_are_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_outside_of_the_main_thread_nothing_is_watched():
    reasons = []

    def work() -> None:
        with StopRequest() as stop:
            reasons.append(stop.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reasons == [None]


@pytest.mark.parametrize(
    "running_s, next_s, due",
    [(0, 10, False), (3500, 20, False), (3500, 41, True), (3541, 0, True)],
    ids=["fresh", "fits", "next one would not fit", "within the reserve of 60 s"],
)
def test_the_wall_time_limit_is_met_before_it_is_reached(monkeypatch, running_s, next_s, due):
    monkeypatch.setattr(signals, "seconds_since_start", lambda: running_s)
    stop = StopRequest(timeout_hours=1.0)
    assert stop.is_due(next_s) is due
    assert (stop.reason == "the wall-time limit of 1 h is near") is due


def test_a_short_limit_keeps_a_small_reserve(monkeypatch):
    monkeypatch.setattr(signals, "seconds_since_start", lambda: 97.0)
    assert not StopRequest(timeout_hours=100 / 3600).is_due(0.5)
    assert StopRequest(timeout_hours=100 / 3600).is_due(1.5)


def test_without_a_limit_time_does_not_matter():
    assert not StopRequest().is_due(1e9)


def test_time_is_counted_from_the_start_of_the_process():
    assert 0 < signals.seconds_since_start() < 24 * 3600


def test_a_process_older_than_its_limit_is_refused_with_the_way_out(monkeypatch):
    """A notebook's kernel that is open since yesterday would stop before its first step, again and again."""
    monkeypatch.setattr(signals, "seconds_since_start", lambda: 10 * 3600.0)
    with pytest.raises(UsageError, match=r"has run for 10\.0 h, timeout_hours = 8\.5") as caught, StopRequest(8.5):
        pass
    assert "restart the kernel" in caught.value.hint


def test_a_process_that_a_command_started_counts_from_the_command(monkeypatch):
    monkeypatch.setenv("_LANDFALL_STARTED_AT", str(time.time() - 5000))
    assert signals.seconds_since_start() == pytest.approx(5000, abs=5)


class Others(World):
    """A world of two, where the other process votes as it is told."""

    def vote(self, *votes: bool) -> "Others":
        object.__setattr__(self, "votes", list(votes))
        return self

    def add(self, values):
        return values + torch.tensor([float(self.votes.pop(0)), values[1].item()])


def test_all_processes_stop_where_one_must():
    meeting = Meeting(StopRequest(), Others(size=2).vote(False, True), torch.device("cpu"))
    expected = {"step_seconds": 4.0, "validation_seconds": 0.0}
    assert not meeting.must_stop(**expected, steps_left=9)
    assert meeting.must_stop(**expected, steps_left=8)
    assert meeting.stop.reason == "another process was asked to stop"


def test_fast_steps_meet_every_few_seconds_only():
    world = Others(size=2).vote(*[False] * 4)
    meeting = Meeting(StopRequest(), world, torch.device("cpu"))
    for left in range(100, 0, -1):
        assert not meeting.must_stop(step_seconds=0.125, validation_seconds=0.0, steps_left=left)
    assert world.votes == [False], "steps 1, 41 and 81 met"


@pytest.mark.parametrize("steps_left, due", [(60, False), (40, True)])
def test_a_validation_before_the_next_meeting_counts(monkeypatch, steps_left, due):
    monkeypatch.setattr(signals, "seconds_since_start", lambda: 3600 - 60 - 100.0)
    stop = StopRequest(timeout_hours=1.0)
    meeting = Meeting(stop, Others(size=2).vote(False, False), torch.device("cpu"))
    meeting._interval = 50
    assert meeting.must_stop(step_seconds=0.1, validation_seconds=300.0, steps_left=steps_left) is due
