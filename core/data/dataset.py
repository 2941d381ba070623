"""From the files that a configuration names to scaled windows of each split."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from core.config import recipe
from core.config.overrides import list_override
from core.config.recipe import History
from core.config.schema import AnyConfig
from core.data.annotations import with_annotations
from core.data.counters import counters
from core.data.figures import channels_figure, recording_frame, scalogram_figure
from core.data.files import expand, folder_of, matches
from core.data.ingest import Reading
from core.data.operating_points import with_operating_points
from core.data.quality import QualityReport, judge, with_long_runs, write_report
from core.data.recording import RATE_TOLERANCE, Recording
from core.data.scaling import Scaler
from core.data.splits import (
    SPLIT_NAMES,
    TRAINING_SPLITS,
    Span,
    SplitName,
    divided,
    no_rows,
    spans_of,
    splits_of,
    windows_of,
)
from core.data.store import Store
from core.data.windows import Series, WindowSet
from core.errors import DataError, LandfallError, QualityError, first_line
from core.progress import Progress
from core.workspace import SAMPLES, relative

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

# Process sensors in a figure, if the caller does not choose them.
_MAX_CHANNELS = 12
# Channels in an error message, and in a hint that names all of them.
_NAMED, _MOST_SHOWN = 3, 12


@dataclass(frozen=True)
class StreamData:
    """Windows of each split over one shared, scaled series, with the scaler and the quality reports.

    config: the configuration, with values in place of `auto` in the recipe (`core.config.recipe`).
    """

    splits: Mapping[SplitName, WindowSet]
    scaler: Scaler
    channels: tuple[str, ...]
    sampling_rate_hz: float | None
    reports: tuple[QualityReport, ...]
    config: AnyConfig

    def quality_table(self) -> pd.DataFrame:
        """The decision of the quality check for each file, with the hard limits that it violates."""
        rows = [
            {
                "file": report.file_id,
                "decision": report.decision,
                "violated limits": "; ".join(fail.message for fail in report.hard_fails),
                "warnings": "; ".join(warning.message for warning in report.warnings),
            }
            for report in self.reports
        ]
        return pd.DataFrame(rows, columns=["file", "decision", "violated limits", "warnings"]).set_index("file")

    def split_table(self) -> pd.DataFrame:
        """Recordings, rows and windows of each split."""
        rows = [
            {
                "split": name,
                "recordings": len(windows.segments.recordings),
                "rows": int(windows.segments.lengths_k.sum()),
                "windows": len(windows),
            }
            for name, windows in self.splits.items()
        ]
        return pd.DataFrame(rows).set_index("split")

    def to_frame(self, split: SplitName = "train", recording: int = 0) -> pd.DataFrame:
        """The rows of a split in one of its recordings (counted from 0), in the units of the file; a column per
        channel. The index is `time` where the file has time stamps, else `seconds` from the start of the recording.

        Raises IndexError if the split has fewer recordings.
        """
        return recording_frame(self.splits[split], recording)

    def plot(self, split: SplitName = "train", recording: int = 0, channels: Sequence[str] | None = None) -> Figure:
        """A recording of a split (counted from 0): process sensors over time, each with its own scale; of vibration,
        the waveform and the scalogram of its first window.

        channels: the process sensors to show (default: the first 12).
        Raises IndexError if the split has fewer recordings, KeyError for channels that do not exist, and DataError if a
        recording of vibration has no window.
        """
        windows = self.splits[split]
        source = windows.series.recordings[windows.segments.recordings[recording]]
        if self.config.stream == "patchtst":
            shown = list(channels or self.channels[:_MAX_CHANNELS])
            title = f"{source.file_id}, split {split}, {len(shown)} of {len(self.channels)} channels"
            return channels_figure(self.to_frame(split, recording)[shown], title=title)
        mine_w = np.flatnonzero(windows.recording_of() == windows.segments.recordings[recording])
        if not len(mine_w):
            raise DataError("has no window", path=source.path, hint="choose another recording")
        first = int(mine_w[0])
        begin = windows.local_starts()[first] / self.sampling_rate_hz
        title = f"{source.file_id}, split {split}, from second {begin:.2f}"
        return scalogram_figure(windows, self.config.scalogram, self.sampling_rate_hz, window=first, title=title)


def load_stream_data(
    config: AnyConfig,
    *,
    root: Path,
    splits: Sequence[SplitName] = SPLIT_NAMES,
    scaler: Scaler | None = None,
    run_id: str = "",
    write_reports: bool = True,
) -> StreamData:
    """Loads the named splits. Without a `scaler`, one is fitted on the train split, which `splits` must then name.

    Files that were read before come from the store (`core.data.store`), memory-mapped; windows are scaled as they are
    cut. Values that are `auto` are chosen here (`divided`, `with_recipe`).
    Writes one quality report for each file if `write_reports`. Raises DataError for unusable input, QualityError if no
    file passes.
    """
    if config.data.root == SAMPLES:
        log.info("using the sample data in %s; copy your own files to data/", SAMPLES)
    data_root = (root / config.data.root).resolve()
    files = sorted({file for name in splits for file in files_of(config, name, data_root)})
    store = Store.of(config, root)
    recordings, reports = read_all(files, config, root, run_id, store, write_reports=write_reports)
    recordings = with_annotations(recordings, config, root)
    for copy, original in copies(recordings):
        log.warning("%s %s", path_shown(copy.file_id, config), copy_in_words(original, config))
    channels, rate_hz = common_shape(recordings, config)
    config = divided(config, recordings, data_root)
    if recipe.is_open(config):
        config = with_recipe(config, recordings, data_root, rate_hz)
    spans = splits_of(config, recordings, data_root)
    for name in splits:
        if not spans[name]:
            raise no_rows(config, name)
    if config.stream == "patchtst":
        _warn_of_counters([(recordings[span.recording], span) for span in spans.get("train", ())], channels, config)
    if scaler is None:
        rows = [(recordings[span.recording], span.start, span.stop) for span in spans["train"]]
        training = [recording.values_tc[start:stop] for recording, start, stop in rows]
        scaler = store.scaler(
            partial(Scaler.fit, training, channels, config.data.scaling, store.scratch()),
            rows=rows,
            channels=channels,
            scaling=config.data.scaling.model_dump(mode="json"),
        )
        scaler.log_floors()
    elif scaler.channels != channels:
        raise DataError(
            f"its channels differ from those that the model was trained on: {_difference(channels, scaler.channels)}",
            path=recordings[0].path,
            hint="pass the --config and the overrides of the training, score data of the same sensors, train on this "
            f"data (landfall train {config.stream}), or score without a model (landfall score --detector charts)",
        )
    series = Series.of(recordings, store.joined(recordings), scaler, store.scratch())
    store.forget_oldest()
    windows = {name: windows_of(name, spans[name], series, config) for name in splits}
    return StreamData(windows, scaler, channels, rate_hz, tuple(reports), config)


def _warn_of_counters(training: Sequence[tuple[Recording, Span]], channels: Sequence[str], config: AnyConfig) -> None:
    """Says which channels hide faults of the others, because every later value is larger than those to learn from."""
    if names := counters(training, channels):
        override = list_override("data.exclude", [*config.data.exclude, *names])
        log.warning(
            "only increasing, as a time or a meter: %s. New data is outside of what was learned, which hides faults of "
            "other channels: %s leaves it out",
            ", ".join(names), override,
        )  # fmt: skip


def check_quality(
    config: AnyConfig, *, root: Path, run_id: str = "", splits: Sequence[SplitName] = SPLIT_NAMES
) -> list[QualityReport]:
    """Checks every file of the splits and writes its report. Raises QualityError when no file passes, DataError for
    files with different channels or sampling rates."""
    data_root = (root / config.data.root).resolve()
    files = {file for name in splits for file in files_of(config, name, data_root)}
    store = Store.of(config, root)
    recordings, reports = read_all(sorted(files), config, root, run_id, store)
    store.forget_oldest()
    common_shape(recordings, config)
    return reports


# ---------------------------------------------------------------------------------------------------- reading, quality
def files_of(config: AnyConfig, name: SplitName, data_root: Path) -> list[Path]:
    split = config.data.splits[name]
    if not split.files:
        raise DataError(f"the split {name} names no files", hint=f"set data.splits.{name}.files to one or more globs")
    return expand(split.files, data_root, hint=_what_to_copy(config, data_root))


def _what_to_copy(config: AnyConfig, data_root: Path) -> str:
    """What to copy where, for a configuration without data: `train_*` and `test_*` to `data/fdc`."""
    purposes: dict[str, str] = {}
    for name in SPLIT_NAMES:
        for glob in config.data.splits[name].files:
            purposes.setdefault(glob, "data to score" if name == "test" else "normal operation, to learn from")
    folders = {folder_of(glob) for glob in purposes}
    if len(folders) == 1:
        (folder,) = folders
        purposes = {glob.removeprefix(f"{folder}/"): purpose for glob, purpose in purposes.items()}
        path = Path(config.data.root, folder).as_posix()
        start = f"copy your files to {path} (mkdir -p {path}), named"
    else:
        start = "copy your files:"
    names = " and ".join(f"{name} ({purpose})" for name, purpose in purposes.items())
    advice = f"{start} {names}; docs/your-data.md describes the formats"
    # The user's own files hide the sample data.
    has_files = any(path.is_file() for path in data_root.rglob("*"))
    return advice if has_files else f"{advice}. Without files, try: landfall sample-data"


def read_all(
    files: Sequence[Path], config: AnyConfig, root: Path, run_id: str, store: Store, *, write_reports: bool = True
) -> tuple[list[Recording], list[QualityReport]]:
    """The recordings of the files that pass the quality check, and a report of each file; logs what was decided.
    Warnings of reports that are not written are not logged.

    Raises DataError naming a file that cannot be read, QualityError when no file passes.
    """
    kept: list[Recording] = []
    reports: list[QualityReport] = []
    notes: dict[str, list[str]] = defaultdict(list)
    data_root = (root / config.data.root).resolve()
    with Progress(len(files), "reading", unit="files", mode=config.logging.progress) as progress:
        for file in files:
            file_id = relative(file, data_root)
            progress.advance(0, note=file_id)  # if the process is killed, this file was being read
            reading = read_file(file, config, data_root, store)
            report = None
            if config.dqvl.enabled:
                report = judge(reading.metrics, config.dqvl, stream=config.stream, file_id=file_id, run_id=run_id)
                reports.append(report)
                if write_reports:
                    write_report(report, root / config.dqvl.report_dir)
                for fail in report.hard_fails:
                    log.warning("%s dropped: %s", path_shown(file_id, config), fail.message)
            for note in dict.fromkeys(note for recording in reading.recordings for note in recording.notes):
                notes[note].append(reading.recordings[0].file_id)
            if report is None or report.decision == "keep":
                kept += reading.recordings
            progress.advance()
    compared = with_long_runs(reports, reference_ids(config, data_root))
    for before, report in zip(reports, compared, strict=True):
        if report is not before and write_reports:
            write_report(report, root / config.dqvl.report_dir)
            stuck = [warning.message for warning in report.warnings if warning not in before.warnings]
            log.warning("%s: %s", path_shown(report.file_id, config), "; ".join(stuck[:_NAMED]))
    reports = compared
    if store.num_cached:
        log.info("%d of %d files are cached in %s", store.num_cached, len(files), config.data.store_dir)
    _log_decisions(notes, reports if write_reports else [], config)
    if not kept:
        reasons = "; ".join(
            f"{path_shown(r.file_id, config)}: {r.hard_fails[0].message}" for r in reports[:3] if r.hard_fails
        )
        raise QualityError(
            f"none of the {len(files)} files passed the data quality check: {reasons}",
            hint=f"see {config.dqvl.report_dir}, correct the data or change dqvl.hard",
        )
    return kept, reports


def reference_ids(config: AnyConfig, data_root: Path) -> set[str]:
    """The file ids of all splits of normal data."""
    globs = {glob for name in SPLIT_NAMES if name != "test" for glob in config.data.splits[name].files}
    return {relative(path, data_root) for glob in globs for path in matches(glob, data_root)}


def path_shown(file_id: str, config: AnyConfig) -> str:
    """The path of a recording relative to the workspace, for messages; `file_id` is relative to `data.root`."""
    return file_id if Path(config.data.root).is_absolute() else Path(config.data.root, file_id).as_posix()


def read_file(file: Path, config: AnyConfig, data_root: Path, store: Store) -> Reading:
    """Reads one file, and the operating points of vibration. Any error of its reader becomes a DataError that names the
    file."""
    try:
        reading = store.read(file, root=data_root, config=config)
        if config.stream != "swinmae":
            return reading
        points = with_operating_points(reading.recordings, file, config.data.context_channels)
        return replace(reading, recordings=points)
    except LandfallError:
        raise
    except Exception as error:
        raise DataError(
            f"its reader failed: {type(error).__name__}: {first_line(error)}",
            path=file,
            hint="correct the file or narrow the globs of data.splits; --debug shows where it failed",
        ) from error


def _log_decisions(notes: Mapping[str, Sequence[str]], reports: Sequence[QualityReport], config: AnyConfig) -> None:
    """Logs each note of the readers and the first quality warning once, however many files they concern."""
    for note, file_ids in notes.items():
        first = path_shown(file_ids[0], config)
        log.info("%s%s: %s", first, f" and {len(file_ids) - 1} more" if len(file_ids) > 1 else "", note)
    warned = [report for report in reports if report.warnings and report.decision == "keep"]
    if warned:
        report = warned[0]
        log.info(
            "%d of %d files kept with warnings, such as %s: %s; all are in %s",
            len(warned), len(reports), path_shown(report.file_id, config), report.warnings[0].message,
            config.dqvl.report_dir,
        )  # fmt: skip


def _difference(found: Sequence[str], expected: Sequence[str]) -> str:
    """The missing and the additional channels, with their numbers and the first names of each."""
    kinds = {
        f"of {len(expected)} missing": [name for name in expected if name not in found],
        "additional": [name for name in found if name not in expected],
    }
    words = [
        f"{len(names)} {kind} ({', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''})"
        for kind, names in kinds.items()
        if names
    ]
    return ", ".join(words) or "another order"


def copies(recordings: Sequence[Recording]) -> list[tuple[Recording, Recording]]:
    """Recordings of files with the content of an earlier one, each with that one; none without a store."""
    first: dict[str, Recording] = {}
    pairs = [(each, first.setdefault(each.digest, each)) for each in recordings if each.digest]
    return [(copy, original) for copy, original in pairs if copy.path != original.path]


def copy_in_words(original: Recording, config: AnyConfig) -> str:
    return (
        f"has the content of {path_shown(original.file_id, config)}: on data that was learned, scores and thresholds "
        "are too low; remove one of them"
    )


def common_shape(recordings: Sequence[Recording], config: AnyConfig) -> tuple[tuple[str, ...], float | None]:
    """The channels and the sampling rate of all recordings. Raises DataError naming the first that differs."""
    first = recordings[0]
    for other in recordings[1:]:
        if other.channels != first.channels:
            raise DataError(
                f"its channels differ from those of {path_shown(first.file_id, config)}: "
                f"{_difference(other.channels, first.channels)}",
                path=other.path,
                hint=_how_to_agree(other.channels, first.channels, config),
            )
    if config.stream != "swinmae":
        _require_context(first, config)
        return first.channels, first.sampling_rate_hz
    for recording in recordings:
        if recording.sampling_rate_hz is None:
            raise DataError("its sampling rate is unknown", path=recording.path, hint="set data.sampling_rate_hz")
        if not np.isclose(recording.sampling_rate_hz, first.sampling_rate_hz, rtol=RATE_TOLERANCE):
            raise DataError(
                f"is sampled at {recording.sampling_rate_hz:g} Hz, {path_shown(first.file_id, config)} at "
                f"{first.sampling_rate_hz:g} Hz",
                path=recording.path,
                hint="if this is wrong, correct its sidecar; if not, data.resample_hz brings all files to one rate",
            )
    return first.channels, first.sampling_rate_hz


def _how_to_agree(found: Sequence[str], expected: Sequence[str], config: AnyConfig) -> str:
    """How to read the same channels from files with different ones."""
    odd = sorted({*found} ^ {*expected})
    if not odd:
        one_order = f" ({list_override('data.channels', expected)})" if len(expected) <= _MOST_SHOWN else ""
        return f"name all channels in data.channels{one_order}; every file is then read in this order"
    if len(odd) <= _MOST_SHOWN and len(odd) < len(expected):
        return (
            f"{list_override('data.exclude', [*config.data.exclude, *odd])} leaves out what only some files have; "
            "or name other files in data.splits"
        )
    return "name the channels that all files have in data.channels, or other files in data.splits"


def _require_context(recording: Recording, config: AnyConfig) -> None:
    """Raises DataError if `data.context_channels` names something else than a channel: scoring would fail later."""
    missing = [name for name in config.data.context_channels if name not in recording.channels]
    if missing:
        known = ", ".join(recording.channels[:_MOST_SHOWN])
        more = ", …" if len(recording.channels) > _MOST_SHOWN else ""
        raise DataError(
            f"{missing[0]!r} of data.context_channels is not a channel",
            path=recording.path,
            hint=f"the channels are {known}{more}; a column of texts is not one: write its states as numbers",
        )


# -------------------------------------------------------------------------------------------------------------- recipe
def with_recipe(
    config: AnyConfig, recordings: Sequence[Recording], data_root: Path, rate_hz: float | None
) -> AnyConfig:
    """The configuration with values instead of `auto` in the recipe, which are chosen from the train and validation
    splits, and from calibration rows of the same recordings. Raises DataError if one of the first two has no rows."""
    spans = {name: spans_of(config.data.splits[name], recordings, data_root) for name in TRAINING_SPLITS}
    if missing := [name for name in TRAINING_SPLITS if not spans[name]]:
        raise no_rows(config, missing[0])
    known = {span.recording for name in TRAINING_SPLITS for span in spans[name]}
    calibration = spans_of(config.data.splits.calibration, recordings, data_root)
    spans["calibration"] = [span for span in calibration if span.recording in known]
    segments_s2 = {
        name: np.concatenate([span.segments_s2(recordings) for span in found]) for name, found in spans.items() if found
    }
    # A guard shortens a span that follows another split of the same recording; of several segments, only the first.
    is_shared = len(known) < sum(map(len, spans.values()))
    is_whole = len(segments_s2["validation"]) < 2 * len(spans["validation"])
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
