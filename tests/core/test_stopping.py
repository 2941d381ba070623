import signal
import threading
import time
from contextlib import suppress

import pytest

from core import stopping
from core.errors import LandfallError, StoppedError, UsageError
from core.signals import stop_signals
from core.stopping import StopRequest


@pytest.mark.parametrize(
    "number, interrupted", [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGUSR1, False)]
)
def test_the_first_signal_requests_a_stop_if_work_can_be_saved(number, interrupted):
    with StopRequest() as stop, stop.deferred():
        assert stop.reason is None
        signal.raise_signal(number)
        assert stop.reason == f"received {number.name}"
        assert stop.interrupted is interrupted


def test_the_second_interrupt_aborts():
    with StopRequest() as stop, stop.deferred():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def after_saving(stop, number):
    with stop.deferred():
        pass
    signal.raise_signal(number)


def credulous(number):
    with suppress(Exception):
        signal.raise_signal(number)
    pytest.fail("the work continued")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_work_immediately_if_nothing_can_be_saved(number):
    with pytest.raises(StoppedError) as caught, StopRequest():
        signal.raise_signal(number)
    assert f"received {number.name}; " in str(caught.value)
    assert (caught.value.exit_code, caught.value.checkpoint) == (75, None)
    stop = StopRequest()
    with pytest.raises(StoppedError), stop:
        after_saving(stop, number)


def test_an_interrupt_is_raised_if_nothing_can_be_saved():
    with StopRequest(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_stop_is_not_caught_by_except_exception(number):
    """Code that catches every exception, such as driver checks and `logging`, must not catch a stop."""
    with pytest.raises(StoppedError, match=number.name) as caught, StopRequest():
        credulous(number)
    assert any("raise_signal" in str(entry.statement) for entry in caught.traceback), "the traceback is kept"


def test_handlers_are_restored_after_an_early_signal(monkeypatch):
    before = [signal.getsignal(number) for number in stop_signals()]
    monkeypatch.setattr(StopRequest, "_set_alarm", lambda stop: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(StoppedError, match="SIGTERM"), StopRequest():
        pytest.fail("the work began")
    assert [signal.getsignal(number) for number in stop_signals()] == before


def test_handlers_are_restored_after_a_late_signal(monkeypatch):
    before = [signal.getsignal(number) for number in stop_signals()]
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: 0.0)
    with StopRequest(1.0) as stop:
        monkeypatch.setattr(stop._alarm, "join", lambda: signal.raise_signal(signal.SIGTERM))
    assert [signal.getsignal(number) for number in stop_signals()] == before


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in stop_signals()]
    with StopRequest():
        assert all(
            signal.getsignal(number) is not handler for number, handler in zip(stop_signals(), before, strict=True)
        )
    assert [signal.getsignal(number) for number in stop_signals()] == before


def test_signals_are_not_handled_outside_the_main_thread():
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
def test_work_stops_before_the_wall_time_limit(monkeypatch, running_s, next_s, due):
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: running_s)
    stop = StopRequest(timeout_hours=1.0)
    assert stop.is_due(next_s) is due
    assert (" 1 h " in (stop.reason or "")) is due


def test_a_short_limit_keeps_a_small_reserve(monkeypatch):
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: 97.0)
    assert not StopRequest(timeout_hours=100 / 3600).is_due(0.5)
    assert StopRequest(timeout_hours=100 / 3600).is_due(1.5)


def test_time_is_ignored_without_a_limit():
    assert not StopRequest().is_due(1e9)


def test_time_is_counted_from_the_start_of_the_process():
    assert 0 < stopping.seconds_since_start() < 24 * 3600


def test_a_process_older_than_its_limit_is_rejected_with_a_hint(monkeypatch):
    """A kernel that has been open since yesterday would stop before its first step every time."""
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: 10 * 3600.0)
    with pytest.raises(UsageError, match=r"\b10\.0 h\b.*timeout_hours = 8\.5") as caught, StopRequest(8.5):
        pass
    assert "restart the kernel" in caught.value.hint


def test_a_process_near_its_limit_is_resumable(monkeypatch):
    """Training used the complete limit; a restart has the complete limit for the remaining work."""
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: 3600 - 30.0)
    with pytest.raises(StoppedError, match=r"\b1 h\b") as caught, StopRequest(1.0):
        pass
    assert caught.value.exit_code == 75


def test_a_process_that_a_command_started_counts_from_the_command(monkeypatch):
    monkeypatch.setenv("_LANDFALL_STARTED_AT", str(time.monotonic() - 5000))
    assert stopping.seconds_since_start() == pytest.approx(5000, abs=300)


def test_setting_the_clock_does_not_change_the_limit(monkeypatch):
    before = stopping.seconds_since_start()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert stopping.seconds_since_start() == pytest.approx(before, abs=300)


# --------------------------------------------------------------------------------------- the limit, for who never asks
def wait() -> None:
    """Work that never checks for a stop request."""
    time.sleep(60)


@pytest.fixture
def age(monkeypatch) -> list[float]:
    """The running time of this process in seconds, which changes only with this list. An alarm waits in real time."""
    seconds = [0.0]
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: seconds[0])
    return seconds


@pytest.mark.parametrize("keeps_nothing", [False, True])
def test_work_that_never_checks_is_ended_before_the_limit(age, keeps_nothing):
    """Most of the limit had passed when it started: a restart gives it more time."""
    age[0] = 9.5
    with pytest.raises(StoppedError) as caught, StopRequest(10 / 3600, keeps_nothing=keeps_nothing) as stop:
        wait()
    assert caught.value.exit_code == 75
    assert " 0.00277778 h " in caught.value.reason
    assert stop._alarm.interval == pytest.approx(0.3), "with a reserve of 2 %"


def test_work_longer_than_the_complete_limit_has_failed(age):
    def work() -> None:
        age[0] = 0.49
        wait()

    with (
        pytest.raises(LandfallError, match="raise timeout_hours") as caught,
        StopRequest(0.5 / 3600, keeps_nothing=True),
    ):
        work()
    assert caught.value.exit_code == 1


def test_the_alarm_waits_for_work_that_checks(age):
    age[0] = 9.5
    with StopRequest(10 / 3600) as stop, stop.deferred():
        stop._alarm.join()
        assert not stop.is_due(0.0)
        age[0] = 9.9
        assert stop.is_due(0.0)


def test_the_alarm_ends_with_its_work(age):
    with StopRequest(10.0) as stop:
        assert stop._alarm.is_alive()
    assert not stop._alarm.is_alive()
