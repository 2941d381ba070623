"""Scoring stops on a signal, or near the wall-time limit."""

import signal
import threading

import pytest

from core import stopping
from inference import model_errors
from inference.run_scoring_example import main, read_summary
from tests.inference.trained_workspace import OVERRIDES, SHARED, configuration
from tests.support import most_nightly

pytestmark = pytest.mark.slow


def score(root, *overrides: str) -> int:
    """With a weight of the model, so that it is run."""
    settings = (*OVERRIDES["patchtst"], *SHARED, "scoring.model_weight=0.5", *overrides)
    return main(["--stream", "patchtst", "--repo-root", str(root), *settings])


@pytest.fixture
def during(monkeypatch):
    """Something else happens before the model scores the test split."""

    def happens(event) -> None:
        errors_of = model_errors.model_errors

        def late(*arguments, **options):
            if arguments[-1] == "test":
                event()
            return errors_of(*arguments, **options)

        monkeypatch.setattr(model_errors, "model_errors", late)

    return happens


@pytest.mark.parametrize(
    "number, code", most_nightly([(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)], but=1)
)
def test_a_signal_ends_scoring_and_a_new_start_succeeds(trained, during, monkeypatch, capsys, number, code):
    during(lambda: signal.raise_signal(number))
    assert score(trained) == code
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("landfall score: ")
    assert ("interrupted" if code == 130 else f"received {number.name}") in line
    assert read_summary(configuration("patchtst", trained).config, root=trained) is None
    monkeypatch.undo()
    assert score(trained) == 0


@pytest.mark.parametrize("age_s, code, expected", [(18.0, 75, "run it again"), (0.0, 1, "raise timeout_hours")])
def test_scoring_ends_with_75_only_if_a_restart_has_more_time(
    trained, during, monkeypatch, capsys, age_s, code, expected
):
    """Six seconds are left, after training took three times as many, or for a start; all pass while it scores."""
    now, alarms = [age_s], []

    class HeldTimer(threading.Timer):
        """Does not run by itself."""

        def start(self) -> None:
            alarms.append(self)

        def join(self, timeout: float | None = None) -> None:
            """It was never started."""

    def reach_limit() -> None:
        now[0] += 5.9
        (alarm,) = alarms
        alarm.function()

    monkeypatch.setattr(stopping.threading, "Timer", HeldTimer)
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: now[0])
    during(reach_limit)
    limit_h = (age_s + 6) / 3600
    assert score(trained, f"timeout_hours={limit_h}") == code
    line = capsys.readouterr().err.splitlines()[-1]
    assert f" {limit_h:g} h " in line
    assert expected in line
