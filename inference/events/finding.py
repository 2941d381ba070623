"""Events, one for each disturbance: their statistics, and the sentence that describes each.

The statistics of an event are sums and maxima over its scores, so scores may come in pieces
(`inference.watch.running_events`); a complete table is one piece. Suffixes: s score, c channel, e event, m score of an
event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from core.config.schema import Scoring
from core.data.blocks import release_pages
from core.data.segments import rows_of
from core.numbers import duration_in_words, in_percent, ratio_in_words
from inference.alarms import event_spans
from inference.groups import POOLED
from inference.running import Running

if TYPE_CHECKING:
    from core.data.windows import WindowSet
    from inference.detector.detector import Detector

TOP_CHANNELS = 3
# Columns with the lines of an event in the score table, which no file contains.
LINES = ("first_line", "last_line")
_VALUES_AT_A_TIME = 2**20


# From the first and last line of an event and the mean errors (C,) of its channels to the channels with their shares,
# the largest first.
Attribute = Callable[[int, int, np.ndarray], Mapping[int, float]]


def attribute_of(detector: Detector, windows: WindowSet, row_s: np.ndarray) -> Attribute | None:
    """The function that attributes events to channels; None: by the errors of the channels. row_s: rows of the
    scores."""
    if detector.cross_regression(POOLED) is None:
        return None

    def attribute(first: int, last: int, error_c: np.ndarray) -> dict[int, float]:
        return detector.charts.shares(windows, int(row_s[first]), int(row_s[last]), error_c, TOP_CHANNELS)

    return attribute


def find_events(
    scores: pd.DataFrame,
    settings: Scoring,
    *,
    channel_error_sc: np.ndarray,
    channels: Sequence[str],
    attribute: Attribute | None = None,
) -> pd.DataFrame:
    """Groups the alarms of a score table by `inference.alarms.join_alarms`: one line per event, in order of the table.

    channel_error_sc: (S, C) normalised errors of the channels, one line per line of the table. attribute: attributes
    an event to channels; None: by the errors.
    Columns: those of `event_table`, and event_id (from 1) · label_overlap: share of its scores that are labelled
    anomalous, missing where the recording has no labels · `LINES`: first and last line in the score table.
    """
    first_e, last_e = event_lines(scores, settings)
    columns = (scores[name].to_numpy() for name in ("row", "time", "seconds", "score", "alarm"))
    rows = ScoredRows(*columns, channel_error_sc, np.empty((len(scores), 0)))
    statistics = EventStatistics.of(rows, first_e, last_e)
    top = attribute and list(map(attribute, first_e.tolist(), last_e.tolist(), statistics.mean_error_ec))
    recording_e, threshold_e = scores["recording"].iloc[first_e].astype(str), scores["threshold"].iloc[first_e]
    events = event_table(statistics, recording_e.to_numpy(), threshold_e.to_numpy(), channels, top)
    label_s = scores["label"].to_numpy(dtype=np.float64, na_value=np.nan)
    overlap_e = means(*event_sums(label_s[:, np.newaxis], first_e, last_e))[:, 0]
    events.insert(0, "event_id", np.arange(1, len(events) + 1))
    events.insert(events.columns.get_loc("sentence"), "label_overlap", overlap_e)
    return events.assign(first_line=first_e, last_line=last_e)


def event_lines(scores: pd.DataFrame, settings: Scoring) -> tuple[np.ndarray, np.ndarray]:
    """First and last line of each event in a score table (`inference.alarms.event_spans`): int64 (E,) each."""
    if scores.empty:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    score_s, threshold = scores["score"].to_numpy(), float(scores["threshold"].iloc[0])
    return event_spans(score_s, threshold, scores["segment"].to_numpy(), scores["seconds"].to_numpy(), settings)


def worst_events(events: pd.DataFrame) -> pd.DataFrame:
    """The events in order of severity, the worst first."""
    return events.sort_values("severity", ascending=False, kind="stable")


# ----------------------------------------------------------------------------------------------------------- statistics
@dataclass
class ScoredRows(Running):
    """Scores in order of time. row_s: int64 (S,), row in the recording. time_s: datetime64[ns], NaT without time
    stamps. second_s: seconds from the recording's start. score_s: NaN where unscored. alarm_s: bool. error_sc: (S, C).
    regressor_sf: regressors (S, F), to attribute events to channels; (S, 0) if events are attributed in another way."""

    STATE = ("row_s", "time_s", "second_s", "score_s", "alarm_s", "error_sc", "regressor_sf")

    row_s: np.ndarray
    time_s: np.ndarray
    second_s: np.ndarray
    score_s: np.ndarray
    alarm_s: np.ndarray
    error_sc: np.ndarray
    regressor_sf: np.ndarray

    def __len__(self) -> int:
        return len(self.row_s)

    def __getitem__(self, rows: slice) -> ScoredRows:
        return ScoredRows(*(getattr(self, name)[rows].copy() for name in self.STATE))

    def followed_by(self, later: ScoredRows) -> ScoredRows:
        return ScoredRows(*(np.concatenate([getattr(self, name), getattr(later, name)]) for name in self.STATE))


@dataclass
class EventStatistics(Running):
    """Figures of events. row_e: row of the first score. start_e, end_e, peak_time_e: time of the first, the last and
    the first highest score, datetime64[ns]. start_second_e, end_second_e: seconds from the recording's start. scores_e,
    alarms_e: number of scores and of alarms. error_ec, observed_ec: sums and numbers of the errors of each channel,
    (E, C). moment_eff: `moment_ff` of each event for `inference.charts.attribution`, (E, F, F); (E, 0, 0) without
    regressors."""

    STATE = (
        "row_e", "start_e", "end_e", "peak_time_e", "start_second_e", "end_second_e", "scores_e", "alarms_e",
        "peak_score_e", "error_ec", "observed_ec", "moment_eff",
    )  # fmt: skip

    row_e: np.ndarray
    start_e: np.ndarray
    end_e: np.ndarray
    peak_time_e: np.ndarray
    start_second_e: np.ndarray
    end_second_e: np.ndarray
    scores_e: np.ndarray
    alarms_e: np.ndarray
    peak_score_e: np.ndarray
    error_ec: np.ndarray
    observed_ec: np.ndarray
    moment_eff: np.ndarray

    @classmethod
    def of(cls, rows: ScoredRows, first_e: np.ndarray, last_e: np.ndarray) -> EventStatistics:
        """first_e, last_e: int64 (E,), indices of the first and last score of each event."""
        line_m, event_m = _members(first_e, last_e)
        begin_e = np.flatnonzero(np.diff(event_m, prepend=-1))
        score_m = rows.score_s[line_m]
        peak_score_e = np.fmax.reduceat(score_m, begin_e)
        is_peak_m = score_m == peak_score_e[event_m]
        peak_e = np.minimum.reduceat(np.where(is_peak_m, line_m, len(rows)), begin_e)
        error_ec, observed_ec = event_sums(rows.error_sc, first_e, last_e)
        return cls(
            row_e=rows.row_s[first_e],
            start_e=rows.time_s[first_e],
            end_e=rows.time_s[last_e],
            peak_time_e=rows.time_s[peak_e],
            start_second_e=rows.second_s[first_e],
            end_second_e=rows.second_s[last_e],
            scores_e=last_e - first_e + 1,
            alarms_e=np.add.reduceat(rows.alarm_s[line_m], begin_e, dtype=np.int64),
            peak_score_e=peak_score_e,
            error_ec=error_ec,
            observed_ec=observed_ec,
            moment_eff=_moments(rows.regressor_sf, first_e, last_e),
        )

    def __len__(self) -> int:
        return len(self.row_e)

    @property
    def mean_error_ec(self) -> np.ndarray:
        """Mean errors (E, C); NaN without an error."""
        return means(self.error_ec, self.observed_ec)

    def continued(self, later: EventStatistics) -> EventStatistics:
        """The same events with their later scores."""
        is_higher_e = later.peak_score_e > self.peak_score_e
        return EventStatistics(
            row_e=self.row_e,
            start_e=self.start_e,
            end_e=later.end_e,
            peak_time_e=np.where(is_higher_e, later.peak_time_e, self.peak_time_e),
            start_second_e=self.start_second_e,
            end_second_e=later.end_second_e,
            scores_e=self.scores_e + later.scores_e,
            alarms_e=self.alarms_e + later.alarms_e,
            peak_score_e=np.fmax(self.peak_score_e, later.peak_score_e),
            error_ec=self.error_ec + later.error_ec,
            observed_ec=self.observed_ec + later.observed_ec,
            moment_eff=self.moment_eff + later.moment_eff,
        )


def event_sums(values_sc: np.ndarray, first_e: np.ndarray, last_e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums (float64) and numbers (int64) of the observed values over the scores of each event, (E, C) each.
    first_e, last_e: int64 (E,), indices of the first and last score of each event. Values are read in pieces."""
    line_m, event_m = _members(first_e, last_e)
    num_channels = values_sc.shape[1]
    sum_ec, number_ec = np.zeros((len(first_e), num_channels)), np.zeros((len(first_e), num_channels), dtype=np.int64)
    size = max(1, _VALUES_AT_A_TIME // num_channels)
    for start in range(0, len(line_m), size):
        mine_m = event_m[start : start + size]
        values_mc = values_sc[line_m[start : start + size]].astype(np.float64)
        known_mc = ~np.isnan(values_mc)
        begin_e = np.flatnonzero(np.diff(mine_m, prepend=-1))
        sum_ec[mine_m[begin_e]] += np.add.reduceat(np.where(known_mc, values_mc, 0.0), begin_e, axis=0)
        number_ec[mine_m[begin_e]] += np.add.reduceat(known_mc, begin_e, axis=0, dtype=np.int64)
        release_pages(values_sc)
    return sum_ec, number_ec


def _moments(regressor_sf: np.ndarray, first_e: np.ndarray, last_e: np.ndarray) -> np.ndarray:
    moment_eff = np.zeros((len(first_e), regressor_sf.shape[1], regressor_sf.shape[1]))
    for event, (first, last) in enumerate(zip(first_e, last_e, strict=True)):
        of_event_nf = regressor_sf[first : last + 1]
        moment_eff[event] = of_event_nf.T @ of_event_nf
    return moment_eff


def _members(first_e: np.ndarray, last_e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The index of each score of an event, and the number of its event: int64 (M,) each."""
    event_m = np.repeat(np.arange(len(first_e)), last_e - first_e + 1)
    return rows_of(np.stack([first_e, last_e + 1], axis=1)), event_m


def means(sum_ec: np.ndarray, number_ec: np.ndarray) -> np.ndarray:
    """Means of sums and numbers as `event_sums` returns them, (E, C); NaN where no value was observed."""
    return np.divide(sum_ec, number_ec, out=np.full(sum_ec.shape, np.nan), where=number_ec > 0)


def top_channels(mean_ec: np.ndarray) -> list[dict[int, float]]:
    """For each event, up to `TOP_CHANNELS` channels by mean error over its scores, the largest first, with their
    shares of the error of all channels.

    mean_ec: mean errors (E, C). A channel without an error (NaN) in an event is left out.
    """
    order_ec = np.argsort(np.where(np.isnan(mean_ec), np.inf, -mean_ec), axis=1, kind="stable")[:, :TOP_CHANNELS]
    largest_ec = np.take_along_axis(mean_ec, order_ec, axis=1)
    share_ec = largest_ec / np.maximum(np.nansum(mean_ec, axis=1, keepdims=True), np.finfo(np.float32).tiny)

    def of_event(order_c: np.ndarray, share_c: np.ndarray) -> dict[int, float]:
        known_c = ~np.isnan(share_c)
        return dict(zip(order_c[known_c].tolist(), share_c[known_c].tolist(), strict=True))

    return list(starmap(of_event, zip(order_ec, share_ec, strict=True)))


# ------------------------------------------------------------------------------------------------------------ the table
def event_table(
    statistics: EventStatistics,
    recording_e: Sequence[str],
    threshold_e: np.ndarray,
    channels: Sequence[str],
    top: Sequence[Mapping[int, float]] | None = None,
) -> pd.DataFrame:
    """One line per event. top: the channels of each event with their shares; None: by `top_channels`.

    Columns: recording · start, end, peak_time: time of the first, last and highest score, missing if the file has no
    time stamps · duration_seconds: end - start, so 0 for a single alarm · start_seconds, end_seconds: seconds from the
    recording's start · scores, alarms: their numbers · peak_score · severity: peak_score divided by the threshold ·
    top_channels: up to three that explain most of the errors, the largest first · top_shares: their shares of the
    errors, in percent · channels: both as a list of `name` and `share` · sentence: start, duration, severity and top
    channels as text.
    """
    names_c = [name.replace(";", ",") for name in channels]  # a semicolon separates names
    if top is None:
        top = top_channels(statistics.mean_error_ec)
    shown = [[(names_c[channel], in_percent(share)) for channel, share in shares.items()] for shares in top]
    events = pd.DataFrame(
        {
            "recording": recording_e,
            "start": statistics.start_e,
            "end": statistics.end_e,
            "duration_seconds": statistics.end_second_e - statistics.start_second_e,
            "start_seconds": statistics.start_second_e,
            "end_seconds": statistics.end_second_e,
            "scores": statistics.scores_e,
            "alarms": statistics.alarms_e,
            "peak_score": statistics.peak_score_e,
            "peak_time": statistics.peak_time_e,
            "severity": statistics.peak_score_e / threshold_e,
            "top_channels": ["; ".join(name for name, _ in each) for each in shown],
            "top_shares": ["; ".join(share for _, share in each) for each in shown],
            "channels": [[{"name": channels[c], "share": share} for c, share in shares.items()] for shares in top],
        }
    )
    named = events.drop(columns=["end", "peak_time"])  # times are slow to iterate over
    return events.assign(sentence=list(map(_sentence_of, named.itertuples(index=False), shown)))


def _sentence_of(event: Any, channels: Sequence[tuple[str, str]]) -> str:
    """When, for how long, how far above the threshold, and which channels. event: has the columns as attributes.
    channels: names with their shares as text."""
    begin = (
        f"second {event.start_seconds:.2f} of {event.recording}"
        if pd.isna(event.start)
        else f"{event.start:%Y-%m-%d %H:%M:%S}"
    )
    mostly = ", ".join(f"{name} ({share})" for name, share in channels)
    length = duration_in_words(event.duration_seconds) if event.duration_seconds else "a moment"
    peak = f"{length} from {begin}: peak {ratio_in_words(event.severity)} × threshold"
    return f"{peak}, mostly {mostly}" if mostly else peak
