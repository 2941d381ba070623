"""Which channels explain the residuals of a regression on the other channels.

A change of one channel moves the residuals of all channels that are predicted from it, so a healthy channel next to a
faulty one has a large residual too. The part of the residuals that a change of each channel would explain is therefore
computed, and the channel that explains most is chosen first (reconstruction-based contributions: Alcala and Qin,
Automatica 2009). What it explains is removed before the next channel is chosen, as in orthogonal matching pursuit.

Suffixes: n row, c channel, d channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from inference.charts.cross_channel_regression import RESIDUAL_FLOOR, CrossChannelRegression

# Smallest share of the residuals that a further channel must explain.
_LEAST_SHARE = 0.02


@dataclass(frozen=True)
class Attribution:
    """deviation_c: root mean square of the residuals of reference rows, float64 (C,). fill_cd: predicts a missing
    channel d from the other channels of its row, (C, C). weights: two matrices (C, C), what a change of channel c adds
    to the prediction of channel d: for a change of the present row only, and for a lasting change."""

    deviation_c: np.ndarray
    fill_cd: np.ndarray
    weights: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, regression: CrossChannelRegression, usual_c: np.ndarray) -> Self:
        """usual_c: mean squares of the residuals of reference rows, (C,)."""
        deviation_c = np.sqrt(np.maximum(np.nan_to_num(usual_c, nan=1.0), RESIDUAL_FLOOR**2))
        num_channels, num_rows = len(deviation_c), 1 + regression.lags
        weight_lcd = regression.weight_fc[: num_rows * num_channels].reshape(num_rows, num_channels, num_channels)
        return cls(deviation_c, regression.fill_cc, (weight_lcd[0], weight_lcd.sum(axis=0)))

    def scaled(self, residual_nc: np.ndarray) -> np.ndarray:
        """Residuals (n, C) divided by their deviations; 0 where they are missing."""
        return np.nan_to_num(residual_nc / self.deviation_c)

    def shares(self, moment_cc: np.ndarray, most: int) -> dict[int, float]:
        """Up to `most` channels, the most important first, with the shares of the squared residuals that they explain.

        moment_cc: (C, C), the sum over rows of the products of scaled residuals. The sums of several pieces of an event
        are added.
        """
        missing_c = np.diag(moment_cc) == 0
        fill_cd = np.where(missing_c[:, np.newaxis] | ~missing_c, 0.0, self.fill_cd)
        moved_cd = np.eye(len(missing_c)) * ~missing_c + fill_cd  # a missing value is predicted, and moves with others
        effects = ((moved_cd - moved_cd @ weight_cd) * ~missing_c / self.deviation_c for weight_cd in self.weights)
        shares = max((_pursued(moment_cc, each, most) for each in effects), key=lambda each: sum(each.values()))
        return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _pursued(moment_cc: np.ndarray, effect_cd: np.ndarray, most: int) -> dict[int, float]:
    total, shares = float(np.trace(moment_cc)), {}
    while len(shares) < most and total > 0:
        length_c = np.square(effect_cd).sum(axis=1)
        explained_c = np.einsum("cd,cd->c", effect_cd @ moment_cc, effect_cd)
        gain_c = np.divide(explained_c, length_c, out=np.zeros_like(length_c), where=length_c > 1e-9 * length_c.max())
        gain_c[list(shares)] = 0.0
        best = int(gain_c.argmax())
        if gain_c[best] < _LEAST_SHARE * total:
            break
        shares[best] = float(gain_c[best] / total)
        direction_d = effect_cd[best] / np.sqrt(length_c[best])
        moment_cc = moment_cc - np.outer(direction_d, direction_d @ moment_cc)
        moment_cc = moment_cc - np.outer(moment_cc @ direction_d, direction_d)
        effect_cd = effect_cd - np.outer(effect_cd @ direction_d, direction_d)
    return shares
