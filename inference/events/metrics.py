"""Compares events with labelled faults, and with events at random times.

A labelled fault is a run of scores labelled anomalous. An event is matched to the fault in which it starts, otherwise
to the fault in which its highest score is; up to `event_gap` + 1 scores before a fault count as inside it. So one long
event that covers many faults counts for at most one of them, and an event whose first alarms are before the fault
counts if its highest score is in the fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.config.schema import Scoring
from core.thinning import equal_runs
from inference.detector.score_table import median_step
from inference.events.finding import event_lines
from inference.metrics import ratio

_SHIFTS, _SEED = 1000, 0
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class LabelledFaults:
    """Faults and events of the labelled recordings, by lines of the score table.

    first_f, last_f: int64 (F,), first and last line of each fault. start_e, peak_e: int64 (E,), lines of the first and
    of the highest score of each event. fault_s: int64 (S,), the fault at this line or shortly after it, -1 for none.
    """

    first_f: np.ndarray
    last_f: np.ndarray
    start_e: np.ndarray
    peak_e: np.ndarray
    fault_s: np.ndarray

    @classmethod
    def of(cls, scores: pd.DataFrame, settings: Scoring) -> LabelledFaults:
        labelled_s = scores["label"].notna().to_numpy()
        anomalous_s = scores["label"].eq(1).fillna(False).to_numpy(dtype=bool)
        recording_s = scores["recording"].cat.codes.to_numpy(dtype=np.int64)
        runs = [(first, stop - 1) for first, stop in equal_runs(2 * recording_s + anomalous_s) if anomalous_s[first]]
        first_f, last_f = np.array(runs, dtype=np.int64).reshape(-1, 2).T
        fault_s = np.full(len(scores), -1, dtype=np.int64)
        for fault, (first, last) in enumerate(zip(first_f, last_f, strict=True)):
            early = np.arange(max(0, first - settings.event_gap - 1), first)
            fault_s[early[(recording_s[early] == recording_s[first]) & (fault_s[early] < 0)]] = fault
            fault_s[first : last + 1] = fault
        start_e, last_e = (line_e[labelled_s[line_e]] for line_e in event_lines(scores, settings))
        score_s = scores["score"].to_numpy()
        peak_e = [first + np.nanargmax(score_s[first : last + 1]) for first, last in zip(start_e, last_e, strict=True)]
        return cls(first_f, last_f, start_e, np.array(peak_e, dtype=np.int64), fault_s)

    def matched(self, start: np.ndarray, peak: np.ndarray) -> np.ndarray:
        """The fault matched to events with these lines of first and highest score, -1 for none. Arrays of any shape."""
        return np.where(self.fault_s[start] >= 0, self.fault_s[start], self.fault_s[peak])

    @property
    def fault_e(self) -> np.ndarray:
        """The fault matched to each event, -1 for none: int64 (E,)."""
        return self.matched(self.start_e, self.peak_e)

    @property
    def found_f(self) -> np.ndarray:
        """Whether each fault has a matched event: bool (F,)."""
        return np.isin(np.arange(len(self.first_f)), self.fault_e)

    @property
    def line_of_event_f(self) -> np.ndarray:
        """First line of the first event matched to each fault, for the faults found: int64 (F',)."""
        fault_e = self.fault_e
        _, first_e = np.unique(fault_e, return_index=True)
        return self.start_e[first_e[fault_e[first_e] >= 0]]

    @property
    def num_false(self) -> int:
        """Events without a matched fault."""
        return int((self.fault_e < 0).sum())


def event_metrics(scores: pd.DataFrame, settings: Scoring) -> dict[str, float]:
    """Counts and shares over the recordings that have labels. A share is NaN if its denominator is 0.

    faults_total, faults_found · false_events: events matched to no fault · recorded_hours: time that the scores cover ·
    false_events_per_hour · event_precision: share of the events that are matched · event_recall: share of the faults
    found · event_recall_by_chance, event_recall_by_chance_q95: mean and 95 % quantile of the recall of the same events
    at random times: all events of a recording are shifted by one random number of scores, circularly, 1000 times ·
    event_delay_seconds: median time from the start of a fault to that of the first event matched to it, over the faults
    found; negative for an event that started earlier.
    """
    faults = LabelledFaults.of(scores, settings)
    total, found, false = len(faults.first_f), int(faults.found_f.sum()), faults.num_false
    hours = _recorded_hours(scores)
    by_chance_k = _found_by_chance(scores, faults) / total if total else np.array([np.nan])
    return {
        "faults_total": total,
        "faults_found": found,
        "false_events": false,
        "recorded_hours": hours,
        "false_events_per_hour": ratio(false, hours),
        "event_precision": ratio(len(faults.start_e) - false, len(faults.start_e)),
        "event_recall": ratio(found, total),
        "event_recall_by_chance": float(by_chance_k.mean()),
        "event_recall_by_chance_q95": float(np.quantile(by_chance_k, 0.95)),
        "event_delay_seconds": _median_delay(scores["seconds"].to_numpy(), faults),
    }


def missed_faults(scores: pd.DataFrame, settings: Scoring) -> pd.DataFrame:
    """The labelled faults without a matched event, one per line: recording · start: time of its first score, missing if
    the file has no time stamps · start_seconds, end_seconds: time of the first and last score in seconds from the
    recording's start."""
    faults = LabelledFaults.of(scores, settings)
    first, last = (scores.iloc[line_f[~faults.found_f]] for line_f in (faults.first_f, faults.last_f))
    return pd.DataFrame(
        {
            "recording": first["recording"].astype(str).to_numpy(),
            "start": first["time"].to_numpy(),
            "start_seconds": first["seconds"].to_numpy(),
            "end_seconds": last["seconds"].to_numpy(),
        }
    )


def _found_by_chance(scores: pd.DataFrame, faults: LabelledFaults) -> np.ndarray:
    """Number of faults found when the events of each recording are shifted: int64 (K,), one count per shift."""
    generator = np.random.default_rng(_SEED)
    found_kf = np.zeros((_SHIFTS, len(faults.first_f) + 1), dtype=bool)  # the last column: events of no fault
    for first, stop in _recordings(scores):
        of_recording_e = (faults.start_e >= first) & (faults.start_e < stop)
        shift_k = generator.integers(0, stop - first, size=_SHIFTS)
        start_ke, peak_ke = (
            first + (line_e[of_recording_e] - first + shift_k[:, None]) % (stop - first)
            for line_e in (faults.start_e, faults.peak_e)
        )
        found_kf[np.arange(_SHIFTS)[:, None], faults.matched(start_ke, peak_ke)] = True
    return found_kf[:, :-1].sum(axis=1)


def _median_delay(second_s: np.ndarray, faults: LabelledFaults) -> float:
    delay_f = second_s[faults.line_of_event_f] - second_s[faults.first_f[faults.found_f]]
    return float(np.median(delay_f)) if len(delay_f) else float("nan")


def _recorded_hours(scores: pd.DataFrame) -> float:
    """Recorded time of the labelled recordings, without gaps: the number of scores times their median time step."""
    second_s, segment_s = scores["seconds"].to_numpy(), scores["segment"].to_numpy()
    hours = 0.0
    for first, stop in _recordings(scores):
        if scores["label"].iloc[first:stop].isna().all():
            continue
        hours += (stop - first) * (median_step(second_s[first:stop], segment_s[first:stop]) or 0.0) / _SECONDS_PER_HOUR
    return hours


def _recordings(scores: pd.DataFrame) -> Iterator[tuple[int, int]]:
    """First line of each recording, and the line after its last."""
    return equal_runs(scores["recording"].cat.codes.to_numpy())
