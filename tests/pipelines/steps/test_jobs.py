"""Progress of a step, from its notebook and its run log."""

from __future__ import annotations

import queue
import re
from pathlib import Path

import pytest

from core.workspace import write_json
from pipelines.steps.jobs import Job
from pipelines.steps.table import Step
from tests.support.waiting import PATIENCE_S, until

ACTOR = "tests.pipelines.steps.actor"
EVENTS = ('{"event": "notebook", "cells": 3}', '{"event": "end", "cell": 1, "seconds": 4.5}')
TRAINING = '{"event": "start", "cell": 2, "title": "Training"}'


@pytest.fixture
def begin(tmp_path: Path):
    """Starts a process that reports events and keeps running; returns its job after the last event."""
    jobs = []

    def start(*events: str, **facts) -> Job:
        words = [word for event in events for word in ("--event", event)]
        said: queue.Queue = queue.Queue()
        job = Job(
            Step("x", "the step x", "train"), [ACTOR, *words, "--sleep", "120", "--say-last", "there"],
            log_file=tmp_path / "x.log", report=lambda job, expected: said.put(expected), **facts,
        )  # fmt: skip
        jobs.append(job)
        assert said.get(timeout=PATIENCE_S) == "actor: there"
        until(lambda: not events or job.cells.started)  # another thread reads the events
        return job

    yield start
    for job in jobs:
        job.kill()


def test_progress_of_a_silent_step_is_its_elapsed_time(begin):
    assert re.fullmatch(r"\d+ s so far", begin().progress())


def test_progress_of_a_notebook_is_estimated_from_cells_and_earlier_times(begin):
    job = begin(*EVENTS, TRAINING, earlier={"1": 5.0, "2": 60.0, "3": 3595.0})
    assert re.fullmatch(r"cell 2 of 3 \(Training\), \d+ s so far, about 1 h 0 min left", job.progress())
    assert 3600 < job.seconds_left() <= 3655
    assert job.cells.seconds == {"1": 4.5}


@pytest.fixture
def ended(tmp_path: Path):
    """Runs a process that writes lines to stderr and ends with exit code 4; gives its job."""

    def run(*lines: str) -> Job:
        said: queue.Queue = queue.Queue()
        words = [word for line in lines for word in ("--log", line)]
        job = Job(
            Step("x", "the step x", "train"), [ACTOR, *words, "--exit", "4"],
            log_file=tmp_path / "x.log", report=lambda job, expected: said.put(expected),
        )  # fmt: skip
        while isinstance(said.get(timeout=PATIENCE_S), str):
            pass
        return job

    return run


@pytest.mark.parametrize("name", ["landfall score", "landfall train patchtst", "execute_notebook"])
def test_the_cause_of_a_failure_omits_the_command(ended, name):
    assert ended(f"{name}: local.ipynb, In [2]: DataError: no rows").cause == "local.ipynb, In [2]: DataError: no rows"


def test_the_cause_of_a_failure_is_its_error_not_later_logs(ended):
    """What is logged begins with the time of day."""
    assert ended("landfall validate: Lint fails", "12:00:00 48 windows of 7 recordings").cause == "Lint fails"
    assert ended("12:00:00 48 windows of 7 recordings").cause == "exit code 4; see x.log"


def test_quarters_of_a_training_are_counted_in_epochs(begin, tmp_path):
    job = begin(training=tmp_path / "run")
    assert job.quarters() == 0
    for epoch, quarters in ((0, 0), (4, 0), (5, 1), (14, 2), (20, 3)):
        write_json(tmp_path / "run/status.json", {"state": "running", "epoch": epoch, "epochs": 20})
        assert job.quarters() == quarters


def test_progress_of_a_training_is_read_from_its_run_log(begin, tmp_path):
    job = begin(*EVENTS, TRAINING, earlier={"2": 40.0, "3": 20.0}, training=tmp_path / "run")
    status = {"state": "running", "epoch": 2, "epochs": 10, "step": 210, "steps": 1000, "eta_seconds": 79.0}
    write_json(tmp_path / "run/status.json", status)
    expected = r"cell 2 of 3 \(Training\), epoch 3 of 10, step 210 of 1000, \d+ s so far, about 1 min 39 s left"
    assert re.fullmatch(expected, job.progress())
    assert job.note() == "cell 2 of 3 (Training), about 1 min 39 s left"
    write_json(tmp_path / "run/status.json", {**status, "state": "completed"})
    assert "epoch" not in job.progress()
