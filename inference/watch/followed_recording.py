"""One recording of vibration, scored as soon as its file is complete, with the functions of `landfall score`.

A wav, npy or npz file cannot be read before it is complete. A file counts as complete when it has not changed for some
seconds.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path

import numpy as np

from core.config.data import Split, Splits
from core.config.schema import AnyConfig
from core.data.dataset import load_stream_data
from core.data.recording import RATE_TOLERANCE
from core.data.scaling import Scaler
from core.data.windows import WindowSet
from core.errors import DataError
from inference.detector.detector import Detector
from inference.detector.score_table import recordings_of, times_of
from inference.detector.split_scores import SplitScores
from inference.entries import SplitErrors
from inference.predictor import Predictor
from inference.running import Running
from inference.watch.monitor import Monitor, Scored
from inference.watch.running_events import RunningEvents


@dataclass(frozen=True)
class RecordingScores:
    """Scores recordings; imports torch only if the model does. model: None for control charts alone. root: the
    workspace. scaler, rate_hz: scaler and sampling rate of the training data, or of the reference data of the charts.
    """

    detector: Detector
    config: AnyConfig
    model: Predictor | None
    root: Path
    scaler: Scaler
    rate_hz: float

    def __call__(self, file_id: str) -> tuple[WindowSet, SplitScores]:
        """file_id: the path, relative to the folder of the data. Raises DataError and QualityError as scoring does."""
        splits = Splits(test=Split(files=(glob.escape(file_id),)))
        data = self.config.data.model_copy(update={"splits": splits, "store_dir": ""})
        config = self.config.model_copy(update={"data": data})
        found = load_stream_data(config, root=self.root, splits=("test",), scaler=self.scaler)
        if not isclose(found.sampling_rate_hz, self.rate_hz, rel_tol=RATE_TOLERANCE):
            problem = f"is sampled at {found.sampling_rate_hz:g} Hz, the detector was fitted at {self.rate_hz:g} Hz"
            raise DataError(problem, path=file_id, hint=f"set data.resample_hz={self.rate_hz:g}")
        windows = found.splits["test"]
        errors = SplitErrors.without_model(config.stream, windows)
        if self.model is not None and self.detector.uses_model:
            unscaled = replace(windows, series=replace(windows.series, scaler=None))
            found = [self.model.errors(values_btc) for values_btc in unscaled.arrays(config.scoring.batch_size)]
            errors = replace(errors, error_sc=np.concatenate(found))
        return windows, self.detector.score(errors, windows)


class FollowedRecording(Running):
    """path: the file. file_id: its path relative to the folder of the data. complete_after_s: the file is complete when
    it has not changed for this time, in seconds."""

    STATE = ("is_scored",)

    def __init__(self, monitor: Monitor, path: Path, file_id: str, *, complete_after_s: float):
        self.path, self.file_id, self._monitor, self._complete_after_s = path, file_id, monitor, complete_after_s
        self.is_scored = 0

    @property
    def is_idle(self) -> int:
        """1: there are never rows that wait for a score."""
        return 1

    def advance(self, limit: int, *, is_complete: bool = False) -> list[Scored] | None:
        """Scores the recording if it is complete; None if it is not, or was scored before. `limit` is not used.

        Raises DataError, QualityError and OSError for a recording that cannot be scored.
        """
        if self.is_scored or not (is_complete or time.time() - self.path.stat().st_mtime > self._complete_after_s):
            return None
        self.is_scored = 1
        return list(self._scored(*self._monitor.recordings(self.file_id)))

    def _scored(self, windows: WindowSet, scores: SplitScores) -> Iterator[Scored]:
        """Scores and events of each recording in the file."""
        monitor, series = self._monitor, windows.series
        recording_s, time_s = recordings_of(series, scores.row_s), times_of(series, scores.row_s)
        segment_s = windows.segments.at(scores.row_s)
        for index in np.unique(recording_s):
            recording = series.recordings[index]
            has_dates = recording.time_source == "timestamp"
            events = RunningEvents(
                recording.file_id, monitor.channels, monitor.detector.threshold.value, monitor.config.scoring,
                first_ns=int(recording.time_ns[0]), has_dates=has_dates,
            )  # fmt: skip
            for segment in np.unique(segment_s[recording_s == index]):
                mine = segment_s == segment
                score_n, row_n = scores.score_s[mine], scores.row_s[mine] - series.offsets_r[index]
                reports = [*events(score_n, scores.channel_error_sc[mine], row_n, time_s[mine]), *events.end()]
                yield Scored(
                    recording.file_id, row_n, time_s[mine] if has_dates else None, score_n,
                    scores.top_channel_s[mine], reports,
                )  # fmt: skip
