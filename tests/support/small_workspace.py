"""A workspace small enough for the complete pipeline in a test or the soak: real notebooks and models, little data."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from tests.support import copy_notebooks

REPOSITORY = Path(__file__).resolve().parents[2]
# Configuration file of each stream; both start from the real local ones.
CONFIGS = {"patchtst": "configs/small_patchtst.yaml", "swinmae": "configs/small_swinmae.yaml"}
RUN_ID = "20261121-083000-1f3a"
PIPELINE_ARGUMENTS = ("--patch-config", CONFIGS["patchtst"], "--swin-config", CONFIGS["swinmae"])
_PATCHTST = """\
defaults: [patchtst_ssl_local, _self_]
device: {prefer: cpu}
precision: "32"
max_threads: 1
data: {window: 32, stride: 8, score_stride: 16}
model: {patch_length: 8, d_model: 16, num_heads: 2, num_layers: 1, d_ff: 32}
training: {epochs: 3, batch_size: 8, learning_rate: 0.01}
scoring: {operating_context: "off", event_gap: 1, event_min_length: 1, threshold: {false_alarm_rate: 0.01}}
"""
_SWINMAE = """\
defaults: [swinmae_ssl_local, _self_]
device: {prefer: cpu}
precision: "32"
max_threads: 1
data: {window: 128, stride: 32, score_stride: 64}
scalogram: {frequencies: 16, image_size: 32}
model: {embed_dim: 12, depths: [1, 1], num_heads: [2, 4], decoder_depths: [1]}
training: {epochs: 4, batch_size: 16, learning_rate: 0.005}
scoring: {threshold: {false_alarm_rate: 0.05}}
"""


def build_small_workspace(root: Path) -> Path:
    """The files of a clone that a run reads, with two training files and two test files per stream."""
    root.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "pyproject.toml", root)
    shutil.copytree(REPOSITORY / "configs", root / "configs", ignore=shutil.ignore_patterns(".*"))
    copy_notebooks(root / "notebooks")
    (root / CONFIGS["patchtst"]).write_text(_PATCHTST, encoding="utf-8")
    (root / CONFIGS["swinmae"]).write_text(_SWINMAE, encoding="utf-8")
    (root / "requirements.lock").write_text(f"# what tests need\npytest=={version('pytest')}\n", encoding="utf-8")
    write_process_data(root / "data/fdc")
    write_vibration_data(root / "data/vib")
    return root


def install_page(root: Path) -> Path:
    """Copies the page into the workspace, without data or chart library of the repository."""
    page = root / "training_dashboard"
    shutil.copytree(REPOSITORY / "training_dashboard", page, ignore=shutil.ignore_patterns("data"))
    return page


def write_process_data(folder: Path) -> None:
    """Four sensors that follow one driver; in `test_1` one of them shifts for a while, with labels."""
    folder.mkdir(parents=True)
    for number, name in enumerate(("train_1", "train_2", "test_1", "test_2")):
        rng = np.random.default_rng(number)
        rows = 900 if name.startswith("train") else 300
        driver_t1 = np.sin(np.arange(rows) / 7)[:, None]
        frame = pd.DataFrame(driver_t1 + 0.1 * rng.normal(size=(rows, 4)), columns=list("pqrs"))
        frame.insert(0, "timestamp", pd.date_range(f"2026-01-0{number + 1}", periods=rows, freq="s"))
        if name == "test_1":
            anomalous_t = np.arange(rows) // 60 == 3
            frame.loc[anomalous_t, "r"] += 6.0
            labels = pd.DataFrame({"timestamp": frame["timestamp"], "anomaly": anomalous_t.astype(int)})
            labels.to_csv(folder / "test_1.labels.csv", index=False)
        frame.to_csv(folder / f"{name}.csv", index=False)


def write_vibration_data(folder: Path) -> None:
    """Three axes of one tone at 1 kHz whose level rises and falls; `test_loud` shakes in z from its first second on."""
    folder.mkdir(parents=True)
    for number, name in enumerate(("train_1", "train_2", "test_good", "test_loud")):
        rng = np.random.default_rng(number)
        level_t1 = 10 ** (0.5 * np.sin(np.arange(6000) / 150 + number))[:, None]
        values_ta = level_t1 * (np.sin(np.arange(6000) * 0.3)[:, None] + 0.05 * rng.normal(size=(6000, 3)))
        values_ta[:, 2] += 8.0 * rng.normal(size=6000) * (name == "test_loud")
        np.save(folder / f"{name}.npy", values_ta.astype(np.float32))
        (folder / f"{name}.json").write_text('{"sampling_rate_hz": 1000}', encoding="utf-8")
    (folder / "test_good.labels.csv").write_text("start,end\n", encoding="utf-8")
    (folder / "test_loud.labels.csv").write_text("start,end\n0,6\n", encoding="utf-8")
