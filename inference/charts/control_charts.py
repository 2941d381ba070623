"""Three control charts for each channel of process sensors, and their weighted sum.

- The exponentially weighted mean square of the residual of a regression on the last rows
  (`inference.charts.autoregression`). It detects noise, jumps and broken couplings (MacGregor and Harris, Journal of
  Quality Technology 1993).
- The square of the CUSUM of that residual (`inference.running`). It detects a small lasting shift to one side.
- The mean square of what the principal components leave (`inference.charts.components`), over three times as many rows.
  It detects a lasting shift between channels. Its weight falls with the drift of the plant.

Each chart is divided by its mean on reference rows that were left out of its fit. Suffixes: n row, s score entry, c
channel, k segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from core.config.charts import ProcessCharts
from core.data.blocks import Pages, gathered, slices
from inference.charts import autoregression, components
from inference.charts.autoregression import Autoregression
from inference.charts.components import Components
from inference.part_scores import ERROR_CAP
from inference.running import Cusum, Ewma

# A residual counts up to so many standard deviations: its mean shall be of this day again after a jump to 1e30.
RESIDUAL_CAP = 1000.0
# What the CUSUM takes for noise, in normal deviations of the residual: half of the smallest shift it is to see, one.
_ALLOWANCE = 0.5
# Smallest mean square of a CUSUM that it is measured by: a channel that is quiet but for rare jumps has next to none.
CUSUM_FLOOR = 0.1
_VALUES_AT_A_TIME = 2**19


@dataclass(frozen=True)
class ControlCharts:
    """Charts of one group of recordings.

    span: of the mean of squares, in rows. usual_3c: mean squares (3, C) on normal rows, of the regression's and the
    components' residual in standard deviations of the channel, and between them of the CUSUM, in those of the
    residual. components_share: of the third. settings: the constants of all.
    """

    regression: Autoregression
    components: Components
    span: int
    usual_3c: np.ndarray
    components_share: float
    settings: ProcessCharts

    def errors(self, values_nc: np.ndarray, stretches_k2: np.ndarray) -> np.ndarray:
        """About 1 where all is normal, at most `ERROR_CAP`: float32 (S, C) for the rows of stretches (K, 2), in order;
        NaN where a value is missing."""
        lengths_k = stretches_k2[:, 1] - stretches_k2[:, 0]
        error_sc = np.empty((lengths_k.sum(), values_nc.shape[1]), dtype=np.float32)
        self.write(error_sc, np.cumsum(lengths_k) - lengths_k, values_nc, stretches_k2)
        return error_sc

    def write(self, error_sc: np.ndarray, first_k: np.ndarray, values_nc: np.ndarray, stretches_k2: np.ndarray) -> None:
        """As `errors`, into those of more stretches: the rows of stretch k have the lines from `first_k[k]` on."""
        add_up, pages = _AddUp(self), Pages(error_sc)
        for number, first in enumerate(first_k):
            for rows in self.regression.rows(values_nc, stretches_k2[number : number + 1]):
                piece = slice(first, first := first + len(rows.z_nc))
                residuals = (self.regression.residual(rows), self.components.residual(rows.z_nc))
                error_sc[piece] = add_up(*residuals, np.full(len(rows.z_nc), number))
                pages.looked_at(error_sc[piece].nbytes)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            **{name: getattr(self.regression, name) for name in _OF_REGRESSION},
            **{name: getattr(self.components, name) for name in _OF_COMPONENTS},
            "lags": np.array(self.regression.lags),
            "span": np.array(self.span),
            "usual_3c": self.usual_3c,
            "components_share": np.array(self.components_share),
            "settings": np.array(self.settings.model_dump_json()),
        }

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        regression = Autoregression(int(held["lags"]), *(held[name] for name in _OF_REGRESSION))
        plane = Components(*(held[name] for name in _OF_COMPONENTS))
        settings = ProcessCharts.model_validate_json(str(held["settings"]))
        share = float(held["components_share"])
        return cls(regression, plane, int(held["span"]), held["usual_3c"], share, settings)


_OF_REGRESSION = ("mean_c", "std_c", "inertia_c", "weight_fc")
_OF_COMPONENTS = ("centre_c", "left_cc")


class _AddUp:
    """The three charts over rows that come in pieces, in order."""

    def __init__(self, charts: ControlCharts):
        num_channels, settings = charts.usual_3c.shape[1], charts.settings
        share, cusum = charts.components_share, settings.cusum_share
        self.usual_3c = charts.usual_3c
        self.share_3 = np.array([(1 - share) * (1 - cusum), (1 - share) * cusum, share])
        self.square, self.push = Ewma(charts.span, num_channels, 1.0), _push(charts.span, num_channels, settings)
        self.left = Ewma(settings.components_spans * charts.span, num_channels, 1.0)

    def __call__(self, residual_nc: np.ndarray, left_nc: np.ndarray, stretch_n: np.ndarray) -> np.ndarray:
        def measured(square_nc: np.ndarray, which: int) -> np.ndarray:
            return np.minimum(square_nc / self.usual_3c[which], ERROR_CAP)

        charts = (
            self.square(measured(residual_nc**2, 0), stretch_n),
            measured(self.push(_deviations(residual_nc, self.usual_3c[0]), stretch_n) ** 2, 1),
            self.left(measured(left_nc**2, 2), stretch_n),
        )
        return sum(share * chart_nc for share, chart_nc in zip(self.share_3, charts, strict=True))


@dataclass(frozen=True)
class OutOfFold:
    """What regression and components leave of the normal rows that the others teach, float32 (S, C) each; the number of
    the stretch of row s is how many of `end_k`, int64 (K,), are not above s. room: as in `core.data.windows.Series`."""

    residual_sc: np.ndarray
    left_sc: np.ndarray
    end_k: np.ndarray
    room: Path | None

    def pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Both (n, C), and the number of each row's stretch (n,)."""
        for piece in slices(self.residual_sc, self.left_sc, num_values=_VALUES_AT_A_TIME):
            stretch_n = np.searchsorted(self.end_k, np.arange(piece.start, piece.stop), side="right")
            yield self.residual_sc[piece], self.left_sc[piece], stretch_n

    def errors(self, charts: ControlCharts) -> np.ndarray:
        """What the charts say of these rows: float32 (S, C)."""
        add_up = _AddUp(charts)
        return gathered((add_up(*piece).astype(np.float32) for piece in self.pieces()), self.room)


def fit(
    values_nc: np.ndarray,
    stretches_k2: np.ndarray,
    *,
    span: int,
    settings: ProcessCharts | None = None,
    room: Path | None = None,
) -> tuple[ControlCharts, OutOfFold]:
    """The charts of normal rows, and what these are judged by themselves.

    values_nc: (N, C) of all rows, NaN missing. stretches_k2: int64 (K, 2), half-open ranges of normal rows without a
    gap, in order.
    """
    num_channels, settings = values_nc.shape[1], settings or ProcessCharts()
    regression, residual_sc = autoregression.fit(values_nc, stretches_k2, settings, room)
    z_sc = gathered(_standardised(regression, values_nc, stretches_k2), room)
    plane, left_sc, drift = components.fit(z_sc, stretches_k2, room)
    unseen = OutOfFold(residual_sc, left_sc, np.cumsum(stretches_k2[:, 1] - stretches_k2[:, 0]), room)

    residual_c, left_c = (
        np.maximum(_mean_square((piece[which] for piece in unseen.pieces()), num_channels), settings.residual_floor**2)
        for which in (0, 1)
    )
    push = _push(span, num_channels, settings)
    pushes = (push(_deviations(residual_nc, residual_c), stretch_n) for residual_nc, _, stretch_n in unseen.pieces())
    push_c = np.maximum(_mean_square(pushes, num_channels), CUSUM_FLOOR)
    steady = min(1.0, settings.tolerated_drift / drift) ** 4 if plane.left_cc.any() else 0.0
    share, usual_3c = steady * settings.components_share, np.stack([residual_c, push_c, left_c])
    return ControlCharts(regression, plane, span, usual_3c, share, settings), unseen


def _standardised(regression: Autoregression, values_nc: np.ndarray, stretches_k2: np.ndarray) -> Iterator[np.ndarray]:
    for start, stop in stretches_k2:
        rows_nc = values_nc[start:stop]
        for piece in slices(rows_nc, num_values=_VALUES_AT_A_TIME):
            yield ((rows_nc[piece] - regression.mean_c) / regression.std_c).astype(np.float32)


def _push(span: int, num_channels: int, settings: ProcessCharts) -> Cusum:
    return Cusum(settings.cusum_spans * span, _ALLOWANCE, num_channels)


def _deviations(residual_nc: np.ndarray, square_c: np.ndarray) -> np.ndarray:
    """Residuals in normal deviations of their own. square_c: their normal mean square."""
    return np.clip(residual_nc / np.sqrt(square_c), -RESIDUAL_CAP, RESIDUAL_CAP)


def _mean_square(pieces: Iterable[np.ndarray], num_channels: int) -> np.ndarray:
    """Of what is observed in rows that come in pieces, float64 (C,); NaN for a channel without a value, which then is
    scored by nobody."""
    sum_c, count_c = np.zeros((2, num_channels))
    for values_nc in pieces:
        square_nc = np.square(values_nc, dtype=np.float64)
        sum_c += np.nansum(square_nc, axis=0)
        count_c += (~np.isnan(square_nc)).sum(axis=0)
    return np.where(count_c > 0, sum_c / np.maximum(count_c, 1), np.nan)
