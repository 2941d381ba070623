"""Outputs of scoring, training and migration for the dashboard, in addition to those of `tests.dashboard.builders`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from core.workspace import write_json

RECORDING = "data/07.csv"


def write_score_table(
    root: Path, stream: str, recordings: dict[str, np.ndarray], *, stamped: bool = True, threshold: float = 0.83
) -> Path:
    """A score table as scoring writes it: a score a second, labelled anomalous from second 20 to 29."""
    names = list(recordings)
    score = np.concatenate(list(recordings.values())).astype(np.float32)
    second = np.concatenate([np.arange(len(values), dtype=float) for values in recordings.values()])
    code = np.repeat(np.arange(len(names)), [len(values) for values in recordings.values()])
    time = pd.Timestamp("2026-01-09 06:00") + pd.to_timedelta(second, "s")
    table = pd.DataFrame(
        {
            "recording": pd.Categorical.from_codes(code, names),
            "row": second.astype(int),
            "segment": code,
            "time": time if stamped else pd.Series(pd.NaT, index=range(len(score)), dtype="datetime64[ns]"),
            "seconds": second,
            "score": score,
            "threshold": threshold,
            "alarm": score > threshold,
            "label": pd.array(((second >= 20) & (second < 30)).astype(int), dtype="Int8"),
            "top_channel": pd.Categorical.from_codes(np.zeros(len(score), int), ["a"]),
        }
    )
    path = root / f"artifacts/scores/{stream}_scores.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path, index=False)
    return path


def write_event(root: Path, stream: str, number: int, **changes: Any) -> Path:
    """The document of an event of `builders.event_lines`."""
    channel = {"name": "</script>", "share": 0.71, "t": [1.0, 2.0], "seen": [0.5, None], "expected": [0.4, 0.6]}
    document = {
        "schema_version": 1,
        "id": number,
        "recording": f"data/{number:02}.csv",
        "start_s": 60.0 * number + 25,
        "end_s": 60.0 * number + 26.5,
        "channels": [channel | {"error": [9.0, 1.0]}],
    }
    path = root / f"artifacts/scores/{stream}_events/{number}.json"
    write_json(path, document | changes)
    return path


def write_devices(root: Path) -> Path:
    plan = {
        "kind": "cuda",
        "name": "NVIDIA RTX 4000 Ada",
        "precision": "bf16-mixed",
        "threads": 16,
        "device_reason": "first usable of cuda, cpu",
        "precision_reason": "bf16 is native",
        "memory_limit_mb": 15_360,
        "memory_reason": "balanced",
        "misfits": ["8 devices were asked for, 1 is here"],
        "count": 1,
    }
    found = {
        "kind": "cuda",
        "name": "NVIDIA RTX 4000 Ada",
        "count": 1,
        "memory_total_mb": 20_480,
        "memory_free_mb": 20_000,
        "native_dtypes": ["float32", "float16", "bfloat16"],
        "usable": True,
        "reason": "a matrix product came out right",
    }
    routing = {
        "mode": "auto", "prefer": "auto", "set_by": "default", "order": ["cuda", "xpu"], "allow_tpu": False,
        "prefer_cuda": True, "strict": False,
    }  # fmt: skip
    report = {
        "schema_version": 1,
        "plan": plan,
        "devices": [found, found | {"kind": "xpu", "usable": False, "reason": "the driver is too old"}],
        "routing": routing,
        "memory": {"total_mb": 20_480, "free_mb": 20_000, "limit_mb": 15_360, "strategy": "balanced", "share": 0.75},
        "batch": {"tier": "gpu-16", "batch_size": 256, "model_size": "full", "gradient_checkpointing": False},
        "host": {"ram_mb": 64_000, "torch_cuda": "13.0", "cuda_visible_devices": None},
    }
    path = root / "artifacts/devices.json"
    write_json(path, report)
    return path


def write_migration(root: Path, name: str = "plant.ipynb", *, to_do: bool = True) -> Path:
    """A report as `landfall migrate` keeps it, and its notebook."""
    common = {"file_line": None, "before": "", "after": "", "anchor": "", "line": 2, "cell": 3}
    content = {"name": "`/content` in Python", "keeps": "exact", "changed": True, "message": "a path", "action": ""}
    key = {"name": "Secret", "keeps": "needs-human", "changed": False, "message": "a key", "action": "revoke it"}
    findings = [{"rule": "LF402", **content, **common}, {"rule": "LF801", **key, **common}]
    counts = {"notebooks": 1, "migrated": 1, "unchanged": 0, "failed": 0, "needing_human": int(to_do), "hardware": {}}
    notebook = {
        "input": name,
        "output": f"local_{name}",
        "status": "migrated",
        "rules": {"LF402": 4, "LF801": 1} if to_do else {"LF402": 4},
        "keeps": {"exact": 4, "needs-human": 1} if to_do else {"exact": 4},
        "findings": findings if to_do else findings[:1],
    }
    summary = counts | {"rules": notebook["rules"], "keeps": notebook["keeps"]}
    (root / f"local_{name}").write_text("{}", encoding="utf-8")
    path = root / f"artifacts/migration/{name}.json"
    report = {"schema_version": 1, "landfall": "0", "mode": "write", "summary": summary, "notebooks": [notebook]}
    write_json(path, report)
    return path
