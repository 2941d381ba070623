"""Splits: the rows of recordings that belong to each split, and the windows in them."""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np

from core.config.compose import with_values
from core.config.data import Split
from core.config.recipe import AUTO, smallest_window, usual_window
from core.config.schema import AnyConfig
from core.data.courses import have_same_course
from core.data.files import matches
from core.data.recording import Recording
from core.data.segments import lengths_of, recording_at, window_starts
from core.data.windows import Series, WindowSet
from core.errors import DataError
from core.numbers import counted

log = logging.getLogger(__name__)

SplitName = Literal["train", "validation", "calibration", "test"]
SPLIT_NAMES: tuple[SplitName, ...] = ("train", "validation", "calibration", "test")
TRAINING_SPLITS: tuple[SplitName, ...] = ("train", "validation")
SCORING_SPLITS: tuple[SplitName, ...] = ("calibration", "test")
# Process sensors are divided by recording if each split then has at least this many.
_MANY_RECORDINGS = 3


@dataclass(frozen=True)
class Span:
    """Rows `start` to `stop` (exclusive) of one recording, which belong to one split."""

    recording: int
    start: int
    stop: int

    def segments_s2(self, recordings: Sequence[Recording]) -> np.ndarray:
        """The part of each segment of the recording that is in the span, (S, 2); empty if a segment is outside."""
        return recordings[self.recording].segments_s2.clip(self.start, self.stop)


def splits_of(config: AnyConfig, recordings: Sequence[Recording], data_root: Path) -> dict[SplitName, list[Span]]:
    """Spans of every split in these recordings, also of splits that are not loaded, because guards depend on them.

    Raises DataError if two splits share a row.
    """
    spans = {name: spans_of(config.data.splits[name], recordings, data_root) for name in SPLIT_NAMES}
    guarded = _with_guard(spans, config.data.window if config.data.guard < 0 else config.data.guard)
    _refuse_overlap(guarded, recordings)
    margin = config.data.window  # at least the rows before it that a score depends on
    return {
        name: found if name == "test" else [rest for span in found for rest in _normal(span, recordings, margin, name)]
        for name, found in guarded.items()
    }


def _normal(span: Span, recordings: Sequence[Recording], margin: int, name: SplitName) -> list[Span]:
    """The rest of a span without faults and maintenance that a user labelled, and without `margin` rows around them:
    labels of events are not exact, and scores depend on earlier rows."""
    recording = recordings[span.recording]
    rest = [span]
    for noted in recording.labelled:
        if noted.label == "false alarm":
            continue
        start, stop = recording.rows_of(noted)
        start, stop = start - margin, stop + margin
        if not any(each.start < stop and start < each.stop for each in rest):
            continue
        first, last = max(start, span.start) + 1, min(stop, span.stop)
        log.info(
            "%s: rows %d to %d are left out of the split %s: labelled %s",
            recording.file_id, first, last, name, noted.label,
        )  # fmt: skip
        halves = (
            (replace(each, stop=min(each.stop, start)), replace(each, start=max(each.start, stop))) for each in rest
        )
        rest = [half for pair in halves for half in pair if half.start < half.stop]
    return rest


def spans_of(split: Split, recordings: Sequence[Recording], data_root: Path) -> list[Span]:
    """The spans of one split, before a guard."""
    groups = _groups(split.files, recordings, data_root)
    if split.by == "recording":
        chosen = [
            index for group in groups for index in group[_row(split.start, len(group)) : _row(split.stop, len(group))]
        ]
        return [Span(index, 0, len(recordings[index])) for index in sorted(chosen)]
    spans = [
        Span(index, _row(split.start, len(recordings[index])), _row(split.stop, len(recordings[index])))
        for index in sorted(index for group in groups for index in group)
    ]
    return [span for span in spans if span.start < span.stop]


def _groups(files: Sequence[str], recordings: Sequence[Recording], data_root: Path) -> list[list[int]]:
    """The groups that a split by recording divides: the records of each set, and all files of one recording. Files are
    in the order of their first time stamps, and without time stamps of their names, 2 before 10."""
    wanted = {path for pattern in files for path in matches(pattern, data_root)}
    records: dict[Path, list[int]] = defaultdict(list)
    for index, recording in enumerate(recordings):
        if recording.path in wanted:
            records[recording.path].append(index)
    sets = [group for group in records.values() if len(group) > 1]
    single = sorted((group[0] for group in records.values() if len(group) == 1), key=lambda i: _name(recordings[i]))
    if all(recordings[index].time_source == "timestamp" and len(recordings[index]) for index in single):
        single.sort(key=lambda index: recordings[index].time_ns[0])
    return [*sets, single] if single else sets


def _name(recording: Recording) -> list[tuple[bool, int, str]]:
    """A key that sorts names by their numbers."""
    parts = re.split(r"(\d+)", recording.file_id)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def divided(config: AnyConfig, recordings: Sequence[Recording], data_root: Path) -> AnyConfig:
    """The configuration with `time` or `recording` instead of `by: auto`: the same for all splits of the same files.

    Many recordings of process sensors are divided by recording, because each may be a run of a recipe, whose end
    differs from its beginning; a few, if they take the same course; also many recordings of vibration whose parts would
    be shorter than a usual window, such as a snapshot every ten minutes, and recordings that are too short for any
    window. The others are divided by time, so that each load of a vibration test is in each split.
    """
    of_files: dict[tuple[str, ...], list[SplitName]] = defaultdict(list)
    for name in SPLIT_NAMES:
        split = config.data.splits[name]
        if split.by == AUTO:
            of_files[split.files].append(name)
    values = {}
    for files, names in of_files.items():
        by, reason = _division(config, names, _groups(files, recordings, data_root), recordings)
        values |= {f"data.splits.{name}.by": by for name in names}
        if reason:
            log.info("the splits %s are divided by %s: %s", ", ".join(names), by, reason)
    return with_values(config, values, source="the recipe for this data") if values else config


def _division(
    config: AnyConfig, names: Sequence[SplitName], groups: Sequence[Sequence[int]], recordings: Sequence[Recording]
) -> tuple[Literal["time", "recording"], str]:
    """How splits of the same files are divided, and why; no reason if there is nothing to divide."""
    splits = [config.data.splits[name] for name in names]
    if not groups or all((split.start, split.stop) == (0, 1.0) for split in splits):
        return "time", ""
    if any(isinstance(bound, int) and bound for split in splits for bound in (split.start, split.stop)):
        return "time", "their bounds are numbers of rows"
    num_recordings = sum(map(len, groups))
    rows = int(np.median([len(recordings[i]) for group in groups for i in group]))
    fewest = round(min(split.stop - split.start for split in splits) * min(map(len, groups)), 6)
    many = fewest >= _MANY_RECORDINGS
    if many and config.stream == "patchtst":
        return "recording", f"each has {_MANY_RECORDINGS} or more of the {num_recordings:,} recordings"
    if config.stream == "patchtst" and fewest >= 1 and have_same_course([recordings[i] for g in groups for i in g]):
        return "recording", f"the {num_recordings:,} recordings take the same course, as runs of a recipe do"
    rate_hz = recordings[groups[0][0]].sampling_rate_hz
    window = usual_window(config, rate_hz) if many and rate_hz else smallest_window(config)
    needed = max(_rows_for(config, split, window, window) for split in splits)
    if rows < needed and fewest >= 1:
        return "recording", f"half of the recordings have {rows:,} rows or fewer, a division by time needs {needed:,}"
    return "time", f"{counted(num_recordings, 'recording')}, of {rows:,} rows in the median"


def _row(bound: float | int, length: int) -> int:
    return min(length, round(bound * length)) if isinstance(bound, float) else min(length, bound)


def _with_guard(spans: Mapping[SplitName, list[Span]], guard: int) -> dict[SplitName, list[Span]]:
    """Starts each span at least `guard` rows after the end of an earlier span of its recording."""
    ends: dict[int, list[int]] = defaultdict(list)
    for span in (span for found in spans.values() for span in found):
        ends[span.recording].append(span.stop)

    def moved(span: Span) -> Span:
        earlier = [stop for stop in ends[span.recording] if stop <= span.start]
        return replace(span, start=max([span.start, *(stop + guard for stop in earlier)]))

    guarded = {name: [moved(span) for span in found] for name, found in spans.items()}
    return {name: [span for span in found if span.start < span.stop] for name, found in guarded.items()}


def ranges_of(
    name: SplitName, spans: Sequence[Span], recordings: Sequence[Recording], config: AnyConfig, offsets_r: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a split without a gap, and those that its windows may cover, each int64 (K, 2) in rows of a series.

    offsets_r: where the recordings start in the series.
    """
    own, extended = [], []
    for span in spans:
        offset, own_s2 = offsets_r[span.recording], span.segments_s2(recordings)
        own_s2 = own_s2[own_s2[:, 0] < own_s2[:, 1]]
        whole_s2 = recordings[span.recording].segments_s2
        first_s = whole_s2[np.searchsorted(whole_s2[:, 0], own_s2[:, 0], side="right") - 1, 0]
        context = config.score_context if name in SCORING_SPLITS else 0
        begin_s = np.maximum(first_s, own_s2[:, 0] - context)
        own.append(own_s2 + offset)
        extended.append(np.stack([begin_s, own_s2[:, 1]], axis=1) + offset)
    return np.concatenate(own), np.concatenate(extended)


def starts_of(name: SplitName, extended_k2: np.ndarray, config: AnyConfig) -> np.ndarray:
    """Starts of the windows of a split, int64 (W,). extended_k2: rows that they may cover (`ranges_of`)."""
    scoring = name in SCORING_SPLITS
    stride = config.score_stride if scoring else config.data.stride
    return window_starts(extended_k2, config.data.window, stride, cover_end=scoring)


def _refuse_overlap(spans: Mapping[SplitName, list[Span]], recordings: Sequence[Recording]) -> None:
    """Raises DataError if two splits share a row: the model would be tested on its training data."""
    by_recording: dict[int, list[tuple[SplitName, Span]]] = defaultdict(list)
    for name, found in spans.items():
        for span in found:
            by_recording[span.recording].append((name, span))
    for index, entries in by_recording.items():
        for (name, one), (other_name, other) in combinations(entries, 2):
            start, stop = max(one.start, other.start), min(one.stop, other.stop)
            if start < stop:
                raise DataError(
                    f"the splits {name} and {other_name} share the rows {start} to {stop}",
                    path=recordings[index].path,
                    hint="change data.splits so that each row belongs to one split",
                )


def rows_needed(config: AnyConfig, name: SplitName) -> int:
    """Minimum number of rows without a gap that a split needs: for a window, and for scores to set a threshold."""
    window = smallest_window(config)
    if name != "calibration":
        return window
    scores = config.scoring.threshold.min_calibration
    if config.stream == "patchtst":  # a score for each row
        return max(window, scores)
    stride = config.score_stride if config.data.score_stride != AUTO else max(window // 4, 1)
    return window + (scores - 1) * stride


def file_rows_needed(config: AnyConfig, name: SplitName) -> int | None:
    """Rows that one recording needs so that the split, a share of it, has enough; None if the split is not a share."""
    split = config.data.splits[name]
    if split.by != "time" or not (isinstance(split.start, float) and isinstance(split.stop, float)):
        return None
    return _rows_for(config, split, rows_needed(config, name), smallest_window(config))


def _rows_for(config: AnyConfig, split: Split, needed: int, window: int) -> int:
    """Rows of a recording of which a share has the needed rows after the guard."""
    guard = window if config.data.guard < 0 else config.data.guard
    rows = (needed + guard * (split.start > 0)) / (split.stop - split.start)
    return math.ceil(round(rows, 6))  # 0.7 - 0.5 is less than 0.2


def no_rows(config: AnyConfig, name: SplitName) -> DataError:
    """The error of a split without rows, with the number that it needs."""
    rows, whole = rows_needed(config, name), file_rows_needed(config, name)
    of_file = f": a recording of {whole:,} rows or more" if whole is not None else ""
    return DataError(
        f"the split {name} has no rows; it needs {rows:,} or more without a gap{of_file}",
        hint=f"record more, or change data.splits.{name} and data.guard; `landfall check` checks all splits",
    )


def windows_of(name: SplitName, spans: Sequence[Span], series: Series, config: AnyConfig) -> WindowSet:
    """The windows of a split. Windows that are scored may start on earlier rows of the same segment, which may belong
    to another split: a monitor would have seen them.

    Raises DataError if no segment is as long as a window, and if a split for training has no observed value.
    """
    window = config.data.window
    segments_k2, extended_k2 = ranges_of(name, spans, series.recordings, config, series.offsets_r)
    starts_w = starts_of(name, extended_k2, config)
    lengths_k, extended_k = map(lengths_of, (segments_k2, extended_k2))
    if num_lost := int(lengths_k[extended_k < window].sum()):
        first_row = segments_k2[np.argmax((extended_k < window) & (lengths_k > 0)), 0]
        first = series.recordings[recording_at(series.offsets_r, first_row)].file_id
        log.warning(
            "%s: %d of %d rows are in segments shorter than a window of %d and are left out, the first in %s",
            name, num_lost, int(lengths_k.sum()), window, first,
        )  # fmt: skip
    if not len(starts_w):
        whole = file_rows_needed(config, name)
        record = f"record {whole:,} rows or more without a gap in one file" if whole is not None else "add longer files"
        raise DataError(
            f"the split {name} has no segment as long as a window of {window} rows "
            f"(longest: {int(extended_k.max(initial=0))})",
            hint=f"{record}, or set a smaller data.window or a larger data.gap_factor",
        )
    windows = WindowSet(series, starts_w, window, segments_k2)
    # Without a value there is nothing to train on, and a validation loss of 0 would be the best of all epochs.
    if name in TRAINING_SPLITS and all(np.isnan(series.rows_nc[row : row + window]).all() for row in starts_w):
        raise DataError(
            f"the {len(windows)} windows of the split {name} have no observed value: every sensor is missing there",
            hint=f"see data.splits.{name} and the reports in {config.dqvl.report_dir}",
        )
    count = len({span.recording for span in spans})
    log.info("%s: %d windows of %d from %d recording%s", name, len(windows), window, count, "s" * (count != 1))
    return windows
