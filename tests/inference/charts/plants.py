"""Simulated plants: channels that follow a hidden state, and recordings of several machines."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from inference.charts.control_charts import ControlCharts
from inference.charts.cross_channel import CrossChannelChart
from inference.charts.process import fit_process


def plant(num_rows: int, seed: int, num_channels: int = 3, noise: float = 0.3) -> np.ndarray:
    """Channels that follow one slow hidden state, each with a little noise of its own."""
    rng = np.random.default_rng(seed)
    state_n = np.zeros(num_rows)
    for row in range(1, num_rows):
        state_n[row] = 0.95 * state_n[row - 1] + rng.normal()
    noise_nc = noise * rng.normal(size=(num_rows, num_channels))
    return (state_n[:, np.newaxis] * np.linspace(1, 2, num_channels) + 50 + noise_nc).astype(np.float32)


def whole(values_nc: np.ndarray) -> np.ndarray:
    return np.array([[0, len(values_nc)]])


class Splits:
    """Recordings back to back, the same rows of each in a split."""

    def __init__(self, recordings: list[np.ndarray]):
        self.series = Series.of(
            [
                Recording(
                    f"machine_{number}", Path(f"{number}.csv"), values_tc, np.arange(len(values_tc)) * 10**9,
                    tuple(f"c{channel}" for channel in range(values_tc.shape[1])), 1.0, "sampling_rate",
                )
                for number, values_tc in enumerate(recordings)
            ],
            np.concatenate(recordings).astype(np.float32),
        )  # fmt: skip
        self.offsets_r = self.series.offsets_r

    def of(self, **bounds: dict[int, tuple[int, int]]) -> dict[str, WindowSet]:
        return {
            name: WindowSet(
                self.series,
                np.zeros(0, dtype=np.int64),
                64,
                np.array([[self.offsets_r[r] + low, self.offsets_r[r] + high] for r, (low, high) in rows.items()]),
            )
            for name, rows in bounds.items()
        }


def errors_of(charts: ControlCharts | CrossChannelChart, values_nc: np.ndarray, segments_k2: np.ndarray) -> np.ndarray:
    """Errors of the rows of segments (K, 2), in order: float32 (S, C)."""
    lengths_k = segments_k2[:, 1] - segments_k2[:, 0]
    error_sc = np.empty((lengths_k.sum(), values_nc.shape[1]), dtype=np.float32)
    charts.write(error_sc, np.cumsum(lengths_k) - lengths_k, values_nc, segments_k2)
    return error_sc


def out_of_fold(values_nc: np.ndarray, stop: int | None = None) -> np.ndarray:
    """Errors of the rows up to `stop` by control charts that were fitted without their fold: float32 (S, C)."""
    splits = Splits([values_nc]).of(calibration={0: (0, len(values_nc) if stop is None else stop)})
    return fit_process(splits, span=10, context="off")[1]
