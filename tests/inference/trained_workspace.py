"""A workspace with tiny files and a tiny model of each stream, trained for one epoch."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from core.config.compose import LoadedConfig, load_config, local_config_file
from tests.support import REPO_ROOT
from trainers.run import train

OVERRIDES = {
    "patchtst": [
        "data.window=32", "data.stride=8", "data.score_stride=16", "model.patch_length=8",
        "model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model.d_ff=32", "scoring.event_gap=3",
        "scoring.event_min_length=1", "scoring.threshold.false_alarm_rate=0.01",
    ],
    "swinmae": [
        "data.window=128", "data.stride=64", "data.score_stride=64", "scalogram.image_size=32",
        "scalogram.frequencies=16", "model.embed_dim=12", "model.depths=[1,1]", "model.num_heads=[2,4]",
        "model.decoder_depths=[1]", "model.window_size=4", "scoring.threshold.false_alarm_rate=0.05",
        "data.sampling_rate_hz=1000",
    ],
}  # fmt: skip
SHARED = [
    "training.epochs=1", "training.batch_size=32", "logging.tensorboard=false", "logging.progress=off",
    "device.prefer=cpu", "precision='32'", "max_threads=1", "scoring.batch_size=16", "scoring.operating_context=off",
    "scoring.model_weight=0.5",  # choosing it takes most of a scoring; test_model_weight does
]  # fmt: skip
FAULT = slice(200, 260)


def write_process(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, (name, rows) in enumerate({"train_1": 900, "train_2": 900, "test_1": 400, "test_2": 300}.items()):
        rng = np.random.default_rng(number)
        driver_t1 = np.sin(np.arange(rows) / 7)[:, None]
        frame = pd.DataFrame(driver_t1 + 0.1 * rng.normal(size=(rows, 4)), columns=list("pqrs"))
        frame.iloc[rng.integers(0, rows, 5), 1] = np.nan
        times = pd.Timestamp("2026-01-05") + pd.Timedelta(number, "D") + pd.to_timedelta(np.arange(rows), "s")
        frame.insert(0, "timestamp", times)
        if name == "test_1":
            frame.loc[FAULT.start : FAULT.stop - 1, "r"] += 6.0
            anomaly_t = np.zeros(rows, dtype=np.int8)
            anomaly_t[FAULT] = 1
            labels = pd.DataFrame({"timestamp": times, "anomaly": anomaly_t})
            labels.to_csv(folder / "test_1.labels.csv", index=False)
            # A minute is lost, and what follows it is shorter than a window.
            frame = frame[(frame.index < 310) | (frame.index >= 380)]
        frame.to_csv(folder / f"{name}.csv", index=False)


def write_vibration(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate(("train_1", "train_2", "test_good", "test_loud")):
        rng = np.random.default_rng(number)
        values_ta = np.sin(np.arange(6000) * 0.3)[:, None] + 0.2 * rng.normal(size=(6000, 3))
        values_ta[:, 2] += 8.0 * rng.normal(size=6000) * (name == "test_loud")
        np.save(folder / f"{name}.npy", values_ta.astype(np.float32))
        if name.startswith("test"):
            text = "start,end\n0,6\n" if name == "test_loud" else "start,end\n"
            (folder / f"{name}.labels.csv").write_text(text, encoding="utf-8")


def configuration(stream: str, root: Path, *more: str) -> LoadedConfig:
    overrides = [*OVERRIDES[stream], *SHARED, *more]
    return load_config(local_config_file(stream), overrides, root=root, environment={})


def build(root: Path) -> Path:
    shutil.copytree(REPO_ROOT / "configs", root / "configs", dirs_exist_ok=True)
    write_process(root / "data/fdc")
    write_vibration(root / "data/vib")
    for stream in OVERRIDES:
        train(configuration(stream, root), root=root, run_id=f"run-{stream}")
    return root
