"""Statistics that run along rows and begin anew at every stretch: the exponentially weighted mean and the CUSUM.

Rows come in pieces, in order; each call goes on where the one before ended. Both are geometric sums, and are doubled,
from 2^k to 2^(k+1) terms, until the weight left over is below float32 precision: a few passes over the array for any
number of stretches. Suffixes: n row, c channel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_NEGLIGIBLE = 1e-9


class Ewma:
    """Causal exponentially weighted mean; the newest row weighs 2 / (span + 1).

    What is missing (NaN) stays missing and weighs nothing.
    """

    def __init__(self, span: float, num_channels: int):
        self.decay = decay_of(span)
        self._last_2c = np.zeros((2, num_channels))  # sums of weighted values and of weights, at the last row so far
        self._stretch = -1

    def __call__(self, values_nc: np.ndarray, stretch_n: np.ndarray) -> np.ndarray:
        """The means of the next rows, float64 (n, C). stretch_n: the number of each row's stretch, ascending."""
        observed_nc = ~np.isnan(values_nc)
        sums_2nc = np.stack([np.where(observed_nc, values_nc, 0.0), observed_nc]).astype(np.float64)
        _add_past(sums_2nc, stretch_n, self.decay)
        going_on = slice(int(np.searchsorted(stretch_n, self._stretch, side="right")))
        sums_2nc[:, going_on] += _weights(self.decay, going_on.stop) * self._last_2c[:, np.newaxis]
        self._last_2c, self._stretch = sums_2nc[:, -1].copy(), int(stretch_n[-1])
        return np.divide(sums_2nc[0], sums_2nc[1], out=np.full(values_nc.shape, np.nan), where=observed_nc)


class Cusum:
    """Two-sided cumulative sum that forgets: the larger of s⁺ and s⁻, where s± ← max(0, decay · s± ± z - allowance).

    Page, Continuous inspection schemes, Biometrika 1954; the decay keeps what a plant has drifted by from adding up for
    ever. A small push to one side adds up while it lasts; noise below the allowance does not. A missing value (NaN)
    stays missing and adds nothing. span: what is k rows old counts (1 - 2 / (span + 1))^k.

    The recursion in closed form: with the plain decayed sum S, s at row n is the largest S_n - decay^(n - m) · S_m over
    the rows m up to n, where what came before the stretch counts 0.
    """

    def __init__(self, span: float, allowance: float, num_channels: int):
        self.decay, self.allowance = decay_of(span), allowance
        self._last_2c = np.zeros((2, num_channels))
        self._stretch = -1

    def __call__(self, z_nc: np.ndarray, stretch_n: np.ndarray) -> np.ndarray:
        """The sums of the next rows, float64 (n, C). stretch_n: the number of each row's stretch, ascending."""
        signed_2nc = np.stack([z_nc, -z_nc]).astype(np.float64)
        sum_2nc = np.nan_to_num(signed_2nc - self.allowance)
        _add_past(sum_2nc, stretch_n, self.decay)
        rise_2nc = np.maximum(-sum_2nc, 0.0)
        going_on = slice(int(np.searchsorted(stretch_n, self._stretch, side="right")))
        before_2nc = _weights(self.decay, going_on.stop) * self._last_2c[:, np.newaxis]
        rise_2nc[:, going_on] = np.maximum(rise_2nc[:, going_on], before_2nc)
        for age, weight_n1 in _ages(stretch_n, self.decay):
            rise_2nc[:, age:] = np.maximum(rise_2nc[:, age:], weight_n1 * rise_2nc[:, :-age])
        sum_2nc += rise_2nc
        self._last_2c, self._stretch = sum_2nc[:, -1].copy(), int(stretch_n[-1])
        return np.where(np.isnan(z_nc), np.nan, sum_2nc.max(axis=0))


def decay_of(span: float) -> float:
    """What the last row counts in a mean over a span of rows."""
    return 1.0 - 2.0 / (span + 1.0)


def _add_past(sums_2nc: np.ndarray, stretch_n: np.ndarray, decay: float) -> None:
    """Adds to each row, in place, what came before it in its stretch, decayed by its age."""
    for age, weight_n1 in _ages(stretch_n, decay):
        sums_2nc[:, age:] += weight_n1 * sums_2nc[:, :-age]


def _ages(stretch_n: np.ndarray, decay: float) -> Iterator[tuple[int, np.ndarray]]:
    """Ages of 2^k rows, and the weight (n - age, 1) of what is so old: 0 where that is of another stretch."""
    age = 1
    while age < len(stretch_n) and decay**age > _NEGLIGIBLE:
        yield age, (decay**age * (stretch_n[age:] == stretch_n[:-age]))[:, np.newaxis]
        age *= 2


def _weights(decay: float, count: int) -> np.ndarray:
    """The weight (count, 1), at each row of a piece, of what stood before it."""
    return (decay ** np.arange(1, count + 1))[:, np.newaxis]
