"""Faults injected into reference data, to compare detectors without labelled faults.

Injected faults rank detectors much as labelled faults do (Goswami, Challu, Callot, Minorics, Kan: Unsupervised Model
Selection for Time-series Anomaly Detection, ICLR 2023). They are simpler than real faults, so they can only compare
detectors: the share of real faults that are found may differ.

Suffixes: n row, c channel, k segment, s score entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from core.config.schema import Stream
from core.data.segments import rows_of
from core.data.windows import Series, WindowSet

NORMAL, BETWEEN = -1, -2
# Maximum number of values that are copied.
MOST_VALUES = 2**22
# Short reference data is copied several times, with other faults each time, until there is room for this many faults.
_ENOUGH_FAULTS = 100
# Lengths of a fault: in smoothing spans for process sensors, in windows for vibration.
_LENGTHS: Mapping[Stream, tuple[float, float]] = {"patchtst": (1.0, 8.0), "swinmae": (2.0, 8.0)}
# Sizes of a fault, in standard deviations of its channel in the recording: from hardly visible to clear.
_SIZES: Mapping[Stream, tuple[float, float]] = {"patchtst": (0.5, 4.0), "swinmae": (0.1, 1.0)}
# Normal rows before each fault, in lengths of the fault.
_NORMAL = 2.0
# Share of the faults of process sensors that are in a single channel; the others are in a random half of the channels.
_IN_ONE_CHANNEL = 0.5


@dataclass(frozen=True)
class InjectedFaults:
    """Reference windows with faults.

    windows: over copies of the rows, the first of them without faults. fault_s: int64 (S,) number of the fault of each
    score entry; `NORMAL` in the copy without faults; `BETWEEN` for other entries, which may follow a fault closely.
    """

    windows: WindowSet
    fault_s: np.ndarray


def inject(windows: WindowSet, stream: Stream, *, span: int, seed: int) -> InjectedFaults:
    """Copies the segments that have windows, and injects faults into the copies. A short recording of vibration becomes
    one fault as a whole.

    windows: windows of normal reference data. span: smoothing span of the scores. The same seed gives the same faults.
    Raises ValueError without a window.
    """
    unit = span if stream == "patchtst" else windows.window
    copied, num_normal = _copied(
        windows, enough_rows=int(_ENOUGH_FAULTS * (_NORMAL + 1) * unit * np.mean(_LENGTHS[stream]))
    )
    values_nc, segments = copied.series.rows_nc, copied.segments
    fault_n = np.full(len(values_nc), NORMAL, dtype=np.int64)
    rng = np.random.default_rng(seed)
    number = 0
    for (start, stop), recording in zip(segments.rows_k2, segments.recording_k, strict=True):
        if recording < num_normal:
            continue
        fault_n[start:stop] = BETWEEN
        first, last = copied.series.offsets_r[recording : recording + 2]
        std_c = _deviations(values_nc[first:last])
        if not std_c.any():
            continue
        at, is_short = start, stream == "swinmae" and stop - start < (_NORMAL + 1) * unit * _LENGTHS[stream][0]
        while True:
            length = int(unit * np.exp(rng.uniform(*np.log(_LENGTHS[stream]))))
            length = stop - start if is_short else min(length, int((stop - start) / (_NORMAL + 1)))
            at += 0 if is_short else int(_NORMAL * length)
            if length < 2 or at + length > stop:
                break
            channel_c = _channels(std_c > 0, stream, rng)
            kind = _KINDS[stream][rng.integers(len(_KINDS[stream]))]
            size_c = np.exp(rng.uniform(*np.log(_SIZES[stream]))) * std_c[channel_c]
            rows_nc = values_nc[start:stop, channel_c].astype(np.float64)
            values_nc[at : at + length, channel_c] = kind(rows_nc, at - start, length, size_c, rng)
            fault_n[at : at + length] = number
            number, at = number + 1, at + length
    return InjectedFaults(copied, _of_entries(copied, fault_n, stream))


def _copied(windows: WindowSet, *, enough_rows: int) -> tuple[WindowSet, int]:
    """A new series with copies of the segments that have windows, and of the rows before them that these windows read,
    and the number of copied segments. Each segment becomes a recording with the name of its original recording. The
    segments are repeated until there are enough rows, and cut to `MOST_VALUES` values in total."""
    series, segments, starts_w = windows.series, windows.segments, windows.starts_w
    segment_w = segments.at(starts_w + windows.window - 1)
    used = np.unique(segment_w)
    if not len(used):
        raise ValueError("no window to inject faults into")
    most_rows = MOST_VALUES // series.rows_nc.shape[1]
    times = 1 + max(1, min(enough_rows, most_rows) // int(segments.lengths_k[used].sum()))
    longest = max(most_rows // (times * len(used)), 4 * windows.window)
    recordings, starts, segments_k2, base = [], [], [], 0
    for segment in np.tile(used, times):
        start, stop = segments.rows_k2[segment]
        own_w = starts_w[segment_w == segment]
        first, stop = min(start, own_w.min()), min(stop, start + longest)
        own_w = own_w[own_w + windows.window <= stop]
        index = segments.recording_k[segment]
        recording, local = series.recordings[index], slice(*(np.array([first, stop]) - series.offsets_r[index]))
        cut = {"values_tc": series.rows_nc[first:stop], "time_ns": recording.time_ns[local]}
        recordings.append(replace(recording, **cut, gap_g=np.empty(0, dtype=np.int64)))
        starts.append(own_w - first + base)
        segments_k2.append((start - first + base, stop - first + base))
        base += stop - first
    values_nc = np.concatenate([recording.values_tc for recording in recordings])
    own_series = Series.of(recordings, values_nc, series.scaler)
    return WindowSet(own_series, np.concatenate(starts), windows.window, np.array(segments_k2)), len(used)


def _deviations(values_nc: np.ndarray) -> np.ndarray:
    """Standard deviation of each channel, float64 (C,); 0 if it has no value."""
    values_nc = values_nc.astype(np.float64)
    known_nc = ~np.isnan(values_nc)
    count_c = np.maximum(known_nc.sum(axis=0), 1)
    mean_c = np.where(known_nc, values_nc, 0.0).sum(axis=0) / count_c
    return np.sqrt(np.where(known_nc, (values_nc - mean_c) ** 2, 0.0).sum(axis=0) / count_c)


def _channels(varies_c: np.ndarray, stream: Stream, rng: np.random.Generator) -> np.ndarray:
    """Indices of the channels of a fault. A fault of vibration affects all axes of the sensor."""
    varying = np.flatnonzero(varies_c)
    if stream == "swinmae":
        return varying
    count = 1 if rng.random() < _IN_ONE_CHANNEL else max(1, len(varying) // 2)
    return rng.choice(varying, size=count, replace=False)


def _of_entries(windows: WindowSet, fault_n: np.ndarray, stream: Stream) -> np.ndarray:
    """The value of `fault_n` for each score entry, int64 (S,). A window of vibration gets the number of a fault if at
    least half of its rows are faulty."""
    if stream == "patchtst":
        return fault_n[rows_of(windows.segments.rows_k2)]
    faulty_n = np.concatenate([[0], np.cumsum(fault_n >= 0)])
    starts_w, window = windows.starts_w, windows.window
    is_faulty_w = 2 * (faulty_n[starts_w + window] - faulty_n[starts_w]) >= window
    fault_w = np.maximum.reduce([fault_n[starts_w + row] for row in (0, window // 2, window - 1)])
    other_w = np.where(fault_n[starts_w] == NORMAL, NORMAL, BETWEEN)
    return np.where(is_faulty_w, fault_w, other_w)


# ------------------------------------------------------------------------------------------------------ kinds of faults
Kind = Callable[[np.ndarray, int, int, np.ndarray, np.random.Generator], np.ndarray]
"""Returns faulty rows (length, c). Arguments: the rows of a segment (N, c), the first row and the length of the fault,
its size in each channel (c,), and a random number generator."""


def _offset(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rows_nc[at : at + length] + rng.choice([-1.0, 1.0], size=len(size_c)) * size_c


def _drift(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    ramp_n1 = np.linspace(0.0, 2.0, length)[:, np.newaxis]
    return rows_nc[at : at + length] + ramp_n1 * rng.choice([-1.0, 1.0], size=len(size_c)) * size_c


def _noise(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rows_nc[at : at + length] + size_c * rng.normal(size=(length, len(size_c)))


def _stuck(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.repeat(rows_nc[at : at + 1], length, axis=0)


def _decoupled(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows of another time, in these channels only."""
    other = int(rng.integers(len(rows_nc) - length + 1))
    return rows_nc[other : other + length]


def _tone(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    wave_n1 = np.sin(2 * np.pi * (rng.uniform(0.005, 0.45) * np.arange(length)[:, np.newaxis] + rng.random()))
    return rows_nc[at : at + length] + np.sqrt(2.0) * size_c * wave_n1


def _impacts(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Short decaying oscillations at a fixed rate, as a damaged bearing causes."""
    period, carrier = int(rng.integers(20, 400)), rng.uniform(0.05, 0.4)
    since_n = (np.arange(length) + int(rng.integers(period))) % period
    burst_n = np.exp(-since_n / 8.0) * np.sin(2 * np.pi * carrier * since_n)
    return rows_nc[at : at + length] + size_c * (burst_n / max(float(burst_n.std()), 1e-9))[:, np.newaxis]


def _modulation(rows_nc: np.ndarray, at: int, length: int, size_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The amplitude oscillates; the modulation depth is the size divided by the standard deviation, at most 1."""
    rows_nc, rate = rows_nc[at : at + length], rng.uniform(0.002, 0.05)
    swing_n1 = np.sin(2 * np.pi * rate * np.arange(length))[:, np.newaxis]
    centre_c = np.nanmean(rows_nc, axis=0)
    depth_c = np.minimum(size_c / np.maximum(np.nanstd(rows_nc, axis=0), 1e-12), 1.0)
    return centre_c + (rows_nc - centre_c) * (1 + depth_c * swing_n1)


_KINDS: Mapping[Stream, tuple[Kind, ...]] = {
    "patchtst": (_offset, _drift, _noise, _stuck, _decoupled),
    "swinmae": (_tone, _noise, _impacts, _modulation),
}
