"""Wall time to the same masked validation error on real data, compared with transformers' PatchTST. The peer trains for
a number of epochs, and its final error is the target; ours stops when its error is below it. Both have the same
windows, model size, batch, optimizer and schedule; validation is not timed.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.paired import Comparison
from benchmarks.run import Effort
from core.config.schema import PatchTSTModel
from core.data.segments import window_starts
from core.data.windows import Series, WindowSet
from core.models.patchtst import PatchTST

log = logging.getLogger(__name__)

LEARNING_RATE, MASK_RATIO, DROPOUT, BATCH = 1e-3, 0.4, 0.2, 64
GOAL = 4.0


@dataclass(frozen=True)
class Setting:
    """A data set (its files below the data folder, each a series of numbers without gaps), its split, and the number of
    epochs of the peer."""

    name: str
    files: str
    train: tuple[int, int]
    validation: tuple[int, int]
    window: int
    stride: int
    patch: int
    epochs: int


SETTINGS = (
    Setting("ETTh1", "fdc/ett/ETTh1.csv.gz", (0, 8640), (8640, 11520), window=504, stride=16, patch=12, epochs=6),
    Setting("SKAB", "fdc/skab/*.csv.gz", (0, 300), (300, 400), window=64, stride=4, patch=8, epochs=12),
)


def comparisons(effort: Effort) -> Iterator[Comparison]:
    """ETTh1 and SKAB; nothing without `--data`."""
    if effort.data is None:
        log.warning("convergence is skipped: pass --data with the folder that contains fdc/ett and fdc/skab")
        return
    for number, setting in enumerate(SETTINGS):
        theirs = _run(number, effort.data, sees="", mark=0.0, tuned=False)
        for sees in ("all", "visible"):
            ours = _run(number, effort.data, sees=sees, mark=theirs["error"], tuned=True)
            ratio = theirs["seconds"] / ours["seconds"] if ours["error"] <= theirs["error"] else 0.0
            yield Comparison(
                title=f"{setting.name}: to a masked error of {theirs['error']:.3f}, where the peer is after "
                f"{setting.epochs} epochs",
                ours=f"Landfall ({sees}), {ours['epochs']:.1f} epochs in {ours['seconds']:.0f} s",
                peer=f"transformers, dropout .2, {theirs['seconds']:.0f} s",
                unit="runs",
                ours_per_second=1 / ours["seconds"],
                peers_per_second=1 / theirs["seconds"],
                ratio=ratio,
                ratio_range=(ratio, ratio),
                memory_ratio=ours["peak_mb"] / theirs["peak_mb"],
                goal=GOAL,
            )


def _run(number: int, folder: Path, *, sees: str, mark: float, tuned: bool) -> dict[str, Any]:
    """One implementation, in a separate process."""
    command = [sys.executable, "-m", "benchmarks.convergence", str(number), str(folder), sees, str(mark)]
    environment = {**os.environ, **({} if tuned else {"LANDFALL_TUNE": "0"})}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


# --------------------------------------------------------------------------------------------------------- one training
def train(setting: Setting, folder: Path, *, sees: str, mark: float) -> dict[str, Any]:
    """Seconds of training to a validation error of `mark`, or to the end; transformers' model if `sees` is empty."""
    from core.devices import process_memory

    torch.manual_seed(0)
    training, validation = _windows(setting, folder)
    build = _transformers if not sees else _landfall
    model, loss_of = build(setting, training.series.rows_nc.shape[1], sees)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=bool(sees) or None)
    steps = -(-len(training) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=setting.epochs * steps)
    seconds, done, error = 0.0, 0, float("inf")
    order = torch.Generator().manual_seed(1)
    while done < setting.epochs * steps and error > mark:
        for index_b in torch.randperm(len(training), generator=order).split(BATCH):
            started = time.perf_counter()
            loss_of(training.batch(index_b)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            seconds += time.perf_counter() - started
            done += 1
            last = done == setting.epochs * steps
            if last or (mark and done % max(1, steps // 4) == 0):
                error = _error(model, loss_of, validation)
                if error <= mark:
                    break
    peak_mb = process_memory.peak_meter().peak_mb()
    return {"seconds": seconds, "epochs": done / steps, "error": error, "peak_mb": peak_mb}


def _windows(setting: Setting, folder: Path) -> tuple[WindowSet, WindowSet]:
    """Training and validation windows, standardised by the training rows."""
    import pandas as pd

    tables = [pd.read_csv(path).select_dtypes("number") for path in sorted(folder.glob(setting.files))]
    tables = [table for table in tables if len(table) >= setting.validation[1] and list(table) == list(tables[0])]
    values = [table.iloc[: setting.validation[1]].to_numpy(np.float32) for table in tables]
    train_rows = np.concatenate([one[slice(*setting.train)] for one in values])
    scaled = [(one - train_rows.mean(0)) / train_rows.std(0) for one in values]
    series, rows = Series.of([], np.concatenate(scaled)), setting.validation[1]

    def cut(split: tuple[int, int]) -> WindowSet:
        stretches = np.array([[rows * file + split[0], rows * file + split[1]] for file in range(len(values))])
        return WindowSet(series, window_starts(stretches, setting.window, setting.stride), setting.window)

    return cut(setting.train), cut(setting.validation)


Built = tuple[torch.nn.Module, Callable[[torch.Tensor], torch.Tensor]]


def _landfall(setting: Setting, channels: int, sees: str) -> Built:
    settings = PatchTSTModel(
        patch_length=setting.patch, patch_stride=setting.patch, mask_ratio=MASK_RATIO, d_model=128, num_heads=16,
        num_layers=3, d_ff=512, drop_masked_tokens=sees == "visible",
    )  # fmt: skip
    model = PatchTST(settings, num_channels=channels, window=setting.window)
    return model, lambda x_btc: model(x_btc).loss


def _transformers(setting: Setting, channels: int, sees: str) -> Built:
    from transformers import PatchTSTConfig, PatchTSTForPretraining

    config = PatchTSTConfig(
        num_input_channels=channels, context_length=setting.window, patch_length=setting.patch,
        patch_stride=setting.patch, d_model=128, num_attention_heads=16, num_hidden_layers=3, ffn_dim=512,
        attention_dropout=DROPOUT, ff_dropout=DROPOUT, positional_dropout=DROPOUT, path_dropout=0.0, head_dropout=0.0,
        mask_type="random", random_mask_ratio=MASK_RATIO, scaling=None, do_mask_input=True,
    )  # fmt: skip
    model = PatchTSTForPretraining(config)
    return model, lambda x_btc: model(past_values=x_btc).loss


@torch.no_grad()
def _error(model: torch.nn.Module, loss_of: Callable[[torch.Tensor], torch.Tensor], windows: WindowSet) -> float:
    """Mean squared error of masked patches, with the same masks at every call."""
    model.eval()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        losses = [(float(loss_of(batch)), len(batch)) for batch in windows.batches(BATCH)]
    model.train()
    return sum(loss * count for loss, count in losses) / sum(count for _, count in losses)


if __name__ == "__main__":
    from core.config.compose import environment_settings
    from core.devices.host import thread_limit, usable_cores
    from core.devices.process import tune_process

    if environment_settings()[0].tune:
        tune_process()
    cores = usable_cores()
    torch.set_num_threads(thread_limit(cores, max_threads=cores)[0])
    number, folder, sees, mark = sys.argv[1:]
    result = train(SETTINGS[int(number)], Path(folder), sees=sees, mark=float(mark))
    sys.stdout.write(json.dumps(result) + "\n")
