"""How far a window's spectrum lies from normal ones: the vibration engineer's part of a score.

The log power of equal frequency bands, amplitude kept, as one Gaussian for each axis; its squared Mahalanobis distance
is Hotelling's T² (Annals of Mathematical Statistics 1931) of the spectrum. Normal windows are judged by a Gaussian that
did not see them, as in `inference.autoregression`.

Suffixes: w window, t time, c channel (axis), f band.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def spectral_errors(parts: Mapping[PartName, WindowSet]) -> dict[PartName, np.ndarray]:
    """Squared distances of the windows of the parts `calibration` and `test`, over the normal ones: float32 (W, C)."""
    normal = [name for name in parts if name != "test"]
    bands = {name: log_bands(part) for name, part in parts.items()}
    normal_wcf = torch.cat([bands[name] for name in normal])
    distance_wc = torch.cat(
        [
            _distance(fold_wcf, torch.cat([*folds[:at], *folds[at + 1 :]]))
            for folds in [normal_wcf.tensor_split(min(FOLDS, len(normal_wcf)))]
            for at, fold_wcf in enumerate(folds)
        ]
    )
    usual_c = distance_wc.mean(0).clamp(min=_SMALLEST)
    starts = np.cumsum([0, *(len(bands[name]) for name in normal)])
    start = int(starts[normal.index("calibration")])
    calibration_wc = distance_wc[start : start + len(bands["calibration"])]
    test_wc = _distance(bands["test"], normal_wcf)
    return {"calibration": (calibration_wc / usual_c).float().numpy(), "test": (test_wc / usual_c).float().numpy()}


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


def _distance(new_wcf: Tensor, normal_wcf: Tensor) -> Tensor:
    """Squared Mahalanobis distances (W, C) over the number of bands."""
    mean_cf = normal_wcf.mean(0)
    centred_cwf = (normal_wcf - mean_cf).transpose(0, 1)
    covariance_cff = centred_cwf.transpose(1, 2) @ centred_cwf / max(len(normal_wcf) - 1, 1)
    spread_c = covariance_cff.diagonal(dim1=1, dim2=2).mean(-1).clamp(min=_SMALLEST)
    shrunk_cff = covariance_cff + SHRINKAGE * spread_c[:, None, None] * torch.eye(
        new_wcf.shape[-1], dtype=torch.float64
    )
    offset_cwf = (new_wcf - mean_cf).transpose(0, 1)
    solved_cwf = torch.linalg.solve(shrunk_cff, offset_cwf.transpose(1, 2)).transpose(1, 2)
    return (offset_cwf * solved_cwf).mean(-1).transpose(0, 1)
