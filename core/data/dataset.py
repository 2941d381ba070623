"""From the files a configuration names to scaled windows of each part: read, judge, mend, split, scale, cut."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from core.config import recipe
from core.config.recipe import History
from core.config.schema import AnyConfig, Part
from core.data.files import expand, matches
from core.data.quality import QualityReport, judge, segments, write_report
from core.data.recording import RATE_TOLERANCE, Recording
from core.data.scaling import Scaler
from core.data.store import Reading, Store
from core.data.windows import Series, WindowSet, window_starts
from core.errors import DataError, LandfallError, QualityError
from core.progress import Progress
from core.workspace import relative

log = logging.getLogger(__name__)

PartName = Literal["train", "validation", "calibration", "test"]
PART_NAMES: tuple[PartName, ...] = ("train", "validation", "calibration", "test")
TRAINING_PARTS: tuple[PartName, ...] = ("train", "validation")
SCORING_PARTS: tuple[PartName, ...] = ("calibration", "test")
# Windows searched at once for an observed value.
_LOOKED_AT = 64


@dataclass(frozen=True)
class Stretch:
    """Rows `start` to `stop` (exclusive) of one recording, given to one part."""

    recording: int
    start: int
    stop: int


@dataclass(frozen=True)
class StreamData:
    """Windows per part over one shared, scaled series, and how they came about.

    config: the one it was loaded by, without `auto` in its recipe (`core.config.recipe`).
    """

    parts: Mapping[PartName, WindowSet]
    scaler: Scaler
    channels: tuple[str, ...]
    sampling_rate_hz: float | None
    reports: tuple[QualityReport, ...]
    config: AnyConfig


def load_stream_data(
    config: AnyConfig,
    *,
    root: Path,
    parts: Sequence[PartName],
    scaler: Scaler | None = None,
    run_id: str = "",
) -> StreamData:
    """Loads the named parts. Without a `scaler`, one is fitted on the training part, which must then be asked for.

    What was read before comes from the store (`core.data.store`), memory-mapped and scaled only as windows are cut.
    Where the recipe is `auto`, it is chosen here, by the splits that train and validate.
    Writes one quality report per file. Raises DataError for unusable input, QualityError when no file passes.
    """
    data_root = (root / config.data.root).resolve()
    files = {name: _files_of(config, name, data_root) for name in parts}
    store = Store.of(config, root)
    every_file = sorted({file for found in files.values() for file in found})
    recordings, reports = read_all(every_file, config, root, run_id, store)
    channels, rate_hz = _agreed_shape(recordings, config)
    if recipe.is_open(config):
        config = _with_recipe(config, recordings, data_root, rate_hz)
    stretches = _split(config, recordings, data_root)
    for name in parts:
        if not stretches[name]:
            hint = f"see data.parts.{name}, data.guard and the reports in {config.dqvl.report_dir}"
            raise DataError(f"the part {name} has no rows", hint=hint)
    if scaler is None:
        rows = [(recordings[s.recording], s.start, s.stop) for s in stretches["train"]]
        training = [recording.values_tc[start:stop] for recording, start, stop in rows]
        scaler = store.scaler(
            partial(Scaler.fit, training, channels, config.data.scaling, store.room()),
            rows=rows,
            channels=channels,
            scaling=config.data.scaling.model_dump(mode="json"),
        )
        scaler.tell()
    elif scaler.channels != channels:
        raise DataError(
            f"the data has the channels {', '.join(channels)}; the model was trained on {', '.join(scaler.channels)}",
            path=recordings[0].path,
            hint="score data of the same sensors, or set data.channels",
        )
    series = Series.of(recordings, store.joined(recordings), scaler, store.room())
    store.forget_oldest()
    windows = {name: _windows_of(name, stretches[name], series, config) for name in parts}
    return StreamData(windows, scaler, channels, rate_hz, tuple(reports), config)


def check_quality(config: AnyConfig, *, root: Path, run_id: str = "") -> list[QualityReport]:
    """Judges every file of every part and writes its report. Raises QualityError when no file passes."""
    data_root = (root / config.data.root).resolve()
    files = {file for name in PART_NAMES for file in _files_of(config, name, data_root)}
    store = Store.of(config, root)
    reports = read_all(sorted(files), config, root, run_id, store)[1]
    store.forget_oldest()
    return reports


# ---------------------------------------------------------------------------------------------------- reading, quality
def _files_of(config: AnyConfig, name: PartName, data_root: Path) -> list[Path]:
    part: Part = getattr(config.data.parts, name)
    if not part.files:
        raise DataError(f"the part {name} names no files", hint=f"set data.parts.{name}.files to one or more globs")
    return expand(part.files, data_root)


def read_all(
    files: Sequence[Path], config: AnyConfig, root: Path, run_id: str, store: Store
) -> tuple[list[Recording], list[QualityReport]]:
    """The recordings of the files that pass the quality check, and a report of each file; tells what was decided.

    Raises DataError naming a file that cannot be read, QualityError when no file passes.
    """
    kept: list[Recording] = []
    reports: list[QualityReport] = []
    notes: dict[str, list[str]] = defaultdict(list)
    data_root = (root / config.data.root).resolve()
    with Progress(len(files), "reading", unit="files", mode=config.logging.progress) as progress:
        for file in files:
            file_id = relative(file, data_root)
            progress.advance(0, note=file_id)  # what a process that dies while it reads was last seen with
            reading = _read(file, config, data_root, store)
            report = None
            if config.dqvl.enabled:
                report = judge(reading.metrics, config.dqvl, stream=config.stream, file_id=file_id, run_id=run_id)
                reports.append(report)
                write_report(report, root / config.dqvl.report_dir)
                for fail in report.hard_fails:
                    log.warning("%s dropped: %s", file_id, fail["message"])
            for note in dict.fromkeys(note for recording in reading.recordings for note in recording.notes):
                notes[note].append(reading.recordings[0].file_id)
            if report is None or report.decision == "keep":
                kept += reading.recordings
            progress.advance()
    if store.num_known:
        log.info("%d of %d files are known from an earlier time and come from %s", store.num_known, len(files),
                 config.data.store_dir)  # fmt: skip
    _tell(notes, reports, config)
    if not kept:
        reasons = "; ".join(f"{r.file_id}: {r.hard_fails[0]['message']}" for r in reports[:3] if r.hard_fails)
        raise QualityError(
            f"none of the {len(files)} files passed the data quality check: {reasons}",
            hint=f"see {config.dqvl.report_dir}, mend the data or change dqvl.hard",
        )
    return kept, reports


def _read(file: Path, config: AnyConfig, data_root: Path, store: Store) -> Reading:
    """Raises DataError naming the file, whatever its reader failed with."""
    try:
        return store.read(file, root=data_root, config=config)
    except LandfallError:
        raise
    except Exception as error:
        told = (str(error) or "no reason given").splitlines()[0]
        raise DataError(
            f"its reader failed: {type(error).__name__}: {told}",
            path=file,
            hint="mend the file or narrow the globs of data.parts; --debug shows where it failed",
        ) from error


def _tell(notes: Mapping[str, Sequence[str]], reports: Sequence[QualityReport], config: AnyConfig) -> None:
    """What the readers decided and what quality found, each said once, however many files it is about."""
    for note, file_ids in notes.items():
        log.info("%s%s: %s", file_ids[0], f" and {len(file_ids) - 1} more" if len(file_ids) > 1 else "", note)
    warned = [report for report in reports if report.warnings and report.decision == "keep"]
    if warned:
        first = warned[0]
        log.info(
            "%d of %d files kept with warnings, such as %s: %s; all are in %s",
            len(warned), len(reports), first.file_id, first.warnings[0]["message"], config.dqvl.report_dir,
        )  # fmt: skip


def _agreed_shape(recordings: Sequence[Recording], config: AnyConfig) -> tuple[tuple[str, ...], float | None]:
    """Channels and sampling rate all recordings share. Raises DataError naming the first that differs."""
    first = recordings[0]
    for other in recordings[1:]:
        if other.channels != first.channels:
            extra = sorted(set(other.channels) ^ set(first.channels)) or ["another order"]
            raise DataError(
                f"its channels differ from those of {first.file_id}: {', '.join(extra[:6])}",
                path=other.path,
                hint="list the common ones in data.channels, or narrow the globs",
            )
    if config.stream != "swinmae":
        return first.channels, first.sampling_rate_hz
    for recording in recordings:
        if recording.sampling_rate_hz is None:
            raise DataError("its sampling rate is unknown", path=recording.path, hint="set data.sampling_rate_hz")
        if not np.isclose(recording.sampling_rate_hz, first.sampling_rate_hz, rtol=RATE_TOLERANCE):
            raise DataError(
                f"is sampled at {recording.sampling_rate_hz:g} Hz, {first.file_id} at {first.sampling_rate_hz:g} Hz",
                path=recording.path,
                hint="set data.resample_hz to bring all files to one rate, or narrow the globs",
            )
    return first.channels, first.sampling_rate_hz


# ------------------------------------------------------------------------------------------------------------ splitting
def _with_recipe(
    config: AnyConfig, recordings: Sequence[Recording], data_root: Path, rate_hz: float | None
) -> AnyConfig:
    """Raises DataError where the splits that train and validate are not loaded: a recipe follows from them alone."""
    stretches = {
        name: _stretches_of(getattr(config.data.parts, name), recordings, data_root) for name in TRAINING_PARTS
    }
    if missing := [name for name in TRAINING_PARTS if not stretches[name]]:
        hint = f"see data.parts.{missing[0]}, or set data.window and the other keys that are auto"
        raise DataError(f"the part {missing[0]} has no rows to choose a recipe by", hint=hint)
    known = {stretch.recording for name in TRAINING_PARTS for stretch in stretches[name]}
    calibration = _stretches_of(config.data.parts.calibration, recordings, data_root)
    stretches["calibration"] = [stretch for stretch in calibration if stretch.recording in known]
    segments_s2 = {
        name: np.concatenate([_gapless(stretch, recordings, config.data.gap_factor) for stretch in found])
        for name, found in stretches.items()
        if found
    }
    # A guard shortens what follows another split in the same recording: of many segments a single one.
    is_shared = len(known) < sum(map(len, stretches.values()))
    is_whole = len(segments_s2["validation"]) < 2 * len(stretches["validation"])
    history = History(
        {name: np.diff(each_s2, axis=1)[:, 0].tolist() for name, each_s2 in segments_s2.items()},
        num_channels=len(recordings[0].channels),
        guard=config.data.guard if is_shared and is_whole else 0,
        sampling_rate_hz=rate_hz,
    )
    config, reasons = recipe.resolved(config, history)
    for reason in reasons:
        log.info("%s", reason)
    return config


def _gapless(stretch: Stretch, recordings: Sequence[Recording], gap_factor: float) -> np.ndarray:
    """Half-open row ranges (S, 2) of its recording without a gap; empty ones where a segment lies outside of it."""
    return segments(recordings[stretch.recording], gap_factor).clip(stretch.start, stretch.stop)


def _reaching_back(
    gapless_s2: np.ndarray, stretch: Stretch, recordings: Sequence[Recording], gap_factor: float, rows: int
) -> np.ndarray:
    """The ranges `_gapless` gave, each from up to so many rows earlier without a gap, which may belong to another
    split: what a monitor would have seen by then."""
    whole_s2 = segments(recordings[stretch.recording], gap_factor)
    begin_s = np.maximum(whole_s2[:, 0], gapless_s2[:, 0] - rows)
    is_empty_s = gapless_s2[:, 0] >= gapless_s2[:, 1]
    return np.stack([np.where(is_empty_s, gapless_s2[:, 0], begin_s), gapless_s2[:, 1]], axis=1)


def _split(config: AnyConfig, recordings: Sequence[Recording], data_root: Path) -> dict[PartName, list[Stretch]]:
    """Stretches of every part in the recordings at hand: also of parts that are not loaded, whose ends set guards."""
    stretches = {name: _stretches_of(getattr(config.data.parts, name), recordings, data_root) for name in PART_NAMES}
    guarded = _with_guard(stretches, config.data.window if config.data.guard < 0 else config.data.guard)
    _refuse_overlap(guarded, recordings)
    return guarded


def _stretches_of(part: Part, recordings: Sequence[Recording], data_root: Path) -> list[Stretch]:
    wanted = {path for pattern in part.files for path in matches(pattern, data_root)}
    mine = [index for index, recording in enumerate(recordings) if recording.path in wanted]
    if part.by == "recording":
        chosen = [
            index
            for group in _groups(mine, recordings)
            for index in group[_row(part.start, len(group)) : _row(part.stop, len(group))]
        ]
        return [Stretch(index, 0, len(recordings[index])) for index in chosen]
    lengths = [len(recordings[index]) for index in mine]
    return [
        Stretch(index, _row(part.start, length), _row(part.stop, length))
        for index, length in zip(mine, lengths, strict=True)
        if _row(part.start, length) < _row(part.stop, length)
    ]


def _groups(mine: Sequence[int], recordings: Sequence[Recording]) -> list[list[int]]:
    """What a split by recording cuts: the records of each set on their own, all single-recording files together."""
    records: dict[Path, list[int]] = defaultdict(list)
    for index in mine:
        records[recordings[index].path].append(index)
    sets = [group for group in records.values() if len(group) > 1]
    return [*sets, [group[0] for group in records.values() if len(group) == 1]]


def _row(bound: float | int, length: int) -> int:
    return min(length, round(bound * length)) if isinstance(bound, float) else min(length, bound)


def _with_guard(stretches: Mapping[PartName, list[Stretch]], guard: int) -> dict[PartName, list[Stretch]]:
    """Starts each stretch at least `guard` rows after the stretch of another part before it in its recording."""
    ends: dict[int, list[int]] = defaultdict(list)
    for stretch in (stretch for found in stretches.values() for stretch in found):
        ends[stretch.recording].append(stretch.stop)

    def moved(stretch: Stretch) -> Stretch:
        earlier = [stop for stop in ends[stretch.recording] if stop <= stretch.start]
        return replace(stretch, start=max([stretch.start, *(stop + guard for stop in earlier)]))

    guarded = {name: [moved(stretch) for stretch in found] for name, found in stretches.items()}
    return {name: [s for s in found if s.start < s.stop] for name, found in guarded.items()}


def _refuse_overlap(stretches: Mapping[PartName, list[Stretch]], recordings: Sequence[Recording]) -> None:
    """Raises DataError where two parts share a row: the model would be judged on what it learned."""
    by_recording: dict[int, list[tuple[PartName, Stretch]]] = defaultdict(list)
    for name, found in stretches.items():
        for stretch in found:
            by_recording[stretch.recording].append((name, stretch))
    for index, entries in by_recording.items():
        for (name, one), (other_name, other) in combinations(entries, 2):
            if max(one.start, other.start) < min(one.stop, other.stop):
                raise DataError(
                    f"the parts {name} and {other_name} share the rows "
                    f"{max(one.start, other.start)} to {min(one.stop, other.stop)}",
                    path=recordings[index].path,
                    hint="change data.parts so that each row belongs to one part",
                )


def _windows_of(name: PartName, stretches: Sequence[Stretch], series: Series, config: AnyConfig) -> WindowSet:
    """Windows inside the gap-free segments of a split; those that are scored may look back on rows before it."""
    scoring = name in SCORING_PARTS
    data = config.data
    pieces, reaches = [], []
    for stretch in stretches:
        gapless_s2, offset = _gapless(stretch, series.recordings, data.gap_factor), series.offsets_r[stretch.recording]
        pieces.append(gapless_s2 + offset)
        reach = config.score_context if scoring else 0
        reaches.append(_reaching_back(gapless_s2, stretch, series.recordings, data.gap_factor, reach) + offset)
    stretches_s2, reach_s2 = np.concatenate(pieces), np.concatenate(reaches)
    stride = config.score_stride if scoring else data.stride
    starts_w = window_starts(reach_s2, data.window, stride, cover_end=scoring)
    lengths_s, reach_s = (each[:, 1] - each[:, 0] for each in (stretches_s2, reach_s2))
    lost = int(lengths_s[(lengths_s > 0) & (reach_s < data.window)].sum())
    if lost:
        log.warning(
            "%s: %d of %d rows lie in stretches shorter than a window of %d and are left out",
            name, lost, int(lengths_s.sum()), data.window,
        )  # fmt: skip
    if not len(starts_w):
        raise DataError(
            f"the part {name} has no stretch as long as a window of {data.window} rows "
            f"(longest: {int(reach_s.max(initial=0))})",
            hint="set a smaller data.window, a larger data.gap_factor, or more files",
        )
    windows = WindowSet(series, torch.from_numpy(starts_w), data.window, stretches_s2)
    # A model is not trained on nothing, and not the best for ever by a validation loss of 0.
    if name in TRAINING_PARTS and all(x_btc.isnan().all() for x_btc in windows.batches(_LOOKED_AT)):
        raise DataError(
            f"the {len(windows)} windows of the part {name} hold no observed value: every sensor is missing there",
            hint=f"see data.parts.{name} and the reports in {config.dqvl.report_dir}",
        )
    log.info("%s: %d windows of %d from %d recordings", name, len(windows), data.window, len(stretches))
    return windows
