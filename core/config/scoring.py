"""How data is scored: thresholds and events.

Part of `core.config.schema`. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from core.config.charts import Charts
from core.config.fields import Count, FractionOrAuto, Ratio, Section

# What scores: the model together with the control charts, or the charts alone, which need no training.
DetectorKind = Literal["model", "charts"]
# The settings of `Scoring` that decide which scores are alarms, and which alarms are events. They can be changed
# without fitting a detector again.
ALARM_SETTINGS = {"threshold", "event_gap", "event_release", "event_min_length", "event_min_seconds"}
# Those that change neither scores nor alarms. A detector is fitted again if one of the others changes.
WITHOUT_EFFECT = {"batch_size", "allow_training_rows"}


class ThresholdSettings(Section):
    false_alarm_rate: Ratio = Field(0.02, description="Maximum share of normal scores that may be alarms.")
    false_events_per_day: float | None = Field(
        1.0,
        gt=0.0,
        description="Maximum number of false events per day of recorded time, if recordings have times. The threshold "
        "satisfies this limit and `false_alarm_rate`. If the calibration data is too short for one event, the "
        "threshold is extrapolated from the highest events in it, or, if they are too few or the data is too short, so "
        "high that no event occurs in it. null: no limit.",
    )
    min_calibration: Count = Field(50, description="Minimum number of calibration scores for a threshold.")


class Scoring(Section):
    batch_size: Count = Field(64, description="Windows per scoring pass.")
    model_weight: FractionOrAuto = Field(
        1.0,
        description="Weight w of the model in a score: 0 uses the control charts only, 1 the model only. With both, "
        "the model raises the score of the charts by its component to the power w / (1 - w), at most by half. `auto` "
        "is 0.5; it is 1 where the charts find less than half of what the model finds of faults that are injected into "
        "the calibration split, and 0 where both together find clearly less than the charts. No label is used. In runs "
        "that are too short for windows of 64 rows it is 0.",
    )
    look_ahead: bool = Field(
        False,
        description="Process sensors: whether the model may also use later rows of a window to predict a row; a score "
        "is then complete one window later. `false` predicts each patch without later rows, as a monitor must; a "
        "score is complete at the end of its patch.",
    )
    operating_context: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Process sensors: whether residuals are compared with those of similar operating contexts. `auto` "
        "does so for a process that repeats itself, such as a recipe.",
    )
    score_switches: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Process sensors: whether channels that have only two values in reference data, such as commands, "
        "have scores of their own; they predict other channels in any case. `auto`: not if they are most of the "
        "channels that change.",
    )
    smoothing_span: Count = Field(
        1,
        description="Span of the causal exponentially weighted means in a score: in rows, for vibration in the "
        "windows of a file; 1 does not smooth.",
    )
    charts: Charts = Field(Charts(), description="Constants of the control charts.")
    threshold: ThresholdSettings = Field(ThresholdSettings(), description="How the alarm threshold is calibrated.")
    allow_training_rows: bool = Field(
        False,
        description="Accept calibration rows that the model was trained on, with a warning; otherwise that is an "
        "error. The errors of the model are smaller on them, so the threshold is too low and there are more false "
        "alarms.",
    )
    event_gap: int = Field(1, ge=0, description="Alarms at most this many scores apart are one event.")
    event_release: float = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="An event continues while the score is above this share of the threshold; 1 ends it with the "
        "alarm.",
    )
    event_min_length: Count = Field(1, description="Minimum number of alarms in an event; shorter events are dropped.")
    event_min_seconds: float = Field(
        0.0,
        ge=0.0,
        description="Minimum duration of an event, from its first score to its last; a single score lasts 0 seconds.",
    )
