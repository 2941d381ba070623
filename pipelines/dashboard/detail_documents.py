"""Documents that the page loads on demand: scores over time, details of an event, the quality of each file.

`series/<stream>.json`, `series/<stream>/<n>.json`, `events/<stream>/<id>.json` and `quality/<stream>.json`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from core.config.schema import Stream
from core.documents import SCHEMA_VERSION, Document, Number, Text


# -------------------------------------------------------------------------------------------------------------- scores
class SeriesPart(Document):
    file: Text = Field(description="Document with every score of this segment, relative to `dashboard-state.json`.")
    from_s: float = Field(description="Its first score, from the recording's start.")
    to_s: float = Field(description="Its last score.")
    points: int = Field(description="Scores in it.")


class RecordingSeries(Document):
    """Scores of a recording in bins, with minimum and maximum; if there are few scores, each is a bin.

    Seconds count from the recording's start.
    """

    name: Text = Field(description="The recording.")
    start: Text | None = Field(
        None, description="Time stamp at second 0, without a time zone; null without time stamps."
    )
    points: int = Field(description="Number of scores.")
    t: list[float] = Field(description="Middle of each bin.")
    low: list[Number] = Field(description="Lowest score of each bin; null if none could be computed.")
    high: list[Number] = Field(description="Highest score of each bin.")
    labels: list[tuple[float, float]] = Field(
        default_factory=list, description="Time spans that are labelled anomalous."
    )
    events: list[int] = Field(default_factory=list, description="Events found in it.")
    details: list[SeriesPart] = Field(default_factory=list, description="All scores; empty if each bin is one score.")


class Series(Document):
    """`series/<stream>.json`: the latest scoring over time."""

    schema_version: Literal[1] = SCHEMA_VERSION
    stream: Stream = Field(description="The stream.")
    threshold: Number = Field(None, description="Scores above it are alarms.")
    unit: Literal["score"] = Field("score", description="Unit of low, high and threshold.")
    recordings: list[RecordingSeries] = Field(default_factory=list, description="In the order of the scores.")
    signature: Text = Field("", description="Size and time of the source table; if they are equal, nothing changed.")


class SeriesDetail(Document):
    """`series/<stream>/<n>.json`: every score of a segment."""

    schema_version: Literal[1] = SCHEMA_VERSION
    t: list[float] = Field(description="Seconds from the recording's start.")
    score: list[Number] = Field(description="The scores; null if none could be computed.")


# -------------------------------------------------------------------------------------------------------------- events
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


Component = Literal["charts", "model"]


class EventDetail(Document):
    """`events/<stream>/<id>.json`: measured and predicted values around an event."""

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


# ------------------------------------------------------------------------------------------------------------- quality
def _figure(value: Any) -> float | None:
    """A measured value; null if it is not a finite number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


Figure = Annotated[Number, BeforeValidator(_figure)]


class QualityFinding(Document):
    rule: Text = Field(description="The rule that was violated.")
    channel: Text | None = Field(None, description="The channel, for a rule about one.")
    value: Figure = Field(None, description="Measured value.")
    limit: Figure = Field(None, description="The limit.")
    message: Text = Field("", description="The finding in words.")


class ChannelQuality(Document):
    name: Text = Field(description="The channel.")
    missing: Figure = Field(None, validation_alias="missing_ratio", description="Share of its values that are missing.")
    stuck: Figure = Field(
        None, validation_alias="stuck_ratio", description="Longest repetition of one value, as a share of the file."
    )


class FileQuality(Document):
    """A report of the quality check; the figures of the channels are moved out of `metrics`."""

    file_id: Text = Field(description="The data file.")
    decision: Literal["keep", "drop"] = Field(description="Whether the file is used.")
    hard_fails: list[QualityFinding] = Field(default_factory=list, description="Findings that dropped the file.")
    warnings: list[QualityFinding] = Field(default_factory=list, description="Findings that did not drop the file.")
    metrics: dict[Text, Number] = Field(default_factory=dict, description="Metrics of the complete file.")
    channels: list[ChannelQuality] = Field(default_factory=list, description="Its channels.")

    @model_validator(mode="before")
    @classmethod
    def _split_metrics(cls, values: Any) -> Any:
        metrics = values.get("metrics") if isinstance(values, dict) else None
        if not isinstance(metrics, dict):
            return values
        channels = metrics.get("channels")
        listed = channels.items() if isinstance(channels, dict) else ()
        figures = {name: figure for name, value in metrics.items() if (figure := _figure(value)) is not None}
        return {
            "channels": [{"name": name} | each for name, each in listed if isinstance(each, dict)],
            **values,
            "metrics": figures,
        }


class Quality(Document):
    """`quality/<stream>.json`: every quality report of a stream."""

    schema_version: Literal[1] = SCHEMA_VERSION
    stream: Stream = Field(description="The stream.")
    files: list[FileQuality] = Field(default_factory=list, description="The files, sorted by name.")
