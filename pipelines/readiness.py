"""Whether the data of a stream is sufficient to train and to score: rows of each split, rows needed, and findings.

Reads and checks every file, as a run does, and collects all problems instead of stopping at the first one.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from core.config import recipe
from core.config.overrides import list_override
from core.config.schema import AnyConfig
from core.data.annotations import with_annotations
from core.data.dataset import common_shape, copies, copy_in_words, files_of, path_shown, read_file, with_recipe
from core.data.files import FORMATS_HINT, folder_of, matches, other_files
from core.data.labels import labels_of
from core.data.operating_points import stated_points
from core.data.quality import QualityFinding, QualityReport, judge
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
from core.numbers import counted, duration_in_words
from core.workspace import relative

# Number of rows that are used to compare channels, evenly spaced over the training rows.
_COMPARED_ROWS = 20_000
# Values with fewer decimals than the training values are reported if the last decimal is at least this share of the
# standard deviation of the channel.
_COARSE = 0.05
_MOST_DECIMALS = 6
# Channels with a higher correlation contain the same information.
_SAME = 0.99999
# Steps that differ from the median by more than this share are irregular; they are reported above this share of steps.
_IRREGULAR, _MENTIONED = 0.1, 0.01
_SECONDS_PER_DAY = 86_400.0
# Findings of one quality rule, or channels, that are named one by one.
_NAMED = 3


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
class Finding:
    """stop: the data cannot be used as it is. warn: it can be used, but check it. note: an automatic decision."""

    severity: Literal["stop", "warn", "note"]
    text: str
    hint: str = ""


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
            findings.append(_stop(error))
    # In the order of the splits: other files are compared with the first one to train on.
    recordings, reports = _read(list(files), config, root, data_root, findings)
    findings += _of_reports(reports, recordings, config)
    for copy, original in copies(recordings):
        findings.append(Finding("warn", f"{path_shown(copy.file_id, config)} {copy_in_words(original, config)}"))
    findings += [*_of_other_files(config, present, data_root), *_of_unused_files(config, files, data_root)]
    recordings = with_annotations(recordings, config, root)
    if not recordings:
        return Readiness(config, len(files), 0, 0, (), None, None, (), _once(findings))
    rows, first = sum(map(len, recordings)), recordings[0]
    try:
        channels, rate_hz = common_shape(recordings, config)
    except DataError as error:  # the requirements of the splits are unknown
        findings.append(_stop(error))
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
        *_of_channels(training, channels, config),
        *_of_counters(training, channels, config),
        *_of_decimals(training, recordings, config),
    ]
    findings += _of_operating_points(training, config)
    findings += _of_labels([recordings[span.recording] for span in spans.get("test", [])])
    findings += [*_of_times(recordings, config), *_of_calibration(config, states)]
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
            findings.append(_stop(error))
            continue
        file_id = relative(file, data_root)
        if config.dqvl.enabled:
            report = judge(reading.metrics, config.dqvl, stream=config.stream, file_id=file_id)
            reports.append(report)
            if report.decision == "drop":
                continue
        recordings += reading.recordings
    return recordings, reports


class _InFile(NamedTuple):
    file: str
    found: QualityFinding


def _of_other_files(config: AnyConfig, splits: Sequence[SplitName], data_root: Path) -> Iterator[Finding]:
    """Files that are not read, because of their format."""
    patterns = dict.fromkeys(pattern for name in splits for pattern in config.data.splits[name].files)
    files = list(dict.fromkeys(file for pattern in patterns for file in other_files(pattern, data_root)))
    if files:
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        shown = path_shown(relative(files[0], data_root), config)
        yield Finding("warn", f"{shown}{more}: not read, it has another format", FORMATS_HINT)


def _of_unused_files(config: AnyConfig, files: Mapping[Path, None], data_root: Path) -> Iterator[Finding]:
    """Sensor files in the folders of the globs, or in folders of these, that no split names."""
    globs = [glob for name in SPLIT_NAMES for glob in config.data.splits[name].files]
    with_wildcard = (glob for glob in globs if re.search(r"[*?]", re.sub(r"\[.\]", "", glob)))  # [*] is an escaped name
    for folder in dict.fromkeys(map(folder_of, with_wildcard)):
        unused = [file for file in matches(f"{folder}/**/*", data_root) if file not in files]
        if unused:
            more = f" and {len(unused) - 1:,} more" if len(unused) > 1 else ""
            shown = path_shown(relative(unused[0], data_root), config)
            names = " or ".join(dict.fromkeys(globs))
            yield Finding("note", f"{shown}{more}: in no split, because the path does not match {names}")


def _of_labels(recordings: Sequence[Recording]) -> Iterator[Finding]:
    """Label files that scoring would reject."""
    for recording in recordings:
        try:
            labels_of(recording)
        except DataError as error:
            yield _stop(error)


def _of_reports(
    reports: Sequence[QualityReport], recordings: Sequence[Recording], config: AnyConfig
) -> Iterator[Finding]:
    failed, warned = defaultdict[str, list[_InFile]](list), defaultdict[str, list[_InFile]](list)
    constant = defaultdict[str, list[str]](list)
    for report in reports:
        file = path_shown(report.file_id, config)
        never_change = [name for name, metrics in report.metrics["channels"].items() if metrics["constant"]]
        for name in never_change:
            constant[name].append(file)
        for fail in report.hard_fails:
            failed[fail.rule].append(_InFile(f"{file} is not used", fail))
        for warning in report.warnings:
            if warning.channel not in never_change:
                warned[warning.rule].append(_InFile(file, warning))
    for of_rule in failed.values():
        yield from (Finding("stop", text, "correct it, or change dqvl.hard") for text in _of_rule(of_rule))
    for of_rule in warned.values():
        yield from (Finding("warn", text) for text in _of_rule(of_rule))
    yield from _of_constants(constant, recordings, len(reports), config)
    notes = {note: recording.file_id for recording in reversed(recordings) for note in recording.notes}
    yield from (Finding("note", f"{path_shown(file_id, config)}: {note}") for note, file_id in notes.items())


def _excluding(names: Sequence[str], config: AnyConfig) -> str:
    """The override that leaves out these channels too."""
    return list_override("data.exclude", [*config.data.exclude, *names])


def _of_constants(
    constant: Mapping[str, Sequence[str]], recordings: Sequence[Recording], num_files: int, config: AnyConfig
) -> Iterator[Finding]:
    """Channels that never change in a file. constant: their files. Only those that are the same in all files should be
    left out, and numbers of runs: a channel that changes in other files may be a state of the machine."""
    everywhere = [name for name, files in constant.items() if len(files) == num_files]
    same = [name for name in everywhere if len(_values_of(name, recordings)) < 2]
    numbers = [name for name in everywhere if name not in same]
    in_some = [name for name in constant if name not in everywhere]
    for names, where, hint in (
        (same, "", "leaves them out"),
        (numbers, " in each file, but not the same in all", "leaves them out, as is necessary for the number of a run"),
    ):
        if names:
            files = constant[names[0]]
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            hint = f"{_excluding(names, config)} {hint}"
            yield Finding("warn", f"{files[0]}{more}: constant{where}: {', '.join(names)}", hint)
    if in_some:
        counts = (f"{name} ({counted(len(constant[name]), 'file')})" for name in in_some)
        yield Finding("warn", f"{constant[in_some[0]][0]}: constant in some files only: {', '.join(counts)}")


def _values_of(channel: str, recordings: Sequence[Recording]) -> set[float]:
    """The first known value of a channel in each recording."""
    firsts = set()
    for recording in recordings:
        if channel in recording.channels:
            values_t = recording.values_tc[:, recording.channels.index(channel)]
            firsts |= {float(value) for value in values_t[np.isfinite(values_t)][:1]}
    return firsts


def _of_rule(found: Sequence[_InFile]) -> Iterator[str]:
    """The findings of one quality rule in words; of many, the one with the largest value, and the number of others."""
    if len(found) <= _NAMED:
        yield from (f"{file}: {each.message}" for file, each in found)
        return
    file, worst = max(found, key=lambda each: each.found.value or 0.0)
    text = f"{file}: {worst.message}; {len(found) - 1:,} more in {counted(len({each.file for each in found}), 'file')}"
    channels = list(dict.fromkeys(each.found.channel for each in found if each.found.channel))
    if channels:
        others = f" and {len(channels) - _NAMED} more" if len(channels) > _NAMED else ""
        text += f", of {', '.join(channels[:_NAMED])}{others}"
    yield f"{text}; `landfall quality` lists all"


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
        findings.append(_stop(error))
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


# ------------------------------------------------------------------------------------------------------------ channels
def _of_operating_points(training: Sequence[tuple[Recording, Span]], config: AnyConfig) -> Iterator[Finding]:
    """Speeds and loads that sidecars of vibration contain, if they are not used."""
    if config.stream != "swinmae" or config.data.context_channels:
        return
    if found := stated_points(dict.fromkeys(recording.path for recording, _ in training)):
        ranges = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in found.items())
        override = list_override("data.context_channels", found)
        hint = f"{override} compares recordings with what is usual at their operating point"
        yield Finding("note", f"the sidecars have operating points: {ranges}", hint)


def _of_channels(
    training: Sequence[tuple[Recording, Span]], channels: Sequence[str], config: AnyConfig
) -> Iterator[Finding]:
    """Channels that repeat another, exactly or up to a factor and an offset."""
    if not training or len(channels) < 2:
        return
    values_nc = _compared(training).astype(np.float64)
    copies: set[int] = set()
    for first, name in enumerate(channels):
        for second in range(first + 1, len(channels)):
            if {first, second} & copies:
                continue
            one_n, other_n = values_nc[:, first], values_nc[:, second]
            both_n = ~np.isnan(one_n) & ~np.isnan(other_n)
            if both_n.sum() < 3 or np.ptp(one_n[both_n]) == 0 or np.ptp(other_n[both_n]) == 0:
                continue
            other = channels[second]
            hint = f"{_excluding([other], config)} keeps one of them"
            is_same = np.array_equal(one_n, other_n, equal_nan=True)
            if is_same or abs(np.corrcoef(one_n[both_n], other_n[both_n])[0, 1]) > _SAME:
                copies.add(second)
                how = "has the values of" if is_same else "moves exactly with"
                yield Finding("warn", f"duplicate: {other} {how} {name}", hint)


def _of_counters(
    training: Sequence[tuple[Recording, Span]], channels: Sequence[str], config: AnyConfig
) -> Iterator[Finding]:
    """Channels that only increase, such as a time or a meter: every later value is outside of the training data."""
    counts_c = np.full(len(channels), len(training) > 0)
    for recording, span in training:
        step = max(1, (span.stop - span.start) // _COMPARED_ROWS)
        change_nc = np.diff(recording.values_tc[span.start : span.stop : step].astype(np.float64), axis=0)
        num_known_c = np.isfinite(change_nc).sum(axis=0)
        counts_c &= ~(change_nc < 0).any(axis=0) & (2 * (change_nc > 0).sum(axis=0) > num_known_c)
    names = [name for name, counts in zip(channels, counts_c, strict=True) if counts]
    if names:
        override = _excluding(names, config)
        hint = f"{override} leaves out what new data cannot repeat; data.timestamp names a time column"
        yield Finding("warn", f"only increasing, as a time or a meter: {', '.join(names)}", hint)


def _of_decimals(
    training: Sequence[tuple[Recording, Span]], recordings: Sequence[Recording], config: AnyConfig
) -> Iterator[Finding]:
    """Channels with fewer decimals in other files than in those to train on, if rounding changes the values much."""
    if not training:
        return
    values_nc = _compared(training).astype(np.float64)
    decimals_c, trained_on = _decimals(values_nc), {recording.file_id for recording, _ in training}
    centred_nc = values_nc - np.nansum(values_nc, axis=0) / np.maximum((~np.isnan(values_nc)).sum(axis=0), 1)
    square_c = np.nansum(centred_nc**2, axis=0) / np.maximum((~np.isnan(values_nc)).sum(axis=0), 1)
    coarse: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for recording in recordings:
        if recording.file_id in trained_on:
            continue
        step = max(1, len(recording) // _COMPARED_ROWS)
        found_nc = recording.values_tc[::step].astype(np.float64)
        found_c = _decimals(found_nc)
        changes_c = np.fmax.reduce(found_nc) > np.fmin.reduce(found_nc)  # a constant may be a round number
        has_fewer_c = changes_c & (found_c < decimals_c)
        is_coarse_c = has_fewer_c & (square_c > 0) & (10.0**-found_c > _COARSE * np.sqrt(square_c))
        names = tuple(name for name, is_coarse in zip(recording.channels, is_coarse_c, strict=True) if is_coarse)
        coarse[names].append(path_shown(recording.file_id, config))
    hint = "rounded values look like faults: round the files to train on too, or export these with all decimals"
    for names, files in coarse.items():
        if names:
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            text = f"{files[0]}{more}: fewer decimals than in the files to train on: {', '.join(names)}"
            yield Finding("warn", text, hint)


def _of_times(recordings: Sequence[Recording], config: AnyConfig) -> Iterator[Finding]:
    """Irregular sampling, and different sampling in different files."""
    rates = {}
    for recording in recordings:
        if recording.time_source != "timestamp" or len(recording) < 3:
            continue
        file = path_shown(recording.file_id, config)
        step_n = np.diff(recording.time_ns) / NS_PER_S
        usual = float(np.median(step_n))
        rates[file] = usual
        irregular = float((np.abs(step_n - usual) > _IRREGULAR * usual).mean()) if usual > 0 else 0.0
        if irregular > _MENTIONED:
            text = f"{file}: {irregular:.1%} of the steps differ from the median {usual:g} s"
            yield Finding("warn", text)
    if rates and max(rates.values()) > 1.1 * min(rates.values()):
        slow, fast = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
        text = f"different sampling: {rates[fast]:g} s in {fast}, {rates[slow]:g} s in {slow}"
        hint = "windows have the same number of rows, but span different times" if config.stream == "patchtst" else ""
        yield Finding("warn", text, hint)


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


# ------------------------------------------------------------------------------------------------------------- helpers
def _compared(training: Sequence[tuple[Recording, Span]]) -> np.ndarray:
    """About `_COMPARED_ROWS` training rows (n, C), evenly spaced."""
    step = max(1, sum(span.stop - span.start for _, span in training) // _COMPARED_ROWS)
    return np.concatenate([recording.values_tc[span.start : span.stop : step] for recording, span in training])


def _decimals(values_nc: np.ndarray) -> np.ndarray:
    """The number of decimals of the float32 values of each channel, (C,), at most `_MOST_DECIMALS`."""
    rounding_nc = np.finfo(np.float32).eps * np.abs(values_nc)
    decimals_c = np.full(values_nc.shape[1], _MOST_DECIMALS)
    for decimals in reversed(range(_MOST_DECIMALS)):
        is_more_c = (np.abs(values_nc - values_nc.round(decimals)) > rounding_nc).any(axis=0)
        decimals_c[~is_more_c] = decimals
    return decimals_c


def _stop(error: LandfallError) -> Finding:
    return Finding("stop", error.message, error.hint or "")


def _once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings with each text once, the most severe first."""
    order = ("stop", "warn", "note")
    unique = {finding.text: finding for finding in findings}
    return tuple(sorted(unique.values(), key=lambda finding: order.index(finding.severity)))
