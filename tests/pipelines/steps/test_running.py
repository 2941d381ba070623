"""Steps run as processes: in their order, at the same time, after failures, and when they are stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.config.compose import load_config, local_config_file
from core.config.schema import STREAMS
from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_RESUMABLE
from core.page import LIVE, PAGE
from core.workspace import write_text
from pipelines.steps import records, running
from pipelines.steps.records import read_step, unfinished_run
from pipelines.steps.running import How, Run
from pipelines.steps.stages import StageId, live_of
from pipelines.steps.table import Inputs, Order, Step, pipeline_steps
from tests.support.waiting import is_gone, until, when

ACTOR = "tests.pipelines.steps.actor"
# Says when it would heed a signal.
LONG = ("--touch", "here", "--sleep", "120")


def step(name: str, *words: str, stage: StageId = "train", **facts) -> Step:
    return Step(name, f"the step {name}", stage, command=(ACTOR, *words), **facts)


@pytest.fixture
def order(workspace: Path) -> Order:
    configs = {stream: load_config(local_config_file(stream), root=workspace) for stream in STREAMS}
    return Order(configs, "run-1")


@pytest.fixture
def do(order, workspace):
    """Runs steps; returns the run and the result of each."""

    def run(*steps: Step, **how) -> tuple[Run, dict[str, str]]:
        runner = Run(order, workspace, How(**how))
        return runner, {outcome.step.name: outcome.ending for outcome in runner.run(steps)}

    return run


def written(root: Path, name: str) -> dict:
    return json.loads((root / name).read_text(encoding="utf-8"))


# --------------------------------------------------------------------------------------------------------------- order
def test_a_step_runs_after_its_dependencies(do, workspace):
    run, endings = do(
        step("first", "--say", "one", "--sleep", "0.2", "--write", "a"),
        step("second", "--write", "b", needs=("first",)),
        jobs=2,
    )
    assert endings == {"first": "completed", "second": "completed"}
    assert run.exit_code == EXIT_OK
    assert written(workspace, "a")["ended"] <= written(workspace, "b")["began"]
    assert (workspace / "artifacts/pipeline/run-1/first.log").read_text() == "actor: one\n"


@pytest.mark.parametrize("verbose", [False, True])
def test_problems_of_a_step_are_logged_once(do, workspace, caplog, verbose):
    caplog.set_level("INFO")
    lines = ("12:00:00 reading", "12:00:01 WARNING: a gap", "12:00:02 WARNING: a gap")
    do(*(step(name, *(word for line in lines for word in ("--log", line))) for name in "ab"), verbose=verbose)
    shown = [message for message in caplog.messages if "│" in message]
    quiet = [f"a │ {line[9:]}" for line in lines]
    assert shown == ([*quiet, *(line.replace("a │", "b │") for line in quiet)] if verbose else quiet[1:2])
    assert (workspace / "artifacts/pipeline/run-1/b.log").read_text().splitlines() == list(lines)


@pytest.mark.parametrize("jobs", [1, 2])
def test_at_most_the_number_of_jobs_runs_in_parallel(do, workspace, jobs):
    # In parallel, each waits for the other one.
    both = [("--touch", f"{name} is here", "--until", f"{other} is here") for name, other in ("ab", "ba")]
    words = both if jobs == 2 else [("--sleep", "0.5")] * 2
    do(*(step(name, *more, "--write", name) for name, more in zip("ab", words, strict=True)), jobs=jobs)
    first, second = sorted((written(workspace, name) for name in "ab"), key=lambda output: output["began"])
    assert (second["began"] < first["ended"]) == (jobs == 2)


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processor cores"
)
def test_parallel_streams_have_separate_cores(do, workspace):
    do(
        *(step(name, "--sleep", "0.3", "--write", name, stream=name) for name in STREAMS),
        step("z", "--write", "z"),
        jobs=2,
    )
    one, other = (set(written(workspace, name)["cores"]) for name in STREAMS)
    assert one
    assert other
    assert not one & other
    assert one | other == os.sched_getaffinity(0)
    do(step("patchtst", "--write", "alone", stream="patchtst"), jobs=2)
    assert set(written(workspace, "alone")["cores"]) == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("cores", "parts", "sizes"), [(6, 2, [3, 3]), (5, 2, [3, 2]), (2, 2, [1, 1]), (1, 2, []), (8, 1, [])]
)
def test_cores_are_divided_without_rest_or_overlap(monkeypatch, cores, parts, sizes):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    divided = running._divided_cores(parts)
    assert [len(part) for part in divided] == sizes
    assert not divided or set.union(*divided) == set(range(cores))


# ------------------------------------------------------------------------------------------------------------- failures
def test_only_final_steps_run_after_a_failure(do, workspace, caplog):
    run, endings = do(
        step("bad", "--say", "no such luck", "--exit", "3"),
        step("other", "--write", "other"),
        step("last", "--write", "last", needs=("bad", "other"), always=True),
    )
    assert endings == {"bad": "failed", "other": "not run", "last": "completed"}
    assert run.exit_code == 3
    assert not (workspace / "other").exists()
    history = written(workspace, "artifacts/pipeline/run-1/pipeline.json")
    assert history["state"] == "failed"
    assert history["steps"]["bad"] | {"seconds": 0, "at": ""} == {
        "state": "failed", "reason": "no such luck", "log": "bad.log", "exit_code": 3, "seconds": 0, "at": "",
        "stage": "train", "stream": None, "note": "",
    }  # fmt: skip
    assert history["steps"]["other"]["reason"] == "bad did not complete"


def test_the_live_document_follows_every_step(do, workspace, monkeypatch):
    monkeypatch.setattr(records, "_SECONDS_BETWEEN_NOTES", 0.1)
    write_text(workspace / PAGE / "index.html", "the page")
    stages = []
    during = {"train": ("running", "cell 2 of 0 (Training)"), "score": ("waiting", "")}

    def shown(run):
        live = live_of(run)
        stages.append({stage.id: (stage.state, stage.detail) for stage in live.stages})
        if stages[-1] == during:
            (workspace / "shown").touch()
        return live

    monkeypatch.setattr(records, "live_of", shown)
    cell = '{"event": "start", "cell": 2, "title": "Training"}'
    do(step("one", "--event", cell, "--until", "shown"), step("two", stage="score", needs=("one",)))
    assert stages[0] == {"train": ("waiting", ""), "score": ("waiting", "")}
    assert during in stages
    assert [state for state, _ in stages[-1].values()] == ["done", "done"]
    assert written(workspace, f"{LIVE}/pipeline.json")["state"] == "completed"


def test_an_unwritable_dashboard_folder_causes_a_warning(do, workspace, caplog):
    write_text(workspace / PAGE / "index.html", "the page")
    write_text(workspace / LIVE, "a file in its place")
    assert do(step("one"), step("two"))[1] == {"one": "completed", "two": "completed"}
    assert caplog.text.count("the dashboard does not show") == 1


def test_keep_going_runs_independent_steps(do):
    run, endings = do(
        step("bad", "--exit", "4"), step("after", needs=("bad",)), step("other"), step("third", needs=("after",)),
        keep_going=True,
    )  # fmt: skip
    assert endings == {"bad": "failed", "after": "not run", "other": "completed", "third": "not run"}
    assert run.exit_code == 4


def test_a_killed_process_is_a_reported_failure(order, workspace):
    run = Run(order, workspace, How())
    when(lambda: run._jobs, lambda: next(iter(run._jobs.values())).kill())
    (outcome,) = run.run([step("killed", "--sleep", "120")])
    assert (outcome.ending, outcome.exit_code, run.exit_code) == ("failed", EXIT_FAILURE, EXIT_FAILURE)
    assert outcome.reason.endswith("killed by SIGKILL")


# ------------------------------------------------------------------------------------------------------------ stopping
@pytest.mark.parametrize("number, code", [(signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, EXIT_RESUMABLE)])
def test_a_signal_lets_the_step_save_and_starts_nothing_more(do, workspace, number, code):
    when((workspace / "here").exists, lambda: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    run, endings = do(step("long", *LONG, "--saves"), step("next"), step("last", always=True))
    assert endings == {"long": "stopped", "next": "not run", "last": "completed"}
    assert run.exit_code == code
    assert signal.getsignal(number) is before


def test_a_step_without_checkpoint_stops_on_a_signal(do, workspace):
    when((workspace / "here").exists, lambda: os.kill(os.getpid(), signal.SIGTERM))
    run, endings = do(step("long", *LONG), step("next"))
    assert endings == {"long": "stopped", "next": "not run"}
    assert run.exit_code == EXIT_RESUMABLE


def test_a_signal_while_a_step_is_started_stops_this_step(do, monkeypatch):
    class Interrupted(running.Job):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(running, "Job", Interrupted)
    run, endings = do(step("long", *LONG), step("next"))
    assert endings == {"long": "stopped", "next": "not run"}
    assert run.exit_code == EXIT_RESUMABLE


def test_the_second_ctrl_c_ends_the_step_immediately(order, workspace):
    run, ctrl_c = Run(order, workspace, How()), lambda: os.kill(os.getpid(), signal.SIGINT)
    when((workspace / "deaf").exists, ctrl_c)
    when(lambda: run._stopped_for, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        run.run([Step("deaf", "", "train", command=("tests.pipelines.steps.deaf",))])
    pid = int((workspace / "deaf").read_text())
    until(lambda: is_gone(pid))  # by itself, it would be there for five minutes


@pytest.mark.parametrize("words, code", [(("--saves",), EXIT_RESUMABLE), ((), EXIT_FAILURE)])
def test_the_time_limit_of_the_pipeline_stops_running_steps(do, workspace, monkeypatch, words, code):
    """An hour passes as soon as the step runs."""
    passed_s = lambda: 3600.0 if (workspace / "here").exists() else 0.0  # noqa: E731
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s()))
    run, endings = do(step("long", *LONG, *words), step("next"), timeout_s=1800.0)
    assert run.exit_code == code
    assert endings == {"long": "stopped" if words else "failed", "next": "not run"}


# ------------------------------------------------------------------------------------------------------------ resuming
def test_resume_skips_a_step_until_its_inputs_change(do, workspace):
    (workspace / "in").write_text("1")
    made = step("made", "--write", "out", inputs=Inputs(files=("in",)), outputs=("out",))
    assert do(made)[1] == {"made": "completed"}
    assert read_step(workspace, "made").run_id == "run-1"
    assert do(made, resume=True)[1] == {"made": "skipped"}
    (workspace / "in").write_text("2")
    assert do(made, resume=True)[1] == {"made": "completed"}
    (workspace / "out").unlink()
    assert do(made, resume=True)[1] == {"made": "completed"}
    (workspace / "out").write_text("somebody else's")
    assert do(made, resume=True)[1] == {"made": "completed"}
    assert do(made, resume=True)[1] == {"made": "skipped"}
    assert do(made)[1] == {"made": "completed"}


def test_a_failed_step_is_not_complete(do, workspace):
    (workspace / "out").write_text("as before")
    bad = step("bad", "--exit", "1", outputs=("out",))
    assert do(bad)[1] == {"bad": "failed"}
    assert do(bad, resume=True)[1] == {"bad": "failed"}
    assert unfinished_run(workspace) == "run-1"
    do(step("good"))
    assert unfinished_run(workspace) is None


# --------------------------------------------------------------------------------------------- what a notebook is given
def test_parallel_trainings_share_the_memory(order, workspace):
    notebook = next(step for step in pipeline_steps(order, workspace) if step.name == "notebook-swinmae")
    alone, shared = Run(order, workspace, How()), Run(order, workspace, How(jobs=2, resume=True))
    shared._at_once = 2
    assert alone._overrides(notebook) == ["training.resume=never", "logging.progress=lines"]
    assert shared._overrides(notebook) == [
        "training.resume=unfinished", "logging.progress=lines",
        "device.memory.strategy=custom", "device.memory.fraction=0.375",
    ]  # fmt: skip
    load_config("configs/swinmae_ssl_local.yaml", shared._overrides(notebook), root=workspace)
