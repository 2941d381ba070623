import signal
import threading

import pytest

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
