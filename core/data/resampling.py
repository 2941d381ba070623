"""Resamples vibration of several rates to one rate by polyphase filtering (scipy.signal.resample_poly)."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np

from core.data.blocks import Rows
from core.data.files import refuse_large
from core.data.recording import RATE_TOLERANCE, Recording
from core.errors import DataError

# Maximum of the smaller term of the fraction that approximates the ratio of rates.
_LARGEST_TERM = 1000
# Memory for one value of a segment that is filtered: the original, filled and filtered value, and its times.
_BYTES_PER_VALUE = 40


def resampled(recording: Recording, rate_hz: float, *, scratch: Path | None = None) -> Recording:
    """The recording at `rate_hz`: each segment separately, low-pass filtered below half of the lower rate.

    Returns `recording` itself if its rate is unknown or within `RATE_TOLERANCE`. A row next to a missing value is
    missing. Times are interpolated between those of the measured rows. Labels are matched by time, or with
    `Recording.resampled_from_hz` if rows have no time stamps. One segment at a time is in memory.
    Raises DataError if one rate is more than a thousand times the other, and for a segment that exceeds the memory.
    """
    own_hz = recording.sampling_rate_hz
    if own_hz is None or not len(recording) or np.isclose(own_hz, rate_hz, rtol=RATE_TOLERANCE):
        return recording
    ratio = _ratio(recording, rate_hz)
    values, times, ends = Rows(scratch), Rows(scratch), [0]
    for start, stop in recording.segments_s2:
        needed = _BYTES_PER_VALUE * (stop - start) * recording.values_tc.shape[1] * max(float(ratio), 1.0)
        refuse_large(recording.path, int(needed))
        values_mc = _filtered(recording.values_tc[start:stop], ratio)
        values.add(values_mc)
        ends.append(ends[-1] + len(values_mc))
        times.add(_times(recording.time_ns[start:stop], np.arange(len(values_mc)) / float(ratio)))
    note = f"resampled from {own_hz:g} to {rate_hz:g} Hz"
    if rate_hz > own_hz:
        note += f"; it has no content above {own_hz / 2:g} Hz, unlike recordings measured at {rate_hz:g} Hz"
    return dataclasses.replace(
        recording,
        values_tc=values.whole(),
        time_ns=times.whole(),
        sampling_rate_hz=rate_hz,
        resampled_from_hz=own_hz,
        notes=(*recording.notes, note),
        gap_g=np.array(ends[1:-1], dtype=np.int64),
    )


def _ratio(recording: Recording, rate_hz: float) -> Fraction:
    """The new rate divided by the recording's own."""
    own_hz = recording.sampling_rate_hz
    larger = Fraction(max(rate_hz, own_hz) / min(rate_hz, own_hz))
    if larger > _LARGEST_TERM:
        raise DataError(
            f"cannot be resampled from {own_hz:g} to {rate_hz:g} Hz",
            path=recording.path,
            hint="set data.resample_hz to a rate like those of the files",
        )
    larger = larger.limit_denominator(_LARGEST_TERM)
    return larger if rate_hz > own_hz else 1 / larger


def _times(time_n: np.ndarray, place_m: np.ndarray) -> np.ndarray:
    """Times int64 (M,) at fractional rows; after the last row, at the mean step of the segment."""
    elapsed_n, last = time_n - time_n[0], len(time_n) - 1
    pace = elapsed_n[-1] / last if last else 0.0
    elapsed_m = np.interp(place_m, np.arange(len(time_n)), elapsed_n) + np.maximum(place_m - last, 0.0) * pace
    return time_n[0] + np.rint(elapsed_m).astype(np.int64)


def _filtered(values_tc: np.ndarray, ratio: Fraction) -> np.ndarray:
    """float32 (ceil(T · ratio), C)."""
    from scipy.signal import resample_poly  # takes longer to import than most data sets to read

    missing_tc = np.isnan(values_tc)
    filled_tc = _filled(values_tc, missing_tc) if missing_tc.any() else values_tc
    new_tc = resample_poly(filled_tc, ratio.numerator, ratio.denominator, axis=0, padtype="line").astype(np.float32)
    if missing_tc.any():
        source_t = np.arange(len(new_tc)) / float(ratio)
        below_t, above_t = (
            np.minimum(side(source_t).astype(np.int64), len(values_tc) - 1) for side in (np.floor, np.ceil)
        )
        new_tc[missing_tc[below_t] | missing_tc[above_t]] = np.nan
    return new_tc


def _filled(values_tc: np.ndarray, missing_tc: np.ndarray) -> np.ndarray:
    """Missing values by straight lines, so that the filter does not spread them; a channel without any value is 0."""
    filled_tc, row_t = values_tc.copy(), np.arange(len(values_tc))
    for channel, missing_t in enumerate(missing_tc.T):
        known_t = ~missing_t
        known = values_tc[known_t, channel]
        filled_tc[missing_t, channel] = np.interp(row_t[missing_t], row_t[known_t], known) if len(known) else 0.0
    return filled_tc
