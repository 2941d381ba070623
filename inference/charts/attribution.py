"""Which channels an event comes from.

A channel that is predicted from a faulty one has a large error too. An event is therefore attributed to the few
channels without which the errors of the others are smallest. The others are predicted again as if these channels were
missing, and the error of each falls as its residual does (reconstruction from the other channels: Dunia and Qin, AIChE
Journal 1998). The errors themselves decide where no other channel explains them.

A prediction without some channels needs no new regression. Let P be the inverse of the mean products of the regressors
x, U a set of channels, and Q the inverse of the block of P that belongs to the regressors of U. Then Q is the
covariance of these regressors given those of all other channels, and Q (P x) in U is their difference from the
prediction by all other channels.

Suffixes: c channel, f regressor, k candidate, b regressor of a candidate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

import numpy as np

from inference.charts.cross_channel_regression import RESIDUAL_FLOOR, CrossChannelRegression

# Number of channels, those with the largest errors, that are compared, and their smallest error relative to the
# largest. A prediction without a healthy channel may be too inaccurate to show the fault of another one.
_CANDIDATES, _LEAST_ERROR = 8, 0.05
# Smallest share of the errors that a further channel must explain.
_LEAST_SHARE = 0.05


def shares(
    regression: CrossChannelRegression, error_c: np.ndarray, moment_ff: np.ndarray, most: int
) -> dict[int, float]:
    """Up to `most` channels, the most important first, with their shares of the errors of all channels.

    error_c: mean errors of the channels over the rows of an event, (C,); NaN without a value. moment_ff: (F, F), the
    sum over these rows of the products of the regressors. The sums of several pieces of an event are added.
    """
    error_c = np.nan_to_num(error_c)
    channel_k = np.argsort(-error_c, kind="stable")[:_CANDIDATES]
    channel_k = channel_k[error_c[channel_k] > _LEAST_ERROR * error_c.max()]
    candidates, error_k = range(len(channel_k)), error_c[channel_k]
    remaining = _remaining(regression, moment_ff, channel_k, most + 1)

    def left(missing: Collection[int]) -> float:
        """The sum of the errors of the other candidates if the channels `missing` are not used."""
        others = (k for k in candidates if k not in missing)
        return sum(error_k[k] * remaining[frozenset((*missing, k))][k] for k in others)

    chosen: tuple[int, ...] = ()
    for size in range(1, min(most, len(channel_k)) + 1):
        larger = min(combinations(candidates, size), key=left)
        if left(chosen) - left(larger) < _LEAST_SHARE * left(()):
            break
        chosen = larger
    # The errors that return if one of these channels is used again.
    returning = {k: left([other for other in chosen if other != k]) - left(chosen) for k in chosen}
    explained = (left(()) - left(chosen)) / error_c.sum() if chosen else 0.0
    ordered = sorted(chosen, key=lambda k: -returning[k])
    return {int(channel_k[k]): float(explained * returning[k] / sum(returning.values())) for k in ordered}


def _remaining(
    regression: CrossChannelRegression, moment_ff: np.ndarray, channel_k: np.ndarray, most: int
) -> Mapping[frozenset[int], Mapping[int, float]]:
    """For each set of up to `most` candidates, the share of the error of each that remains if it is predicted from the
    channels outside of the set only, instead of from all other channels: 0 to 1.

    The share is that of the mean square of its residual, relative to reference rows, that exceeds 1. It is 1 for an
    error that does not come from this residual.
    """
    num_own, candidates = regression.num_blocks, np.arange(len(channel_k))
    regressor_kb = channel_k[:, np.newaxis] + len(regression.mean_c) * np.arange(num_own)  # the present row first
    precision_bf = regression.precision_ff[regressor_kb.ravel()]
    precision_bb = precision_bf[:, regressor_kb.ravel()]
    num_rows = moment_ff[-1, -1]  # the last regressor is 1
    moment_bb = precision_bf @ (moment_ff / num_rows) @ precision_bf.T
    alone_k, found = np.empty(len(channel_k)), {}
    for size in range(1, min(most, len(channel_k)) + 1):
        for members in map(list, combinations(candidates, size)):
            own_b = (num_own * candidates[members, np.newaxis] + np.arange(num_own)).ravel()
            excess_k = _excess(precision_bb[np.ix_(own_b, own_b)], moment_bb[np.ix_(own_b, own_b)], num_own)
            if size == 1:
                alone_k[members] = excess_k
            share_k = np.divide(excess_k, alone_k[members], out=np.ones(size), where=alone_k[members] > 0)
            found[frozenset(members)] = dict(zip(members, np.minimum(share_k, 1.0), strict=True))
    return found


def _excess(precision_bb: np.ndarray, moment_bb: np.ndarray, num_own: int) -> np.ndarray:
    """Mean squares (K,) of the residuals of the present rows of a set of channels, relative to reference rows, minus 1;
    at least 0. The arrays belong to the regressors of the set, `num_own` for each channel."""
    covariance_bb = np.linalg.inv(precision_bb)
    present_kb = covariance_bb[::num_own]
    square_k = ((present_kb @ moment_bb) * present_kb).sum(axis=1)
    usual_k = np.maximum(present_kb[:, ::num_own].diagonal(), RESIDUAL_FLOOR**2)
    return np.maximum(square_k / usual_k - 1.0, 0.0)
