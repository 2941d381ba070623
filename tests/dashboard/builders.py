"""Builds a workspace with the outputs of runs: the inputs of the dashboard export, small but realistic."""

from __future__ import annotations

import functools
import json
import math
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
FIRST, SECOND = "20261120-061500-a1b2", "20261121-083000-1f3a"
SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\"> CUDA out of memory"
HOSTILE = "</script><script>document.title = 'owned'</script>"
START = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)


def iso(time: datetime) -> str:
    return time.isoformat()


def write(path: Path, value: Any) -> Path:
    """Writes text unchanged, and other values as JSON, including NaN as in Python's encoder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def epoch_lines(start: datetime, epochs: int, scale: float) -> list[dict[str, Any]]:
    return [
        {
            "kind": "epoch",
            "time": iso(start + timedelta(seconds=61 * epoch)),
            "epoch": epoch,
            "train_loss": scale * (0.09 + math.exp(-epoch / 3)),
            # Turns up at the end, so that the best epoch is not the last.
            "val_loss": scale * (0.11 + math.exp(-epoch / 3) + 0.0012 * max(0, epoch - 7) ** 2),
            "lr": 1e-3 * (1 - epoch / (epochs + 1)),
            "seconds": 60.5,
            "windows_per_second": 812.5,
        }
        for epoch in range(1, epochs + 1)
    ]


def step_lines(start: datetime, epochs: int, per_epoch: int, scale: float) -> list[dict[str, Any]]:
    return [
        {
            "kind": "step",
            "time": iso(start + timedelta(seconds=61 * step / per_epoch)),
            "epoch": 1 + (step - 1) // per_epoch,
            "step": step,
            "loss": scale * (0.09 + math.exp(-step / per_epoch / 3)) * (1 + 0.12 * math.sin(step * 1.7)),
            "lr": 1e-3,
            "grad_norm": 0.8,
            # Read once a second, not at every step.
            **({"memory_mb": 900.0 + step / 10, "gpu_utilisation": 0.87} if step % 50 == 1 else {}),
        }
        for step in range(1, epochs * per_epoch + 1, 5)
    ]


def write_run(
    root: Path,
    stream: str,
    run_id: str,
    *,
    start: datetime = START,
    state: str = "completed",
    reason: str | None = None,
    done: int = 12,
    epochs: int = 12,
    scale: float = 1.0,
    owner: str = "",
    **changes: Any,
) -> Path:
    """One stream's run folder; `changes` override fields of the status."""
    folder = root / "runs" / f"{stream}_ssl" / run_id
    per_epoch = 50
    lines = [*step_lines(start, done, per_epoch, scale), *epoch_lines(start, done, scale)]
    write(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda x: x["time"])))
    losses = {line["val_loss"]: line["epoch"] for line in lines if line["kind"] == "epoch"}
    end = iso(start + timedelta(seconds=61 * done + 9))
    status = {
        "schema_version": 1,
        "run_id": run_id,
        "stream": stream,
        "state": state,
        "reason": reason,
        "started_at": iso(start),
        "updated_at": end,
        "finished_at": None if state == "running" else end,
        "epoch": done,
        "epochs": epochs,
        "step": done * per_epoch,
        "steps": epochs * per_epoch,
        "best": {"epoch": losses[min(losses)], "val_loss": min(losses)} if losses else None,
        "checkpoint": f"checkpoints/{stream}_ssl.pt",
        "peak_memory_mb": 960.0,
        "owner": owner,
    }
    write(folder / "status.json", status | changes)
    write(
        folder / "environment.json",
        {
            "python": "3.11.9",
            "platform": "Linux-6.8 x86_64",
            "torch": "2.9.0",
            "cuda": "12.8",
            "device": {
                "kind": "cuda",
                "name": "NVIDIA RTX 4000 Ada",
                "precision": "bf16-mixed",
                "threads": 16,
                "device_reason": "first CUDA device that passed a matrix product",
                "precision_reason": "bf16 is native",
                "memory_gib": 20,
                "memory_limit_mb": 15_360,
                "memory_reason": "balanced: 75 % of 20.0 GiB",
            },
            "model": {"size": "reduced", "parameters": 403_728, "reason": "reduced on the tier gpu-16"},
            "batch": {
                "starting": 64,
                "effective": 64,
                "micro": 32,
                "accumulate": 2,
                "largest": 48,
                "gradient_checkpointing": False,
                "peak_mb": 1_200.0,
                "seconds_per_step": 0.01,
                "reason": "32 fit",
            },
            "git": {"commit": "4f2c9d1e77aa0b3c5d6e", "dirty": True},
            "packages": {"torch": "2.9.0", "numpy": "2.1.3", "pandas": "2.2.3"},
        },
    )
    config = (
        f"stream: {stream}\nseed: 42\ntraining:\n  epochs: {epochs}\n  learning_rate: 0.001\ndata:\n  channels: []\n"
    )
    write(folder / "config.yaml", config)
    return folder


def tear_last_line(folder: Path) -> None:
    """The output of a killed process: the last line of the metrics is incomplete."""
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
        metrics.write('{"kind":"step","time":"2026-11-20T06:2')


def finding(rule: str, value: float, limit: float, message: str, channel: str | None = None) -> dict[str, Any]:
    return {"rule": rule, "value": value, "limit": limit, "channel": channel, "message": message}


def write_quality(root: Path, folder: str, kept: int, *, dropped: bool = False, warned: bool = False) -> None:
    def figures(findings: list[Any], otherwise: float) -> dict[str, float]:
        return {f"{kind}_ratio": findings[0]["value"] if findings else otherwise for kind in ("missing", "stuck")}

    def report(file_id: str, decision: str, hard: list[Any], warnings: list[Any]) -> None:
        facts = {"file_id": file_id, "decision": decision, "hard_fails": hard, "warnings": warnings}
        channels = {"chamber_pressure": figures(warnings, 0.0), HOSTILE: figures(hard, 0.1)}
        facts["metrics"] = {"rows": 3600, "channels": channels}
        name = file_id.replace("/", "__")
        write(root / "artifacts/dqvl" / folder / f"{name}.json", {"schema_version": 1, "run_id": SECOND, **facts})

    for number in range(kept):
        report(f"lot_{number:02}.parquet", "keep", [], [])
    if dropped:
        message = "62 % of the values are missing, at most 50 % may be"
        report("lot_broken.csv", "drop", [finding("missing_ratio", 0.62, 0.5, message)], [])
    if warned:
        message = "the pressure stands still for 71 % of the file"
        report("lot_stuck.csv", "keep", [], [finding("stuck_ratio", 0.71, 0.5, message, "chamber_pressure")])


STATEMENT = "one in 100 scores of normal operation is meant to be a false alarm; it was one in 90"


def event_lines(stream: str, number: int) -> list[dict[str, Any]]:
    """Events as scoring lists them, in order of time; later ones are worse. Vibration has no time stamps."""
    stamped = stream == "patchtst"
    return [
        {
            "event_id": event,
            "recording": f"data/{event:02}.csv" if event > 1 else SCRIPT,
            "start": f"2026-01-09T06:{event % 60:02}:25.000" if stamped else None,
            "end": f"2026-01-09T06:{event % 60:02}:26.500" if stamped else None,
            "duration_seconds": 1.5 if event > 1 else 0.0,
            "start_seconds": 60.0 * event + 25,
            "end_seconds": 60.0 * event + 26.5,
            "scores": 3,
            "alarms": 3,
            "peak_score": 0.9 + event / 10,
            "peak_time": None,
            "severity": 1 + event / 8,
            "channels": [
                {"name": "rf_reflected_W", "share": 0.71},
                {"name": "esc_current_uA" if event > 2 else "chamber_pressure", "share": 0.07},
            ],
            "label_overlap": None,
            "sentence": f"1.5 s in minute {event}: peak {1 + event / 8:.2f} × threshold",
        }
        for event in range(1, number + 1)
    ]


def write_scores(root: Path, stream: str, run_id: str | None, *, labels: bool, events: int = 7) -> None:
    detection = {
        "auroc": 0.9412,
        "average_precision": 0.6834,
        "f1": 0.6603,
        "precision": 0.7021,
        "recall": 0.6231,
        "false_alarm_rate": 0.0132,
        "prevalence": 0.0471,
        "faults_total": 8,
        "faults_found": 6,
        "event_recall": 0.75,
        "event_recall_by_chance": 0.183,
        "event_recall_by_chance_q95": 0.375,
        "false_events": 3,
        "recorded_hours": 2.0,
        "false_events_per_hour": 1.5,
    }
    threshold = {"value": 0.83172, "false_alarm_rate": 0.01, "calibration_scores": 2140}
    threshold |= {"false_events_per_day": 1.0, "calibration_days": 0.3}
    per_day = {"events_per_day": 3.0, "events_per_day_low": 0.5, "events_per_day_high": 9.0}
    counts = {"scores": 2140, "bursts": 4}
    threshold["expected"] = {"rate": 0.009, "low": 0.005, "high": 0.012, **counts, **per_day}
    what_if = [
        {"threshold": value, "events": number, "per_day": often, "per_day_high": often + 3.0}
        for value, number, often in ((0.6, 12, 9.0), (0.83172, 7, 3.0), (1.2, 4, 0.0))
    ]
    lines = event_lines(stream, events)
    pictures = {line["event_id"]: f"artifacts/scores/{stream}_event_{line['event_id']}.png" for line in lines[-3:]}
    summary = {
        "schema_version": 1,
        "stream": stream,
        "run_id": run_id,
        "scored_at": iso(START + timedelta(minutes=20)),
        "scores": 5120,
        "recordings": 14,
        "alarms": 93,
        "events": events,
        "threshold": threshold | ({"statement": STATEMENT} if labels else {}),
        "what_if": what_if,
        "detection": detection if labels else None,
        "timeline": {"png": f"artifacts/scores/{stream}_timeline.png"},
        "panels": [{"event_id": event, "png": png, "sentence": "…"} for event, png in reversed(pictures.items())],
    }
    write(root / f"artifacts/scores/{stream}_summary.json", summary)
    write(root / f"artifacts/scores/{stream}_events.json", lines)
    for png in pictures.values():
        (root / png).write_bytes(timeline_png(height=240))
    (root / f"artifacts/scores/{stream}_timeline.png").write_bytes(timeline_png())


@functools.cache
def timeline_png(width: int = 640, height: int = 160) -> bytes:
    """A small score curve with a threshold line, drawn without a library."""

    def pixel(x: int, y: int) -> bytes:
        level = height - 30 - 12 * math.sin(x / 9) ** 2 - (90 if 300 < x < 330 else 0)
        return b"\x1f\x66\x80" if abs(y - level) < 1.5 else b"\xb0\x50\x1c" if y == 70 else b"\xff\xff\xff"

    rows = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(width)) for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def checklist_items(*, failing: bool) -> list[dict[str, Any]]:
    rows = [
        ("V-01.checkpoint.patchtst", "V-01", "PatchTST checkpoint loads", "PASS", "3.4 MB, sha256 matches"),
        ("V-01.checkpoint.swinmae", "V-01", "Swin-MAE checkpoint loads", "PASS", "11.2 MB, sha256 matches"),
        ("V-01.paths", "V-01", "No local asset names an absolute path", "PASS", "214 files read"),
        ("V-02.scores.patchtst", "V-02", "Scoring twice gives equal scores", "PASS", "5,120 scores, largest gap 0"),
        ("V-02.lint", "V-02", "Lint", "WARN", "1 finding, first: scratch.py:1:8: F401 (not Landfall's files)"),
        ("V-02.cuda", "V-02", "GPU and CPU agree", "SKIP", "no second device on this machine"),
        ("V-03.loss.patchtst", "V-03", "PatchTST loss falls", "PASS", "0.807 to 0.108 in 12 epochs"),
    ]
    items = [dict(zip(("id", "group", "title", "status", "detail"), row, strict=True), hint=None) for row in rows]
    last = {"id": "V-03.loss.swinmae", "group": "V-03", "title": "Swin-MAE loss falls", "hint": None}
    if failing:
        hint = "train again with training.learning_rate=0.0003"
        return [*items, last | {"status": "FAIL", "detail": "the run ended in epoch 5 of 12", "hint": hint}]
    return [*items, last | {"status": "PASS", "detail": "0.403 to 0.051 in 12 epochs"}]


def write_checklist(root: Path, *, failing: bool) -> None:
    report = {"schema_version": 1, "generated_at": iso(START + timedelta(minutes=40)), "passed": not failing}
    write(root / "artifacts/validation_report.json", report | {"items": checklist_items(failing=failing)})


def write_checkpoint(root: Path, stream: str, run_id: str) -> None:
    sidecar = {"run_id": run_id, "sha256": "9f" * 32, "config": {}, "metrics": {}, "hardware": {}}
    write(root / f"checkpoints/{stream}_ssl.json", sidecar)
    (root / f"checkpoints/{stream}_ssl.pt").write_bytes(b"weights")


def build_workspace(root: Path) -> Path:
    """Two runs of both streams: the first was killed in PatchTST, the second failed in Swin-MAE; one check fails."""
    earlier = START - timedelta(days=1, hours=2, minutes=15)
    killed = write_run(root, "patchtst", FIRST, start=earlier, state="running", done=4, scale=1.3)
    tear_last_line(killed)
    write_run(root, "swinmae", FIRST, start=earlier, scale=0.6)
    write_run(root, "patchtst", SECOND)
    write_run(
        root, "swinmae", SECOND, start=START + timedelta(minutes=13), state="failed", reason=SCRIPT, done=5, scale=0.5
    )
    for stream, run_id in (("patchtst", SECOND), ("swinmae", FIRST)):
        write_checkpoint(root, stream, run_id)
        write_scores(root, stream, run_id, labels=stream == "patchtst")
    write_quality(root, "fdc", 12, dropped=True, warned=True)
    write_quality(root, "vib", 6)
    write_checklist(root, failing=True)
    return root


def build_finished_workspace(root: Path) -> Path:
    """A successful run of both streams."""
    for stream in ("patchtst", "swinmae"):
        write_run(root, stream, SECOND)
        write_checkpoint(root, stream, SECOND)
        write_scores(root, stream, SECOND, labels=False)
    write_quality(root, "fdc", 3)
    write_quality(root, "vib", 3)
    write_checklist(root, failing=False)
    return root
