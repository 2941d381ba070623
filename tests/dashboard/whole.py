"""A workspace with content for every view of the page, including hostile names."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import nbformat
import numpy as np

from inference.watch.live_document import LiveDocument
from inference.watch.monitor import Scored
from pipelines.dashboard.fleet_documents import FILE, FailedJob, FleetMachine, FleetState, MachineState
from pipelines.dashboard.publish import write_document
from pipelines.notebook_page import write_page
from tests.dashboard.builders import FIRST, HOSTILE, SCRIPT, build_workspace
from tests.pipelines.more_inputs import RECORDING, write_devices, write_event, write_migration, write_score_table

LIVE = "20991122-080000-ab12"
LONG = 120_000
SPIKE, SPIKE_AT = 1.7, 445


def build_whole_workspace(root: Path) -> Path:
    """The output of `build_workspace`, with scores over time, signals of events, hardware and a migration."""
    build_workspace(root)
    short = {f"data/{number:02}.csv": np.linspace(0.1, 0.9, 60 * number + 90) for number in (5, 6)}
    for stream in ("patchtst", "swinmae"):
        recordings = {SCRIPT: np.full(30, 0.5), **short, RECORDING: long_scores()}
        write_score_table(root, stream, recordings, stamped=stream == "patchtst")
        for number in (5, 6, 7):
            write_event(root, stream, number, **signals(vibration=stream == "swinmae"))
    write_devices(root)
    write_migration(root)
    write_files_of_run(root, FIRST)
    config = root / "runs/patchtst_ssl" / FIRST / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("0.001", "0.003"), encoding="utf-8")
    return root


def long_scores() -> np.ndarray:
    """More scores than are loaded together, and one far above the threshold."""
    score = 0.4 + 0.1 * np.sin(np.arange(LONG) / 900)
    score[SPIKE_AT] = SPIKE
    return score


def signals(*, vibration: bool) -> dict[str, Any]:
    """Measured and predicted values around an event with a hostile name."""
    second = np.linspace(420, 470, 201)
    seen, expected = np.sin(second), np.sin(second) * 0.8
    curves = {"t": second.tolist(), "seen": seen.tolist(), "expected": [] if vibration else expected.tolist()}
    channels = [{"name": HOSTILE, "share": 0.71, **curves, "error": []}]
    score = {"t": second.tolist(), "score": (1 + second % 3).tolist(), "threshold": 0.83172}
    facts = {"channels": channels, "score": score, "component": "charts", "component_share": 0.8}
    if not vibration:
        return facts | {"expected_by": "charts"}
    level = np.add.outer(np.linspace(-40, 0, 12), np.linspace(0, 9, 30))
    scalogram = {
        "axis": "x",
        "frequencies_hz": np.geomspace(10, 2000, 12).tolist(),
        "t": np.linspace(440, 450, 30).tolist(),
        "seen": level.tolist(),
        "expected": (level - 3).tolist(),
        "error": np.full_like(level, 3).tolist(),
    }
    hertz = np.arange(2.0, 300.0, 1.5)
    envelope = {
        "axis": "x",
        "band_hz": [2000.0, 2400.0],
        "frequencies_hz": hertz.tolist(),
        "event": (0.05 + 0.6 * np.exp(-((hertz - 107) ** 2))).tolist(),
        "neighbours": np.full(len(hertz), 0.05).tolist(),
    }
    bearing = [{"name": "cage", "hz": 12.0}, {"name": "outer race", "hz": 107.5}, {"name": "gear", "hz": 900.0}]
    more = {"scalograms": [scalogram], "window_s": [440.0, 450.0], "envelopes": [envelope], "bearing": bearing}
    return facts | {"expected_by": "model"} | more


def write_files_of_run(root: Path, run_id: str) -> None:
    """What a run leaves besides its log: its weights and its executed notebook."""
    (root / f"runs/patchtst_ssl/{run_id}/model.pt").write_text("", encoding="utf-8")
    executed = root / f"artifacts/notebooks/{run_id}/local_patchtst_ssl.ipynb"
    executed.parent.mkdir(parents=True)
    cell = nbformat.v4.new_code_cell("print(1)", outputs=[nbformat.v4.new_output("stream", text=SCRIPT)])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), executed)
    write_page(executed)


def write_fleet(page: Path) -> None:
    """Machines in every state, with names and tags of any kind."""
    now = datetime.now(UTC)
    failed = FailedJob(command="train", reason=SCRIPT, at=now)
    machines = [
        FleetMachine(
            id=f"press-{number:02}", stream="patchtst", tags=["hall-2", "since-2019"] if number % 2 else [],
            state=state, severity=12.4 if state == "open events" else None,
            attention=[f"{state}: the scores of the last 26 h need a look"] if state != "no event" else [],
            open_events=3 if state == "open events" else 0, failed=[failed] if state == "failed" else [],
            data_at=now, scored_at=now, page=f"machines/press-{number:02}/",
        )
        for number, state in enumerate(get_args(MachineState))
    ]  # fmt: skip
    write_document(page / "data" / FILE, FleetState(generated_at=now, machines=machines))


def write_monitor(root: Path, *, ended: bool = True) -> None:
    """What `landfall watch` leaves: events in both states, and the newest score of two files."""
    document = LiveDocument(root, "patchtst", 0.83172, root / "none.jsonl")
    for number, state in enumerate(("closed", "open", "open")):
        recording, start = f"data/live/press_{number % 2}.csv", f"2026-02-01T0{number}:15:20.000"
        sentence = f"4.2 min from {start[:19]}: peak {2.5 + number:.2f} × threshold, mostly rf_reflected_W (71 %)"
        report = {
            "id": f"{recording}#{number}", "state": state, "recording": recording, "start": start,
            "severity": 2.5 + number, "sentence": sentence,
        }  # fmt: skip
        time_n = np.array([start], dtype="datetime64[ns]").astype(np.int64)
        document.add_scores(Scored(recording, np.array([5]), time_n, np.array([0.4 + number]), np.array([0]), [report]))
    document.refresh(ended=ended)


def change(page: Path, name: str, **changes: Any) -> None:
    """Changes fields of an exported document, as a newer or a faulty writer would."""
    file = page / "data" / name
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), encoding="utf-8")


def live_document(epoch: int, *, stream: str = "patchtst", **changes: Any) -> dict[str, Any]:
    """The output of a trainer after `epoch` of 12 epochs of a minute each."""
    now, epochs = datetime.now(UTC), range(1, epoch + 1)
    return {
        "schema_version": 1,
        "stream": stream,
        "run_id": LIVE,
        "state": "running",
        "reason": None,
        "started_at": (now - timedelta(minutes=epoch)).isoformat(),
        "updated_at": now.isoformat(),
        "epoch": epoch,
        "epochs": 12,
        "step": epoch * 50,
        "steps": 600,
        "progress": epoch / 12,
        "duration_seconds": 60.0 * epoch,
        "best": {"epoch": epoch, "val_loss": 1.1 / epoch},
        "eta_seconds": 60.0 * (12 - epoch),
        "windows_per_second": 812.5,
        "memory_mb": 910.0,
        "gpu_utilisation": None,
        "history": [{"epoch": number, "train_loss": 1 / number, "val_loss": 1.1 / number} for number in epochs],
        "step_history": [{"epoch": number, "step": number * 50, "loss": 1 / number} for number in epochs],
    } | changes
