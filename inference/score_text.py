"""What a person reads at the end of a scoring: the worst events, and the next command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from core.numbers import duration_in_words, ratio_in_words
from inference.summary import title_of

_MOST_EVENTS, _MOST_CHANNELS = 10, 3
_HEAD = ("event", "start", "duration", "peak", "top channels", "recording")


def score_text(summary: Mapping[str, Any], events: pd.DataFrame, *, events_file: str) -> str:
    """events: as `inference.events.find_events` returns them. The peak is in multiples of the threshold."""
    lines = [title_of(dict(summary))]
    worst = events.sort_values("severity", ascending=False, kind="stable")
    if len(events):
        lines += ["", *_table([_HEAD, *(_row(event) for event in worst.head(_MOST_EVENTS).to_dict("records"))])]
    if len(events) > _MOST_EVENTS:
        lines.append(f"  and {len(events) - _MOST_EVENTS} more in {events_file}")
    lines += ["", "next: landfall export && landfall dashboard"]
    return "\n".join(lines)


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


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
