import signal
import threading

import pytest

from trainers import signals
from trainers.signals import StopRequest


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
