"""What the tests of monitoring share: a workspace, the command, and its output next to that of scoring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from inference.run_scoring_example import ScoringResult, score_stream
from inference.watch.command import main, open_monitor
from inference.watch.monitor import Monitor
from tests.inference.trained_workspace import OVERRIDES, SHARED, configuration
from tests.support import REPO_ROOT

STREAM = "patchtst"


def arguments_of(root: Path, *more: str, stream: str = STREAM) -> list[str]:
    return [stream, "--scores", "--repo-root", str(root), *OVERRIDES[stream], *SHARED, *more]


def watch_once(root: Path, *more: str, stream: str = STREAM) -> int:
    return main(arguments_of(root, "--once", *more, stream=stream))


def watch_process(root: Path, *more: str) -> subprocess.Popen:
    """A process of its own that follows until it is killed."""
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT)}
    command = [sys.executable, "-m", "inference.watch.command", *arguments_of(root, "--poll", "0.01", *more)]
    return subprocess.Popen(command, env=environment, stderr=(root / "said.log").open("a"))


def scored_by_files(root: Path, *more: str, detector: str = "charts", stream: str = STREAM) -> ScoringResult:
    return score_stream(configuration(stream, root, *more), root=root, detector=detector)


def monitor_of(root: Path, *more: str, detector: str = "charts", stream: str = STREAM) -> Monitor:
    return open_monitor(configuration(stream, root, *more), root=root, detector=detector)


def lines_of(root: Path, name: str, stream: str = STREAM) -> list[dict[str, Any]]:
    path = root / f"artifacts/watch/{stream}_{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def num_lines_of(root: Path, name: str, stream: str = STREAM) -> int:
    """The complete lines of a file that another process may be writing."""
    path = root / f"artifacts/watch/{stream}_{name}.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def assert_equal_to_files(root: Path, scored: ScoringResult, *, tolerance: float = 1e-6) -> None:
    """Every row is scored exactly once, and all events are closed."""
    stream = scored.summary["stream"]
    found = pd.DataFrame(lines_of(root, "scores", stream)).sort_values(["recording", "row"], ignore_index=True)
    table = scored.scores.assign(recording=scored.scores["recording"].astype(str))
    table = table.sort_values(["recording", "row"], ignore_index=True)
    assert found[["recording", "row"]].to_numpy().tolist() == table[["recording", "row"]].to_numpy().tolist()
    score_s = pd.to_numeric(found["score"]).to_numpy(dtype=np.float64)
    np.testing.assert_allclose(score_s, table["score"].to_numpy(dtype=np.float64), rtol=tolerance, atol=tolerance)
    assert found["alarm"].tolist() == table["alarm"].tolist()
    assert pd.to_datetime(found["time"]).tolist() == table["time"].tolist()

    reports = lines_of(root, "events", stream)
    closed = sorted((each for each in reports if each["state"] == "closed"), key=lambda each: each["id"])
    assert len(reports) == 2 * len(closed) == 2 * len(scored.events)
    assert {each["id"] for each in reports if each["state"] == "open"} == {each["id"] for each in closed}
    events = scored.events.assign(
        row=[
            table[(table["recording"] == event.recording) & (table["seconds"] == event.start_seconds)]["row"].iloc[0]
            for event in scored.events.itertuples()
        ]
    )
    _assert_table_has(root / f"artifacts/watch/{stream}_events.parquet", closed)
    by_id = {f"{event['recording']}#{event['row']}": event for event in events.to_dict("records")}
    for report in closed:
        event = by_id.pop(report["id"])
        for key in ("recording", "scores", "alarms", "top_channels", "sentence"):
            assert report[key] == event[key], key
        for key in ("start_seconds", "end_seconds", "duration_seconds", "severity", "peak_score"):
            np.testing.assert_allclose(report[key], event[key], rtol=tolerance, err_msg=key)
        for key in ("start", "end", "peak_time"):
            assert (report[key] is None) == pd.isna(event[key]), key
            assert report[key] is None or pd.Timestamp(report[key]) == event[key], key
    assert by_id == {}


def _assert_table_has(path: Path, closed: list[dict[str, Any]]) -> None:
    """The table has the same events, with times as times; without any event there is none."""
    if not closed:
        assert not path.exists()
        return
    table = pd.read_parquet(path).sort_values("id").to_dict("records")
    for event, report in zip(table, closed, strict=True):
        assert [event[key] for key in ("id", "recording", "scores", "severity")] == [
            report[key] for key in ("id", "recording", "scores", "severity")
        ]
        start = report["start"]
        assert pd.isna(event["start"]) if start is None else event["start"] == pd.Timestamp(start)
