"""Exponentially weighted means and CUSUM along rows, which start again at every segment.

Rows come in pieces, in order; each call continues where the last one ended, also in another process (`Running`). Both
are geometric sums. They are computed by doubling, from 2^k to 2^(k+1) terms, until the remaining weight is below
float32 precision: a few passes over the array for any number of segments. Suffixes: n row, c channel, k segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import numpy as np

from core.data.blocks import Pages, pieces

# Errors are clipped at this multiple of the reference error (55 standard deviations): larger errors add no information,
# and would outweigh every other component of a score.
ERROR_CAP = 3000.0
_NEGLIGIBLE = 1e-9


class Running:
    """Base class for computations along rows that come in pieces. The state consists of the attributes in `STATE`,
    which are arrays or numbers, and of the states of attributes that are `Running` or tuples of `Running`."""

    STATE: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, np.ndarray]:
        """A copy of the state, by name."""
        held = {name: np.array(getattr(self, name)) for name in self.STATE}
        for prefix, part in self._parts():
            held |= {f"{prefix}.{name}": array for name, array in part.state().items()}
        return held

    def restore(self, held: Mapping[str, np.ndarray]) -> None:
        """Continues from a state. Raises KeyError for the state of another class."""
        for name in self.STATE:
            setattr(self, name, held[name].copy() if held[name].ndim else held[name].item())
        for prefix, part in self._parts():
            within = f"{prefix}."
            part.restore({name.removeprefix(within): held[name] for name in held if name.startswith(within)})

    def _parts(self) -> Iterator[tuple[str, Running]]:
        for name, value in vars(self).items():
            if isinstance(value, Running):
                yield name, value
            elif isinstance(value, tuple):
                yield from ((f"{name}.{at}", part) for at, part in enumerate(value) if isinstance(part, Running))


class Ewma(Running):
    """Causal exponentially weighted mean; the newest row has the weight 2 / (span + 1).

    A missing value (NaN) stays missing and has no weight.

    centre: the reference value, a number or float (C,). The first means of a segment are means of few rows and vary
    more. They are shrunk towards the centre, so that they vary as much as later means of independent rows. None: no
    shrinkage.
    """

    STATE = ("_last_2c", "_segment", "_rows")

    def __init__(self, span: float, num_channels: int, centre: float | np.ndarray | None = None):
        self.decay, self.centre = decay_of(span), centre
        self._last_2c = np.zeros((2, num_channels))  # sums of weighted values and of weights, at the last row so far
        self._segment, self._rows = -1, 0

    def __call__(self, values_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        """The means of the next rows, float64 (n, C). segment_n: the number of each row's segment, ascending."""
        observed_nc = ~np.isnan(values_nc)
        sums_2nc = np.stack([np.where(observed_nc, values_nc, 0.0), observed_nc]).astype(np.float64)
        _add_past(sums_2nc, segment_n, self.decay)
        continued = slice(int(np.searchsorted(segment_n, self._segment, side="right")))
        sums_2nc[:, continued] += _weights(self.decay, continued.stop) * self._last_2c[:, np.newaxis]
        age_n = self.ages(segment_n)
        self._last_2c, self._segment, self._rows = sums_2nc[:, -1].copy(), int(segment_n[-1]), int(age_n[-1])
        mean_nc = np.divide(sums_2nc[0], sums_2nc[1], out=np.full(values_nc.shape, np.nan), where=observed_nc)
        if self.centre is None:
            return mean_nc
        variance_n = variance_left(self.decay, age_n)
        return self.centre + np.sqrt((1 - self.decay) / (1 + self.decay) / variance_n)[:, np.newaxis] * (
            mean_nc - self.centre
        )

    def ages(self, segment_n: np.ndarray) -> np.ndarray:
        """The number of each of the next rows in its segment, from 1: int64 (n,)."""
        begins_n = np.diff(segment_n, prepend=self._segment) != 0
        first_n = np.maximum.accumulate(np.where(begins_n, np.arange(len(segment_n)), -self._rows))
        return np.arange(len(segment_n)) - first_n + 1


class StartedEwma(Running):
    """Exponentially weighted mean that starts each segment at a reference value, as means of few rows vary more.

    start: the value, a number or float (C,).
    """

    def __init__(self, span: float, num_channels: int, start: float | np.ndarray):
        self.start, self._ewma = start, Ewma(span, num_channels)

    def __call__(self, values_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        """The means of the next rows, float64 (n, C). segment_n: the number of each row's segment, ascending."""
        age_n1 = self._ewma.ages(segment_n)[:, np.newaxis]
        return self.start + (1 - self._ewma.decay**age_n1) * (self._ewma(values_nc, segment_n) - self.start)


def variance_left(decay: float, age_n: np.ndarray) -> np.ndarray:
    """The variance of the exponentially weighted mean of `age_n` independent rows of variance 1: float64 (n,)."""
    past_n = decay ** age_n.astype(np.float64)
    return (1 - decay) / (1 + decay) * (1 - past_n**2) / (1 - past_n) ** 2


class Cusum(Running):
    """Two-sided cumulative sum with decay: the larger of s⁺ and s⁻, where s± ← max(0, decay · s± ± z - allowance).

    Page, Continuous inspection schemes, Biometrika 1954; the decay limits the sum of a slow drift. A small shift to one
    side adds up while it lasts; noise below the allowance does not. A missing value (NaN) stays missing and adds
    nothing. span: a row that is k rows old has the weight (1 - 2 / (span + 1))^k.

    The recursion in closed form: with the plain decayed sum S, s at row n is the largest S_n - decay^(n - m) · S_m over
    the rows m up to n, with S_m = 0 for rows before the segment.
    """

    STATE = ("_last_2c", "_segment")

    def __init__(self, span: float, allowance: float, num_channels: int):
        self.decay, self.allowance = decay_of(span), allowance
        self._last_2c = np.zeros((2, num_channels))
        self._segment = -1

    def __call__(self, z_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        """The sums of the next rows, float64 (n, C). segment_n: the number of each row's segment, ascending."""
        signed_2nc = np.stack([z_nc, -z_nc]).astype(np.float64)
        sum_2nc = np.nan_to_num(signed_2nc - self.allowance)
        _add_past(sum_2nc, segment_n, self.decay)
        rise_2nc = np.maximum(-sum_2nc, 0.0)
        continued = slice(int(np.searchsorted(segment_n, self._segment, side="right")))
        before_2nc = _weights(self.decay, continued.stop) * self._last_2c[:, np.newaxis]
        rise_2nc[:, continued] = np.maximum(rise_2nc[:, continued], before_2nc)
        for age, weight in _ages(segment_n, self.decay):
            rise_2nc[:, age:] = np.maximum(rise_2nc[:, age:], weight * rise_2nc[:, :-age])
        sum_2nc += rise_2nc
        self._last_2c, self._segment = sum_2nc[:, -1].copy(), int(segment_n[-1])
        return np.where(np.isnan(z_nc), np.nan, sum_2nc.max(axis=0))


def write_errors(
    errors_of: Callable[[np.ndarray, int], np.ndarray],
    size: int,
    error_sc: np.ndarray,
    first_k: np.ndarray,
    values_nc: np.ndarray,
    segments_k2: np.ndarray,
) -> None:
    """Writes the errors of the rows of segments (K, 2) into `error_sc`, (S, C), those of segment k from line
    `first_k[k]` on, `size` rows at a time. errors_of: computes the errors of rows (n, C) of a segment, given the number
    of the segment; it is called in order."""
    pages = Pages(error_sc)
    line_k = first_k.copy()
    for number, rows_nc in pieces(values_nc, segments_k2, size):
        piece = slice(line_k[number], line_k[number] + len(rows_nc))
        error_sc[piece] = errors_of(rows_nc, number)
        pages.count_read(error_sc[piece].nbytes)
        line_k[number] = piece.stop


def decay_of(span: float) -> float:
    """The factor by which the weight of a row decreases with each new row, in a mean over a span of rows."""
    return 1.0 - 2.0 / (span + 1.0)


def _add_past(sums_2nc: np.ndarray, segment_n: np.ndarray, decay: float) -> None:
    """Adds to each row, in place, the rows before it in its segment, decayed by their age."""
    for age, weight in _ages(segment_n, decay):
        sums_2nc[:, age:] += weight * sums_2nc[:, :-age]


def _ages(segment_n: np.ndarray, decay: float) -> Iterator[tuple[int, np.ndarray | float]]:
    """Ages of 2^k rows, and the weight (n - age, 1) of a row of that age: 0 if it is of another segment. The weight of
    rows of one segment is a number."""
    is_one, age = segment_n[0] == segment_n[-1], 1
    while age < len(segment_n) and decay**age > _NEGLIGIBLE:
        weight = decay**age
        yield age, weight if is_one else (weight * (segment_n[age:] == segment_n[:-age]))[:, np.newaxis]
        age *= 2


def _weights(decay: float, count: int) -> np.ndarray:
    """The weight (count, 1), at each row of a piece, of the row before the piece."""
    return (decay ** np.arange(1, count + 1))[:, np.newaxis]
