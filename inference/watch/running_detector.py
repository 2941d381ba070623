"""Scores of the rows of one recording that come in pieces: the same scores as for the complete file.

All components are those of scoring complete files (`inference.charts`, `inference.model_errors`,
`inference.detector.split_scores`). Means and sums depend on all earlier rows, so their states are kept and stored. The
model needs the rows of its window.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.config.schema import AnyConfig
from inference.detector.detector import Detector
from inference.detector.split_scores import ModelMeans, SplitScores, score_split
from inference.entries import SplitErrors
from inference.predictor import Predictor
from inference.running import Running


class RunningDetector(Running):
    """Scores of the rows of one recording.

    With control charts alone, also if the weight of the model is 0, a row is scored at once. With a model, it is scored
    at the end of its patch, or of its segment.

    model: None for control charts alone. file_id: file id of the recording.
    """

    STATE = ("_rows_mc", "_num_rows", "_num_scored", "_segment")

    def __init__(self, detector: Detector, model: Predictor | None, config: AnyConfig, file_id: str, num_channels: int):
        self._detector, self._config, self._file_id = detector, config, file_id
        self._model = model if detector.uses_model else None
        self._charts = detector.charts.running(file_id)
        self._attributes = detector.cross_regression(file_id) is not None
        self._means = ModelMeans(detector.settings["scoring.smoothing_span"], num_channels)
        # Of the segment: the rows that the next window needs; the number of rows; the number of scored rows.
        self._rows_mc = np.empty((0, num_channels), dtype=np.float32)
        self._num_rows = self._num_scored = 0
        self._segment = -1

    def __call__(self, values_nc: np.ndarray, segment: int) -> SplitScores | None:
        """Scores of the rows that can be scored now, in order; None if there are none.

        values_nc: float32 (n, C), the next rows. segment: number of their segment, ascending. `end` must be called
        before the next segment begins.
        """
        if segment != self._segment:
            self._rows_mc, self._segment = self._rows_mc[:0], segment
            self._num_rows = self._num_scored = 0
        self._rows_mc = np.concatenate([self._rows_mc, values_nc])
        self._num_rows += len(values_nc)
        return self._scores_up_to(self._num_complete())

    def end(self) -> SplitScores | None:
        """Scores of the remaining rows: the segment has ended. None if there are none."""
        return self._scores_up_to(self._num_rows, ended=True)

    def _num_complete(self) -> int:
        """Number of rows of the segment whose score does not depend on later rows."""
        if self._model is None:
            return self._num_rows
        window, patch, stride = self._config.data.window, self._config.model.patch_length, self._config.score_stride
        if self._num_rows < window:
            return min(self._num_rows, window - patch)
        return window + (self._num_rows - window) // stride * stride

    def _scores_up_to(self, stop: int, *, ended: bool = False) -> SplitScores | None:
        start = self._num_scored
        if stop <= start:
            return None
        first = self._num_rows - len(self._rows_mc)  # first row that is kept
        error_mc = self._model_errors(first, stop, ended=ended)
        piece = slice(start - first, stop - first)
        values_nc, segment_n = self._rows_mc[piece], np.full(stop - start, self._segment)
        chart_nc = self._charts(values_nc, self._segment).astype(np.float32)
        errors = SplitErrors(None if error_mc is None else error_mc[piece], np.arange(stop - start), segment_n, 1)
        scores = score_split(
            errors, self._detector.baseline_c if error_mc is not None else None,
            smoothing_span=self._detector.settings["scoring.smoothing_span"], chart_sc=chart_nc,
            model_weight=self._detector.model_weight, means=self._means,
        )  # fmt: skip
        if self._attributes:
            scores = replace(scores, regressor_sf=self._charts.regressor_nf)
        self._num_scored = stop
        keep = 0 if self._model is None else self._config.data.window
        self._rows_mc = self._rows_mc[max(0, stop - keep - first) :].copy()
        return self._detector.scales.normalised_rows(scores, self._file_id)

    def _model_errors(self, first: int, stop: int, *, ended: bool) -> np.ndarray | None:
        """The model's errors of the rows that are kept, up to row `stop` of the segment, float32 (m, C); None without a
        model. Errors of scored rows are not computed again. The error of a row comes from the first window whose newest
        patch contains the row, as in `inference.model_errors`."""
        if self._model is None:
            return None
        window, stride, done = self._config.data.window, self._config.score_stride, self._num_scored
        last = stop - window
        begin = 0 if done < window else done - window + stride
        starts = list(range(begin, last + 1, stride))
        if ended and last >= 0 and (not starts or starts[-1] != last):
            starts.append(last)
        rows_mc = self._rows_mc[: stop - first]
        error_mc = np.full(rows_mc.shape, np.nan, dtype=np.float32)
        if not starts:
            return error_mc
        at_w = np.array(starts) - first
        error_wpc = self._model.errors(rows_mc[at_w[:, np.newaxis] + np.arange(window)])
        reached = 0
        for end, error_pc in zip((at_w + window).tolist(), error_wpc, strict=True):
            fresh = min(end - reached, len(error_pc))
            error_mc[end - fresh : end] = error_pc[-fresh:]
            reached = end
        return error_mc
