"""Runs one command for one machine of a fleet, in this process: `landfall quality|train|score|calibrate` in the
workspace of the machine, then the export of its dashboard.

Inputs and outputs of a job are compared with those of the last completion by the records of the pipeline, so a job
whose inputs have not changed is skipped.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Literal

from core.checkpoint import detector_path
from core.config.compose import LoadedConfig, load_config, local_config_file
from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_RESUMABLE, LandfallError
from core.fingerprints import file_digests
from core.reading import read_json_object
from core.secrets.redaction import redacted_text
from core.workspace import utc_now, write_json
from pipelines.fleet.isolation import isolated
from pipelines.fleet.machines import Machine, prepare, workspace_of
from pipelines.steps.fingerprints import fingerprint
from pipelines.steps.jobs import PROGRAM, TIME_OF_DAY
from pipelines.steps.planning import reason_to_run
from pipelines.steps.records import StepRecord
from pipelines.steps.table import Inputs, Order, Step, quality_step, scores_step, trained

log = logging.getLogger(__name__)

CommandName = Literal["quality", "train", "score", "calibrate"]
COMMANDS: tuple[CommandName, ...] = ("quality", "train", "score", "calibrate")
Ending = Literal["completed", "skipped", "failed", "stopped"]
# Outcomes and logs of a machine's jobs, in its workspace.
FOLDER = "artifacts/fleet"
_EXPORT = "pipelines.export_training_dashboard_state"
_NEWER = "data.splits.calibration."
# Logging, standard output and the settings of torch belong to the process.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Job:
    """root: workspace of the fleet, on a disk that every worker sees. resume: skip what has not changed, and resume
    training. gpus: the GPUs of this machine, one for each worker; empty if workers choose."""

    machine: Machine
    command: CommandName
    root: Path
    run_id: str
    overrides: tuple[str, ...] = ()
    resume: bool = True
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job. peak_mb: peak memory of the worker so far. reason: why the job failed or was skipped.
    test_files: globs of the test split, relative to the machine's workspace."""

    machine: str
    command: CommandName
    ending: Ending
    reason: str = ""
    exit_code: int = EXIT_OK
    seconds: float = 0.0
    peak_mb: float = 0.0
    test_files: tuple[str, ...] = ()
    at: str = field(default_factory=utc_now)

    def write(self, workspace: Path) -> None:
        write_json(workspace / FOLDER / f"{self.command}.json", asdict(self))


def read_outcome(workspace: Path, command: CommandName) -> Outcome | None:
    """The outcome of the last job; None if there is none that can be read."""
    try:
        return Outcome(**read_json_object(workspace / FOLDER / f"{command}.json"))
    except (OSError, ValueError, TypeError):
        return None


def run_job(job: Job) -> Outcome:
    """Runs a job and stores its outcome. A command that fails is an outcome, not an error."""
    from core.process_memory import peak_meter

    started, workspace = time.monotonic(), workspace_of(job.machine, job.root)
    with _ONE_AT_A_TIME:
        _choose_gpu(job.gpus)
        log_file = workspace / FOLDER / f"{job.command}.log"
        try:
            with isolated(log_file):
                outcome = _run(job)
        except LandfallError as error:  # the machine's configuration or data
            outcome = _outcome(job, "failed", str(error), error.exit_code)
        except Exception as error:
            logging.getLogger(__name__).exception("%s: %s", job.machine.id, job.command)
            outcome = _outcome(job, "failed", f"unexpected {type(error).__name__}: {error}", EXIT_FAILURE)
    if outcome.ending in ("failed", "stopped") and not outcome.reason:
        outcome = replace(outcome, reason=_cause(log_file) or f"exit code {outcome.exit_code}")
    outcome = replace(
        outcome,
        reason=redacted_text(outcome.reason),
        seconds=round(time.monotonic() - started, 3),
        peak_mb=round(peak_meter().peak_mb(), 1),
    )
    earlier = read_outcome(workspace, job.command)
    if outcome.ending != "skipped" or earlier is None or earlier.ending != "completed":
        outcome.write(workspace)
    return outcome


def _run(job: Job) -> Outcome:
    machine, workspace = job.machine, prepare(job.machine, job.root)
    if machine.detector == "charts" and job.command in ("train", "calibrate"):
        return _outcome(job, "skipped", "control charts are fitted at each scoring")
    loaded = load_config(local_config_file(machine.stream), job.overrides, root=workspace)
    order = Order({machine.stream: loaded}, job.run_id, job.overrides)
    step = step_of(job, order, loaded, workspace)
    reason = reason_to_run(step, order, workspace) if job.resume else "requested"
    if reason is None:
        return _outcome(job, "skipped", "its inputs have not changed")
    inputs, began = fingerprint(step, order, workspace), time.monotonic()
    code = _call(step.command, workspace)
    if code == EXIT_OK:
        outputs, seconds = file_digests(step.outputs, workspace), round(time.monotonic() - began, 1)
        StepRecord(step.name, job.run_id, inputs, outputs, seconds).write(workspace)
        code = _call((_EXPORT,), workspace)
    ending: Ending = "completed" if code == EXIT_OK else "failed"
    if code in (EXIT_RESUMABLE, EXIT_INTERRUPTED):
        ending = "stopped"
    data = loaded.config.data
    test_files = tuple((Path(data.root) / pattern).as_posix() for pattern in data.splits.test.files)
    return replace(_outcome(job, ending, code=code), test_files=test_files)


def _outcome(job: Job, ending: Ending, reason: str = "", code: int = EXIT_OK) -> Outcome:
    return Outcome(job.machine.id, job.command, ending, reason, code)


def _call(command: Sequence[str], workspace: Path) -> int:
    """The exit code of a command: a module and its arguments."""
    module, *words = command
    try:
        return import_module(module).main([*words, "--repo-root", str(workspace)])
    except SystemExit as ended:  # of argparse
        return ended.code if isinstance(ended.code, int) else EXIT_FAILURE


def step_of(job: Job, order: Order, loaded: LoadedConfig, workspace: Path) -> Step:
    """The step of the pipeline that a job runs, or one of the same form."""
    stream, config, words = job.machine.stream, loaded.config, ("--config", loaded.source, *job.overrides)
    if job.command == "quality":
        return quality_step(stream, order, workspace)
    if job.command == "train":
        resume = "unfinished" if job.resume else "never"
        return Step(
            name=f"train-{stream}", title=f"training, {stream}", stage="train", stream=stream,
            command=(f"trainers.train_{stream}_ssl", "--resume", resume, *words),
            inputs=Inputs((stream,), data=True, code=("core", "trainers")), outputs=trained(loaded, workspace),
        )  # fmt: skip
    best = config.logging.checkpoint_path
    detector = detector_path(Path(best)).as_posix()
    if job.command == "calibrate":
        names_data = any(text.startswith(_NEWER) for text in job.overrides)
        return Step(
            name=f"calibrate-{stream}", title=f"calibration, {stream}", stage="score", stream=stream,
            command=("inference.recalibrate", "--stream", stream, *([] if names_data else ["--from-config"]), *words),
            inputs=Inputs((stream,), data=True, code=("core", "inference"), files=(best,)), outputs=(detector,),
        )  # fmt: skip
    step = scores_step(stream, order, workspace)
    if job.machine.detector == "model":
        return step
    return replace(
        step, command=(*step.command, "--detector", "charts"), inputs=replace(step.inputs, files=()),
        outputs=tuple(file for file in step.outputs if file != detector),
    )  # fmt: skip


def _cause(log_file: Path) -> str:
    """The error of a command: the last line that is not a log line, without the name of the command."""
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines() if log_file.is_file() else []
    said = [line for line in lines if line.strip() and not TIME_OF_DAY.match(line)]
    return PROGRAM.sub("", said[-1], count=1) if said else ""


def _choose_gpu(gpus: Sequence[str]) -> None:
    """Assigns one GPU to this worker. torch reads the variable when it first uses a GPU."""
    if gpus:
        from distributed import get_worker

        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(get_worker().name) % len(gpus)]
