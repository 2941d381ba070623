"""Channel scaling, fitted on training data only, with floors that keep near-constant channels from exploding."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from core.config.schema import Scaling

log = logging.getLogger(__name__)

# Width of the central 50 % and of the central 98 % of a normal distribution, in standard deviations.
IQR_OF_NORMAL = 1.349
SPAN_OF_NORMAL = 4.653
# A channel that never changed in training still gets a scale: this share of its level.
CONSTANT_SHARE = 1e-3
# No instrument measures over so many decades. Values so far beyond a channel's usual ones are faults: statistics that
# counted them would leave nothing of the rest.
RUNAWAY = 1e12
# Scales stay where float32 has all its digits.
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
# Channels looked at together: their values are held in 64 bit meanwhile.
_BLOCK = 8


@dataclass(frozen=True)
class Scaler:
    """scaled = clip((value - center) / scale). center, scale: one number a channel, in the channel's own unit.

    floored: the channels whose scale is not the plain statistic, each with the reason.
    """

    method: str
    channels: tuple[str, ...]
    center: tuple[float, ...]
    scale: tuple[float, ...]
    clip: float
    floored: Mapping[str, str]

    @classmethod
    def fit(cls, parts_tc: Sequence[np.ndarray], channels: Sequence[str], settings: Scaling) -> Self:
        """Fits on training stretches (T, C), NaN left out. Stretches are never differenced across their ends."""
        if settings.method == "none":
            zeros, ones = (0.0,) * len(channels), (1.0,) * len(channels)
            return cls("none", tuple(channels), zeros, ones, settings.clip, {})
        blocks = [slice(first, first + _BLOCK) for first in range(0, len(channels), _BLOCK)]
        statistics = [_statistics([part_tc[:, block] for part_tc in parts_tc], settings) for block in blocks]
        center_c, *spreads, runaways_c = np.concatenate(statistics, axis=1)
        scale_c, floored = _with_floors(*spreads, channels)
        for i in np.flatnonzero(runaways_c):
            told = f"{runaways_c[i]:.0f} values beyond {RUNAWAY:g} times its usual ones not counted"
            floored[channels[i]] = "; ".join(filter(None, (floored.get(channels[i]), told)))
        center = tuple(np.nan_to_num(center_c).tolist())
        return cls(settings.method, tuple(channels), center, tuple(scale_c.tolist()), settings.clip, floored)

    def tell(self) -> None:
        """Logs which channels are not scaled by the plain statistic, and why."""
        for reason in dict.fromkeys(self.floored.values()):
            names = ", ".join(name for name, given in self.floored.items() if given == reason)
            log.info("scaling %s: %s", reason, names)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        as_tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**as_tuples)


def _statistics(parts_tc: Sequence[np.ndarray], settings: Scaling) -> np.ndarray:
    """Of each channel its centre, its spread, the spread's floor, deviation, resolution, largest value and number of
    runaways: (7, C)."""
    values_tc = np.concatenate(parts_tc).astype(np.float64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice|Mean of empty|Degrees of freedom")
        runaways_c = _forget_runaways(values_tc)
        std_c = np.nan_to_num(np.nanstd(values_tc, axis=0))
        level_c = np.nan_to_num(np.nanmax(np.abs(values_tc), axis=0))
        if settings.method == "robust":
            lowest_c, low_c, center_c, high_c, highest_c = np.nanpercentile(values_tc, [1, 25, 50, 75, 99], axis=0)
            statistic_c = np.nan_to_num(high_c - low_c) / IQR_OF_NORMAL
            floor_c = settings.floor * np.nan_to_num(highest_c - lowest_c) / SPAN_OF_NORMAL
        else:
            center_c, statistic_c, floor_c = np.nanmean(values_tc, axis=0), std_c, np.zeros_like(std_c)
    stretches = np.split(values_tc, np.cumsum([len(part_tc) for part_tc in parts_tc])[:-1])
    return np.stack([center_c, statistic_c, floor_c, std_c, _resolution(stretches), level_c, runaways_c])


def _forget_runaways(values_tc: np.ndarray) -> np.ndarray:
    """Makes values NaN that are beyond `RUNAWAY` times their channel's median size, zeros apart: how many, (C,)."""
    size_tc = np.abs(values_tc)
    usual_c = np.nanmedian(np.where(size_tc > 0, size_tc, np.nan), axis=0)
    runaway_tc = size_tc > RUNAWAY * usual_c
    values_tc[runaway_tc] = np.nan
    return runaway_tc.sum(axis=0)


def _resolution(parts_tc: Sequence[np.ndarray]) -> np.ndarray:
    """The smallest change each channel ever makes (C,): about its quantisation step; 0 for a constant channel."""
    steps_tc = np.concatenate([np.abs(np.diff(part_tc, axis=0)) for part_tc in parts_tc])
    steps_tc[~(steps_tc > 0)] = np.inf
    smallest_c = steps_tc.min(axis=0, initial=np.inf)
    return np.where(np.isfinite(smallest_c), smallest_c, 0.0)


def _with_floors(
    statistic_c: np.ndarray,
    floor_c: np.ndarray,
    std_c: np.ndarray,
    resolution_c: np.ndarray,
    level_c: np.ndarray,
    channels: Sequence[str],
) -> tuple[np.ndarray, dict[str, str]]:
    """The scale per channel (C,): the statistic, or what a later rule puts in its place, with the reason."""
    scale_c, floored = statistic_c.copy(), {}
    constant_c = std_c == 0
    wide_c = np.maximum(statistic_c, floor_c)
    rules = (
        (statistic_c < floor_c, floor_c, "widened to the range of its central 98 %"),
        ((wide_c == 0) & (std_c > 0), std_c, "98 % of it is one value, so the standard deviation serves"),
        (np.maximum(wide_c, std_c) < resolution_c, resolution_c, "raised to the channel's own resolution"),
        (
            constant_c & (level_c > 0),
            CONSTANT_SHARE * level_c,
            f"constant in training: {CONSTANT_SHARE:g} of the level",
        ),
        (constant_c & (level_c == 0), np.ones_like(std_c), "always 0 or missing in training: scale 1"),
    )
    for applies_c, replacement_c, reason in rules:
        scale_c = np.where(applies_c, replacement_c, scale_c)
        floored |= {channels[i]: reason for i in np.flatnonzero(applies_c)}
    limited_c = np.clip(scale_c, _SMALLEST, _LARGEST)
    floored |= {channels[i]: "limited to what float32 holds" for i in np.flatnonzero(limited_c != scale_c)}
    return limited_c, floored
