"""The worst events as documents: the views of `inference.events.views` in JSON, for the dashboard page.

Suffixes: n row of a view, t time, a axis of a vibration, h frequency, w time of an image.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from core.config.schema import Stream
from core.numbers import decimals_for, listed
from core.thinning import kept
from core.workspace import write_text
from inference.events.documents import (
    DefectFrequency,
    EnvelopeSpectrum,
    EventChannel,
    EventDetail,
    Scalogram,
    ScoreCurve,
)
from inference.events.envelope import Envelope, envelopes
from inference.events.finding import worst_events
from inference.events.views import RowsView, ScoredSplit, WindowView, rows_view, score_lines, window_view

# An event of vibration has nine maps, ten times the bytes of a process event, and needs a forward pass of the model.
DESCRIBED_EVENTS: dict[Stream, int] = {"patchtst": 25, "swinmae": 15}
# Maximum number of points of a curve, and of cells of a map: a screen does not show more.
MAX_POINTS = 2_000
MAX_ROWS, MAX_COLUMNS = 96, 224
_SIGNIFICANT = 5
_MICROSECONDS = 6
_TENTHS = 1


def write_event_documents(folder: Path, scored: ScoredSplit, events: pd.DataFrame) -> list[Path]:
    """Writes `<event_id>.json` for the `DESCRIBED_EVENTS` events of the greatest severity. `folder` is emptied first.
    Returns the files.
    """
    shutil.rmtree(folder, ignore_errors=True)
    written = []
    for event in worst_events(events).head(DESCRIBED_EVENTS[scored.stream]).itertuples():
        first, last = event.first_line, event.last_line
        with scored.computing():
            parts = _parts(scored, first, last, scored.worst_channels(event))
        component, share = scored.component(first, last)
        document = EventDetail(
            id=event.event_id,
            recording=event.recording,
            start_s=event.start_seconds,
            end_s=event.end_seconds,
            component=component,
            component_share=round(share, 3),
            score=_scores(scored, first, last),
            **parts,
        )
        written.append(folder / f"{event.event_id}.json")
        write_text(written[-1], document.model_dump_json() + "\n")
    return written


def _scores(scored: ScoredSplit, first: int, last: int) -> ScoreCurve:
    """Score and threshold over the time that the event's curves show."""
    lines = scored.table.iloc[slice(*score_lines(scored, first, last))]
    score_n = lines["score"].to_numpy(dtype=np.float64)
    left, threshold = kept(score_n, MAX_POINTS), float(lines["threshold"].iloc[0])
    return ScoreCurve(
        t=listed(lines["seconds"].to_numpy()[left], _MICROSECONDS),
        score=listed(score_n[left], decimals_for(threshold, _SIGNIFICANT)),
        threshold=threshold,
    )


def _parts(scored: ScoredSplit, first: int, last: int, worst: Mapping[int, float]) -> dict[str, Any]:
    """worst: top channels and their shares."""
    names = scored.channels
    if scored.stream == "patchtst":
        view = rows_view(scored, first, last)
        expected_by = view.component if view.expected_nc is not None else None
        return {"expected_by": expected_by, "channels": list(_channels(scored, view, worst))}
    window = window_view(scored, first, last)
    frequencies = scored.bearing.frequencies_hz() if scored.bearing is not None else {}
    return {
        "expected_by": "model" if window.levels is not None else None,
        "window_s": [round(window.begin, _MICROSECONDS), round(window.begin + window.seconds, _MICROSECONDS)],
        "channels": list(_waveforms(scored, window, worst)),
        "scalograms": list(_scalograms(window, worst, names)),
        "envelopes": [_envelope(each, names) for each in envelopes(scored, first, last, worst)],
        "bearing": [DefectFrequency(name=name, hz=round(hz, 3)) for name, hz in frequencies.items()],
    }


# ------------------------------------------------------------------------------------------------------ process sensors
def _channels(scored: ScoredSplit, view: RowsView, worst: Mapping[int, float]) -> Iterator[EventChannel]:
    """The worst channels: measured values, expected values, and errors. The expected values are empty if they are not
    known. Segments are separated by a gap."""
    breaks = np.flatnonzero(np.diff(view.segment_n)) + 1
    second_n = scored.table["seconds"].to_numpy()[view.start : view.stop]
    t_n = np.insert(second_n, breaks, second_n[breaks - 1])
    error_nc = scored.scores.channel_error_sc[view.start : view.stop]
    shown = {"seen": view.seen_nc, "expected": view.expected_nc, "error": error_nc}
    for channel, share in worst.items():
        curves = {
            name: np.insert(values_nc[:, channel].astype(np.float64), breaks, np.nan)
            for name, values_nc in shown.items()
            if values_nc is not None
        }
        seen_n, expected_n = curves["seen"], curves.get("expected")
        left = _worth_drawing(*curves.values())
        decimals = decimals_for(_largest(seen_n), _SIGNIFICANT)
        yield EventChannel(
            name=scored.channels[channel],
            share=round(share, 4),
            t=listed(t_n[left], _MICROSECONDS),
            seen=listed(seen_n[left], decimals),
            expected=[] if expected_n is None else listed(expected_n[left], decimals),
            error=listed(curves["error"][left], 4),
        )


def _worth_drawing(*curves: np.ndarray) -> np.ndarray:
    """Positions at which any of the curves has an extreme."""
    if len(curves[0]) <= MAX_POINTS:
        return np.arange(len(curves[0]))
    return np.unique(np.concatenate([kept(value_n, MAX_POINTS // len(curves)) for value_n in curves]))


def _largest(value_n: np.ndarray) -> float:
    return float(np.nanmax(np.abs(value_n), initial=0.0))


# ------------------------------------------------------------------------------------------------------------ vibration
def _waveforms(scored: ScoredSplit, view: WindowView, worst: Mapping[int, float]) -> Iterator[EventChannel]:
    """The window and half a window on both sides, within its segment. Waveforms have no expected values: the model
    predicts scalograms."""
    windows, length = scored.windows, len(view.wave_ta)
    segment_start, segment_stop = windows.segments.rows_k2[windows.segments.at(np.array([view.start]))[0]].tolist()
    start = max(segment_start, view.start - length // 2)
    stop = min(segment_stop, view.start + length + length // 2)
    wave_ta = windows.series.rows_nc[start:stop]
    second_t = view.begin + np.arange(start - view.start, stop - view.start) / scored.sampling_rate_hz
    for axis, share in worst.items():
        wave_t = wave_ta[:, axis]
        left = _worth_drawing(wave_t)
        seen = listed(wave_t[left], decimals_for(_largest(wave_t), _SIGNIFICANT))
        times = listed(second_t[left], _MICROSECONDS)
        yield EventChannel(name=scored.channels[axis], share=round(share, 4), t=times, seen=seen)


def _envelope(found: Envelope, names: tuple[str, ...]) -> EnvelopeSpectrum:
    curves = [found.event_f, *([] if found.neighbours_f is None else [found.neighbours_f])]
    left = _worth_drawing(*curves)
    event, *neighbours = (listed(each[left], 4) for each in curves)
    low, high = found.band_hz
    return EnvelopeSpectrum(
        axis=names[found.axis],
        band_hz=(round(low, 1), round(high, 1)),
        frequencies_hz=listed(found.frequency_f[left], 3),
        event=event,
        neighbours=neighbours[0] if neighbours else [],
    )


def _scalograms(view: WindowView, worst: Iterable[int], names: tuple[str, ...]) -> Iterator[Scalogram]:
    levels = view.levels
    if levels is None:
        return
    frequency_h = np.sqrt(levels.edge_hz[:-1] * levels.edge_hz[1:])
    columns = levels.seen_ahw.shape[2]
    second_w = view.begin + view.seconds * (np.arange(columns) + 0.5) / columns
    for axis in worst:
        seen_hw, expected_hw = _pooled(levels.seen_ahw[axis]), _pooled(levels.expected_ahw[axis])
        yield Scalogram(
            axis=names[axis],
            frequencies_hz=listed(_pooled(frequency_h[:, None])[:, 0], 3),
            t=listed(_pooled(second_w[None])[0], _MICROSECONDS),
            seen=listed(seen_hw, _TENTHS),
            expected=listed(expected_hw, _TENTHS),
            error=listed(seen_hw - expected_hw, _TENTHS),
        )


def _pooled(values_hw: np.ndarray) -> np.ndarray:
    """Means of neighbouring cells, so that no side exceeds the limit."""
    for side, longest in enumerate((MAX_ROWS, MAX_COLUMNS)):
        size = values_hw.shape[side]
        if size > longest:
            first = np.arange(longest) * size // longest
            count = np.diff(np.append(first, size))
            values_hw = np.add.reduceat(values_hw, first, axis=side) / (count[:, None] if side == 0 else count)
    return values_hw
