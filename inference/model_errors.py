"""Errors of a model on a split of the data: one entry per row of process sensors, one per window of vibration.

Suffixes: s score entry, n row of the series, k segment, w window, c channel, b batch, m row of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from core.config.schema import AnyConfig
from core.data.blocks import Pages, blank, slices
from core.data.feed import Feed
from core.data.segments import entries_of
from core.data.splits import SCORING_SPLITS, SplitName
from core.data.windows import WindowSet
from core.devices.memory import until_it_fits
from core.progress import Mode, Progress
from inference.entries import SplitErrors, row_entries, window_entries
from inference.scoring import ScoringModel, infer_forecast, infer_score

_VALUES_AT_A_TIME = 2**19


# ------------------------------------------------------------------------------------------------------------- a split
def model_errors(
    config: AnyConfig, scoring: ScoringModel, windows: WindowSet, label: str, *, keep_expected: bool = False
) -> SplitErrors:
    """`split_errors` with the settings of the configuration."""
    settings = config.scoring
    return split_errors(
        scoring,
        windows,
        batch_size=settings.batch_size,
        look_ahead=settings.look_ahead,
        keep_expected=keep_expected,
        label=label,
        progress=config.logging.progress,
    )


def reference_errors(
    config: AnyConfig, scoring: ScoringModel, reference: Mapping[SplitName, WindowSet]
) -> dict[SplitName, SplitErrors]:
    """The model's errors on reference splits: for process sensors on all of them, because channels have rare states;
    for vibration only on `calibration`, because axes are similar and images are expensive."""
    if config.stream == "swinmae":
        reference = {"calibration": reference["calibration"]}
    step = max(1, config.score_stride // config.data.stride)
    thinned = {
        # Training windows overlap more than scoring needs.
        name: split if name in SCORING_SPLITS else split.subset(np.arange(0, len(split), step))
        for name, split in reference.items()
    }
    return {name: model_errors(config, scoring, split, name) for name, split in thinned.items()}


def split_errors(
    scoring: ScoringModel,
    windows: WindowSet,
    *,
    batch_size: int,
    look_ahead: bool = True,
    keep_expected: bool = False,
    label: str = "scoring",
    progress: Mode = "off",
) -> SplitErrors:
    """Runs the model over all windows of a split, `batch_size` windows at a time, fewer if memory is exhausted.

    look_ahead: if True, the error of a row of process sensors is averaged over all windows that contain the row, so it
    also depends on later rows. If False, it comes from the first window whose newest patch contains the row, predicted
    without later rows. Vibration has one score per window, at its end, and never looks ahead.
    keep_expected: keep the predictions of rows of process sensors.
    """
    with Progress(len(windows), label, unit="windows", mode=progress) as bar:
        if scoring.stream == "patchtst" and not look_ahead:
            inferred = _inferred(scoring, windows, batch_size, bar, partial(infer_forecast, model=scoring.model))
            return _row_errors(inferred, windows, keep_expected=keep_expected, only_first=True)
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
    """Window indices (B,) and the result of `of_batch` for these windows, batch by batch."""
    feed = Feed(windows, scoring.device)
    feed.expect(torch.arange(len(windows)).split(batch_size))

    def infer(index_b: Tensor, size: int) -> list[tuple[Tensor, Aux]]:
        batches = ((micro_b, scoring.transform(feed.batch(micro_b))) for micro_b in index_b.split(size))
        return [(micro_b, of_batch(batch)) for micro_b, batch in batches]

    size = batch_size
    for index_b in torch.arange(len(windows)).split(batch_size):
        inferred, size = until_it_fits(partial(infer, index_b), size, kind=scoring.kind)
        yield from inferred
        bar.advance(len(index_b))


def _row_errors(
    inferred: Inferred, windows: WindowSet, *, keep_expected: bool, only_first: bool = False
) -> SplitErrors:
    """Errors, and on request predictions, averaged per row and channel over overlapping windows. The model returns them
    for the last rows of each window, which are in the segments of the split; earlier rows may not be.

    only_first: each row counts only in the first window that contains it, so there is nothing to average.

    They are added on the CPU in a fixed order, so rounding is the same at every call. A value that is NaN in one window
    is NaN in all windows, so one count per row is enough.
    """
    segments, stop_w, scratch = windows.segments, windows.starts_w + windows.window, windows.series.scratch
    segment_w = segments.at(stop_w - 1)
    entry_w = torch.from_numpy(stop_w + (entries_of(segments.rows_k2) - segments.start_k)[segment_w])
    # The first entry to which each window contributes.
    fresh_w = torch.zeros_like(entry_w)
    if only_first:
        fresh_w[1:] = torch.where(torch.from_numpy(np.diff(segment_w) == 0), entry_w[:-1], 0)

    num_entries = int(segments.lengths_k.sum())
    names = ("error", "expected") if keep_expected else ("error",)
    means = {name: blank((num_entries, windows.series.rows_nc.shape[1]), scratch) for name in names}
    windows_s = blank((num_entries,), scratch)
    sums, count_s = {name: torch.from_numpy(mean_sc) for name, mean_sc in means.items()}, torch.from_numpy(windows_s)
    pages = [Pages(array) for array in (*means.values(), windows_s)]
    for index_b, aux in inferred:
        entry_bt = entry_w[index_b].unsqueeze(1) + torch.arange(-aux["error"].shape[1], 0)
        counts_bt = entry_bt >= fresh_w[index_b].unsqueeze(1)
        entry_m = entry_bt[counts_bt]
        for name, sum_sc in sums.items():
            sum_sc.index_add_(0, entry_m, aux[name].cpu()[counts_bt])
        count_s.index_add_(0, entry_m, torch.ones(len(entry_m)))
        for each in pages:
            each.count_read(entry_m.numel() * aux["error"].shape[-1] * aux["error"].itemsize)
    for piece in slices(*means.values(), windows_s, num_values=_VALUES_AT_A_TIME):
        for sum_sc in sums.values():
            sum_sc[piece] /= count_s[piece].unsqueeze(1)

    return SplitErrors(means["error"], *row_entries(windows), scratch=scratch, expected_sc=means.get("expected"))


def _window_errors(inferred: Inferred, windows: WindowSet) -> SplitErrors:
    """The errors of each window, for the axes that the sensor has."""
    num_channels = windows.series.rows_nc.shape[1]
    error_sc = torch.cat([aux["channel_error"][:, :num_channels].cpu() for _, aux in inferred]).numpy()
    return SplitErrors(error_sc, *window_entries(windows))
