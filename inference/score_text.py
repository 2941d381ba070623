"""What a person reads at the end of a scoring: how good the events are, the worst events, and the next command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from core.numbers import aligned, duration_in_words, plain, ratio_in_words
from core.redaction import printable
from inference.summary import title_of

_MOST_EVENTS, _MOST_CHANNELS = 10, 3
_HEAD = ("event", "start", "duration", "peak", "top channels", "recording")


def score_text(summary: Mapping[str, Any], events: pd.DataFrame, *, events_file: str) -> str:
    """events: as `inference.events.find_events` returns them. The peak is in multiples of the threshold."""
    lines = [title_of(dict(summary))]
    worst = events.sort_values("severity", ascending=False, kind="stable")
    if len(events):
        rows = [_HEAD, *(_row(event) for event in worst.head(_MOST_EVENTS).to_dict("records"))]
        lines += ["", *(f"  {line}" for line in aligned(rows))]
    if len(events) > _MOST_EVENTS:
        lines.append(f"  and {len(events) - _MOST_EVENTS} more in {events_file}")
    lines += ["", "next: landfall export && landfall dashboard"]
    return "\n".join(map(printable, lines))


def detection_table(summary: Mapping[str, Any]) -> pd.DataFrame:
    """The most important figures of a scoring, from its summary, each with its meaning; empty without labels."""
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
            ("faults found", f"{found['faults_found']} of {total}", "faults in which an event starts"),
            ("by chance", by_chance, "the same events at random times"),
        ]
    if found["faults_found"]:
        rows.append(("delay", f"{plain(found['event_delay_seconds'], 2)} s", "from fault to event, median"))
    if found["auroc"] is not None:
        rows.append(("AUROC", f"{found['auroc']:.3f}", "ranking of the scores: 0.5 is chance"))
    return rows


def _row(event: Mapping[str, Any]) -> tuple[str, ...]:
    names, shares = (str(event[name]).split("; ")[:_MOST_CHANNELS] for name in ("top_channels", "top_shares"))
    channels = ", ".join(f"{name} {share}" for name, share in zip(names, shares, strict=False))
    start = event["start"]
    begins = f"second {event['start_seconds']:.1f}" if pd.isna(start) else str(pd.Timestamp(start).floor("ms"))
    length = event["duration_seconds"]
    lasts = "" if pd.isna(length) else duration_in_words(length)
    return (
        str(event["event_id"]), begins, lasts, f"{ratio_in_words(event['severity'])} ×", channels, event["recording"]
    )  # fmt: skip
