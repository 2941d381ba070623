"""Whether the data of a stream is sufficient to train and to score: rows of each split, rows needed, and findings.

Reads and checks every file, as a run does, and collects all problems instead of stopping at the first one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from core.config import recipe
from core.config.schema import AnyConfig
from core.data.annotations import with_annotations
from core.data.dataset import (
    common_shape,
    copies,
    copy_in_words,
    files_of,
    path_shown,
    read_file,
    reference_ids,
    with_recipe,
)
from core.data.quality import QualityReport, judge, with_long_runs
from core.data.recording import NS_PER_S, Recording
from core.data.segments import lengths_of, num_rows, offsets_of
from core.data.splits import (
    SPLIT_NAMES,
    Span,
    SplitName,
    divided,
    file_rows_needed,
    ranges_of,
    rows_needed,
    splits_of,
    starts_of,
)
from core.data.store import Store
from core.errors import DataError, LandfallError
from core.numbers import duration_in_words
from core.workspace import relative
from pipelines.data_findings import (
    Finding,
    of_channels,
    of_counters,
    of_courses,
    of_decimals,
    of_labels,
    of_operating_points,
    of_other_files,
    of_reports,
    of_times,
    of_unused_files,
    stop,
)

_SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True)
class SplitState:
    """The state of one split. rows, seconds: totals over its recordings. longest: rows of its longest segment without a
    gap. windows: None while the window is unknown. file_rows_needed: rows that one recording needs, if the split is a
    share of each recording; otherwise None."""

    name: SplitName
    rows: int
    rows_needed: int
    file_rows_needed: int | None
    seconds: float | None
    segments: int
    longest: int
    windows: int | None
    is_enough: bool


@dataclass(frozen=True)
class Readiness:
    """The state of the data of a stream. config: with the recipe for this data, if it could be chosen."""

    config: AnyConfig
    files: int
    recordings: int
    rows: int
    channels: tuple[str, ...]
    sampling_rate_hz: float | None
    time_source: str | None
    splits: tuple[SplitState, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    @property
    def is_ready(self) -> bool:
        return all(split.is_enough for split in self.splits) and not any(f.severity == "stop" for f in self.findings)


def readiness(config: AnyConfig, *, root: Path, splits: Sequence[SplitName] = SPLIT_NAMES) -> Readiness:
    """Checks the files of `splits`. Writes only to the store of parsed files."""
    findings: list[Finding] = []
    data_root = (root / config.data.root).resolve()
    files: dict[Path, None] = {}
    present: list[SplitName] = []
    for name in splits:
        try:
            files |= dict.fromkeys(files_of(config, name, data_root))
            present.append(name)
        except DataError as error:
            findings.append(stop(error))
    # In the order of the splits: other files are compared with the first one to train on.
    recordings, reports = _read(list(files), config, root, data_root, findings)
    findings += of_reports(reports, recordings, config)
    for copy, original in copies(recordings):
        findings.append(Finding("warn", f"{path_shown(copy.file_id, config)} {copy_in_words(original, config)}"))
    findings += [*of_other_files(config, present, data_root), *of_unused_files(config, files, data_root)]
    recordings = with_annotations(recordings, config, root)
    if not recordings:
        return Readiness(config, len(files), 0, 0, (), None, None, (), _once(findings))
    rows, first = sum(map(len, recordings)), recordings[0]
    try:
        channels, rate_hz = common_shape(recordings, config)
    except DataError as error:  # the requirements of the splits are unknown
        findings.append(stop(error))
        rate_hz = first.sampling_rate_hz
        return Readiness(
            config, len(files), len(recordings), rows, first.channels, rate_hz, first.time_source, (), _once(findings)
        )
    may_be_whole = {name for name in SPLIT_NAMES if config.data.splits[name].by == "auto"}
    config, spans = _splits(config, recordings, data_root, rate_hz, findings)
    states = tuple(_state(config, name, spans.get(name, []), recordings) for name in present)
    findings += [_too_short(config, each, each.name in may_be_whole) for each in states if not each.is_enough]
    training = [(recordings[span.recording], span) for span in spans.get("train", [])]
    findings += [
        *of_courses(training, config),
        *of_channels(training, channels, config),
        *of_counters(training, channels, config),
        *of_decimals(training, recordings, config),
    ]
    findings += of_operating_points(training, config)
    findings += of_labels([recordings[span.recording] for span in spans.get("test", [])])
    findings += [*of_times(recordings, config), *_of_calibration(config, states)]
    return Readiness(
        config, len(files), len(recordings), rows, channels, rate_hz, first.time_source, states, _once(findings)
    )


# --------------------------------------------------------------------------------------------------------------- files
def _read(
    files: Sequence[Path], config: AnyConfig, root: Path, data_root: Path, findings: list[Finding]
) -> tuple[list[Recording], list[QualityReport]]:
    """The recordings of the files that can be used, and all quality reports."""
    recordings: list[Recording] = []
    reports: list[QualityReport] = []
    store = Store.of(config, root)
    for file in files:
        try:
            reading = read_file(file, config, data_root, store)
        except LandfallError as error:
            findings.append(stop(error))
            continue
        file_id = relative(file, data_root)
        if config.dqvl.enabled:
            report = judge(reading.metrics, config.dqvl, stream=config.stream, file_id=file_id)
            reports.append(report)
            if report.decision == "drop":
                continue
        recordings += reading.recordings
    return recordings, with_long_runs(reports, reference_ids(config, data_root))


# -------------------------------------------------------------------------------------------------------------- splits
def _splits(
    config: AnyConfig, recordings: Sequence[Recording], data_root: Path, rate_hz: float | None, findings: list[Finding]
) -> tuple[AnyConfig, dict[SplitName, list[Span]]]:
    """The configuration with the recipe for this data, if there is enough data to choose one, and the rows of each
    split."""
    config = smallest = divided(config, recordings, data_root)
    if recipe.is_open(config):
        try:
            config = smallest = with_recipe(config, recordings, data_root, rate_hz)
        except DataError:  # a split has no rows, which `_too_short` reports for every split
            window = recipe.smallest_window(config)
            smallest = config.model_copy(update={"data": config.data.model_copy(update={"window": window})})
    try:
        return config, splits_of(smallest, recordings, data_root)
    except DataError as error:
        findings.append(stop(error))
        return config, {}


def _state(config: AnyConfig, name: SplitName, spans: Sequence[Span], recordings: Sequence[Recording]) -> SplitState:
    needed = rows_needed(config, name)
    rows, longest, windows, segments_k2 = 0, 0, None, np.empty((0, 2), dtype=np.int64)
    if spans:
        if recipe.is_open(config):  # windows are unknown
            segments_k2 = extended_k2 = np.concatenate([span.segments_s2(recordings) for span in spans])
        else:
            offsets_r = offsets_of(map(len, recordings))
            segments_k2, extended_k2 = ranges_of(name, spans, recordings, config, offsets_r)
            windows = len(starts_of(name, extended_k2, config))
        rows = num_rows(segments_k2)
        longest = int(lengths_of(extended_k2).max(initial=0))
    has_window = longest >= recipe.smallest_window(config)
    if name == "calibration" and config.stream == "swinmae" and windows is not None:
        is_enough = windows >= config.scoring.threshold.min_calibration
    else:
        is_enough = has_window and (rows >= needed if name == "calibration" else rows > 0)
    return SplitState(
        name, rows, needed, file_rows_needed(config, name), _seconds(spans, recordings), len(segments_k2), longest,
        windows, is_enough,
    )  # fmt: skip


def _seconds(spans: Sequence[Span], recordings: Sequence[Recording]) -> float | None:
    """Duration of the split; None if its recordings have no time."""
    if any(recordings[span.recording].time_source == "index" for span in spans):
        return None
    times = ((recordings[span.recording].time_ns, span) for span in spans)
    return sum(float(time_t[span.stop - 1] - time_t[span.start]) for time_t, span in times) / NS_PER_S


def _too_short(config: AnyConfig, state: SplitState, may_be_whole: bool) -> Finding:
    """may_be_whole: with more files, the split would consist of whole files (`core.data.splits.divided`)."""
    of_file, split = "", config.data.splits[state.name]
    least = config.scoring.threshold.min_calibration
    if config.stream == "swinmae" and state.name == "calibration" and state.windows:
        return Finding(
            "stop",
            f"the split {state.name} has {state.windows:,} windows of {config.data.window:,} rows; it needs {least:,}",
            f"record {least / state.windows:.1f} times as much normal operation, or set a smaller data.window",
        )
    if state.file_rows_needed is not None:
        of_file = f"record {state.file_rows_needed:,} rows or more without a gap in one file, or "
        if may_be_whole and split.stop - split.start < 1:
            of_file += f"{math.ceil(1 / (split.stop - split.start))} files or more, or "
    gaps = f", at most {state.longest:,} of them without a gap" if state.segments > 1 else ""
    return Finding(
        "stop",
        f"the split {state.name} has {state.rows:,} rows{gaps}; it needs {state.rows_needed:,}",
        f"{of_file}change data.splits.{state.name}",
    )


def _of_calibration(config: AnyConfig, states: Sequence[SplitState]) -> Iterator[Finding]:
    """A note if the calibration data is too short for the limit of false events."""
    limit = config.scoring.threshold.false_events_per_day
    state = next((state for state in states if state.name == "calibration"), None)
    if limit is None or state is None or not state.seconds or state.seconds >= _SECONDS_PER_DAY / limit:
        return
    yield Finding(
        "note",
        f"the split calibration lasts {duration_in_words(state.seconds)}: too short to show whether false events stay "
        f"below {limit:g} per day",
        f"this needs {duration_in_words(_SECONDS_PER_DAY / limit)} of normal operation or more",
    )


def _once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings with each text once, the most severe first."""
    order = ("stop", "warn", "note")
    unique = {finding.text: finding for finding in findings}
    return tuple(sorted(unique.values(), key=lambda finding: order.index(finding.severity)))
