"""The summary of a scoring: the JSON that reports, checks and the dashboard read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from core.checkpoint import detector_path
from core.config.schema import AnyConfig, Scoring
from core.data.recording import NS_PER_S
from core.documents import SCHEMA_VERSION, Document, Number, Text, Time
from core.numbers import counted, finite, plain
from core.reading import json_object_or_none
from core.workspace import relative, utc_now
from inference.calibrated_threshold import CalibratedThreshold, departure
from inference.events.documents import WhatIf

if TYPE_CHECKING:
    import pandas as pd

    from core.data.dataset import StreamData
    from core.data.recording import Recording
    from core.devices.plan import DevicePlan
    from core.fingerprints import Fingerprint
    from inference.detector.detector import Detector
    from inference.detector.split_scores import SplitScores
    from inference.entries import SplitErrors
    from inference.scoring import ScoringModel


@dataclass(frozen=True)
class Threshold(CalibratedThreshold):
    """departure: why the statement about false alarms is not valid for the scored data; empty if it is valid."""

    departure: str = ""


# Figures against label files by name, as `inference.metrics.Detection` and `inference.events.metrics.event_metrics`
# define them; null where undefined.
Detection = dict[Text, Number]


# The file: the fields of `ScoreSummary`, and those that `summary_of` and `run_scoring_example` add.
Summary = dict[str, Any]


# The fields of the summary that the dashboard shows.
class ScoreSummary(Document):
    run_id: Text | None = Field(None, description="Run whose model scored.")
    scored_at: Time | None = Field(None, description="Time of the scoring.")
    newest_at: Time | None = Field(None, description="Newest time stamp of the scored data; null without time stamps.")
    scores: int = Field(0, description="Number of scores: of rows for process sensors, of windows for vibration.")
    recordings: int = Field(0, description="Number of recordings.")
    alarms: int = Field(0, description="Scores above the threshold.")
    events: int = Field(0, description="Number of events.")
    threshold: Threshold | None = Field(None, description="The alarm threshold.")
    what_if: list[WhatIf] = Field(default_factory=list, description="Other thresholds, ascending.")
    detection: Detection | None = Field(None, description="Null where the data has no labels.")


@dataclass(frozen=True)
class ScoringPaths:
    """The output files of scoring."""

    scores: Path
    events: Path
    events_json: Path
    recordings: Path
    event_documents: Path
    timeline: Path
    summary: Path

    @property
    def tables(self) -> tuple[Path, ...]:
        """The files of every scoring, except the summary."""
        return self.scores, self.events, self.events_json, self.recordings, self.timeline

    @classmethod
    def of(cls, config: AnyConfig, *, root: Path) -> ScoringPaths:
        folder, stream = root / config.logging.artifacts_dir / "scores", config.stream
        return cls(
            scores=folder / f"{stream}_scores.parquet",
            events=folder / f"{stream}_events.csv",
            events_json=folder / f"{stream}_events.json",
            recordings=folder / f"{stream}_recordings.csv",
            event_documents=folder / f"{stream}_events",
            timeline=folder / f"{stream}_timeline.png",
            summary=folder / f"{stream}_summary.json",
        )


class ScoringInputs(NamedTuple):
    """Everything that is needed to score the test split. errors: errors of the model on its windows. model: None for
    control charts alone. sources: the inputs of the scores (`inference.provenance`)."""

    config: AnyConfig
    detector: Detector
    data: StreamData
    errors: SplitErrors
    plan: DevicePlan
    model: ScoringModel | None
    sources: Fingerprint


def read_summary(config: AnyConfig, *, root: Path) -> Summary | None:
    """The summary of the latest scoring, or None if there is none that can be read."""
    return json_object_or_none(ScoringPaths.of(config, root=root).summary)


def is_by_charts(summary: Summary | None) -> bool:
    """Whether control charts scored without a model."""
    return summary is not None and summary.get("detector", {}).get("kind") == "charts"


def summary_of(
    inputs: ScoringInputs, scores: pd.DataFrame, events: pd.DataFrame, charts_alone: SplitScores | None, *, root: Path
) -> Summary:
    """The result of a scoring. charts_alone: scores of the control charts alone, for the same lines as `scores`.

    Without a model, `run_id`, `checkpoint`, `checkpoint_sha256`, `detector.file` and `charts_alone` are None, and
    `detector.kind` is "charts": the metrics are those of the charts. The files are not written yet, so `panels`,
    `files` and `made_of` are missing.
    """
    from inference.detector.score_table import sample_of
    from inference.events.what_if import what_if

    detector, model, settings = inputs.detector, inputs.model, inputs.config.scoring
    threshold, num_scored = detector.threshold, int(scores["score"].notna().sum())
    recordings = inputs.data.splits["test"].series.recordings
    detection = _detection(scores, threshold.value, settings)
    scored = sample_of(scores, span=settings.smoothing_span)
    return {
        "schema_version": SCHEMA_VERSION,
        "stream": detector.stream,
        "run_id": model.run_id if model is not None else None,
        "checkpoint": relative(model.path, root) if model is not None else None,
        "checkpoint_sha256": model.sha256 if model is not None else None,
        "scored_at": utc_now(),
        "newest_at": _newest_at(recordings),
        "device": inputs.plan.to_json(),
        "scores": num_scored,
        "recordings": int(scores["recording"].nunique()),
        "alarms": int(scores["alarm"].sum()),
        "events": len(events),
        "unscored_rows": len(scores) - num_scored,
        "threshold": {
            **threshold.to_json(),
            "departure": departure(threshold, detector.sample, scored, by_charts=model is None),
        },
        "detector": {
            "kind": "model" if model is not None else "charts",
            "file": relative(detector_path(model.path), root) if model is not None else None,
            "made_at": detector.made_at,
            "recordings": len(detector.recordings),
            "change": detector.change,
            "model_weight": detector.model_weight,
            "weight_choice": detector.weight_choice,
        },
        "detection": detection,
        "what_if": [each.model_dump() for each in what_if(detector.sample, scores, threshold.value, settings)],
        "missed_faults": _missed_faults(scores, settings, recordings) if detection else [],
        "charts_alone": _charts_alone(scores, charts_alone, detector, settings),
        "timeline": {"png": relative(ScoringPaths.of(inputs.config, root=root).timeline, root)},
    }


def _newest_at(recordings: Sequence[Recording]) -> str | None:
    newest_ns = [int(each.time_ns[-1]) for each in recordings if each.time_source == "timestamp" and len(each)]
    return datetime.fromtimestamp(max(newest_ns) / NS_PER_S, UTC).isoformat() if newest_ns else None


def _charts_alone(
    scores: pd.DataFrame, charts_alone: SplitScores | None, detector: Detector, settings: Scoring
) -> dict[str, Any] | None:
    """Metrics of the control charts without the model, with their own threshold."""
    from inference.events.finding import event_lines

    if charts_alone is None:
        return None
    threshold = detector.charts_alone.threshold
    alarm_s = charts_alone.score_s > threshold.value
    table = scores.assign(score=charts_alone.score_s, threshold=threshold.value, alarm=alarm_s)
    return {
        "alarms": int(alarm_s.sum()),
        "events": len(event_lines(table, settings)[0]),
        "threshold": threshold.to_json(),
        "detection": _detection(table, threshold.value, settings),
    }


def _detection(scores: pd.DataFrame, threshold: float, settings: Scoring) -> Detection | None:
    """Metrics of the scores that have a label, and of events; None without any label. An undefined metric is None,
    because JSON has no NaN."""
    from inference.events.metrics import event_metrics
    from inference.metrics import detection_metrics

    labelled = scores[scores["label"].notna() & scores["score"].notna()]
    if labelled.empty:
        return None
    metrics = detection_metrics(labelled["score"].to_numpy(), labelled["label"].to_numpy(dtype="int8"), threshold)
    found = {**asdict(metrics), **event_metrics(scores, settings)}
    return {name: finite(value) for name, value in found.items()}


def _missed_faults(scores: pd.DataFrame, settings: Scoring, recordings: Sequence[Recording]) -> list[dict[str, Any]]:
    """The labelled faults without a matched event, with their names if the label files have them."""
    from core.data.labels import fault_names
    from inference.events.metrics import missed_faults

    missed = missed_faults(scores, settings)
    missed["fault"] = None
    for recording in recordings:
        mine = missed["recording"] == recording.file_id
        if mine.any():
            spans = missed.loc[mine, ["start_seconds", "end_seconds"]].to_numpy().tolist()
            missed.loc[mine, "fault"] = fault_names(recording, spans)
    return json.loads(missed.to_json(orient="records", date_format="iso", date_unit="s"))


# ------------------------------------------------------------------------------------------------------------- in words
def title_of(summary: Summary) -> str:
    unscored = f", {summary['unscored_rows']} unscored" if summary["unscored_rows"] else ""
    by = f"run {summary['run_id']}" if summary["checkpoint"] else "control charts alone"
    return (
        f"{summary['stream']}: {counted(summary['events'], 'event')} ({counted(summary['alarms'], 'alarm')}) "
        f"in {summary['scores']} scores{unscored}, threshold {plain(summary['threshold']['value'])}, {by}"
    )


def charts_alone_in_words(summary: Summary) -> str | None:
    """The results of the control charts alone and with the model, in one sentence; None if they are unknown."""
    alone = summary["charts_alone"]
    if alone is None:
        return None
    return f"control charts alone: {_metrics_in_words(alone)}; with the model: {_metrics_in_words(summary)}"


def _metrics_in_words(found: Mapping[str, Any]) -> str:
    detection = found["detection"] or {}
    words = counted(found["events"], "event")
    if detection.get("faults_total"):
        words += (
            f", {detection['faults_found']} of {detection['faults_total']} faults found, "
            f"{counted(detection['false_events'], 'false event')}"
        )
    return words + (f", AUROC {detection['auroc']:.3f}" if detection.get("auroc") is not None else "")
