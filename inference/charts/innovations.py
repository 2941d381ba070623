"""The part of a row of process sensors that earlier rows and the other channels do not predict.

The residual of a channel in a regression on earlier rows is its *innovation*. A change of the load moves the
innovations of many channels at once, as it did in reference data. Each innovation is therefore predicted from the
innovations of the other channels, and the prediction is subtracted where this makes it smaller. The prediction is that
of a normal distribution with their covariance, which is shrunk towards independence (oracle approximating shrinkage:
Chen, Wiesel, Eldar and Hero, IEEE Transactions on Signal Processing 2010).

Suffixes: n row, c channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

# Residuals are clipped to ± this many standard deviations, so that the mean recovers after a value of 1e30.
RESIDUAL_CAP = 1000.0
# Innovations in the covariance are clipped to ± this many standard deviations, so that one spike does not determine it.
_MOST_DEVIATIONS = 10.0
# Smallest shrinkage: channels may copy each other exactly.
_LEAST_SHRINKAGE = 0.01


@dataclass(frozen=True)
class Innovations:
    """conditional_cc: (C, C); innovations (n, C) times this matrix are the part that the other channels do not predict,
    all in standard deviations of the channels. most_c: float64 (C,), limit to which innovations are clipped."""

    conditional_cc: np.ndarray
    most_c: np.ndarray

    @classmethod
    def fit(cls, residuals: Iterable[np.ndarray], usual_c: np.ndarray) -> Self:
        """Fits to the out-of-fold residuals (n, C) of reference rows, in pieces. usual_c: their mean squares (C,), with
        a lower limit, because rare coincidences of quiet channels are not informative."""
        deviation_c = np.sqrt(np.nan_to_num(usual_c, nan=1.0))
        count, total_cc = 0, np.zeros((len(usual_c), len(usual_c)))
        for residual_nc in residuals:
            z_nc = np.nan_to_num(residual_nc / deviation_c).clip(-_MOST_DEVIATIONS, _MOST_DEVIATIONS)
            total_cc += z_nc.T @ z_nc
            count += len(z_nc)
        correlation_cc = total_cc / max(count, 1)
        np.fill_diagonal(correlation_cc, 1.0)
        precision_cc = np.linalg.inv(_shrunk(correlation_cc, count))
        # In a normal distribution, a column of the inverse covariance predicts one value from the others.
        conditional_cc = precision_cc / np.diag(precision_cc) * deviation_c / deviation_c[:, np.newaxis]
        return cls(conditional_cc, RESIDUAL_CAP * deviation_c)

    def __call__(self, residual_nc: np.ndarray) -> np.ndarray:
        """The residuals (n, C) or, where it is smaller, the part that the other channels do not predict; NaN where a
        value is missing."""
        conditional_nc = np.nan_to_num(residual_nc).clip(-self.most_c, self.most_c) @ self.conditional_cc
        return np.where(np.abs(conditional_nc) < np.abs(residual_nc), conditional_nc, residual_nc)


def _shrunk(correlation_cc: np.ndarray, count: int) -> np.ndarray:
    """A correlation matrix of `count` rows, shrunk towards the identity."""
    size = len(correlation_cc)
    square = float((correlation_cc**2).sum())
    spread = (count + 1 - 2 / size) * (square - size)
    share = 1.0 if spread <= 0 else ((1 - 2 / size) * square + size**2) / spread
    share = min(1.0, max(share, _LEAST_SHRINKAGE))
    return (1 - share) * correlation_cc + share * np.eye(size)
