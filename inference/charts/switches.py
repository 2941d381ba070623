"""Switches: channels with two values, such as commands, valves and states.

A switch shows what the process was told to do. It predicts other channels, but its own changes are no faults: a command
that was never used in reference data differs from it more than any fault of a sensor. A score is a mean over channels,
so where most channels are switches, they would hide the sensors.

Suffixes: n row, c channel, k segment.
"""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np

from inference.charts.reference_rows import float64_pieces

log = logging.getLogger(__name__)

ScoreSwitches = Literal["auto", "on", "off"]


def scored_channels(values_nc: np.ndarray, segments_k2: np.ndarray, setting: ScoreSwitches) -> np.ndarray:
    """The channels that are scored, bool (C,): all, or those that are not switches; logs the reason.

    values_nc: (N, C), NaN missing. segments_k2: int64 (K, 2), ranges of reference rows. setting: `on` scores switches,
    `off` does not. `auto` does not if they are most of the channels that change; a constant channel is then counted as
    a switch that was not used. All channels are scored if no other one is left.
    """
    num_values_c = _num_values(values_nc, segments_k2)
    is_switch_c, changes_c = num_values_c == 2, num_values_c > 1
    all_c = np.ones(len(num_values_c), dtype=bool)
    mostly = 2 * is_switch_c.sum() > changes_c.sum()
    if setting == "on" or not is_switch_c.any() or (setting == "auto" and not mostly):
        return all_c
    scored_c = num_values_c > 2 if mostly else ~is_switch_c
    if not scored_c.any():
        return all_c
    log.info(
        "%d of %d channels are scored; the others predict them, but have at most two values in reference data, as "
        "switches do (scoring.score_switches=%s)",
        scored_c.sum(), len(scored_c), setting,
    )  # fmt: skip
    return scored_c


def _num_values(values_nc: np.ndarray, segments_k2: np.ndarray) -> np.ndarray:
    """Number of different values of each channel, int64 (C,); 3 stands for three or more."""
    lowest_c, highest_c = np.full((2, values_nc.shape[1]), np.nan)
    for rows_nc in float64_pieces(values_nc, segments_k2):
        lowest_c = np.fmin(lowest_c, np.fmin.reduce(rows_nc, axis=0))
        highest_c = np.fmax(highest_c, np.fmax.reduce(rows_nc, axis=0))
    between_c = np.zeros(values_nc.shape[1], dtype=bool)
    for rows_nc in float64_pieces(values_nc, segments_k2):
        between_c |= ((rows_nc > lowest_c) & (rows_nc < highest_c)).any(axis=0)
    return (~np.isnan(lowest_c)).astype(np.int64) + (highest_c > lowest_c) + between_c
