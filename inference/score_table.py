"""The table of scores that files, events, metrics and pictures are made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from core.data.labels import labels_of
from core.data.windows import Series
from inference.part_scores import PartScores

_NS_PER_S = 1e9
_NOBODY_KNOWS = -1


def score_table(
    scores: PartScores, series: Series, stretches_k2: np.ndarray, *, channels: Sequence[str], threshold: float
) -> pd.DataFrame:
    """One line per score, in order of recording and row.

    stretches_k2: int64 (K, 2), half-open ranges of rows of the series without a gap, in order, that hold all scores.
    recording: file id · row: row in the recording, of a window its last · stretch: number of the range it lies in ·
    time: datetime64[ns], missing where the file
    has no time stamps · seconds: from the recording's start · score: float32, NaN where unscored · threshold ·
    alarm: score above the threshold · label: 1 where at least half of the rows a score speaks of are anomalous, else 0,
    missing where nobody labelled the recording · top_channel: the channel predicted worst.

    Raises DataError for a label file that does not fit its recording.
    """
    recording_s = np.searchsorted(series.offsets_r, scores.row_s, side="right") - 1
    time_n = np.concatenate([recording.time_ns for recording in series.recordings])
    start_r = time_n[series.offsets_r[:-1]]
    stamped_r = np.array([recording.time_source == "timestamp" for recording in series.recordings])
    time_s = time_n[scores.row_s].astype("datetime64[ns]")
    label_s = _labels(series, recording_s, scores.row_s, scores.rows_per_entry)
    return pd.DataFrame(
        {
            "recording": pd.Categorical.from_codes(recording_s, [each.file_id for each in series.recordings]),
            "row": scores.row_s - series.offsets_r[recording_s],
            "stretch": np.searchsorted(stretches_k2[:, 0], scores.row_s, side="right") - 1,
            "time": np.where(stamped_r[recording_s], time_s, np.datetime64("NaT", "ns")),
            "seconds": (time_n[scores.row_s] - start_r[recording_s]) / _NS_PER_S,
            "score": scores.score_s,
            "threshold": threshold,
            "alarm": scores.score_s > threshold,
            "label": label_s,
            "top_channel": pd.Categorical.from_codes(scores.top_channel_s, list(channels)),
        }
    )


def _labels(series: Series, recording_s: np.ndarray, row_s: np.ndarray, span: int) -> pd.arrays.IntegerArray:
    """Nullable Int8 (S,). Only the recordings that have scores are asked for their labels."""
    labels_n = np.full(series.offsets_r[-1], _NOBODY_KNOWS, dtype=np.int8)
    for index in np.unique(recording_s):
        labels = labels_of(series.recordings[index])
        if labels is not None:
            labels_n[series.offsets_r[index] : series.offsets_r[index + 1]] = labels
    anomalous_before_n = np.concatenate([[0], np.cumsum(labels_n == 1)])
    anomalous_s = anomalous_before_n[row_s + 1] - anomalous_before_n[row_s + 1 - span]
    return pd.arrays.IntegerArray((2 * anomalous_s >= span).astype(np.int8), labels_n[row_s] == _NOBODY_KNOWS)
