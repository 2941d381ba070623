"""Findings of the data check about files, their quality, channels and sampling: each with a remedy, if there is one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from core.config.overrides import list_override
from core.config.schema import AnyConfig
from core.data.counters import counters
from core.data.courses import have_same_course
from core.data.dataset import path_shown
from core.data.files import FORMATS_HINT, folder_of, matches, other_files
from core.data.labels import labels_of
from core.data.operating_points import stated_points
from core.data.quality import QualityFinding, QualityReport
from core.data.recording import NS_PER_S, Recording
from core.data.splits import SPLIT_NAMES, Span, SplitName
from core.errors import DataError, LandfallError
from core.numbers import counted
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
# Findings of one quality rule, or channels, that are named one by one.
_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """stop: the data cannot be used as it is. warn: it can be used, but check it. note: an automatic decision."""

    severity: Literal["stop", "warn", "note"]
    text: str
    hint: str = ""


def stop(error: LandfallError) -> Finding:
    return Finding("stop", error.message, error.hint or "")


class _InFile(NamedTuple):
    file: str
    found: QualityFinding


def of_other_files(config: AnyConfig, splits: Sequence[SplitName], data_root: Path) -> Iterator[Finding]:
    """Files that are not read, because of their format."""
    patterns = dict.fromkeys(pattern for name in splits for pattern in config.data.splits[name].files)
    files = list(dict.fromkeys(file for pattern in patterns for file in other_files(pattern, data_root)))
    if files:
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        shown = path_shown(relative(files[0], data_root), config)
        yield Finding("warn", f"{shown}{more}: not read, it has another format", FORMATS_HINT)


def of_unused_files(config: AnyConfig, files: Mapping[Path, None], data_root: Path) -> Iterator[Finding]:
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


def of_labels(recordings: Sequence[Recording]) -> Iterator[Finding]:
    """Label files that scoring would reject."""
    for recording in recordings:
        try:
            labels_of(recording)
        except DataError as error:
            yield stop(error)


def of_reports(
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
        yield from (
            Finding("stop", text, "correct it, or change dqvl.hard")
            for text in _of_rule(of_rule, config.dqvl.report_dir)
        )
    for of_rule in warned.values():
        yield from (Finding("warn", text) for text in _of_rule(of_rule, config.dqvl.report_dir))
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


def _of_rule(found: Sequence[_InFile], report_dir: str) -> Iterator[str]:
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
    yield f"{text}; `landfall quality` writes all to {report_dir}"


def of_operating_points(training: Sequence[tuple[Recording, Span]], config: AnyConfig) -> Iterator[Finding]:
    """Speeds and loads that sidecars of vibration contain, if they are not used."""
    if config.stream != "swinmae" or config.data.context_channels:
        return
    if found := stated_points(dict.fromkeys(recording.path for recording, _ in training)):
        ranges = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in found.items())
        override = list_override("data.context_channels", found)
        hint = f"{override} compares recordings with what is usual at their operating point"
        yield Finding("note", f"the sidecars have operating points: {ranges}", hint)


def of_courses(training: Sequence[tuple[Recording, Span]], config: AnyConfig) -> Iterator[Finding]:
    """Runs of a recipe of which each split has a segment: calibration on the end of a run knows nothing about the
    rest."""
    train, calibration = config.data.splits.train, config.data.splits.calibration
    if config.stream != "patchtst" or train.by != "time" or train.files != calibration.files or train.stop == 1.0:
        return
    runs = list({recording.file_id: recording for recording, _ in training}.values())
    if have_same_course(runs):
        text = f"the {len(runs)} recordings take the same course, as runs of a recipe do, and each is divided by time"
        hint = "add runs and set `by: recording` in data.splits, so that each run is in one split"
        yield Finding("warn", f"{text}: the calibration data is only the end of this course", hint)


def of_channels(
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


def of_counters(
    training: Sequence[tuple[Recording, Span]], channels: Sequence[str], config: AnyConfig
) -> Iterator[Finding]:
    """Channels that only increase."""
    if names := counters(training, channels):
        override = _excluding(names, config)
        hint = f"{override} leaves out what new data cannot repeat; data.timestamp names a time column"
        yield Finding("warn", f"only increasing, as a time or a meter: {', '.join(names)}", hint)


def of_decimals(
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


def of_times(recordings: Sequence[Recording], config: AnyConfig) -> Iterator[Finding]:
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
