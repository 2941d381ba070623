"""Configurations and files of the data tests: ramps in which a test recognises every row by its value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from core.config.compose import config_from_dict
from core.config.schema import AnyConfig
from core.data.dataset import TRAINING_SPLITS, StreamData, load_stream_data

WINDOW = 20
# Raw values survive, so that a test recognises every row by its value.
UNSCALED = {"method": "none", "clip": 1e9}
SPLIT = {
    "train": {"files": ["data/*.csv"], "stop": 0.5},
    "validation": {"files": ["data/*.csv"], "start": 0.5, "stop": 0.7},
    "calibration": {"files": ["data/*.csv"], "start": 0.7, "stop": 0.85},
    "test": {"files": ["data/*.csv"], "start": 0.85},
}


def make_config(stream: str = "patchtst", *, splits: dict = SPLIT, look_ahead: bool = True, **data) -> AnyConfig:
    values = {
        "stream": stream,
        "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt", "progress": "off"},
        "dqvl": {"report_dir": "artifacts/dqvl/x"},
        "data": {
            "root": ".",
            "window": WINDOW,
            "stride": 3,
            "score_stride": 3,
            "guard": 0,
            "scaling": UNSCALED,
            **data,
            "splits": splits,
        },
        "scoring": {"look_ahead": look_ahead},
        "model": {"patch_length": 4} if stream == "patchtst" else {},
        **({} if stream == "patchtst" else {"scalogram": {"image_size": 16}}),
    }
    return config_from_dict(values, source="a test")


def write_ramp(
    root: Path, name: str, rows: int, *, first: int = 0, gap_at: int | None = None, columns=("a", "b")
) -> None:
    """Row i holds first + i in column a; one row a second, an hour of silence before `gap_at`."""
    seconds = np.arange(rows) + (np.arange(rows) >= gap_at) * 3600 if gap_at else np.arange(rows)
    frame = pd.DataFrame({"timestamp": pd.Timestamp("2026-01-01") + pd.to_timedelta(seconds, unit="s")})
    for number, column in enumerate(columns):
        frame[column] = (first + np.arange(rows)) * (-1.0) ** number
    (root / "data").mkdir(exist_ok=True)
    frame.to_csv(root / "data" / name, index=False)


def load(root: Path, config: AnyConfig, splits=TRAINING_SPLITS, **options) -> StreamData:
    return load_stream_data(config, root=root, splits=splits, **options)


def write_vibration(root: Path, name: str, rate_hz: float | None, rows: int = 400) -> None:
    (root / "data").mkdir(exist_ok=True)
    np.save(root / "data" / f"{name}.npy", np.random.default_rng(1).normal(size=(rows, 3)).astype(np.float32))
    if rate_hz:
        (root / "data" / f"{name}.json").write_text(json.dumps({"sampling_rate_hz": rate_hz}))


VIBRATION = {name: {**split, "files": ["data/*.npy"]} for name, split in SPLIT.items()}
