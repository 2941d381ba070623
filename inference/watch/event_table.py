"""Closed events as a parquet file, for tools that read tables."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from core.workspace import atomic_file

_TIMES = ("start", "end", "peak_time")


def write_event_table(events: Path, target: Path) -> None:
    """events: the file of JSON lines. target: the parquet file, which is replaced atomically; it is not written without
    a closed event."""
    with events.open(encoding="utf-8") as file:
        closed = [report for report in map(json.loads, file) if report["state"] == "closed"]
    if not closed:
        return
    table = pd.DataFrame(closed).drop(columns="state")
    table = table.assign(**{name: pd.to_datetime(table[name], format="ISO8601") for name in _TIMES})
    with atomic_file(target) as part:
        table.to_parquet(part, index=False)
