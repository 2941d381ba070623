"""How far a window's spectrum and level lie from normal ones: the vibration engineer's part of a score.

The log power of equal frequency bands, amplitude kept, as one Gaussian for each axis; its squared Mahalanobis distance
is Hotelling's T² (Annals of Mathematical Statistics 1931) of the spectrum. Beside it stands the overall level, the log
of the RMS, which standards of machine vibration judge by (ISO 20816): a machine grows louder before its spectrum tells
why. Both are exponentially weighted means over the windows of a file before they are judged (Lowry et al., A
Multivariate Exponentially Weighted Moving Average Control Chart, Technometrics 1992): a machine's state outlasts a
window. Normal windows are judged by what did not see them, as in `inference.normal_rows`.

Suffixes: w window, t time, c channel (axis), f band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from core.data.dataset import PartName
from core.data.windows import WindowSet
from inference.running import Ewma

BANDS = 64
FOLDS = 8
# Share of the mean variance of an axis's bands that is added to each: windows are few, bands are many.
SHRINKAGE = 0.1
# Smallest deviation of the level: 1 % of the amplitude, in the log of power.
LEVEL_FLOOR = 0.02
_WINDOWS_AT_A_TIME = 256
_SMALLEST = 1e-12


class Spectra(NamedTuple):
    """band_wcf: log of each window's mean power in bands, (W, C, F). level_wc: log of its mean power. float64, both
    smoothed over the windows of a file."""

    band_wcf: Tensor
    level_wc: Tensor

    @classmethod
    def joined(cls, each: Sequence[Spectra]) -> Self:
        return cls(*(torch.cat(part) for part in zip(*each, strict=True)))

    def split(self, sizes: Sequence[int]) -> list[Spectra]:
        return [Spectra(*part) for part in zip(*(each.split(sizes) for each in self), strict=True)]


@dataclass(frozen=True)
class NormalSpectra:
    """Of normal windows: the mean (C, F) of their bands, the LU factors (C, F, F) and pivots of the bands' covariance,
    towards whose diagonal a share is added, and mean and deviation (2, 1 + C) of the levels: of all axes' mean, and of
    each. float64."""

    mean_cf: Tensor
    factor_cff: Tensor
    pivot_cf: Tensor
    level_2d: Tensor

    @classmethod
    def fit(cls, normal: Spectra) -> Self:
        complete_w = ~normal.level_wc.isnan().any(1)
        if complete_w.any():
            normal = Spectra(normal.band_wcf[complete_w], normal.level_wc[complete_w])
        mean_cf = normal.band_wcf.mean(0)
        centred_cwf = (normal.band_wcf - mean_cf).transpose(0, 1)
        covariance_cff = centred_cwf.transpose(1, 2) @ centred_cwf / max(len(normal.band_wcf) - 1, 1)
        spread_c = covariance_cff.diagonal(dim1=1, dim2=2).mean(-1).clamp(min=_SMALLEST)
        identity_ff = torch.eye(mean_cf.shape[-1], dtype=torch.float64)
        shrunk_cff = covariance_cff + SHRINKAGE * spread_c[:, None, None] * identity_ff
        level_wd = _with_mean(normal.level_wc)
        level_2d = torch.stack([level_wd.mean(0), level_wd.std(0, correction=0).clamp(min=LEVEL_FLOOR)])
        return cls(mean_cf, *torch.linalg.lu_factor(shrunk_cff), level_2d)

    def distances(self, new: Spectra) -> tuple[Tensor, Tensor]:
        """Squared distances (W, C) of the level, and of each axis's bands over their number (Mahalanobis); NaN for an
        axis without a value in a window.

        The mean level of all axes is what is judged; the axes share its distance by their own.
        """
        mean_d, deviation_d = self.level_2d
        square_wd = ((_with_mean(new.level_wc) - mean_d) / deviation_d) ** 2
        share_wc = square_wd[:, 1:] / square_wd[:, 1:].nanmean(1, keepdim=True).clamp(min=_SMALLEST)
        offset_cwf = (new.band_wcf - self.mean_cf).transpose(0, 1)
        solved_cfw = torch.linalg.lu_solve(self.factor_cff, self.pivot_cf, offset_cwf.transpose(1, 2))
        return square_wd[:, :1] * share_wc, (offset_cwf * solved_cfw.transpose(1, 2)).mean(-1).transpose(0, 1)


@dataclass(frozen=True)
class SpectralStatistics:
    """normal: learned from all normal windows. usual_2c: how large the distances (2, C), of level and bands, are for
    windows it did not see: their mean, or their root mean square over √3, as in `part_scores.channel_baseline`, where
    that is larger. span: of the means over windows."""

    normal: NormalSpectra
    usual_2c: Tensor
    span: int

    def errors(self, windows: WindowSet) -> np.ndarray:
        """Half the level's squared distance and half the bands', over the normal ones: float32 (W, C)."""
        return self._relative(torch.stack(self.normal.distances(spectra_of(windows, span=self.span)), dim=1))

    def _relative(self, distance_w2c: Tensor) -> np.ndarray:
        return (distance_w2c / self.usual_2c).mean(1).float().numpy()

    def to_arrays(self) -> dict[str, np.ndarray]:
        held = {name: tensor.numpy() for name, tensor in (*vars(self.normal).items(), ("usual_2c", self.usual_2c))}
        return {**held, "span": np.array(self.span)}

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        names = ("mean_cf", "factor_cff", "pivot_cf", "level_2d", "usual_2c")
        *normal, usual_2c = (torch.from_numpy(held[name]) for name in names)
        return cls(NormalSpectra(*normal), usual_2c, int(held["span"]))


def fit_spectral(normal: Mapping[PartName, WindowSet], *, span: int) -> tuple[SpectralStatistics, np.ndarray]:
    """What the windows of all normal parts teach, and the errors of the part `calibration`, out of fold."""
    of_part = {name: spectra_of(part, span=span) for name, part in normal.items()}
    everything = Spectra.joined(list(of_part.values()))
    num_windows = len(everything.level_wc)
    folds = everything.split([len(fold) for fold in torch.arange(num_windows).tensor_split(min(FOLDS, num_windows))])
    others = [Spectra.joined([*folds[:at], *folds[at + 1 :]] or folds) for at in range(len(folds))]
    distance_w2c = torch.cat(
        [torch.stack(NormalSpectra.fit(rest).distances(fold), dim=1) for rest, fold in zip(others, folds, strict=True)]
    )
    mean_2c, rms_2c = distance_w2c.nanmean(0), distance_w2c.square().nanmean(0).sqrt()
    usual_2c = torch.maximum(mean_2c, rms_2c / 3**0.5).clamp(min=_SMALLEST)
    learned = SpectralStatistics(NormalSpectra.fit(everything), usual_2c, span)
    mine = distance_w2c.split([len(part.level_wc) for part in of_part.values()])[list(of_part).index("calibration")]
    return learned, learned._relative(mine)


def spectra_of(windows: WindowSet, *, span: int) -> Spectra:
    """span: of the exponentially weighted mean over the windows of a file, those of all its records in order.

    Missing samples count as their window's mean, and the power as that of the samples there are; NaN for an axis
    without any.
    """
    taper_t1 = torch.hann_window(windows.window, periodic=False).unsqueeze(1)
    whole = taper_t1.square().sum()
    found = []
    for batch_wtc in windows.batches(_WINDOWS_AT_A_TIME):
        centred_wtc = batch_wtc - batch_wtc.nanmean(1, keepdim=True)
        seen_w1c = (taper_t1.square() * ~batch_wtc.isnan()).sum(1, keepdim=True) / whole
        power_wfc = torch.fft.rfft(centred_wtc.nan_to_num() * taper_t1, dim=1).abs().square()[:, 1:].double()
        power_wfc /= torch.where(seen_w1c > 0, seen_w1c, torch.nan)
        bands = power_wfc.tensor_split(min(BANDS, power_wfc.shape[1]), dim=1)
        band_wcf = torch.stack([band.mean(1) for band in bands], dim=-1)
        found.append(Spectra(_log(band_wcf), _log(power_wfc.mean(1))))
    spectra = Spectra.joined(found)
    file_w = windows.file_of()
    return Spectra(*(_smoothed(each, file_w, span) for each in spectra))


def _with_mean(level_wc: Tensor) -> Tensor:
    return torch.cat([level_wc.nanmean(1, keepdim=True), level_wc], dim=1)


def _log(power: Tensor) -> Tensor:
    return (power + _SMALLEST).log()


def _smoothed(values: Tensor, file_w: np.ndarray, span: int) -> Tensor:
    if span == 1:
        return values
    flat_wm = values.flatten(1).numpy()
    return torch.from_numpy(Ewma(span, flat_wm.shape[1])(flat_wm, file_w)).reshape(values.shape)
