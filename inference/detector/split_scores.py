"""Scores of a split: errors of the model and of the control charts, normalised, weighted and averaged over channels.

Suffixes: s score entry, n entry of a piece, c channel.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from core.data.blocks import blank, slices
from core.data.splits import SplitName
from inference.entries import SplitErrors
from inference.running import ERROR_CAP, Ewma, Running, StartedEwma

log = logging.getLogger(__name__)

# Smallest mean error by which a channel is divided, in squared scaled units: a residual of 3 % of the channel's spread.
# Without it, a channel that the model predicts almost exactly would raise an alarm at one step of its resolution.
BASELINE_FLOOR = 1e-3
_VALUES_AT_A_TIME = 2**19
# The model raises a score of the charts by this factor at most. Chosen with the labels of public sets (dev/LOG.md,
# 2026-11-26: A model that can raise a score, but not lower it).
LARGEST_RAISE = 1.5
# Span of the long-run mean of the model's component, in smoothing spans. Chosen with the labels of public sets, where
# 100 and 300 hardly differ (dev/LOG.md, 2026-11-27: A model that has left what it has learned).
_LEVEL_SPANS = 300
# Components are clipped from below, because 0 has no logarithm.
_SMALLEST = 1e-6


@dataclass(frozen=True)
class SplitScores:
    """Scores of a split, one entry per entry of its `SplitErrors`.

    score_s: float32 (S,), about 1 on reference data; NaN where no value was observed or no window reaches.
    channel_error_sc: float32 (S, C) errors relative to their baseline, smoothed; the score is their mean.
    top_channel_s: int32 (S,) the channel with the largest error, -1 where the score is NaN.
    row_s, rows_per_entry: as in `SplitErrors`.
    model_share_s: float32 (S,) share of the logarithm of the score that comes from the model's errors, 0 to 1; the rest
        comes from the control charts. None if it was not kept.
    regressor_sf: float64 (S, F) regressors of rows that come in pieces, to attribute events
        (`inference.charts.attribution`). None where events are attributed by the errors, and for complete recordings,
        whose regressors are computed again for each event.
    """

    score_s: np.ndarray
    channel_error_sc: np.ndarray
    top_channel_s: np.ndarray
    row_s: np.ndarray
    rows_per_entry: int
    model_share_s: np.ndarray | None = None
    regressor_sf: np.ndarray | None = None


def channel_baseline(
    reference: Mapping[SplitName, SplitErrors],
    scored_c: np.ndarray | None = None,
    *,
    without_s: np.ndarray | None = None,
) -> np.ndarray | None:
    """The model's reference error of each channel, float64 (C,): its root mean square over all entries of the reference
    splits, divided by √3, which is the mean for squares of Gaussian residuals. At least the largest mean of a split,
    and at least `BASELINE_FLOOR`. None without a model.

    So a channel that is constant except for a rare state, which the model does not learn, has a lower weight.
    NaN for a channel that is not scored, or has no value; scores leave it out.

    scored_c: bool (C,), the channels that are scored; None: all. without_s: bool (S,), entries of the split
    `calibration` to leave out.
    """
    if reference["calibration"].error_sc is None:
        return None
    num_channels = reference["calibration"].error_sc.shape[1]
    fourth_c, count_c, mean_c = np.zeros(num_channels), np.zeros(num_channels, dtype=np.int64), np.zeros(num_channels)
    for name, errors in reference.items():
        sum_c, observed_c = np.zeros(num_channels), np.zeros(num_channels, dtype=np.int64)
        for piece in slices(errors.error_sc, num_values=_VALUES_AT_A_TIME):
            error_nc = errors.error_sc[piece].astype(np.float64)
            if name == "calibration" and without_s is not None:
                error_nc = error_nc[~without_s[piece]]
            sum_c += np.nansum(error_nc, axis=0)
            fourth_c += np.nansum(error_nc**2, axis=0)
            observed_c += (~np.isnan(error_nc)).sum(axis=0)
        mean_c = np.maximum(mean_c, sum_c / np.maximum(observed_c, 1))
        count_c += observed_c
    if (count_c == 0).any():
        log.warning("%d of %d channels have no reference data and are not scored", (count_c == 0).sum(), num_channels)
    baseline_c = np.maximum(np.sqrt(fourth_c / np.maximum(count_c, 1) / 3), np.maximum(mean_c, BASELINE_FLOOR))
    return np.where((count_c > 0) & (True if scored_c is None else scored_c), baseline_c, np.nan)


def score_split(
    errors: SplitErrors,
    baseline_c: np.ndarray | None,
    *,
    smoothing_span: int,
    chart_sc: np.ndarray | None = None,
    model_weight: float = 1.0,
    means: ModelMeans | None = None,
) -> SplitScores:
    """Scores from the model's errors, relative to their baseline and smoothed, and from those of the charts.

    Each component is averaged over the channels observed at each entry. The score is that of the charts, which the
    model can raise but not lower: by its own component to the power w / (1 - w), w being its weight, and at most by
    `LARGEST_RAISE`. So the model decides where the charts are close to their threshold, and it cannot hide what they
    find. If one component has no value for an entry, the score is the other one. With weight 1 the score is that of the
    model; without a model, or with weight 0, that of the charts.

    Errors are normalised first, so that the channel that the model predicts worst does not dominate.
    smoothing_span: span of the causal exponentially weighted mean of the model's errors within a segment; 1 does not
    smooth. chart_sc: float (S, C) of reference mean 1, already smoothed; may be None if the weight of the model is 1.
    means: the running means of the model's errors, if these entries continue earlier ones; None starts new ones.
    """
    if model_weight == 0:
        errors = errors.entries
    num_entries, num_channels = (chart_sc if errors.error_sc is None else errors.error_sc).shape
    normalised_sc = blank((num_entries, num_channels), errors.scratch)
    score_s = np.empty(num_entries, dtype=np.float32)
    top_channel_s = np.empty(num_entries, dtype=np.int32)
    model_share_s = np.full(num_entries, 0.0 if errors.error_sc is None else 1.0, dtype=np.float32)
    means = means or ModelMeans(smoothing_span, num_channels)
    read = [each for each in (errors.error_sc, errors.segment_s, chart_sc) if each is not None]
    for piece in slices(normalised_sc, *read, num_values=_VALUES_AT_A_TIME):
        if errors.error_sc is None:
            normalised_nc = np.minimum(chart_sc[piece], ERROR_CAP).astype(np.float64)
        else:
            normalised_nc = errors.error_sc[piece] / baseline_c
            if model_weight < 1.0:
                normalised_nc = np.minimum(normalised_nc, ERROR_CAP)
            if smoothing_span > 1:
                normalised_nc = means.smooth(normalised_nc, errors.segment_s[piece])
            if model_weight < 1.0:
                normalised_nc /= means.level(normalised_nc, errors.segment_s[piece])
                chart_nc = np.minimum(chart_sc[piece], ERROR_CAP)
                normalised_nc, model_share_s[piece] = _fused(normalised_nc, chart_nc, model_weight)
        observed_nc = ~np.isnan(normalised_nc)
        score_s[piece] = _mean_of_observed(normalised_nc)
        largest_n = np.where(observed_nc, normalised_nc, -np.inf).argmax(axis=1)
        top_channel_s[piece] = np.where(observed_nc.any(axis=1), largest_n, -1)
        normalised_sc[piece] = normalised_nc
    return SplitScores(score_s, normalised_sc, top_channel_s, errors.row_s, errors.rows_per_entry, model_share_s)


def mean_of_charts(splits: Iterable[np.ndarray]) -> float:
    """Mean score of the charts alone, as of `score_split`; NaN without any. splits: errors (S, C) of each split."""
    total, count = 0.0, 0
    for chart_sc in splits:
        for piece in slices(chart_sc, num_values=_VALUES_AT_A_TIME):
            score_n = _mean_of_observed(np.minimum(chart_sc[piece], ERROR_CAP))
            total += float(np.nansum(score_n))
            count += int(np.count_nonzero(~np.isnan(score_n)))
    return total / count if count else np.nan


def _fused(model_nc: np.ndarray, chart_nc: np.ndarray, model_weight: float) -> tuple[np.ndarray, np.ndarray]:
    """Errors (n, C) whose mean over channels is the mean of the charts, raised by the model (`score_split`), and the
    share (n,) of the logarithm of this mean that comes from the model.

    The share of a channel is the sum of its shares in both components, weighted by the shares of the components.
    """
    mean_2n = np.stack([_mean_of_observed(each) for each in (model_nc, chart_nc)])
    known_2n = ~np.isnan(mean_2n)
    log_2n = np.log(np.maximum(np.where(known_2n, mean_2n, 1.0), _SMALLEST))
    raised_n = np.clip(log_2n[0] * model_weight / (1 - model_weight), 0.0, np.log(LARGEST_RAISE))
    log_2n[0] = np.where(known_2n[1], raised_n, log_2n[0])
    above_2n = np.maximum(log_2n, 0.0)
    model_share_n = np.divide(above_2n[0], above_2n.sum(axis=0), out=1.0 - known_2n[1], where=above_2n.any(axis=0))
    share_nc = sum(
        weight_n[:, np.newaxis] * _shares(each)
        for weight_n, each in ((model_share_n, model_nc), (1 - model_share_n, chart_nc))
    )
    is_known_nc = ~np.isnan(model_nc) | ~np.isnan(chart_nc)
    fused_nc = np.exp(log_2n.sum(axis=0))[:, np.newaxis] * is_known_nc.sum(axis=1, keepdims=True) * share_nc
    return np.where(is_known_nc, fused_nc, np.nan), model_share_n


def _shares(values_nc: np.ndarray) -> np.ndarray:
    """Shares of the channels in the sum of each row, (n, C): equal shares if the sum is 0; 0 for a missing value."""
    observed_nc = ~np.isnan(values_nc)
    values_nc = np.where(observed_nc, values_nc, 0.0)
    values_nc = np.where(values_nc.sum(axis=1, keepdims=True) > 0, values_nc, observed_nc.astype(values_nc.dtype))
    return values_nc / np.maximum(values_nc.sum(axis=1, keepdims=True), np.finfo(values_nc.dtype).tiny)


def _mean_of_observed(values_nc: np.ndarray) -> np.ndarray:
    """Mean of the observed values of each row, NaN if there is none: (n,)."""
    observed_nc = ~np.isnan(values_nc)
    count_n = observed_nc.sum(axis=1)
    sum_n = np.where(observed_nc, values_nc, 0.0).sum(axis=1)
    return np.divide(sum_n, count_n, out=np.full(len(sum_n), np.nan), where=count_n > 0)


class ModelMeans(Running):
    """Running means of the model's errors relative to their baseline."""

    def __init__(self, smoothing_span: int, num_channels: int):
        self.smooth = Ewma(smoothing_span, num_channels, centre=1.0)
        self._long_run = StartedEwma(_LEVEL_SPANS * smoothing_span, 1, 0.0)

    def level(self, normalised_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        """The long-run geometric mean of the component at each of the next rows, (n, 1); at least 1. A large fault
        hardly changes a geometric mean."""
        log_n = np.log(np.maximum(_mean_of_observed(normalised_nc), _SMALLEST))
        return np.exp(np.fmax(self._long_run(log_n[:, np.newaxis], segment_n), 0.0))
