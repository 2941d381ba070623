"""Prediction of masked patches of ETT, by the model and by simple methods, with the same windows and masks. Windows of
42 patches of 12 hours; 17 patches are masked, the same ones in all windows and channels, in each of four draws. Twelve
months are for training, four for validation, four for the test; windows of the last two splits begin up to 512 hours
earlier (the split of Zhou et al., Informer, AAAI 2021). Each channel of a window is normalised by the mean and standard
deviation of all its values, including masked ones, as in the authors' code of PatchTST: a method may use that the mean
is 0. Landfall's model does not: with `instance_norm` it normalises again by the visible values. Every simple method is
a matrix of weights from visible to masked rows. Suffixes: w window, t row, c channel, n patch, h masked row, v visible
row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.detection.process import ETT_CONTEXT, ETT_PATCH, ETT_ROWS, ETT_WINDOW
from core.data.windows import Series, WindowSet
from core.errors import DataError
from inference.scoring import ScoringModel

_HIDDEN = 17  # 40 %
_DRAWS = 4
_DAY = 24
_DAYS = (-1, 1, -2, 2, -3, 3, -4, 4, -5, 5)
_RIDGE = 1e-3
_AT_ONCE = 64

Fill = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From normalised windows (W, T, C) and the row mask (T,) to the predicted values: (W, H, C)."""
Weights = Callable[[np.ndarray], np.ndarray]
"""From the row mask (T,) to the weight of each visible row for each masked row: (H, V)."""


def windows(series: Series, split: str, stride: int = ETT_PATCH) -> np.ndarray:
    """Normalised windows of a split: float64 (W, T, C)."""
    first, stop = ETT_ROWS[split]
    if len(series.rows_nc) < stop:
        problem = f"has {len(series.rows_nc)} rows; prediction of masked patches is evaluated on the first {stop}"
        raise DataError(problem, path=series.recordings[0].path)
    starts_w = np.arange(max(first - ETT_CONTEXT, 0), stop - ETT_WINDOW + 1, stride)
    x_wtc = WindowSet(series, starts_w, ETT_WINDOW).batch(torch.arange(len(starts_w))).double().numpy()
    return (x_wtc - x_wtc.mean(axis=1, keepdims=True)) / (x_wtc.std(axis=1, keepdims=True) + 1e-5)


def masks() -> Iterator[np.ndarray]:
    """The row mask, bool (T,), of each draw."""
    rng, num_patches = np.random.default_rng(0), ETT_WINDOW // ETT_PATCH
    for _ in range(_DRAWS):
        yield np.isin(np.arange(num_patches), rng.choice(num_patches, _HIDDEN, replace=False)).repeat(ETT_PATCH)


def masked_mse(fill: Fill, x_wtc: np.ndarray) -> float:
    """Mean squared error of masked values, over all draws."""
    return float(
        np.mean([np.square(fill(x_wtc, is_hidden_t) - x_wtc[:, is_hidden_t]).mean() for is_hidden_t in masks()])
    )


def metrics_of(fill: Fill, series: Series, *, train_seconds: float) -> dict[str, float]:
    start = time.perf_counter()
    found = {f"{split}_mse": masked_mse(fill, windows(series, split)) for split in ("validation", "test")}
    return {**found, "train_seconds": train_seconds, "score_seconds": time.perf_counter() - start}


def filled_by(scoring: ScoringModel) -> Fill:
    @torch.no_grad()
    def fill(x_wtc: np.ndarray, is_hidden_t: np.ndarray) -> np.ndarray:
        model = scoring.model
        mask_cn = torch.from_numpy(is_hidden_t[::ETT_PATCH]).to(scoring.device).expand(model.unit_shape)
        filled = [
            model(x_btc.to(scoring.device), mask_cn.expand(len(x_btc), -1, -1)).reconstruction.cpu().numpy()
            for x_btc in torch.from_numpy(x_wtc.astype(np.float32)).split(_AT_ONCE)
        ]
        return np.concatenate(filled)[:, is_hidden_t]

    return fill


# ------------------------------------------------------------------------------------------------------ simple methods
def metrics_of_simple(series: Series) -> Iterator[tuple[str, dict[str, float]]]:
    for method, learn in SIMPLE.items():
        start = time.perf_counter()
        weights = learn(series)
        yield method, metrics_of(weighted(weights), series, train_seconds=time.perf_counter() - start)


def weighted(weights: Weights) -> Fill:
    return lambda x_wtc, is_hidden_t: weights(is_hidden_t) @ x_wtc[:, ~is_hidden_t]


def _mean(is_hidden_t: np.ndarray) -> np.ndarray:
    return np.zeros((is_hidden_t.sum(), (~is_hidden_t).sum()))


def _line(is_hidden_t: np.ndarray) -> np.ndarray:
    hidden_h, visible_v = np.flatnonzero(is_hidden_t), np.flatnonzero(~is_hidden_t)
    return np.stack([np.interp(hidden_h, visible_v, one_v) for one_v in np.eye(len(visible_v))], axis=1)


def _same_hour(is_hidden_t: np.ndarray) -> np.ndarray:
    """The mean of the two nearest visible values at the same hour, up to five days away, the earlier first."""
    place_t = np.cumsum(~is_hidden_t) - 1
    weight_hv = _mean(is_hidden_t)
    for weight_v, row in zip(weight_hv, np.flatnonzero(is_hidden_t), strict=True):
        rows = [row + _DAY * days for days in _DAYS if 0 <= row + _DAY * days < len(is_hidden_t)]
        nearest = [place_t[each] for each in rows if not is_hidden_t[each]][:2]
        weight_v[nearest] = 1 / max(len(nearest), 1)
    return weight_hv


def _gaussian(series: Series, stride: int) -> Weights:
    """The conditional mean under the covariance of the windows of the training months, `stride` hours apart."""
    x_wtc = windows(series, "train", stride)
    covariance_tt = np.cov(x_wtc.transpose(1, 0, 2).reshape(ETT_WINDOW, -1)) + _RIDGE * np.eye(ETT_WINDOW)

    def weights(is_hidden_t: np.ndarray) -> np.ndarray:
        covariance_vt = covariance_tt[~is_hidden_t]
        return np.linalg.solve(covariance_vt[:, ~is_hidden_t], covariance_vt[:, is_hidden_t]).T

    return weights


# The windows of the published baseline all begin at midnight; windows of every hour are a stronger baseline.
SIMPLE: dict[str, Callable[[Series], Weights]] = {
    "instance mean": lambda series: _mean,
    "linear interpolation": lambda series: _line,
    "same hour of neighbouring days": lambda series: _same_hour,
    "Gaussian conditional mean, a window a day": partial(_gaussian, stride=_DAY),
    "Gaussian conditional mean, a window an hour": partial(_gaussian, stride=1),
}
