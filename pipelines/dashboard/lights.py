"""The light of a stream: the state of the machine according to its latest scores, and reasons to doubt them."""

from __future__ import annotations

from collections.abc import Iterator

from core.numbers import counted, plain
from inference.metrics import is_near_chance
from pipelines.dashboard.state_documents import Checkpoint, Light, ScoreSummary


def light_of(
    checkpoint: Checkpoint | None,
    scores: ScoreSummary | None,
    open_events: int | None = None,
    *,
    why_off: str | None = None,
) -> Light:
    """The most urgent state. open_events: number of events that are not acknowledged; default: all.

    why_off: why the stream is not in use; None if it is.
    """
    if why_off is not None:
        return Light(state="not in use", detail=f"This stream is not in use; {why_off}.")
    if scores is None:
        if checkpoint is None:
            return Light(state="no model", detail="There is no model for this machine: train one first.")
        detail = "There is a model, but no data was scored with it: run `landfall score`."
        return Light(state="no scores", detail=detail)
    warnings = list(_warnings(scores))
    if checkpoint is not None and is_stale(checkpoint, scores):
        older = "an older model than the one in use"
        source = older if scores.run_id else "control charts alone, not from the model in use"
        detail = f"The scores are from {source}: run `landfall score`."
        return Light(state="stale", detail=detail, warnings=warnings)
    if scores.threshold and scores.threshold.departure:
        return Light(state="drift", detail=scores.threshold.departure, warnings=warnings)
    count, searched = scores.events if open_events is None else open_events, counted(scores.recordings, "recording")
    if count:
        events = counted(count, "open event")
        return Light(state="open events", detail=f"{events} in {searched}.", warnings=warnings)
    known = "every event is acknowledged" if scores.events else "no score stayed above the threshold"
    return Light(state="no event", detail=f"In {searched} {known}.", warnings=warnings)


def is_stale(checkpoint: Checkpoint | None, scores: ScoreSummary) -> bool:
    """Whether the scores are those of another model than the promoted one."""
    return checkpoint is not None and checkpoint.run_id != scores.run_id


def is_by_charts_alone(checkpoint: Checkpoint | None, scores: ScoreSummary | None) -> bool:
    """Whether control charts scored and there is no model, which they do not need."""
    return checkpoint is None and scores is not None and scores.run_id is None


def _warnings(scores: ScoreSummary) -> Iterator[str]:
    found, threshold = scores.detection, scores.threshold
    auroc = found.get("auroc") if found else None
    if is_near_chance(auroc):
        yield (
            f"The scores hardly separate the labelled faults from normal operation: AUROC {auroc:.2f}, chance is 0.5."
        )
    achieved = threshold.achieved if threshold else None
    if achieved is not None and achieved.low > threshold.false_alarm_rate:
        yield (
            "The process changed within the calibration data: calibrated on its first half, "
            f"{plain(100 * achieved.rate, 2)} % of the second half were false alarms, "
            f"{plain(100 * threshold.false_alarm_rate, 2)} % were requested."
        )
