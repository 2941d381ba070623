"""From alarms to events: what a person is told about, once for each disturbance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from core.config.schema import Scoring

TOP_CHANNELS = 3


def find_events(
    scores: pd.DataFrame, settings: Scoring, *, channel_error_sc: np.ndarray, channels: Sequence[str]
) -> pd.DataFrame:
    """Groups the alarms of a score table: one line per event, in order of the table.

    Alarms of a recording join where at most `event_gap` scores without an alarm lie between them; events of fewer than
    `event_min_length` alarms are dropped.

    channel_error_sc: (S, C) normalised errors of the channels, one line per line of the table.
    Columns: event_id (from 1) · recording · start, end, peak_time: of the first and last alarm and the highest score,
    missing where the file has no time stamps · start_seconds, end_seconds: the same from the recording's start ·
    duration_seconds: end - start, so 0 for a single alarm · scores, alarms: how many it spans · peak_score ·
    top_channels: up to three, by mean error over the event, the largest first · label_overlap: share of its scores that
    are labelled anomalous, missing where nobody labelled the recording.
    """
    first_e, last_e = _spans(scores, settings)
    event_s = _event_of_scores(first_e, last_e, len(scores))
    inside_s = event_s >= 0
    members = scores.reset_index(drop=True)[inside_s].groupby(event_s[inside_s])
    first, last = scores.iloc[first_e], scores.iloc[last_e]
    peak = scores.iloc[members["score"].idxmax().to_numpy(dtype=np.int64)]
    return pd.DataFrame(
        {
            "event_id": np.arange(1, len(first_e) + 1),
            "recording": first["recording"].astype(str).to_numpy(),
            "start": first["time"].to_numpy(),
            "end": last["time"].to_numpy(),
            "duration_seconds": last["seconds"].to_numpy() - first["seconds"].to_numpy(),
            "start_seconds": first["seconds"].to_numpy(),
            "end_seconds": last["seconds"].to_numpy(),
            "scores": last_e - first_e + 1,
            "alarms": members["alarm"].sum().to_numpy(dtype=np.int64),
            "peak_score": peak["score"].to_numpy(),
            "peak_time": peak["time"].to_numpy(),
            "top_channels": _top_channels(channel_error_sc[inside_s], event_s[inside_s], channels),
            "label_overlap": members["label"].mean().to_numpy(dtype=np.float64, na_value=np.nan),
        }
    )


def _spans(scores: pd.DataFrame, settings: Scoring) -> tuple[np.ndarray, np.ndarray]:
    """Lines of the first and last alarm of each event, int64 (E,) each."""
    line_a = np.flatnonzero(scores["alarm"])
    recording_a = pd.factorize(scores["recording"])[0][line_a]
    begins_a = np.ones(len(line_a), dtype=bool)
    begins_a[1:] = (np.diff(line_a) > settings.event_gap + 1) | (np.diff(recording_a) != 0)
    ends_a = np.roll(begins_a, -1)
    alarms_e = np.diff(np.flatnonzero(np.append(begins_a, True)))
    long_enough_e = alarms_e >= settings.event_min_length
    return line_a[begins_a][long_enough_e], line_a[ends_a][long_enough_e]


def _event_of_scores(first_e: np.ndarray, last_e: np.ndarray, num_scores: int) -> np.ndarray:
    """Number of the event each score lies in, -1 outside of all: int64 (S,)."""
    begun_s, ended_s = np.zeros(num_scores, dtype=np.int64), np.zeros(num_scores + 1, dtype=np.int64)
    begun_s[first_e] = 1
    ended_s[last_e + 1] = 1
    number_s = np.cumsum(begun_s)
    return np.where(number_s > np.cumsum(ended_s[:-1]), number_s - 1, -1)


def _top_channels(error_mc: np.ndarray, event_m: np.ndarray, channels: Sequence[str]) -> list[str]:
    mean_ec = pd.DataFrame(error_mc).groupby(event_m).mean().to_numpy()
    order_ec = np.argsort(np.where(np.isnan(mean_ec), np.inf, -mean_ec), axis=1, kind="stable")[:, :TOP_CHANNELS]
    known_ec = ~np.isnan(np.take_along_axis(mean_ec, order_ec, axis=1))
    names_ec = np.asarray(channels, dtype=object)[order_ec]
    return ["; ".join(names_c[known_c]) for names_c, known_c in zip(names_ec, known_ec, strict=True)]
