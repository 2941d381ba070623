"""Runs the commands of a new user on one plant, in a new workspace, and evaluates the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.plants.files import START, STYLES, StyleName, write_plant
from benchmarks.plants.plant import FaultName, Plant, make_plant
from core.errors import LandfallError
from core.workspace import CODE_ROOT
from pipelines.init_workspace import init_workspace


@dataclass(frozen=True)
class Found:
    """f1: F1 of the alarms, by row. event_f1: F1 of the seconds in events. onset_s: seconds from the start of the fault
    to the start of the first event that overlaps it, negative if the event is earlier; None without such an event.
    end_s: the same for the ends, with the last event. sensors: whether the top channel of the longest such event is one
    that the fault changed. healthy: largest share of another sensor in this event, in percent; 0 if none is named."""

    fault: FaultName
    seed: int
    detector: str
    f1: float
    event_f1: float
    events: int
    false_events: int
    onset_s: float | None
    end_s: float | None
    sensors: bool | None
    healthy: float | None
    auroc: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def journey(
    fault: FaultName, seed: int, root: Path, *, with_model: bool = True, style: StyleName = "plain"
) -> list[Found]:
    """Results with control charts alone and, with `with_model`, after a training. root: an empty folder."""
    plant = make_plant(fault, seed)
    init_workspace(root)
    write_plant(plant, root / "data/fdc", STYLES[style])
    run(root, "check", "--no-time")
    found = []
    for detector in ("charts", "model") if with_model else ("charts",):
        if detector == "model":
            run(root, "train", "patchtst")
        run(root, "score", "--stream", "patchtst", "--detector", detector)
        found.append(metrics_of(plant, root, detector))
    return found


def run(root: Path, *words: str) -> str:
    """The stdout of a command. Raises LandfallError if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(CODE_ROOT)}
    command = [sys.executable, "-m", "landfall", *words]
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise LandfallError(f"landfall {' '.join(words)} ended with {ended.returncode}: {ended.stderr[-500:]}")
    return ended.stdout


def metrics_of(plant: Plant, root: Path, detector: str) -> Found:
    """Metrics of the latest scoring."""
    folder = root / "artifacts/scores"
    summary = json.loads((folder / "patchtst_summary.json").read_text(encoding="utf-8"))
    events = pd.read_csv(folder / "patchtst_events.csv", parse_dates=["start", "end"]).astype(
        {"start": "datetime64[ns]", "end": "datetime64[ns]"}
    )
    start, stop = ((START["test"] + pd.Timedelta(seconds=row)) for row in (plant.start, plant.stop - 1))
    overlapping = events[(events["start"] <= stop) & (events["end"] >= start)]
    onset = end = sensors = healthy = None
    if len(overlapping):
        onset = (overlapping["start"].min() - start).total_seconds()
        end = (overlapping["end"].max() - stop).total_seconds()
        longest = overlapping.loc[overlapping["duration_seconds"].idxmax()]
        names, shares = (str(longest[column]).split("; ") for column in ("top_channels", "top_shares"))
        sensors = names[0] in plant.sensors
        others = (share for name, share in zip(names, shares, strict=True) if name not in plant.sensors)
        healthy = max((float(share.removesuffix(" %")) for share in others), default=0.0)
    detection = summary["detection"]
    return Found(
        plant.fault, plant.seed, detector, detection["f1"] or 0.0, _event_f1(events, start, stop), len(events),
        detection["false_events"], onset, end, sensors, healthy, detection["auroc"],
    )  # fmt: skip


def _event_f1(events: pd.DataFrame, start: pd.Timestamp, stop: pd.Timestamp) -> float:
    """F1 of the seconds that are in an event, compared with those of the fault."""

    def seconds(first: pd.Series, last: pd.Series) -> float:
        return float((last - first).dt.total_seconds().add(1).clip(lower=0).sum())

    inside = seconds(events["start"].clip(lower=start), events["end"].clip(upper=stop))
    claimed, true = seconds(events["start"], events["end"]), (stop - start).total_seconds() + 1
    return 2 * inside / (claimed + true) if claimed else 0.0
