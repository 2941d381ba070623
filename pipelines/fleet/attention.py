"""The machines of a fleet that need attention, as a document for the dashboard and as a table.

The state of each machine is read from its exported dashboard and the outcomes of its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

from core.data.files import matches
from core.numbers import aligned, counted, duration_in_words, ratio_in_words
from core.page import STATE
from pipelines.dashboard.fleet_documents import FailedJob, FleetMachine, FleetState, MachineState
from pipelines.dashboard.state_documents import DashboardState, StreamState
from pipelines.fleet.jobs import COMMANDS, Outcome, read_outcome
from pipelines.fleet.machines import FOLDER, Fleet, Machine, workspace_of
from pipelines.folders import changed_at
from pipelines.problems import Problems, read_model

_URGENCY = {state: place for place, state in enumerate(get_args(MachineState))}
_HEADS = ("machine", "state", "events", "severity", "newest data", "what needs attention")


def fleet_state(fleet: Fleet, root: Path, machines: Sequence[Machine]) -> FleetState:
    """The states of some machines of a fleet, the most urgent first."""
    now, limit = datetime.now(UTC), timedelta(hours=fleet.stale_after_hours)
    rows = [_machine(each, root, now, limit) for each in machines]
    rows.sort(key=lambda row: (_URGENCY[row.state], -(row.severity or 0.0), row.id))
    return FleetState(generated_at=now, machines=rows)


def _machine(machine: Machine, root: Path, now: datetime, limit: timedelta) -> FleetMachine:
    workspace = workspace_of(machine, root)
    outcomes = [outcome for command in COMMANDS if (outcome := read_outcome(workspace, command)) is not None]
    state = read_model(workspace / STATE, DashboardState, Problems(workspace))
    stream = state.streams.get(machine.stream) if state is not None else None
    found = stream.detections if stream is not None else None
    events = found.events if found is not None else []
    opened = [event for event in events if event.annotation is None or not event.annotation.acknowledged]
    scores, changed = stream.scores if stream is not None else None, _changed_at(workspace, outcomes)
    known = [time for time in (scores.newest_at if scores else None, changed) if time is not None]
    row = FleetMachine(
        id=machine.id,
        stream=machine.stream,
        tags=list(machine.tags),
        state="no event",
        open_events=found.total - found.acknowledged if found else 0,
        severity=max((event.severity for event in opened), default=None),
        data_at=min(known, default=None),
        scored_at=scores.scored_at if scores else None,
        failed=[
            FailedJob(command=each.command, reason=each.reason, at=each.at)
            for each in outcomes
            if each.ending in ("failed", "stopped") and not _is_over(each, outcomes, machine, stream)
        ],
        page=f"{FOLDER}/{machine.id}/" if state is not None else None,
    )
    needs = [*_attention(row, machine, stream, now, limit)]
    if changed is not None and row.scored_at is not None and changed > row.scored_at:
        needs.append(("stale", "data is newer than the scores"))
    needs.sort(key=lambda need: _URGENCY[need[0]])
    return row.model_copy(
        update={"state": needs[0][0] if needs else "no event", "attention": [text for _, text in needs]}
    )


def _is_over(failed: Outcome, outcomes: Sequence[Outcome], machine: Machine, stream: StreamState | None) -> bool:
    """Whether a failure has been corrected, also by another command: the files have been read since, or there is a
    newer model, or none is needed."""
    if failed.command == "quality":
        return any(each.ending == "completed" and each.at > failed.at for each in outcomes)
    if failed.command != "train":
        return False
    since = stream.checkpoint.since if stream is not None and stream.checkpoint is not None else None
    return machine.detector == "charts" or (since is not None and since > datetime.fromisoformat(failed.at))


def _attention(
    row: FleetMachine, machine: Machine, stream: StreamState | None, now: datetime, limit: timedelta
) -> Iterator[tuple[MachineState, str]]:
    if row.open_events:
        severity = f", severity {ratio_in_words(row.severity)}" if row.severity is not None else ""
        yield "open events", f"{counted(row.open_events, 'open event')}{severity}"
    threshold = stream.scores.threshold if stream is not None and stream.scores else None
    if threshold is not None and threshold.departure:
        yield "drift", threshold.departure
    if stream is not None and stream.light.state == "stale":
        yield "stale", stream.light.detail
    if row.data_at is not None and now - row.data_at > limit:
        yield "stale", f"no new data for {duration_in_words((now - row.data_at).total_seconds())}"
    for job in row.failed:
        yield "failed", f"{job.command}: {job.reason}"
    if row.scored_at is None:
        has_model = machine.detector == "charts" or (stream is not None and stream.checkpoint is not None)
        yield ("no scores", "not scored yet") if has_model else ("no model", "not trained yet")


def _changed_at(workspace: Path, outcomes: Sequence[Outcome]) -> datetime | None:
    """When the newest file of the test split changed; its patterns are those of the newest job."""
    patterns = max(outcomes, key=lambda each: each.at).test_files if outcomes else ()
    changed = [changed_at(file) for pattern in patterns for file in matches(pattern, workspace)]
    return datetime.fromtimestamp(max(changed), UTC) if changed else None


def table_text(state: FleetState) -> str:
    """One line for each machine, and a count of each state."""
    rows = [
        (
            machine.id, machine.state, str(machine.open_events or "–"),
            ratio_in_words(machine.severity) if machine.severity is not None else "–",
            f"{machine.data_at:%Y-%m-%d %H:%M}" if machine.data_at is not None else "–",
            "; ".join(machine.attention) or "–",
        )
        for machine in state.machines
    ]  # fmt: skip
    counts = {name: sum(machine.state == name for machine in state.machines) for name in _URGENCY}
    summary = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return "\n".join([*aligned([_HEADS, *rows]), "", f"{counted(len(rows), 'machine')}: {summary}"])
