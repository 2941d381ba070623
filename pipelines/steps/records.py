"""Records of steps: the last completion of each step, and the outcomes of the steps of each run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from core import livefile
from core.fingerprints import Fingerprint
from core.names import is_run_id
from core.owner import Owner
from core.reading import json_object_or_none
from core.workspace import utc_now, write_json
from pipelines.dashboard.pipeline_run import FOLDER, live_of
from pipelines.dashboard.publish import write_document
from pipelines.steps.jobs import Job
from pipelines.steps.table import Step

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
_SECONDS_BETWEEN_NOTES = 2.0

State = Literal["running", "completed", "failed"]


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

    @classmethod
    def read(cls, root: Path, step: str) -> Self | None:
        """The record; None if there is none, or none that this version can read."""
        content = _json(_file(root, step))
        return cls(**{key: value for key, value in content.items() if key != "schema_version"}) if content else None


def _file(root: Path, step: str) -> Path:
    return root / FOLDER / "steps" / f"{step}.json"


class RunRecord:
    """The history of one run of the pipeline, `artifacts/pipeline/<run-id>/pipeline.json`; rewritten at each change. A
    resumed run of the same name adds to it. If the workspace contains the dashboard, its live document is updated too.
    """

    def __init__(self, root: Path, run_id: str):
        self.root, self.run_id = root, run_id
        self.folder = root / FOLDER / run_id
        self._live = root / livefile.FOLDER / "pipeline.json" if (root / livefile.PAGE).is_file() else None
        self._next_note = 0.0
        earlier = _json(self.folder / "pipeline.json") or {}
        self._state: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "owner": Owner.this_process().token,
            "state": "running",
            "started_at": earlier.get("started_at", utc_now()),
            "updated_at": utc_now(),
            "steps": earlier.get("steps", {}),
        }

    def begin(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._state["steps"][step.name] = {"stage": step.stage, "stream": step.stream, "state": "waiting"}
        self.state("running")

    def step(self, name: str, **facts: Any) -> None:
        """facts: the `state` of the step and its details; they replace the earlier progress."""
        step = self._state["steps"][name]
        step.pop("note", None)
        step.update(facts, at=utc_now())
        self._write()

    def follow(self, jobs: Iterable[Job]) -> None:
        """Records the progress of each step. It writes at fixed intervals, however often it is called."""
        if time.monotonic() < self._next_note:
            return
        for job in jobs:
            self._state["steps"][job.step.name]["note"] = job.note()
        self._write()
        self._next_note = time.monotonic() + _SECONDS_BETWEEN_NOTES

    def state(self, state: State) -> None:
        self._state["state"] = state
        self._write()
        write_json(self.root / FOLDER / "last.json", {"run_id": self.run_id, "state": state})

    def _write(self) -> None:
        self._state["updated_at"] = utc_now()
        write_json(self.folder / "pipeline.json", self._state)
        if self._live is None:
            return
        try:
            write_document(self._live, live_of(self._state))
        except OSError as error:
            self._live = None
            log.warning("the dashboard shows this run only after its end: %s", error)


def unfinished_run(root: Path) -> str | None:
    """The name of the last run if it did not complete."""
    last: Mapping[str, Any] = _json(root / FOLDER / "last.json") or {}
    run_id = last.get("run_id")
    return run_id if last.get("state") not in (None, "completed") and is_run_id(run_id) else None


def _json(path: Path) -> dict[str, Any] | None:
    content = json_object_or_none(path) or {}
    return content if content.get("schema_version", SCHEMA_VERSION) == SCHEMA_VERSION else None
