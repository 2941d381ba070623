"""Documents about events: the list of a scoring, events at other thresholds, and the details of an event, which are
`<id>.json` in the scores and `events/<stream>/<id>.json` on the dashboard."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field

from core.documents import SCHEMA_VERSION, Document, Number, Text


class WhatIf(Document):
    threshold: float = Field(description="Another threshold.")
    events: int = Field(description="Number of events in the scored data.")
    per_day: Number = Field(None, description="False events per day on the calibration scores.")
    per_day_high: Number = Field(None, description="Upper end of the 95 % interval of their mean.")


class ChannelShare(Document):
    name: Text = Field(description="The channel.")
    share: float = Field(ge=0.0, description="Its share of the error of all channels.")


class FoundEvent(Document):
    """Times are those of the recording, without a time zone."""

    # The column of the table is `event_id`.
    id: int = Field(validation_alias=AliasChoices("id", "event_id"), description="Number of the event in the scoring.")
    recording: Text = Field(description="The recording of the event.")
    start: Text | None = Field(None, description="First score, as ISO 8601 without a zone; null without time stamps.")
    end: Text | None = Field(None, description="Last score, likewise.")
    start_seconds: Number = Field(None, description="First score, from the recording's start.")
    end_seconds: Number = Field(None, description="Last score, likewise.")
    duration_seconds: Number = Field(None, description="From the first to the last score.")
    severity: float = Field(allow_inf_nan=False, description="Highest score, divided by the threshold.")
    channels: list[ChannelShare] = Field(
        default_factory=list, description="Channels with the largest share, the largest first."
    )
    sentence: Text = Field("", description="Description of the event as text.")


class EventChannel(Document):
    """A channel around an event, downsampled so that extremes are kept."""

    name: Text = Field(description="The channel.")
    share: Number = Field(None, description="Its share of the error of all channels over the event.")
    t: list[float] = Field(description="Seconds from the recording's start.")
    seen: list[Number] = Field(description="Measured values, in the unit of the channel.")
    expected: list[Number] = Field(
        default_factory=list, description="Values that `expected_by` predicts; empty for a waveform."
    )
    error: list[Number] = Field(
        default_factory=list, description="Error of the channel, where 1 is the baseline; else empty."
    )


class Scalogram(Document):
    """Levels in dB: a row per frequency, a column per time. 0 dB is an amplitude of one standard deviation of the axis
    in the training data."""

    axis: Text = Field(description="Axis of the sensor.")
    frequencies_hz: list[float] = Field(description="Frequencies of the rows, ascending.")
    t: list[float] = Field(description="Times of the columns, in seconds from the recording's start.")
    seen: list[list[Number]] = Field(description="Measured levels.")
    expected: list[list[Number]] = Field(description="Prediction of the model with these levels masked.")
    error: list[list[Number]] = Field(description="Measured minus predicted.")


class EnvelopeSpectrum(Document):
    """Amplitudes of the squared envelope of a carrier band, as a share of its mean."""

    axis: Text = Field(description="Axis of the sensor.")
    band_hz: tuple[float, float] = Field(description="Carrier band: that with the clearest line.")
    frequencies_hz: list[float] = Field(description="Frequencies of the modulation, ascending.")
    event: list[Number] = Field(description="During the event.")
    neighbours: list[Number] = Field(
        default_factory=list, description="Median of neighbours without an alarm in the same recording; else empty."
    )


class DefectFrequency(Document):
    name: Text = Field(description="Component of the bearing.")
    hz: float = Field(description="Frequency of a defect of this component.")


class ScoreCurve(Document):
    """Score and threshold over the time span of the curves of an event."""

    t: list[float] = Field(description="Seconds from the recording's start.")
    score: list[Number] = Field(description="Scores; null if none could be computed.")
    threshold: Number = Field(None, description="Scores above it are alarms.")


# The two components of a score.
Component = Literal["charts", "model"]


class EventDetail(Document):
    """Measured and predicted values around an event."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: int = Field(description="Number of the event in the scoring.")
    recording: Text = Field(description="The recording of the event.")
    start_s: float = Field(description="First score of the event, from the recording's start.")
    end_s: float = Field(description="Last score of the event.")
    component: Component | None = Field(
        None, description="Component of the score that raised the event: charts or model."
    )
    component_share: Number = Field(None, description="Share of this component in the scores of the event.")
    expected_by: Component | None = Field(None, description="Component that predicted `expected`.")
    score: ScoreCurve | None = Field(None, description="Score and threshold over the same time.")
    channels: list[EventChannel] = Field(
        default_factory=list, description="Channels with the largest share, the largest first."
    )
    window_s: tuple[float, float] | None = Field(
        None, description="For vibration: time span of the window with the highest score."
    )
    scalograms: list[Scalogram] = Field(default_factory=list, description="For vibration: one per axis, worst first.")
    envelopes: list[EnvelopeSpectrum] = Field(
        default_factory=list, description="For vibration: at most one per axis, worst first."
    )
    bearing: list[DefectFrequency] = Field(
        default_factory=list, description="Frequencies of the bearing; empty if its geometry is not configured."
    )
