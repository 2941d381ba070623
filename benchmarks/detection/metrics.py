"""Metrics of one detector on one unit, and over the units of a set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.detection.detectors import Scored
from benchmarks.detection.sets import BenchmarkSet, Unit
from benchmarks.detection.vus import vus_pr
from core.config.schema import Scoring
from core.errors import DataError
from inference.detector.score_table import sample_of
from inference.events.metrics import event_metrics
from inference.metrics import auroc, average_precision, detection_metrics
from inference.thresholds import calibrate

RATES = (0.001, 0.01, 0.05)
_EVENT_COUNTS = ("faults_total", "faults_found", "false_events", "recorded_hours")
_ADDED_UP = ("train_seconds", "score_seconds", "decisions", "normal_decisions", "unscored", *_EVENT_COUNTS)
_HOURS_PER_DAY = 24.0


def unit_metrics(scored: Scored, unit: Unit, benchmark: BenchmarkSet, settings: Scoring) -> dict[str, Any]:
    """Metrics of one unit; None if undefined. The threshold comes from normal rows only.

    f1, far, mar: at the threshold that scoring would set, over all decisions. far_expected_low, far_expected_high: the
    interval that scoring states for the false alarm rate. auroc, auc_pr, vus_pr: over all decisions, or averaged over
    recordings (`BenchmarkSet.per`). far_other_sessions: false alarm rate of healthy decisions of other sessions.
    oracle_f1: with the best threshold for the labels; it is not a result. If decisions are rows, their alarms form
    events as in scoring (`settings`), which are compared with the labelled faults (`inference.events.metrics`):
    event_recall, the recall of the same events at random times (event_recall_by_chance), false_events_per_day,
    event_delay_seconds. achieved: for each requested rate, the share of normal test decisions that are alarms, with its
    interval. drift_median, drift_90: ratio of the scores of normal test decisions and calibration decisions at the
    median and at the 90 % quantile, which explains a rate that is exceeded. Raises DataError if no scored row is
    labelled.
    """
    normal, test = (
        _decisions(table, unit, benchmark, which) for table, which in ((scored.normal, "normal"), (scored.test, "test"))
    )
    evaluated, others = _by_session(test, unit)
    by_row = benchmark.decision == "row"
    score_n, label_n = evaluated["score"].to_numpy(), evaluated["label"].to_numpy(dtype="int8")
    settings = _of_decisions(settings, by_row=by_row)
    sample = replace(
        sample_of(normal, span=settings.smoothing_span), chart_mean=scored.chart_mean, margin=scored.margin
    )
    calibrated = calibrate(sample, settings)
    threshold = calibrated.value
    at = detection_metrics(score_n, label_n, threshold)
    parts = _parts(evaluated, benchmark)
    found = {
        "f1": at.f1,
        "far": at.false_alarm_rate,
        "mar": at.miss_rate,
        "auroc": _mean(auroc(*part) for part in parts),
        "auc_pr": _mean(average_precision(*part) for part in parts),
        "vus_pr": _mean(vus_pr(*part) for part in parts) if benchmark.stream == "patchtst" and by_row else None,
        "far_other_sessions": float((others["score"] > threshold).mean()) if len(others) else None,
        "oracle_f1": _oracle_f1(score_n, label_n),
        "far_expected_low": calibrated.expected.low,
        "far_expected_high": calibrated.expected.high,
        "threshold": threshold,
        "decisions": len(evaluated),
        "normal_decisions": int(normal["score"].notna().sum()),
        "unscored": int(test["score"].isna().sum()),
        "train_seconds": scored.train_seconds,
        "score_seconds": scored.score_seconds,
        "drift_median": _drift(normal, evaluated, 0.5),
        "drift_90": _drift(normal, evaluated, 0.9),
        "achieved": {str(rate): _achieved(normal, evaluated, rate, settings) for rate in RATES},
        **(_events(_without(scored.test, unit.other_sessions), threshold, settings) if by_row else {}),
    }
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value for name, value in found.items()
    }


def headline(test: pd.DataFrame, unit: Unit, benchmark: BenchmarkSet) -> float | None:
    """The main metric of a set; None if the labels leave it undefined. test: a score table. Raises DataError if no
    scored row is labelled.
    """
    evaluated, _ = _by_session(_decisions(test, unit, benchmark, "test"), unit)
    measure = {"auroc": auroc, "vus_pr": vus_pr}[benchmark.headline]
    return _mean(measure(*part) for part in _parts(evaluated, benchmark))


def over_units(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean of each metric over the units that have it; times and counts are summed, shares of faults and rates of
    false events are computed over all faults and hours."""
    total: dict[str, Any] = {}
    for name in found[0]:
        values = [each[name] for each in found]
        if name == "achieved":
            total[name] = {str(rate): _mean_of_rates([each[str(rate)] for each in values]) for rate in RATES}
        else:
            total[name] = sum(values) if name in _ADDED_UP else _mean(values)
    if total.get("faults_total"):
        by_chance = sum(each["event_recall_by_chance"] * each["faults_total"] for each in found if each["faults_total"])
        total["event_recall"] = total["faults_found"] / total["faults_total"]
        total["event_recall_by_chance"] = by_chance / total["faults_total"]
    return total | (_per_day(total) if "recorded_hours" in total else {})


def _mean_of_rates(rates: Sequence[dict[str, float] | None]) -> dict[str, float] | None:
    known = [each for each in rates if each is not None]
    return {name: float(np.mean([each[name] for each in known])) for name in known[0]} if known else None


def _decisions(table: pd.DataFrame, unit: Unit, benchmark: BenchmarkSet, which: str) -> pd.DataFrame:
    """One row per decision: the rows, or the mean score of each run."""
    if benchmark.decision == "row":
        return table
    if unit.run_n is None:
        raise ValueError(f"{unit.name} names no runs")
    key = unit.run_n[which][table["row"].to_numpy()]
    grouped = table.groupby(key, sort=False)
    return pd.DataFrame(
        {
            "recording": grouped["recording"].first(),
            "segment": grouped["recording"].first().cat.codes,
            "seconds": grouped["seconds"].first(),
            "score": grouped["score"].mean(),
            "label": grouped["label"].max(),
        }
    )


def _by_session(test: pd.DataFrame, unit: Unit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The decisions that are scored and labelled: those of the same session, and those of other sessions."""
    evaluated = test[test["label"].notna() & test["score"].notna()]
    if evaluated.empty:
        raise DataError("no row of its test is both labelled and scored", hint="see its values and NAME.labels.csv.gz")
    if not unit.other_sessions:
        return evaluated, evaluated.iloc[:0]
    elsewhere = evaluated["recording"].astype(str).str.contains(unit.other_sessions)
    return evaluated[~elsewhere], evaluated[elsewhere]


def _parts(evaluated: pd.DataFrame, benchmark: BenchmarkSet) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores and labels of all decisions, or of each recording."""
    tables = (
        [evaluated] if benchmark.per == "unit" else [part for _, part in evaluated.groupby("recording", observed=True)]
    )
    return [(table["score"].to_numpy(), table["label"].to_numpy(dtype="int8")) for table in tables]


def _of_decisions(settings: Scoring, *, by_row: bool) -> Scoring:
    """The settings of scoring; for runs of a process without smoothing and events, because runs are not a time
    series."""
    changed = {"min_calibration": 1} | ({} if by_row else {"false_events_per_day": None})
    smoothing = {} if by_row else {"smoothing_span": 1}
    return settings.model_copy(update={"threshold": settings.threshold.model_copy(update=changed), **smoothing})


def _achieved(normal: pd.DataFrame, evaluated: pd.DataFrame, rate: float, settings: Scoring) -> dict[str, float] | None:
    """The share of normal test decisions that are alarms, and its 95 % interval; None if there is too little
    calibration data."""
    changed = {"false_alarm_rate": rate, "false_events_per_day": None}
    settings = settings.model_copy(update={"threshold": settings.threshold.model_copy(update=changed)})
    calibrated, healthy = (
        calibrate(sample_of(normal, span=settings.smoothing_span), settings),
        evaluated[evaluated["label"] == 0],
    )
    if calibrated.shortfall or healthy.empty:
        return None
    found = sample_of(healthy, span=settings.smoothing_span).false_alarms(calibrated.value, settings)
    return {"rate": found.rate, "low": found.low, "high": found.high}


def _drift(normal: pd.DataFrame, evaluated: pd.DataFrame, level: float) -> float | None:
    healthy = evaluated.loc[evaluated["label"] == 0, "score"]
    usual = float(normal["score"].quantile(level))
    return float(healthy.quantile(level)) / usual if len(healthy) and usual > 0 else None


def _oracle_f1(score_n: np.ndarray, label_n: np.ndarray) -> float:
    order = np.argsort(-score_n, kind="stable")
    hits = np.cumsum(label_n[order])
    return float((2 * hits / (np.arange(1, len(hits) + 1) + label_n.sum())).max()) if label_n.any() else float("nan")


def _events(table: pd.DataFrame, threshold: float, settings: Scoring) -> dict[str, float | None]:
    """Metrics of the events of a score table."""
    alarming = table.assign(threshold=threshold, alarm=table["score"] > threshold)
    found = event_metrics(alarming, settings)
    kept = (*_EVENT_COUNTS, "event_recall", "event_recall_by_chance", "event_delay_seconds")
    return {name: found[name] for name in kept} | _per_day(found)


def _per_day(found: dict[str, Any]) -> dict[str, float | None]:
    hours = found["recorded_hours"]
    return {"false_events_per_day": _HOURS_PER_DAY * found["false_events"] / hours if hours else None}


def _without(table: pd.DataFrame, other_sessions: str) -> pd.DataFrame:
    if not other_sessions:
        return table
    return table[~table["recording"].astype(str).str.contains(other_sessions)].reset_index(drop=True)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and np.isfinite(value)]
    return float(np.mean(known)) if known else None
