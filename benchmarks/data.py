"""From files to batches: the store, windows as views, and the share of a training step that waits for a batch."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.implementations import Work
from benchmarks.paired import Comparison, Task, compare
from benchmarks.patchtst import training_step
from benchmarks.placed import Place
from benchmarks.run import Effort
from core.config.schema import AnyConfig, PatchTSTModel, SwinMAEModel
from core.config.schema import Scalogram as ScalogramSettings
from core.data.feed import Feed
from core.data.windows import Series, WindowSet
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE

CHANNELS, WINDOW, BATCH = 64, 512, 16
# Rows of the table; with 64 channels of float32 the second is 200 MB.
ROWS, FULL_ROWS = 80_000, 780_000
IMAGE, IMAGE_BATCH, SAMPLES, RATE_HZ = 128, 16, 2048, 6400.0


def comparisons(effort: Effort) -> Iterator[Comparison]:
    """Comparisons of reading, gathering, and steps with and without them."""
    rows = FULL_ROWS if effort.full else ROWS
    with tempfile.TemporaryDirectory() as folder:
        _write_table(Path(folder) / "data" / "plant.csv", rows)
        yield compare(
            f"first batch of a cached file of {rows * CHANNELS * 4 / 1e6:.0f} MB ({CHANNELS} channels)",
            Task("Landfall's store", "benchmarks.data:our_first_batch", {"folder": folder}),
            Task("pandas.read_csv, C engine", "benchmarks.data:pandas_first_batch", {"folder": folder}, tuned=False),
            unit="starts", count=1, rounds=effort.rounds,
        )  # fmt: skip
    yield compare(
        f"an epoch of 512 windows of {WINDOW} × {CHANNELS}, shuffled",
        Task("Landfall", "benchmarks.data:our_epoch", {}),
        Task("torch DataLoader", "benchmarks.data:loader_epoch", {}, tuned=False),
        unit="windows", count=512, rounds=effort.rounds,
    )  # fmt: skip
    for name, maker, count, goal in (
        ("PatchTST, 64 channels: a step that gathers its windows", "patchtst_step", BATCH, 0.98),
        ("Swin-MAE tiny: a step that makes its scalograms", "swinmae_step", IMAGE_BATCH, 0.9),
    ):
        yield compare(
            name,
            Task("Landfall", f"benchmarks.data:{maker}", {"prepared": False}),
            Task("the same, batch prepared", f"benchmarks.data:{maker}", {"prepared": True}),
            unit="windows", count=count, rounds=effort.rounds, goal=goal,
        )  # fmt: skip


def _write_table(path: Path, rows: int) -> None:
    """A table of random walks with one row per second."""
    import pyarrow as pa
    from pyarrow import csv

    path.parent.mkdir(parents=True)
    values = np.random.default_rng(0).standard_normal((rows, CHANNELS)).cumsum(axis=0).round(3)
    stamps = np.datetime64("2026-01-01T00:00:00") + np.arange(rows).astype("timedelta64[s]")
    columns = {"timestamp": pa.array(stamps), **{f"s{c:02d}": values[:, c] for c in range(CHANNELS)}}
    csv.write_csv(pa.table(columns), path)


# ------------------------------------------------------------------------------------------------------ implementations
def our_first_batch(folder: str) -> Work:
    """From a configuration to a batch: the file is read, checked, split and scaled as in every run."""
    from core.data.dataset import TRAINING_SPLITS, load_stream_data

    logging.getLogger("core.data").setLevel(logging.ERROR)
    config, root = _config(), Path(folder)

    def first_batch() -> torch.Tensor:
        windows = load_stream_data(config, root=root, splits=TRAINING_SPLITS).splits["train"]
        return windows.batch(torch.randperm(len(windows))[:BATCH])

    return first_batch


def pandas_first_batch(folder: str) -> Work:
    """The usual code of a notebook: read, select numeric columns, scale them, cut windows."""
    import pandas as pd

    path = Path(folder) / "data" / "plant.csv"

    def first_batch() -> torch.Tensor:
        values_tc = pd.read_csv(path, engine="c").drop(columns="timestamp").to_numpy(np.float32)
        values_tc = (values_tc - values_tc.mean(0)) / values_tc.std(0)
        starts = np.random.default_rng(0).permutation(len(values_tc) - WINDOW)[:BATCH]
        return torch.stack([torch.from_numpy(values_tc[start : start + WINDOW]) for start in starts])

    return first_batch


def our_epoch() -> Work:
    windows = _windows(torch.randn(WINDOW + 64 * 511, CHANNELS).numpy(), stride=64)
    return lambda: [windows.batch(index_b) for index_b in torch.randperm(len(windows)).split(BATCH)]


def loader_epoch() -> Work:
    """PyTorch's standard way: a dataset that returns one window, and a loader that stacks them."""
    values_tc = torch.randn(WINDOW + 64 * 511, CHANNELS)

    class Windows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 512

        def __getitem__(self, index: int) -> torch.Tensor:
            return values_tc[64 * index : 64 * index + WINDOW]

    loader = torch.utils.data.DataLoader(Windows(), batch_size=BATCH, shuffle=True)
    return lambda: list(loader)


def patchtst_step(prepared: bool, batch: int = BATCH, place: dict[str, Any] | None = None) -> Work:
    where = Place(**(place or {}))
    model = PatchTST(PatchTSTModel(patch_length=16), num_channels=CHANNELS, window=WINDOW)
    feed = Feed(_windows(torch.randn(40_000, CHANNELS).numpy(), stride=64), torch.device(where.device))
    x_btc = feed.batch(torch.arange(batch)).contiguous()

    def loss() -> torch.Tensor:
        return model(x_btc if prepared else feed.batch(torch.randperm(len(feed.windows))[:batch])).loss

    return training_step(model, loss, "32", fused=True, place=where)


def swinmae_step(prepared: bool, batch: int = IMAGE_BATCH, place: dict[str, Any] | None = None) -> Work:
    """The smallest model, where the transform takes the largest share."""
    from core.data.inputs import StandardisedScalogram
    from core.data.scalogram import Scalogram

    where = Place(**(place or {}))
    settings = SwinMAEModel(embed_dim=48, depths=(2, 2), num_heads=(3, 6), decoder_depths=(2,), window_size=4)
    model = SwinMAE(settings, image_size=IMAGE)
    windows = _windows(torch.randn(100 * SAMPLES, 3).numpy(), stride=SAMPLES, window=SAMPLES)
    feed = Feed(windows, torch.device(where.device))
    transform = StandardisedScalogram(Scalogram(ScalogramSettings(image_size=IMAGE)), RATE_HZ, remove_mean=True)
    image_bchw = transform(feed.batch(torch.arange(batch)))

    def loss() -> torch.Tensor:
        drawn_b = torch.randperm(len(windows))[:batch]
        return model(image_bchw if prepared else transform(feed.batch(drawn_b))).loss

    return training_step(model, loss, "32", fused=True, place=where)


def _windows(values_tc: np.ndarray, *, stride: int, window: int = WINDOW) -> WindowSet:
    starts = np.arange(0, len(values_tc) - window + 1, stride)
    return WindowSet(Series.of([], values_tc), starts, window)


def _config() -> AnyConfig:
    from core.config.compose import config_from_dict

    split: dict[str, Any] = {"files": ["data/plant.csv"]}
    return config_from_dict(
        {
            "stream": "patchtst",
            "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt", "progress": "off"},
            "dqvl": {"report_dir": "artifacts/dqvl"},
            "data": {
                "root": ".",
                "window": WINDOW,
                "splits": {
                    "train": {**split, "stop": 0.6},
                    "validation": {**split, "start": 0.6, "stop": 0.7},
                    "calibration": {**split, "start": 0.7, "stop": 0.8},
                    "test": {**split, "start": 0.8},
                },
            },
            "model": {"patch_length": 16},
        },
        source="benchmarks/data.py",
    )
