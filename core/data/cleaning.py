"""Cleaning: rows in order of time, one row for each time stamp, and the gaps between them."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from core.data.blocks import blocks, gathered
from core.data.medians import median
from core.data.recording import NOT_A_TIME, NS_PER_S, Recording
from core.data.sampling import steps
from core.numbers import counted, duration_in_words

# Seconds that time stamps go back when local time is set back by an hour, less one step of the recording.
_CLOCK_SET_BACK = (1_800, 3_600)


def cleaned(recording: Recording, gap_factor: float, scratch: Path | None = None) -> Recording:
    """The recording in order of time, without rows that have no time stamp or a repeated one, and with its gaps.

    The first of several rows with one time stamp is kept. A gap is a step longer than `gap_factor` median steps.
    Sorting takes 32 bytes of memory for each row.
    """
    if not len(recording):
        return recording
    if not _is_in_order(recording.time_ns):
        recording = _in_order(recording, scratch)
    return dataclasses.replace(recording, gap_g=_gaps(recording.time_ns, gap_factor))


def _is_in_order(time_ns: np.ndarray) -> bool:
    in_order = (bool(np.all(block[1:] > block[:-1])) for block in blocks(time_ns, overlap=1))
    return time_ns[0] != NOT_A_TIME and all(in_order)


def _in_order(recording: Recording, scratch: Path | None) -> Recording:
    time_ns = recording.time_ns
    row_n = np.flatnonzero(time_ns != NOT_A_TIME)
    num_untimed = len(recording) - len(row_n)
    back_n = np.concatenate([step_n[step_n < 0] for step_n in steps(time_ns)])
    backward = bool(len(back_n))
    row_n = row_n[np.argsort(time_ns[row_n], kind="stable")] if backward else row_n
    first_n = np.diff(time_ns[row_n], prepend=NOT_A_TIME) != 0
    num_repeated = int(len(row_n) - first_n.sum())
    row_n = row_n[first_n]
    changes = (
        (num_untimed > 0, f"{counted(num_untimed, 'row')} without a time stamp dropped"),
        (backward, f"rows sorted by time{_as_a_clock_set_back(back_n)}"),
        (num_repeated > 0, f"{counted(num_repeated, 'row')} with a repeated time stamp dropped"),
    )
    return dataclasses.replace(
        recording,
        values_tc=_chosen(recording.values_tc, row_n, scratch),
        time_ns=_chosen(time_ns, row_n, scratch),
        notes=(*recording.notes, *(note for happened, note in changes if happened)),
    )


def is_clock_set_back(seconds: float) -> bool:
    """Whether a time stamp that is so much older than the one before may be of local time in autumn."""
    return _CLOCK_SET_BACK[0] < seconds <= _CLOCK_SET_BACK[1]


def _as_a_clock_set_back(back_n: np.ndarray) -> str:
    """A remark on a single step back of up to an hour."""
    seconds = -float(back_n.min(initial=0)) / NS_PER_S
    if len(back_n) != 1 or not is_clock_set_back(seconds):
        return ""
    return (
        f": one step goes back by {duration_in_words(seconds)}, as local time does in autumn; the rows of two hours "
        "are then mixed or dropped, so write UTC"
    )


def _chosen(array: np.ndarray, row_n: np.ndarray, scratch: Path | None) -> np.ndarray:
    """The rows `row_n` of an array, in this order."""
    if not len(row_n):
        return array[:0]
    return gathered((array[block] for block in blocks(row_n)), scratch)


def _gaps(time_ns: np.ndarray, gap_factor: float) -> np.ndarray:
    """int64 (G,) rows after a step longer than `gap_factor` median steps. `time_ns` is sorted."""
    longest = gap_factor * median(partial(steps, time_ns), max(len(time_ns) - 1, 0))
    found, row = [np.empty(0, dtype=np.int64)], 1
    for block in blocks(time_ns, overlap=1):
        found.append(row + np.flatnonzero(np.diff(block) > longest))
        row += len(block) - 1
    return np.concatenate(found)
