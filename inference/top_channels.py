"""The channels with the largest errors of an event, and their shares of the error of all channels.

Suffixes: s score entry, c channel, e event, m entry of some events.
"""

from __future__ import annotations

from itertools import starmap

import numpy as np
import pandas as pd

from core.data.blocks import release

TOP_CHANNELS = 3
_VALUES_AT_A_TIME = 2**20


def top_channels(channel_error_sc: np.ndarray, first_e: np.ndarray, last_e: np.ndarray) -> list[dict[int, float]]:
    """For each event, up to `TOP_CHANNELS` channels by mean error over its entries, the largest first, with their
    shares.

    channel_error_sc: float32 (S, C). first_e, last_e: int64 (E,), the entries of each event, both included. A channel
    without an error in an event is left out.
    """
    mean_ec = _mean_errors(channel_error_sc, first_e, last_e)
    order_ec = np.argsort(np.where(np.isnan(mean_ec), np.inf, -mean_ec), axis=1, kind="stable")[:, :TOP_CHANNELS]
    largest_ec = np.take_along_axis(mean_ec, order_ec, axis=1)
    share_ec = largest_ec / np.maximum(np.nansum(mean_ec, axis=1, keepdims=True), np.finfo(np.float32).tiny)

    def of_event(order_c: np.ndarray, share_c: np.ndarray) -> dict[int, float]:
        known_c = ~np.isnan(share_c)
        return dict(zip(order_c[known_c].tolist(), share_c[known_c].tolist(), strict=True))

    return list(starmap(of_event, zip(order_ec, share_ec, strict=True)))


def _mean_errors(channel_error_sc: np.ndarray, first_e: np.ndarray, last_e: np.ndarray) -> np.ndarray:
    """Over the entries of each event, some events at a time: (E, C), NaN for a channel without any."""
    length_e = last_e - first_e + 1
    batch_e = np.cumsum(length_e) * channel_error_sc.shape[1] // _VALUES_AT_A_TIME
    means = []
    for mine_e in np.split(np.arange(len(first_e)), np.flatnonzero(np.diff(batch_e)) + 1):
        errors = [channel_error_sc[first_e[event] : last_e[event] + 1] for event in mine_e]
        error_mc = np.concatenate([channel_error_sc[:0], *errors])
        means.append(pd.DataFrame(error_mc).groupby(np.repeat(mine_e, length_e[mine_e])).mean().to_numpy())
        release(channel_error_sc)
    return np.concatenate(means)
