"""Ingest of one sensor file: read, clean, measure, resample; each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.config.schema import AnyConfig
from core.data.blocks import as_one
from core.data.cleaning import cleaned
from core.data.quality_metrics import measure
from core.data.recording import Recording
from core.data.resampling import resampled
from core.data.sampling import even_times


@dataclass(frozen=True)
class Reading:
    """One sensor file after ingest.

    recordings: cleaned (`core.data.cleaning`) and, where the configuration says so, resampled. metrics: of the file
    before resampling (`core.data.quality_metrics`); None without a quality check.
    """

    recordings: tuple[Recording, ...]
    metrics: dict[str, Any] | None


def ingest(path: Path, *, root: Path, config: AnyConfig, scratch: Path | None) -> Reading:
    """Reads, cleans, measures and resamples one file. Raises DataError as `read_recordings` does."""
    from core.data.readers import read_recordings  # imports pandas, which a cached file does not need

    raw = read_recordings(path, root=root, stream=config.stream, settings=config.data, scratch=scratch)
    clean = [cleaned(recording, config.data.gap_factor, scratch) for recording in raw]
    metrics = None
    if config.dqvl.enabled:
        metrics = measure(_as_one(raw, scratch), _as_one(clean, scratch), stream=config.stream, scratch=scratch)
    if config.data.resample_hz is not None and config.stream == "swinmae":
        clean = [resampled(recording, config.data.resample_hz, scratch=scratch) for recording in clean]
    return Reading(tuple(clean), metrics)


def _as_one(records: Sequence[Recording], scratch: Path | None) -> Recording:
    """The records of a set, which have no time stamps, as one recording: a file has one quality report."""
    if len(records) == 1:
        return records[0]
    values_tc = as_one([recording.values_tc for recording in records], scratch)
    rate_hz = records[0].sampling_rate_hz or 1.0
    return replace(records[0], values_tc=values_tc, time_ns=even_times(len(values_tc), rate_hz, scratch=scratch))
