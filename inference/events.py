"""Groups alarms into events, one for each disturbance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from core.config.schema import Scoring
from core.numbers import duration_in_words, ratio_in_words
from inference import alarms
from inference.top_channels import top_channels


def find_events(
    scores: pd.DataFrame, settings: Scoring, *, channel_error_sc: np.ndarray, channels: Sequence[str]
) -> pd.DataFrame:
    """Groups the alarms of a score table: one line per event, in order of the table.

    An event starts with an alarm and lasts while scores are above `event_release` of the threshold. Within a segment
    without a gap, alarms with at most `event_gap` scores between them join one event. Events of fewer than
    `event_min_length` alarms, or shorter than `event_min_seconds`, are dropped.

    channel_error_sc: (S, C) normalised errors of the channels, one line per line of the table.
    Columns: event_id (from 1) · recording · start, end, peak_time: of the first, last and highest score, missing where
    the file has no time stamps · start_seconds, end_seconds: the same from the recording's start ·
    duration_seconds: end - start, so 0 for a single alarm · scores, alarms: how many it spans · peak_score ·
    severity: peak_score over the threshold · top_channels: up to three, by mean error over the event, the largest
    first · top_shares: their shares of the error of all channels, in words · channels: both as a list of `name` and
    `share` · label_overlap: share of its scores that are labelled anomalous, missing where the recording has no labels
    · sentence: all this in words.
    """
    first_e, last_e = event_spans(scores, settings)
    event_s = _event_of_scores(first_e, last_e, len(scores))
    inside_s = event_s >= 0
    members = scores.reset_index(drop=True)[inside_s].groupby(event_s[inside_s])
    first, last = scores.iloc[first_e], scores.iloc[last_e]
    peak = scores.iloc[members["score"].idxmax().to_numpy(dtype=np.int64)]
    names_c = [name.replace(";", ",") for name in channels]  # a semicolon separates names
    top = top_channels(channel_error_sc, first_e, last_e)
    events = pd.DataFrame(
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
            "severity": peak["score"].to_numpy() / peak["threshold"].to_numpy(),
            "top_channels": ["; ".join(names_c[channel] for channel in shares) for shares in top],
            "top_shares": ["; ".join(f"{share:.0%}" for share in shares.values()) for shares in top],
            "channels": [[{"name": channels[c], "share": share} for c, share in shares.items()] for shares in top],
            "label_overlap": members["label"].mean().to_numpy(dtype=np.float64, na_value=np.nan),
        }
    )
    return events.assign(sentence=[sentence_of(event) for event in events.itertuples(index=False)])


def sentence_of(event: Any) -> str:
    """When, for how long, how far above the threshold, and which channels. event: has the columns of `find_events` as
    attributes."""
    begin = (
        f"second {event.start_seconds:.2f} of {event.recording}"
        if pd.isna(event.start)
        else f"{event.start:%Y-%m-%d %H:%M:%S}"
    )
    channels = [
        f"{name} ({share})"
        for name, share in zip(event.top_channels.split("; "), event.top_shares.split("; "), strict=True)
    ]
    mostly = f", mostly {', '.join(channels)}" if event.top_channels else ""
    length = duration_in_words(event.duration_seconds) if event.duration_seconds else "a moment"
    return f"{length} from {begin}: peak {ratio_in_words(event.severity)} × threshold{mostly}"


def event_spans(scores: pd.DataFrame, settings: Scoring) -> tuple[np.ndarray, np.ndarray]:
    """Lines of the first and last score of each event of a score table (`inference.alarms.event_spans`)."""
    if scores.empty:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    score_s, threshold = scores["score"].to_numpy(), float(scores["threshold"].iloc[0])
    return alarms.event_spans(score_s, threshold, scores["stretch"].to_numpy(), scores["seconds"].to_numpy(), settings)


def _event_of_scores(first_e: np.ndarray, last_e: np.ndarray, num_scores: int) -> np.ndarray:
    """Number of the event of each score, -1 outside of events: int64 (S,)."""
    started_s, ended_s = np.zeros(num_scores, dtype=np.int64), np.zeros(num_scores + 1, dtype=np.int64)
    started_s[first_e] = 1
    ended_s[last_e + 1] = 1
    number_s = np.cumsum(started_s)
    return np.where(number_s > np.cumsum(ended_s[:-1]), number_s - 1, -1)
