"""Scores of a whole part of the data: one per row of process sensors, one per window of vibration.

`part_errors` runs the model, `channel_baseline` learns from normal data what error is normal for each channel,
and `mixed_scores` turns errors into scores. Suffixes: s score entry, n row of the series, c channel, b batch, t time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.data.blocks import Pages, blank, gathered, slices
from core.data.dataset import PartName
from core.data.feed import Feed
from core.data.windows import WindowSet
from core.devices import threads
from core.devices.retry import until_it_fits
from core.progress import Mode, Progress
from inference.running import Ewma
from inference.scoring import ScoringModel, infer_forecast, infer_score

log = logging.getLogger(__name__)

# Smallest mean error a channel is divided by, in squared scaled units: a residual of 3 % of the channel's spread.
# Without it, a channel the model predicts almost exactly would make an alarm of one step of its resolution.
BASELINE_FLOOR = 1e-3
# Where model and statistics add up, an error counts up to so many times the normal one (55 of its deviations): how far
# beyond that says little, and would silence the other of the two.
ERROR_CAP = 3000.0
_VALUES_AT_A_TIME = 2**19


@dataclass(frozen=True)
class PartErrors:
    """How badly the model predicts a part, one entry per row (`patchtst`) or window (`swinmae`), in order of the rows.

    error_sc: float32 (S, C) mean squared error in scaled units; NaN where values are missing or no window reaches.
    row_s: int64 (S,) rows of the series; a window stands at its last row.
    stretch_s: int64 (S,) number of what a smoothing goes through, ascending: a gap-free stretch, of vibration a file.
    rows_per_entry: how many rows, its own the last of them, an entry speaks of.
    room: as in `core.data.windows.Series`. What has an entry for each row lies there if it is long.
    expected_sc: float32 (S, C) what the model expected of each row while it was hidden, in scaled units, NaN where no
        window reaches; None for vibration, and where it was not kept.
    """

    error_sc: np.ndarray
    row_s: np.ndarray
    stretch_s: np.ndarray
    rows_per_entry: int
    room: Path | None = None
    expected_sc: np.ndarray | None = None


@dataclass(frozen=True)
class PartScores:
    """Scores of a part, one entry per entry of its `PartErrors`.

    score_s: float32 (S,), about 1 where all is normal; NaN where nothing was observed or no window reaches.
    channel_error_sc: float32 (S, C) what the score is the mean of: errors over the channel's normal error, smoothed.
    top_channel_s: int32 (S,) the channel with the largest error, -1 where the score is NaN.
    row_s, rows_per_entry: as in `PartErrors`.
    model_share_s: float32 (S,) share of the score that comes from the model's errors, 0 to 1; the rest comes from the
        control charts. None where it was not kept.
    """

    score_s: np.ndarray
    channel_error_sc: np.ndarray
    top_channel_s: np.ndarray
    row_s: np.ndarray
    rows_per_entry: int
    model_share_s: np.ndarray | None = None


# --------------------------------------------------------------------------------------------------------------- errors
def part_errors(
    scoring: ScoringModel,
    windows: WindowSet,
    *,
    batch_size: int,
    look_ahead: bool = True,
    keep_expected: bool = False,
    label: str = "scoring",
    progress: Mode = "off",
) -> PartErrors:
    """Runs the model over all windows of a part, `batch_size` at a time, fewer where memory runs out; the device of the
    model holds the series and a batch.

    look_ahead: whether rows of process sensors count in every window they lie in, so also as predicted from later rows;
    else only in the newest patch of a window, as predicted from the rows before it. Vibration has one score per window,
    at its end, and never looks ahead.
    keep_expected: keep what the model expected of each row of process sensors.
    """
    with Progress(len(windows), label, unit="windows", mode=progress) as bar:
        if scoring.stream == "patchtst" and not look_ahead:
            inferred = _inferred(scoring, windows, batch_size, bar, partial(infer_forecast, model=scoring.model))
            return _row_errors(inferred, windows, keep_expected=keep_expected)
        inferred = _inferred(scoring, windows, batch_size, bar, partial(_scored, scoring))
        if scoring.stream == "swinmae":
            return _window_errors(inferred, windows)
        return _row_errors(inferred, windows, keep_expected=keep_expected)


Aux = dict[str, Tensor]
Inferred = Iterator[tuple[Tensor, Aux]]


def _scored(scoring: ScoringModel, batch: Tensor) -> Aux:
    return infer_score(batch, scoring.model, scoring.stream)[1]


def _inferred(
    scoring: ScoringModel, windows: WindowSet, batch_size: int, bar: Progress, of_batch: Callable[[Tensor], Aux]
) -> Inferred:
    """Window indices (B,) and what `of_batch` gives for those windows, batch by batch."""
    feed = Feed(windows, scoring.device)
    feed.expect(torch.arange(len(windows)).split(batch_size))

    def infer(index_b: Tensor, size: int) -> list[tuple[Tensor, Aux]]:
        batches = ((part_b, scoring.transform(feed.batch(part_b))) for part_b in index_b.split(size))
        return [(part_b, of_batch(batch)) for part_b, batch in batches]

    size = batch_size
    for index_b in torch.arange(len(windows)).split(batch_size):
        threads.adapt()
        inferred, size = until_it_fits(partial(infer, index_b), size, kind=scoring.kind)
        yield from inferred
        bar.advance(len(index_b))


def _row_errors(inferred: Inferred, windows: WindowSet, *, keep_expected: bool) -> PartErrors:
    """Errors of the last rows of overlapping windows, as many as were inferred, averaged per row and channel; so is
    what the model expected of them. These rows lie in the segments of the split; what a window looks back on may not.

    They are added up on the CPU, where they come in the same order, and so with the same rounding, at every call. A
    value missing in one window is missing in all, so NaN adds up to what it should and needs no count of its own.
    """
    segments, stop_w, room = windows.segments, windows.starts_w.numpy() + windows.window, windows.series.room
    entry_w = torch.from_numpy(stop_w + (np.cumsum(segments.lengths_k) - segments.stop_k)[segments.at(stop_w - 1)])

    num_entries = int(segments.lengths_k.sum())
    names = ("error", "expected") if keep_expected else ("error",)
    means = {name: blank((num_entries, windows.series.values_nc.shape[1]), room) for name in names}
    windows_s = blank((num_entries,), room)
    sums, count_s = {name: torch.from_numpy(mean_sc) for name, mean_sc in means.items()}, torch.from_numpy(windows_s)
    pages = [Pages(array) for array in (*means.values(), windows_s)]
    for index_b, aux in inferred:
        entry_m = (entry_w[index_b].unsqueeze(1) + torch.arange(-aux["error"].shape[1], 0)).flatten()
        for name, sum_sc in sums.items():
            sum_sc.index_add_(0, entry_m, aux[name].flatten(0, 1).cpu())
        count_s.index_add_(0, entry_m, torch.ones(len(entry_m)))
        for each in pages:
            each.looked_at(entry_m.numel() * aux["error"].shape[-1] * aux["error"].itemsize)
    for piece in slices(*means.values(), windows_s, num_values=_VALUES_AT_A_TIME):
        for sum_sc in sums.values():
            sum_sc[piece] /= count_s[piece].unsqueeze(1)

    ranges = [
        (number, first, min(first + _VALUES_AT_A_TIME, stop))
        for number, (start, stop) in enumerate(segments.rows_k2.tolist())
        for first in range(start, stop, _VALUES_AT_A_TIME)
    ]
    row_s = gathered((np.arange(first, stop) for _, first, stop in ranges), room)
    stretch_s = gathered((np.full(stop - first, number) for number, first, stop in ranges), room)
    return PartErrors(means["error"], row_s, stretch_s, rows_per_entry=1, room=room, expected_sc=means.get("expected"))


def _window_errors(inferred: Inferred, windows: WindowSet) -> PartErrors:
    """The errors of each window on its own, for the axes the sensor has."""
    num_channels = windows.series.values_nc.shape[1]
    error_sc = torch.cat([aux["channel_error"][:, :num_channels].cpu() for _, aux in inferred]).numpy()
    start_s = windows.starts_w.numpy()
    return PartErrors(error_sc, start_s + windows.window - 1, windows.file_of(), rows_per_entry=windows.window)


# --------------------------------------------------------------------------------------------------------------- scores
def channel_baseline(normal: Mapping[PartName, PartErrors], *, without_s: np.ndarray | None = None) -> np.ndarray:
    """The model's normal error of each channel, float64 (C,): its root mean square over all entries of normal parts,
    over √3, which is the mean for squares of Gaussian residuals. At least the mean of the part where it is largest,
    and `BASELINE_FLOOR`.

    A channel that is quiet but for a rare state, which the model never learns, is trusted less that way.
    NaN for a channel without a value; as nobody knows its normal error, scores leave it out.

    without_s: bool, entries of the part `calibration` that do not count.
    """
    num_channels = normal["calibration"].error_sc.shape[1]
    fourth_c, count_c, mean_c = np.zeros(num_channels), np.zeros(num_channels, dtype=np.int64), np.zeros(num_channels)
    for name, errors in normal.items():
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
        log.warning("%d of %d channels have no normal data and are not scored", (count_c == 0).sum(), num_channels)
    normal_c = np.maximum(np.sqrt(fourth_c / np.maximum(count_c, 1) / 3), np.maximum(mean_c, BASELINE_FLOOR))
    return np.where(count_c > 0, normal_c, np.nan)


def score_part(
    errors: PartErrors,
    baseline_c: np.ndarray,
    *,
    smoothing_span: int,
    statistic_sc: np.ndarray | None = None,
    share: float = 1.0,
) -> PartScores:
    """The model's errors over the channels' normal ones, smoothed, by `share`, and by the rest the statistics; then
    averaged over the channels observed at each entry.

    Normalising first gives every channel one voice: else the one the model predicts worst would be the score.
    smoothing_span: of the causal EWMA over the model's errors within a stretch; 1 does not smooth. statistic_sc: float
    (S, C) of normal mean 1, smoothed by its maker; not looked at where share is 1. Where only one of the two knows an
    entry, it counts alone.
    """
    num_entries, num_channels = errors.error_sc.shape
    normalised_sc = blank((num_entries, num_channels), errors.room)
    score_s = np.empty(num_entries, dtype=np.float32)
    top_channel_s = np.empty(num_entries, dtype=np.int32)
    model_share_s = np.ones(num_entries, dtype=np.float32)
    smooth = Ewma(smoothing_span, num_channels, centre=1.0)
    read = [errors.error_sc, errors.stretch_s, *([] if statistic_sc is None else [statistic_sc])]
    for piece in slices(normalised_sc, *read, num_values=_VALUES_AT_A_TIME):
        normalised_nc = errors.error_sc[piece] / baseline_c
        if share < 1.0:
            normalised_nc = np.minimum(normalised_nc, ERROR_CAP)
        if smoothing_span > 1:
            normalised_nc = smooth(normalised_nc, errors.stretch_s[piece])
        if share < 1.0:
            normalised_nc, of_model_nc = _mixed(normalised_nc, np.minimum(statistic_sc[piece], ERROR_CAP), share)
            both_n, of_model_n = np.nansum(normalised_nc, axis=1), np.nansum(of_model_nc, axis=1)
            model_share_s[piece] = np.divide(of_model_n, both_n, out=np.zeros(len(both_n)), where=both_n > 0)
        observed_nc = ~np.isnan(normalised_nc)
        count_n = observed_nc.sum(axis=1)
        sum_n = np.where(observed_nc, normalised_nc, 0.0).sum(axis=1)
        score_s[piece] = np.divide(sum_n, count_n, out=np.full(len(sum_n), np.nan), where=count_n > 0)
        largest_n = np.where(observed_nc, normalised_nc, -np.inf).argmax(axis=1)
        top_channel_s[piece] = np.where(count_n > 0, largest_n, -1)
        normalised_sc[piece] = normalised_nc
    return PartScores(score_s, normalised_sc, top_channel_s, errors.row_s, errors.rows_per_entry, model_share_s)


def _mixed(model_nc: np.ndarray, statistic_nc: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The weighted sum of both, or the one that is known, and the model's part of it: (n, C) each."""
    model_weight_nc = np.where(np.isnan(model_nc), 0.0, np.where(np.isnan(statistic_nc), 1.0, share))
    of_model_nc = np.where(model_weight_nc > 0, model_weight_nc * model_nc, 0.0)
    of_charts_nc = np.where(model_weight_nc < 1, (1 - model_weight_nc) * statistic_nc, 0.0)
    return of_model_nc + of_charts_nc, of_model_nc
