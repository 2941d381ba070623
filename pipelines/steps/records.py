"""Records of steps: the last completion of each step, and the outcomes of the steps of each run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from core.documents import SCHEMA_VERSION
from core.fingerprints import Fingerprint
from core.livefile import PacedFile
from core.names import RunId
from core.owner import Owner, has_ended
from core.reading import read_json_object
from core.workspace import utc_now, write_json
from pipelines.problems import Problems, read_model
from pipelines.steps.jobs import Job
from pipelines.steps.stages import PipelineRun, PipelineState, StepNow, live_of
from pipelines.steps.table import Step

FOLDER = "artifacts/pipeline"
_SECONDS_BETWEEN_NOTES = 2.0


@dataclass(frozen=True)
class StepRecord:
    """A completed step: digests of its inputs and outputs, and the duration of the step and its cells."""

    step: str
    run_id: str
    inputs: Fingerprint
    outputs: dict[str, str]
    seconds: float
    cells: dict[str, float] = field(default_factory=dict)
    finished_at: str = field(default_factory=utc_now)

    def write(self, root: Path) -> None:
        write_json(_file(root, self.step), {"schema_version": SCHEMA_VERSION, **asdict(self)})


_RECORD = TypeAdapter(StepRecord)


def read_step(root: Path, step: str) -> StepRecord | None:
    """The record of a step; None if there is none, or none that this version can read."""
    try:
        content = read_json_object(_file(root, step))  # names of files as they are, not as they are shown
        is_known = content.pop("schema_version", SCHEMA_VERSION) == SCHEMA_VERSION
        return _RECORD.validate_python(content) if is_known else None
    except (OSError, ValueError):
        return None


def _file(root: Path, step: str) -> Path:
    return root / FOLDER / "steps" / f"{step}.json"


class PipelineRecord:
    """The history of one run of the pipeline, `artifacts/pipeline/<run-id>/pipeline.json`; rewritten at each change. A
    resumed run of the same name adds to it. If the workspace contains the dashboard, its live document is updated too.
    """

    def __init__(self, root: Path, run_id: str):
        self.root, self.run_id = root, run_id
        self.folder = root / FOLDER / run_id
        self._live = PacedFile(root, "pipeline")
        self._next_note = 0.0
        earlier, now = read_model(self._file, PipelineRun, Problems(root)), datetime.now(UTC)
        self._run = PipelineRun(
            run_id=run_id,
            owner=Owner.this_process().token,
            state="running",
            started_at=earlier.started_at if earlier else now,
            updated_at=now,
            steps=earlier.steps if earlier else {},
        )

    @property
    def _file(self) -> Path:
        return self.folder / "pipeline.json"

    def begin(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._run.steps[step.name] = StepNow(stage=step.stage, stream=step.stream, state="waiting")
        self.state("running")

    def step(self, name: str, **facts: Any) -> None:
        """facts: the `state` of the step and its details; they replace the earlier progress."""
        changes = {"note": "", "at": datetime.now(UTC)} | facts
        self._run.steps[name] = self._run.steps[name].model_copy(update=changes)
        self._write()

    def follow(self, jobs: Iterable[Job]) -> None:
        """Records the progress of each step. It writes at fixed intervals, however often it is called."""
        if time.monotonic() < self._next_note:
            return
        for job in jobs:
            self._run.steps[job.step.name].note = job.note()
        self._write()
        self._next_note = time.monotonic() + _SECONDS_BETWEEN_NOTES

    def state(self, state: PipelineState) -> None:
        self._run.state = state
        self._write()
        write_json(self.root / FOLDER / "last.json", {"run_id": self.run_id, "state": state})

    def _write(self) -> None:
        self._run.updated_at = datetime.now(UTC)
        write_json(self._file, self._run.model_dump(mode="json"))
        # Every change is shown.
        self._live.write(lambda: live_of(self._run).model_dump_json() + "\n", last=True)


# ------------------------------------------------------------------------------------------------------------ last run
class _Last(BaseModel):
    run_id: RunId | None = None
    state: PipelineState | None = None


def unfinished_run(root: Path) -> str | None:
    """The name of the last run if it did not complete."""
    last = _last(root, Problems(root))
    return last.run_id if last.state not in (None, "completed") else None


def read_last_run(root: Path, now: datetime, problems: Problems) -> PipelineRun | None:
    """The last run of the pipeline; if its process has died, running steps are marked as stopped."""
    last = _last(root, problems)
    if last.run_id is None:
        return None
    run = read_model(root / FOLDER / last.run_id / "pipeline.json", PipelineRun, problems)
    if run is not None and run.state == "running" and has_ended(run.owner, run.updated_at, now):
        run.state = "failed"
        for step in run.steps.values():
            if step.state in ("running", "waiting"):
                step.state = "stopped" if step.state == "running" else "not run"
                step.reason = "the pipeline process has ended"
    return run


def _last(root: Path, problems: Problems) -> _Last:
    return read_model(root / FOLDER / "last.json", _Last, problems) or _Last()
