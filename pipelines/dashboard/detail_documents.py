"""Documents that the page loads on demand: scores over time, and the quality of each file.

`series/<stream>.json`, `series/<stream>/<n>.json` and `quality/<stream>.json`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from core.config.schema import Stream
from core.data.quality import Judgement
from core.documents import SCHEMA_VERSION, Document, Figure, Number, Text, figure


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


# ------------------------------------------------------------------------------------------------------------- quality
class ChannelQuality(Document):
    name: Text = Field(description="The channel.")
    missing: Figure = Field(None, validation_alias="missing_ratio", description="Share of its values that are missing.")
    stuck: Figure = Field(
        None, validation_alias="stuck_ratio", description="Longest repetition of one value, as a share of the file."
    )


class FileQuality(Judgement):
    """A report of the quality check; the figures of the channels are moved out of `metrics`."""

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
        figures = {name: found for name, value in metrics.items() if (found := figure(value)) is not None}
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
