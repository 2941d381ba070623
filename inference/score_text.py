"""The result of a scoring as text: metrics against labels, the worst events, and the next command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from core.config.schema import AnyConfig
from core.data.dataset import path_shown
from core.numbers import aligned, counted, duration_in_words, in_percent, plain, ratio_in_words
from core.secrets.redaction import printable, redacted_text
from inference.events.finding import worst_events
from inference.metrics import is_near_chance
from inference.summary import Summary, title_of

_MOST_EVENTS, _MOST_CHANNELS, _MOST_MISSED = 10, 3, 3
_HEAD = ("event", "start", "duration", "peak", "top channels", "recording")


def score_text(
    summary: Summary,
    events: pd.DataFrame,
    *,
    events_file: str,
    ranking_file: str = "",
    config: AnyConfig | None = None,
    next_command: str = "landfall export && landfall dashboard",
) -> str:
    """events: as `inference.events.finding.find_events` returns them. Peaks are multiples of the threshold. Recordings
    are paths relative to the workspace if `config` is given, otherwise relative to `data.root`."""
    lines = [title_of(summary), *(f"  {name:<13} {text}" for name, text in against_labels(summary))]
    if len(events):
        rows = [_HEAD, *(_row(event, config) for event in worst_events(events).head(_MOST_EVENTS).to_dict("records"))]
        lines += ["", *(f"  {line}" for line in aligned(rows))]
    if len(events) > _MOST_EVENTS:
        lines.append(f"  and {len(events) - _MOST_EVENTS} more in {events_file}")
    if ranking_file and summary["recordings"] > 1:
        lines += ["", f"  the {summary['recordings']:,} recordings are ranked in {ranking_file}"]
    lines += ["", f"next: {next_command}"]
    return "\n".join(printable(redacted_text(line)) for line in lines)


def against_labels(summary: Summary) -> list[tuple[str, str]]:
    """The results on labelled data, with and without the model, as pairs of name and text; empty without labels."""
    if not summary.get("detection"):
        return []
    detection, missed = summary["detection"], summary.get("missed_faults", [])
    total, found, auroc = (detection.get(name) for name in ("faults_total", "faults_found", "auroc"))
    lines = []
    if total:
        chance = detection["event_recall_by_chance"] * total
        most = detection["event_recall_by_chance_q95"] * total
        lines.append(("faults found", f"{found} of {total} (by chance {chance:.1f}, at most {most:.0f} in 95 %)"))
    if missed:
        rest = f"; and {len(missed) - _MOST_MISSED} more" if len(missed) > _MOST_MISSED else ""
        lines.append(("missed", "; ".join(map(_fault, missed[:_MOST_MISSED])) + rest))
    if detection.get("false_events") is not None:
        lines.append(("false events", _false_events(detection)))
    if auroc is not None:
        near = "  ! near chance: the scores hardly separate faults from normal rows" if is_near_chance(auroc) else ""
        lines.append(("row AUROC", f"{auroc:.3f} (chance is 0.5){near}"))
    if alone := (summary.get("charts_alone") or {}).get("detection"):
        lines.append(("charts alone", _charts_alone(alone)))
    if choice := summary.get("detector", {}).get("weight_choice"):
        lines.append(("weight of the model", f"{choice['weight']:g}: {choice['reason']}"))
    return lines


def _charts_alone(detection: Mapping[str, Any]) -> str:
    """The result of the control charts without the model."""
    faults, auroc = f"{detection['faults_found']} of {detection['faults_total']} faults found", detection["auroc"]
    ranked = "" if auroc is None else f", row AUROC {auroc:.3f}"
    return f"{faults}, {counted(detection['false_events'], 'false event')}{ranked} (without the model)"


def _fault(fault: Mapping[str, Any]) -> str:
    time = fault["start"].replace("T", " ") if fault["start"] else f"second {fault['start_seconds']:.1f}"
    name = f"{fault['fault']}, " if fault["fault"] else ""
    return f"{name}{fault['recording'].rpartition('/')[2]} from {time}"


def _false_events(detection: Mapping[str, Any]) -> str:
    hours, rate = detection["recorded_hours"], detection["false_events_per_hour"]
    time = f"{hours:,.1f} recorded hours" if hours >= 1 else f"{60 * hours:.1f} recorded minutes"
    per_hour = f", {_short(rate)} per hour" if rate is not None else ""
    return f"{detection['false_events']} in {time}{per_hour}"


def _short(value: float) -> str:
    """Two digits or an integer, never an exponent."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}" if value >= 0.001 else "less than 0.001"


def detection_table(summary: Summary) -> pd.DataFrame:
    """The most important metrics of a scoring, from its summary, each with its meaning; empty without labels."""
    found = summary["detection"]
    rows = [] if not found else _detection_rows(found)
    return pd.DataFrame(rows, columns=["figure", "value", "meaning"]).set_index("figure")


def _detection_rows(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    total, hours = found["faults_total"], found["recorded_hours"]
    duration = f", in {plain(hours, 2)} recorded hours" if hours else ""
    rows = [("false events", str(found["false_events"]), f"outside of faults{duration}")]
    if total:
        by_chance = plain(total * found["event_recall_by_chance"], 2)
        rows[:0] = [
            ("faults found", f"{found['faults_found']} of {total}", "faults in which an event starts or has its peak"),
            ("by chance", by_chance, "the same events at random times"),
        ]
    if found["faults_found"]:
        rows.append(("delay", f"{plain(found['event_delay_seconds'], 2)} s", "from fault to event, median"))
    if found["auroc"] is not None:
        rows.append(("AUROC", f"{found['auroc']:.3f}", "ranking of the scores: 0.5 is chance"))
    return rows


def _row(event: Mapping[str, Any], config: AnyConfig | None) -> tuple[str, ...]:
    channels = ", ".join(f"{each['name']} {in_percent(each['share'])}" for each in event["channels"][:_MOST_CHANNELS])
    start = event["start"]
    begins = f"second {event['start_seconds']:.1f}" if pd.isna(start) else str(pd.Timestamp(start).floor("ms"))
    length = event["duration_seconds"]
    lasts = "" if pd.isna(length) else duration_in_words(length)
    peak, recording = f"{ratio_in_words(event['severity'])} ×", event["recording"]
    recording = recording if config is None else path_shown(recording, config)
    return str(event["event_id"]), begins, lasts, peak, channels, recording
