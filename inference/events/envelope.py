"""Envelope spectra around an event of vibration, compared with normal neighbours in the same recording.

A bearing defect excites resonances once per passage of a ball: the power in a band around a resonance rises and falls
at the frequency of the defect. The spectrum of that power, the squared envelope, shows lines there (Randall and Antoni,
Rolling element bearing diagnostics, Mechanical Systems and Signal Processing 2011).

Suffixes: t time, a axis, f line of a spectrum, n neighbour, b band, w window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inference.events.views import ScoredSplit

# Carrier bands that are compared, and the fewest lines of each.
BANDS, FEWEST_LINES = 8, 16
# Longest segment that is analysed, in windows, and maximum number of neighbours.
LONGEST, NEIGHBOURS = 8, 16
# Lines below two periods of the segment are slow changes of the level.
_FIRST_LINE = 2
# With more missing samples than this share there is no envelope: gaps look like modulation.
_MISSING_SHARE = 0.01


@dataclass(frozen=True)
class Envelope:
    """The envelope spectrum of one axis, for the carrier band whose strongest line most exceeds that of the neighbours.

    frequency_f, event_f: float64 (F,). neighbours_f: (F,), the median of the neighbours; None without any.
    """

    axis: int
    band_hz: tuple[float, float]
    frequency_f: np.ndarray
    event_f: np.ndarray
    neighbours_f: np.ndarray | None


def squared_envelope(line_f: np.ndarray, first: int, stop: int) -> np.ndarray:
    """Squared envelope of the lines `first` to `stop` (exclusive) of a spectrum, relative to its mean, less 1."""
    band_f = np.zeros_like(line_f)
    band_f[first:stop] = line_f[first:stop]
    signal_t = np.fft.ifft(band_f)
    power_t = signal_t.real**2 + signal_t.imag**2
    return power_t / max(power_t.mean(), np.finfo(np.float64).tiny) - 1


def envelope_spectra(wave_t: np.ndarray, bands: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Amplitude spectrum of the squared envelope of each band, relative to the mean of the envelope: float64 (F,), from
    line 0 to the width of the band. bands: first line and end (exclusive) of each band."""
    line_f, taper_t = np.fft.fft(wave_t - wave_t.mean()), np.hanning(len(wave_t))
    return [
        2 * np.abs(np.fft.rfft(squared_envelope(line_f, first, stop) * taper_t)[: stop - first]) / taper_t.sum()
        for first, stop in bands
    ]


def envelopes(scored: ScoredSplit, first: int, last: int, axes: Iterable[int]) -> list[Envelope]:
    """Envelopes of some axes of an event. first, last: lines of the score table."""
    start, stop = _segment(scored, first, last)
    wave_ta = _wave(scored, start, stop)
    neighbours = [_wave(scored, each, each + stop - start) for each in neighbour_starts(scored, start, stop)]
    found = (
        _of_axis(axis, wave_ta[:, axis], [each[:, axis] for each in neighbours], scored.sampling_rate_hz)
        for axis in axes
    )
    return [each for each in found if each is not None]


def _segment(scored: ScoredSplit, first: int, last: int) -> tuple[int, int]:
    """Rows of the event's windows, at most `LONGEST` windows around the one with the highest score."""
    start_w, window = scored.windows.starts_w, scored.windows.window
    peak = scored.peak(first, last)
    segment_w = scored.windows.segments.at(start_w[first : last + 1])
    near_w = np.abs(start_w[first : last + 1] - start_w[peak]) <= (LONGEST - 1) * window // 2
    mine_w = first + np.flatnonzero(near_w & (segment_w == segment_w[peak - first]))
    return int(start_w[mine_w[0]]), int(start_w[mine_w[-1]]) + window


def neighbour_starts(scored: ScoredSplit, start: int, stop: int) -> list[int]:
    """First rows of up to `NEIGHBOURS` segments in the same recording that are as long as rows `start` to `stop`, the
    nearest first. They do not overlap each other, those rows, or a window with an alarm."""
    windows, length = scored.windows, stop - start
    start_w = windows.starts_w
    recording_w = windows.recording_of()
    mine_w = recording_w == recording_w[np.searchsorted(start_w, start)]
    alarm_w = start_w[mine_w & scored.table["alarm"].to_numpy(dtype=bool)]
    taken = [(start, stop), *((each, each + windows.window) for each in alarm_w.tolist())]
    chosen: list[int] = []
    candidate_w = start_w[mine_w]
    for each in candidate_w[np.argsort(np.abs(candidate_w - start), kind="stable")].tolist():
        segment_stop = windows.segments.stop_k[windows.segments.at(np.array([each]))[0]]
        if each + length <= segment_stop and all(each + length <= low or high <= each for low, high in taken):
            chosen.append(each)
            taken.append((each, each + length))
        if len(chosen) == NEIGHBOURS:
            break
    return chosen


def _wave(scored: ScoredSplit, start: int, stop: int) -> np.ndarray:
    return scored.windows.series.rows_nc[start:stop].astype(np.float64)


def _of_axis(axis: int, wave_t: np.ndarray, neighbours: list[np.ndarray], rate_hz: float) -> Envelope | None:
    if np.isnan(wave_t).mean() > _MISSING_SHARE:
        return None
    neighbours = [_filled(each) for each in neighbours if np.isnan(each).mean() <= _MISSING_SHARE]
    bands = _band_edges(len(wave_t))
    event_bf, *neighbours_nbf = (_spectra(each, bands) for each in (_filled(wave_t), *neighbours))
    neighbours_bnf = [[each_bf[band] for each_bf in neighbours_nbf] for band in range(len(bands))]
    excess_b = [
        event_f.max() / _typical([each_f.max() for each_f in neighbours_nf])
        for event_f, neighbours_nf in zip(event_bf, neighbours_bnf, strict=True)
    ]
    band = int(np.argmax(excess_b))
    first, stop = bands[band]
    step_hz = rate_hz / len(wave_t)
    return Envelope(
        axis=axis,
        band_hz=(first * step_hz, stop * step_hz),
        frequency_f=np.arange(_FIRST_LINE, stop - first) * step_hz,
        event_f=event_bf[band],
        neighbours_f=np.median(neighbours_bnf[band], axis=0) if neighbours else None,
    )


def _filled(wave_t: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(wave_t), np.nanmean(wave_t), wave_t)


def _band_edges(length: int) -> list[tuple[int, int]]:
    """First line and end of each carrier band; no band includes line 0."""
    num_lines = (length - 1) // 2
    bands = max(1, min(BANDS, num_lines // FEWEST_LINES))
    width = num_lines // bands
    return [(1 + band * width, 1 + (band + 1) * width) for band in range(bands)]


def _spectra(wave_t: np.ndarray, bands: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """The envelope spectrum of each band without the lines of slow changes."""
    return [spectrum_f[_FIRST_LINE:] for spectrum_f in envelope_spectra(wave_t, bands)]


def _typical(amplitudes: list[float]) -> float:
    return max(float(np.median(amplitudes)), np.finfo(np.float32).tiny) if amplitudes else 1.0
