"""Scaling of time and memory with the size of the work: one implementation, very different sizes, fitted exponents. An
exponent of 1 means that twice the work takes twice the time, 0 that the time is constant.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from benchmarks.data import our_first_batch
from benchmarks.implementations import Implementation, Work
from benchmarks.patchtst import training_step
from benchmarks.run import Effort
from core.config.schema import PatchTSTModel, SwinMAEModel
from core.data.windows import Series, WindowSet
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE

PICTURE = Path("docs/images/growth.png")
SHARED_STEP = "PatchTST step, 64 windows of 16 channels, cores shared"


@dataclass(frozen=True)
class Curve:
    """Seconds and MiB (peak memory of the process, including its libraries) of one workload at several sizes."""

    KIND: ClassVar = "curves"

    title: str
    size: str
    sizes: list[float]
    seconds: list[float]
    peak_mb: list[float]

    @property
    def time_exponent(self) -> float:
        return exponent(self.sizes, self.seconds)

    @property
    def memory_exponent(self) -> float:
        return exponent(self.sizes, self.peak_mb)

    def __str__(self) -> str:
        points = ", ".join(
            f"{size:g}: {seconds * 1e3:,.1f} ms {mb:,.0f} MiB"
            for size, seconds, mb in zip(self.sizes, self.seconds, self.peak_mb, strict=True)
        )
        return f"{self.title} by {self.size}: exponent {self.time_exponent:.2f}\n  {points}"


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


# Title, name of the size, the sizes, and the function that builds the workload of one size.
_QUESTIONS: tuple[tuple[str, str, tuple[int, ...], str], ...] = (
    ("first batch of a cached data set, 8 channels", "rows", (50_000, 200_000, 800_000, 3_200_000), "cached_data"),
    ("an epoch of shuffled batches, 8 channels", "windows", (1_000, 4_000, 16_000, 64_000), "epoch"),
    ("PatchTST step, 4 windows of 512", "channels", (16, 64, 250, 1_000), "patchtst_channels"),
    ("PatchTST step, 4 windows of 16 channels", "samples in a window", (256, 1_024, 4_096), "patchtst_length"),
    ("Swin-MAE step, 4 images", "pixels of an image", (64**2, 128**2, 256**2), "swinmae_pixels"),
)


def comparisons(effort: Effort) -> Iterator[Curve]:
    """Each workload at several sizes, one curve for each."""
    for title, size, sizes, maker in _QUESTIONS:
        seconds, peak_mb = [], []
        for value in sizes:
            with (
                tempfile.TemporaryDirectory() as folder,
                Implementation(f"benchmarks.growth:{maker}", tuned=True, size=value, folder=folder) as process,
            ):
                seconds.append(statistics.median(process.seconds() for _ in range(effort.rounds)))
                peak_mb.append(process.facts()["peak_mb"])
        yield Curve(title, size, [float(value) for value in sizes], seconds, peak_mb)
    yield _processes((1, 2), effort)


def _processes(counts: Sequence[int], effort: Effort) -> Curve:
    """The same batch on several processes of this machine, with the same number of cores."""
    seconds, peak_mb = [], []
    for count in counts:
        with ExitStack() as stack, ThreadPoolExecutor(count) as pool:
            rendezvous = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "rendezvous")
            settings = {"count": count, "rendezvous": rendezvous}
            starting = [
                pool.submit(Implementation, "benchmarks.growth:patchtst_process", tuned=True, rank=rank, **settings)
                for rank in range(count)
            ]
            processes = [stack.enter_context(future.result()) for future in starting]
            rounds = [list(pool.map(Implementation.seconds, processes)) for _ in range(effort.rounds)]
            seconds.append(statistics.median(max(each) for each in rounds))
            peak_mb.append(sum(process.facts()["peak_mb"] for process in processes))
    return Curve(SHARED_STEP, "processes", [float(count) for count in counts], seconds, peak_mb)


def plot(found: Sequence[Curve], path: Path = PICTURE) -> None:
    """Time and memory over size, both in multiples of the smallest, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, values_of, name in (
        (axes[0], lambda curve: curve.seconds, "time"),
        (axes[1], lambda curve: curve.peak_mb, "peak memory of the process"),
    ):
        for curve in found:
            values = values_of(curve)
            relative = [value / values[0] for value in values]
            axis.plot(
                [size / curve.sizes[0] for size in curve.sizes],
                relative,
                marker="o",
                label=f"{curve.title}, by {curve.size}",
            )
        widest = max(curve.sizes[-1] / curve.sizes[0] for curve in found)
        axis.plot([1, widest], [1, widest], color="grey", linestyle=":", label="in proportion")
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="size, in multiples of the smallest",
            ylabel=f"{name}, in multiples of the smallest",
        )
    axes[0].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


# --------------------------------------------------------------------------------------------------------- the work
def cached_data(size: int, folder: str) -> Work:
    """A parquet file that is in the store of parsed files."""
    # Parsed by another process, so that the peak memory of this one is that of the store.
    parsing = get_context("spawn").Process(target=_parse, args=(folder, size))
    parsing.start()
    parsing.join()
    return our_first_batch(folder, "plant.parquet")


def _parse(folder: str, rows: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    values = np.random.default_rng(0).standard_normal((rows, 8)).cumsum(axis=0)
    stamps = np.datetime64("2026-01-01T00:00:00") + np.arange(rows).astype("timedelta64[s]")
    (Path(folder) / "data").mkdir()
    table = pa.table({"timestamp": pa.array(stamps), **{f"s{c}": values[:, c] for c in range(8)}})
    parquet.write_table(table, Path(folder) / "data" / "plant.parquet")
    our_first_batch(folder, "plant.parquet")()


def epoch(size: int, folder: str) -> Work:
    values_tc = np.random.default_rng(0).standard_normal((32 * size + 480, 8), dtype=np.float32)
    windows = WindowSet(Series.of([], values_tc), np.arange(size) * 32, 512)

    def batches() -> None:
        for index_b in torch.randperm(len(windows)).split(64):
            windows.batch(index_b)

    return batches


def patchtst_channels(size: int, folder: str) -> Work:
    return _patchtst(4, 512, size)


def patchtst_length(size: int, folder: str) -> Work:
    return _patchtst(4, size, 16)


def patchtst_process(rank: int, count: int, rendezvous: str) -> Work:
    """The workload of one of `count` processes that reduce their gradients, each on its share of the cores."""
    torch.set_num_threads(max(1, torch.get_num_threads() // count))
    if count > 1:
        torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=count)
    return _patchtst(64 // count, 512, 16, shared=count > 1)


def _patchtst(batch: int, window: int, channels: int, *, shared: bool = False) -> Work:
    model = _model(window, channels)
    if shared:
        model = torch.nn.parallel.DistributedDataParallel(model)
    x_btc = torch.randn(batch, window, channels)
    return training_step(model, lambda: model(x_btc).loss, "32", fused=True)


def _model(window: int, channels: int) -> PatchTST:
    return PatchTST(PatchTSTModel(patch_length=16, patch_stride=16), num_channels=channels, window=window)


def swinmae_pixels(size: int, folder: str) -> Work:
    side = math.isqrt(size)
    settings = SwinMAEModel(embed_dim=48, depths=(2, 2), num_heads=(3, 6), decoder_depths=(2,), window_size=4)
    model = SwinMAE(settings, image_size=side)
    image_bchw = torch.randn(4, 3, side, side)
    return training_step(model, lambda: model(image_bchw).loss, "32", fused=True)
