"""How far a window's spectrum lies from normal ones: the vibration engineer's part of a score.

The log power of equal frequency bands, amplitude kept, as one Gaussian for each axis; its squared Mahalanobis distance
is Hotelling's T² (Annals of Mathematical Statistics 1931) of the spectrum. Normal windows are judged by a Gaussian that
did not see them, as in `inference.autoregression`.

Suffixes: w window, t time, c channel (axis), f band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from core.data.dataset import PartName
from core.data.windows import WindowSet

BANDS = 64
FOLDS = 8
# Share of the mean variance of an axis's bands that is added to each: windows are few, bands are many.
SHRINKAGE = 0.1
_WINDOWS_AT_A_TIME = 256
_SMALLEST = 1e-12


@dataclass(frozen=True)
class BandGaussian:
    """Log bands of normal windows: their mean (C, F), and the LU factors (C, F, F) and pivots of their covariance,
    towards whose diagonal a share is added. float64."""

    mean_cf: Tensor
    factor_cff: Tensor
    pivot_cf: Tensor

    @classmethod
    def fit(cls, normal_wcf: Tensor) -> Self:
        mean_cf = normal_wcf.mean(0)
        centred_cwf = (normal_wcf - mean_cf).transpose(0, 1)
        covariance_cff = centred_cwf.transpose(1, 2) @ centred_cwf / max(len(normal_wcf) - 1, 1)
        spread_c = covariance_cff.diagonal(dim1=1, dim2=2).mean(-1).clamp(min=_SMALLEST)
        identity_ff = torch.eye(normal_wcf.shape[-1], dtype=torch.float64)
        shrunk_cff = covariance_cff + SHRINKAGE * spread_c[:, None, None] * identity_ff
        return cls(mean_cf, *torch.linalg.lu_factor(shrunk_cff))

    def distance(self, new_wcf: Tensor) -> Tensor:
        """Squared Mahalanobis distances (W, C) over the number of bands."""
        offset_cwf = (new_wcf - self.mean_cf).transpose(0, 1)
        solved_cfw = torch.linalg.lu_solve(self.factor_cff, self.pivot_cf, offset_cwf.transpose(1, 2))
        return (offset_cwf * solved_cfw.transpose(1, 2)).mean(-1).transpose(0, 1)


@dataclass(frozen=True)
class SpectralStatistics:
    """normal: the Gaussian of all normal windows. usual_c: the mean distance (C,) of windows it did not see."""

    normal: BandGaussian
    usual_c: Tensor

    def errors(self, windows: WindowSet) -> np.ndarray:
        """Squared distances of a part's windows, over the normal ones: float32 (W, C)."""
        return self._relative(self.normal.distance(log_bands(windows)))

    def _relative(self, distance_wc: Tensor) -> np.ndarray:
        return (distance_wc / self.usual_c).float().numpy()

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in (*vars(self.normal).items(), ("usual_c", self.usual_c))}

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        mean_cf, factor_cff, pivot_cf, usual_c = (
            torch.from_numpy(held[name]) for name in ("mean_cf", "factor_cff", "pivot_cf", "usual_c")
        )
        return cls(BandGaussian(mean_cf, factor_cff, pivot_cf), usual_c)


def fit_spectral(normal: Mapping[PartName, WindowSet]) -> tuple[SpectralStatistics, np.ndarray]:
    """What the windows of all normal parts teach, and the errors of the part `calibration`, out of fold."""
    bands = {name: log_bands(part) for name, part in normal.items()}
    normal_wcf = torch.cat(list(bands.values()))
    folds = normal_wcf.tensor_split(min(FOLDS, len(normal_wcf)))
    distance_wc = torch.cat(
        [
            BandGaussian.fit(torch.cat([*folds[:at], *folds[at + 1 :]])).distance(fold_wcf)
            for at, fold_wcf in enumerate(folds)
        ]
    )
    usual_c = distance_wc.mean(0).clamp(min=_SMALLEST)
    of_part = dict(zip(bands, distance_wc.split([len(each) for each in bands.values()]), strict=True))
    learned = SpectralStatistics(BandGaussian.fit(normal_wcf), usual_c)
    return learned, learned._relative(of_part["calibration"])


def log_bands(windows: WindowSet) -> Tensor:
    """The log of each window's mean power in `BANDS` bands of equal width, its mean left out: float64 (W, C, F)."""
    taper_t1 = torch.hann_window(windows.window, periodic=False).unsqueeze(1)
    found = []
    for batch_wtc in windows.batches(_WINDOWS_AT_A_TIME):
        centred_wtc = batch_wtc - batch_wtc.mean(1, keepdim=True)
        power_wtc = torch.fft.rfft(centred_wtc.nan_to_num() * taper_t1, dim=1).abs().square()[:, 1:]
        bands = power_wtc.tensor_split(min(BANDS, power_wtc.shape[1]), dim=1)
        found.append(torch.stack([band.mean(1) for band in bands], dim=-1).double())
    return (torch.cat(found) + _SMALLEST).log()
