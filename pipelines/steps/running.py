"""Runs steps: each after the steps it needs, and steps of different streams at the same time."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_RESUMABLE, LandfallError
from core.fingerprints import Fingerprint, file_digests
from core.progress import span
from core.signals import is_repeated, stop_signals
from core.workspace import relative
from pipelines.steps.display import Display
from pipelines.steps.fingerprints import fingerprint
from pipelines.steps.jobs import Job, is_problem
from pipelines.steps.planning import reason_to_run
from pipelines.steps.records import PipelineRecord, StepRecord, read_step
from pipelines.steps.stages import Ending
from pipelines.steps.table import Order, Step

log = logging.getLogger(__name__)

_TICK_S = 0.5
# Time for a step to save its state after a stop request.
_GRACE_S = 180.0

_GOOD_ENDINGS: tuple[Ending, ...] = ("completed", "skipped")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step; `reason`: why it failed, or did not run."""

    step: Step
    ending: Ending
    reason: str = ""
    exit_code: int = EXIT_OK
    seconds: float = 0.0


@dataclass(frozen=True)
class How:
    """Options for running steps. jobs: maximum number of steps at a time, each with a share of the memory, and with
    separate cores if there are enough.
    resume: skip steps whose results are up to date, and resume training.
    keep_going: after a failure, run the steps that do not need the failed step.
    timeout_s, cell_timeout_s: time limits of the pipeline, and of one cell of a notebook.
    memory_limit_mb: memory limit of the kernel of a notebook.
    verbose: log every line of the steps, not only warnings and errors.
    """

    jobs: int = 1
    resume: bool = False
    keep_going: bool = False
    timeout_s: float | None = None
    cell_timeout_s: float | None = None
    memory_limit_mb: float | None = None
    verbose: bool = False


class Run:
    """One run of some steps. `exit_code`: that of the stop, else that of the first failed step."""

    def __init__(self, order: Order, root: Path, how: How):
        self.order, self.root, self.how = order, root, how
        self.record = PipelineRecord(root, order.run_id)
        self.exit_code = EXIT_OK
        self._outcomes: dict[str, Outcome] = {}
        self._jobs: dict[str, Job] = {}
        self._inputs: dict[str, Fingerprint | None] = {}  # of the jobs, before they started
        self._messages: queue.Queue[tuple[Job, str | int]] = queue.Queue()
        self._free_cores: list[set[int]] = []
        self._at_once = 1
        self._stopped_for = ""
        self._is_signalled = False
        self._later: list[int] | None = None  # signals that are handled later
        self._problems: set[str] = set()
        self._deadline = None if how.timeout_s is None else time.monotonic() + how.timeout_s

    def run(self, steps: Sequence[Step]) -> list[Outcome]:
        """Runs all steps, each after those it needs. A step that fails is an outcome, not an error.

        Raises KeyboardInterrupt at the second Ctrl-C.
        """
        streams = {step.stream for step in steps if step.stream and self._reason(step) is not None}
        self._at_once = max(1, min(self.how.jobs, len(streams)))
        self._free_cores = _divided_cores(self._at_once)
        self.record.begin(steps)
        log.info("run %s: %d steps, logs in %s", self.order.run_id, len(steps), relative(self.record.folder, self.root))
        pending = list(steps)
        with Display() as display, self._handling_signals():
            while pending or self._jobs:
                with self._signals_later():
                    pending = self._start_ready(pending)
                self._listen()
                display.show(list(self._jobs.values()))
                self.record.follow(self._jobs.values())
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self._on_time_limit()
        if self._stopped_for and self.exit_code == EXIT_OK:
            self.exit_code = EXIT_FAILURE
        self.record.state("completed" if self.exit_code == EXIT_OK else "failed")
        return [self._outcomes[step.name] for step in steps]

    # --------------------------------------------------------------------------------------------------------- starting
    def _start_ready(self, pending: Sequence[Step]) -> list[Step]:
        """Starts, skips or cancels steps; returns those that must wait."""
        waiting: list[Step] = []
        for step in pending:
            unfinished = self._jobs.keys() | {other.name for other in waiting}
            obstacle = self._obstacle(step)
            if obstacle is not None:
                self._end(Outcome(step, "not run", obstacle))
            elif unfinished & set(step.needs) or len(self._jobs) >= self.how.jobs:
                waiting.append(step)
            else:
                self._begin(step)
        return waiting

    def _obstacle(self, step: Step) -> str | None:
        """Why a step that has not started will not run."""
        if step.always:
            return None
        if self._stopped_for:
            return self._stopped_for
        lost = [name for name, outcome in self._outcomes.items() if outcome.ending not in _GOOD_ENDINGS]
        if self.how.keep_going:
            lost = [name for name in lost if name in step.needs]
        return f"{lost[0]} did not complete" if lost else None

    def _begin(self, step: Step) -> None:
        reason, earlier = self._reason(step), read_step(self.root, step.name)
        if reason is None:
            self._end(Outcome(step, "skipped", f"its inputs have not changed since run {earlier.run_id}"))
            return
        log.info("started: %s%s", step.title, f" ({reason})" if self.how.resume else "")
        self.record.step(step.name, state="running", reason=reason, log=f"{step.name}.log")
        self._inputs[step.name] = self._fingerprint(step)
        self._jobs[step.name] = Job(
            step,
            self._command(step),
            log_file=self.record.folder / f"{step.name}.log",
            report=lambda job, message: self._messages.put((job, message)),
            cores=self._free_cores.pop() if step.stream and self._free_cores else None,
            training=self._run_folder(step),
            earlier=earlier.cells if earlier else None,
        )

    def _reason(self, step: Step) -> str | None:
        """Why the step must run; None if it is up to date."""
        if not self.how.resume:
            return "requested"
        try:
            return reason_to_run(step, self.order, self.root)
        except LandfallError as error:
            return error.message  # the step itself will fail with this error

    def _fingerprint(self, step: Step) -> Fingerprint | None:
        try:
            return fingerprint(step, self.order, self.root)
        except LandfallError:
            return None

    def _command(self, step: Step) -> list[str]:
        if step.notebook is None:
            return [*step.command, "--repo-root", str(self.root)]
        path = self.root / step.notebook.path
        artifacts = self.order.configs[step.stream].config.logging.artifacts_dir
        executed = self.root / artifacts / "notebooks" / self.order.run_id / path.name
        words = ["pipelines.execute_notebook", str(path), str(executed), "--repo-root", str(self.root)]
        parameters = {**step.notebook.parameters, "overrides": self._overrides(step)}
        words += [word for name, value in parameters.items() for word in ("-p", f"{name}={json.dumps(value)}")]
        for flag, limit in (("--cell-timeout", self.how.cell_timeout_s), ("--memory-limit", self.how.memory_limit_mb)):
            words += [flag, str(limit)] if limit is not None else []
        return words

    def _overrides(self, step: Step) -> list[str]:
        """The overrides of a notebook, later ones replace earlier ones: resume, those of the user, share of the
        memory."""
        resume = f"training.resume={'unfinished' if self.how.resume else 'never'}"
        share = []
        if self._at_once > 1:
            fraction = self.order.configs[step.stream].config.device.memory.share / self._at_once
            share = ["device.memory.strategy=custom", f"device.memory.fraction={fraction:.4g}"]
        return [resume, *step.notebook.parameters["overrides"], *share]

    def _run_folder(self, step: Step) -> Path | None:
        """The folder of the run log of the step's training."""
        if step.notebook is None:
            return None
        return self.root / self.order.configs[step.stream].config.logging.log_dir / self.order.run_id

    # ----------------------------------------------------------------------------------------------------------- ending
    def _listen(self) -> None:
        """Waits a short time for events of the jobs."""
        if not self._jobs:
            return
        try:
            job, message = self._messages.get(timeout=_TICK_S)
        except queue.Empty:
            return
        if isinstance(message, str):
            self._log_problem_once(job, message)
        else:
            self._finish(job, message)

    def _log_problem_once(self, job: Job, text: str) -> None:
        """Several steps read the same files and find the same problems: each problem is logged once."""
        if self.how.verbose or (is_problem(text) and text not in self._problems):
            self._problems.add(text)
            log.info("%s │ %s", job.step.name, text)

    def _finish(self, job: Job, code: int) -> None:
        step = job.step
        del self._jobs[step.name]
        if job.cores is not None:
            self._free_cores.append(job.cores)
        if code == EXIT_OK:
            if (inputs := self._inputs[step.name]) is not None:
                made = file_digests(step.outputs, self.root)
                seconds = round(job.seconds, 1)
                StepRecord(step.name, self.order.run_id, inputs, made, seconds, job.cells.seconds).write(self.root)
            self._end(Outcome(step, "completed", seconds=job.seconds))
        else:
            self._end(self._failure(job, code))

    def _failure(self, job: Job, code: int) -> Outcome:
        """A step that was interrupted for a limit is resumable if its exit code says so, otherwise it failed; after a
        signal to the pipeline every incomplete step has stopped."""
        if self._is_signalled:
            return Outcome(job.step, "stopped", f"{self._stopped_for}: {job.cause}", self.exit_code, job.seconds)
        if code < 0 or (code == EXIT_INTERRUPTED and self.exit_code != EXIT_INTERRUPTED):
            code = EXIT_FAILURE
        ending: Ending = "failed" if code not in (EXIT_RESUMABLE, EXIT_INTERRUPTED) else "stopped"
        reason = f"{self._stopped_for}: {job.cause}" if self._stopped_for else job.cause
        return Outcome(job.step, ending, reason, code, job.seconds)

    def _end(self, outcome: Outcome) -> None:
        self._outcomes[outcome.step.name] = outcome
        self.exit_code = self.exit_code or outcome.exit_code
        took = f" in {span(outcome.seconds)}" if outcome.seconds else ""
        reason = f": {outcome.reason}" if outcome.reason else ""
        if outcome.exit_code == EXIT_OK:
            log.info("%s%s: %s%s", outcome.ending, took, outcome.step.title, reason)
        else:
            file = relative(self.record.folder / f"{outcome.step.name}.log", self.root)
            log.error("%s%s: %s%s (log: %s)", outcome.ending, took, outcome.step.title, reason, file)
        self.record.step(
            outcome.step.name, state=outcome.ending, reason=outcome.reason, exit_code=outcome.exit_code,
            seconds=round(outcome.seconds, 1),
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------------- stopping
    def _stop(self, why: str) -> None:
        """Sends a stop signal to every step; only steps that always run are started afterwards."""
        self._stopped_for = why
        log.warning("%s: running steps save their state", why)
        for job in list(self._jobs.values()):
            job.stop()

    def _on_time_limit(self) -> None:
        if not self._stopped_for:
            self._deadline = time.monotonic() + _GRACE_S
            self._stop(f"the time limit of {span(self.how.timeout_s)} is reached")
        else:
            self._kill()

    def _kill(self) -> None:
        for job in list(self._jobs.values()):
            job.kill()

    def _on_signal(self, number: int) -> None:
        if self._stopped_for:
            self._kill()
            raise KeyboardInterrupt
        self._is_signalled = True
        self.exit_code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_RESUMABLE
        self._stop(f"received {signal.Signals(number).name}")

    @contextmanager
    def _signals_later(self) -> Iterator[None]:
        """Handles signals at the end of the context, so that they also reach a step that is being started."""
        self._later = []
        try:
            yield
        finally:
            later, self._later = self._later, None
            for number in later:
                self._on_signal(number)

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM lets steps save a checkpoint, the second ends them; main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, frame: object) -> None:
            if is_repeated(number):
                return
            if self._later is None:
                self._on_signal(number)
            else:
                self._later.append(number)

        before = {number: signal.signal(number, on_signal) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _divided_cores(parts: int) -> list[set[int]]:
    """The cores of this process in disjoint sets; empty if there is one set, if the cores are fewer, or if the system
    cannot pin processes. Steps that share cores wait for each other's threads (`core.host.thread_limit`).
    """
    if parts < 2 or not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    return [set(cores[first::parts]) for first in range(parts)] if len(cores) >= parts else []
