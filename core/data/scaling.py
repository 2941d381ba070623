"""Channel scaling, fitted on training data only; a minimum scale prevents huge values of nearly constant channels."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from core.config.data import Scaling
from core.config.schema import AnyConfig
from core.data.blocks import blocks, by_column
from core.data.medians import percentiles

log = logging.getLogger(__name__)

# Widths of the central 50 % and the central 98 % of a normal distribution, in standard deviations.
IQR_OF_NORMAL = 1.349
SPAN_OF_NORMAL = 4.653
# Scale of a channel that is constant in training, as a share of its level.
CONSTANT_SHARE = 1e-3
# No instrument has such a range. Values that exceed the median magnitude of their channel by this factor are faults,
# and are left out, because they would dominate every statistic.
OUTLIER_FACTOR = 1e12
# Limits of a scale: where float32 has full precision.
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def scaler_path(root: Path, config: AnyConfig) -> Path:
    """The file with the scaler of the last run; its checkpoints have it too."""
    return root / config.logging.artifacts_dir / f"scaler_{config.stream}.json"


@dataclass(frozen=True)
class Scaler:
    """scaled = clip((value - center) / scale). center, scale: one number for each channel, in its own unit.

    floored: the channels whose scale is not the plain statistic, with the reason.
    """

    method: str
    channels: tuple[str, ...]
    center: tuple[float, ...]
    scale: tuple[float, ...]
    clip: float
    floored: Mapping[str, str]

    @classmethod
    def fit(
        cls, parts_tc: Sequence[np.ndarray], channels: Sequence[str], settings: Scaling, scratch: Path | None = None
    ) -> Self:
        """Fits on training spans (T, C), ignoring NaN; differences of rows are taken within a span only."""
        if settings.method == "none":
            zeros, ones = (0.0,) * len(channels), (1.0,) * len(channels)
            return cls("none", tuple(channels), zeros, ones, settings.clip, {})
        last_row_p = np.cumsum([len(part_tc) for part_tc in parts_tc]) - 1
        statistics = [_statistics(values_t, last_row_p, settings) for values_t in by_column(parts_tc, scratch)]
        center_c, *spreads, outliers_c = np.stack(statistics, axis=1)
        scale_c, floored = _with_floors(*spreads, channels)
        for i in np.flatnonzero(outliers_c):
            reason = (
                f"{outliers_c[i]:.0f} values of more than {OUTLIER_FACTOR:g} times its median magnitude are left out"
            )
            floored[channels[i]] = "; ".join(filter(None, (floored.get(channels[i]), reason)))
        center = tuple(np.nan_to_num(center_c).tolist())
        return cls(settings.method, tuple(channels), center, tuple(scale_c.tolist()), settings.clip, floored)

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers to subtract first and second, and to divide by: float32 (C,) each.

        The centre is subtracted in two steps, so that the result equals that of float64, rounded once: a pressure of
        100,000 that moves by 1 needs all digits of float32.
        """
        center_c, scale_c = np.float64(self.center), np.float64(self.scale)
        rounded_c = center_c.astype(np.float32)
        return rounded_c, (center_c - rounded_c).astype(np.float32), scale_c.astype(np.float32)

    def log_floors(self) -> None:
        """Logs the channels whose scale is not the plain statistic, with the reason."""
        for reason in dict.fromkeys(self.floored.values()):
            names = ", ".join(name for name, given in self.floored.items() if given == reason)
            log.info("scaling %s: %s", reason, names)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        as_tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**as_tuples)


def _statistics(values_t: np.ndarray, last_row_p: np.ndarray, settings: Scaling) -> np.ndarray:
    """Centre, spread, floor of the spread, standard deviation, resolution, largest magnitude and number of outliers of
    a channel: (7,). last_row_p: the last rows of its spans."""
    limit = OUTLIER_FACTOR * _median_size(values_t)
    counted = partial(_counted, values_t, limit)
    count = sum(map(len, counted()))
    num_outliers = sum(int(np.count_nonzero(np.abs(block.astype(np.float64)) > limit)) for block in blocks(values_t))
    if not count:
        return np.array([np.nan, *[0.0] * 5, num_outliers])
    mean = sum(block.sum(dtype=np.float64) for block in counted()) / count
    std = np.sqrt(sum(np.square(block - np.float64(mean)).sum() for block in counted()) / count)
    level = max(float(np.abs(block).max(initial=0.0)) for block in counted())
    center, spread, floor = mean, std, 0.0
    if settings.method == "robust":
        lowest, low, center, high, highest = percentiles(counted, count, [1, 25, 50, 75, 99])
        spread = (high - low) / IQR_OF_NORMAL
        floor = settings.floor * (highest - lowest) / SPAN_OF_NORMAL
    return np.array([center, spread, floor, std, _resolution(values_t, limit, last_row_p), level, num_outliers])


def _median_size(values_t: np.ndarray) -> float:
    """The median magnitude of the values that are not 0."""

    def sizes() -> Iterator[np.ndarray]:
        return (size_n[size_n > 0] for size_n in map(np.abs, blocks(values_t)))

    return float(percentiles(sizes, sum(map(len, sizes())), [50])[0])


def _counted(values_t: np.ndarray, limit: float) -> Iterator[np.ndarray]:
    """The values that are neither missing nor outliers, in blocks."""
    return (block[~(np.isnan(block) | (np.abs(block.astype(np.float64)) > limit))] for block in blocks(values_t))


def _resolution(values_t: np.ndarray, limit: float, last_row_p: np.ndarray) -> float:
    """The smallest change of the channel, about its quantisation step; 0 for a constant channel."""
    smallest, row = np.inf, 0
    for block in blocks(values_t, overlap=1):
        value_n = block.astype(np.float64)
        value_n[np.abs(value_n) > limit] = np.nan
        step_n = np.abs(np.diff(value_n))
        ends = last_row_p[(last_row_p >= row) & (last_row_p < row + len(step_n))] - row
        step_n[ends] = np.nan
        smallest = min(smallest, step_n[step_n > 0].min(initial=np.inf))
        row += len(step_n)
    return smallest if np.isfinite(smallest) else 0.0


def _with_floors(
    statistic_c: np.ndarray,
    floor_c: np.ndarray,
    std_c: np.ndarray,
    resolution_c: np.ndarray,
    level_c: np.ndarray,
    channels: Sequence[str],
) -> tuple[np.ndarray, dict[str, str]]:
    """The scale per channel (C,): the statistic, or the replacement by the last rule that applies, with the reason."""
    scale_c, floored = statistic_c.copy(), {}
    constant_c = std_c == 0
    wide_c = np.maximum(statistic_c, floor_c)
    rules = (
        (statistic_c < floor_c, floor_c, "widened to the range of its central 98 %"),
        (wide_c == 0, std_c, "98 % of it is one value: the standard deviation is used"),
        (np.maximum(wide_c, std_c) < resolution_c, resolution_c, "raised to the resolution of the channel"),
        (constant_c, CONSTANT_SHARE * level_c, f"constant in training: {CONSTANT_SHARE:g} of the level"),
        (constant_c & (level_c == 0), np.ones_like(std_c), "always 0 or missing in training: scale 1"),
    )
    for applies_c, replacement_c, reason in rules:
        scale_c = np.where(applies_c, replacement_c, scale_c)
        floored |= {channels[i]: reason for i in np.flatnonzero(applies_c)}
    limited_c = np.clip(scale_c, _SMALLEST, _LARGEST)
    floored |= {channels[i]: "limited to the range of float32" for i in np.flatnonzero(limited_c != scale_c)}
    return limited_c, floored
