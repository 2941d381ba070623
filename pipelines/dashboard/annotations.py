"""Annotations of events by users: acknowledged, a label, a comment. One file per stream, next to the scores.

An annotation belongs to a recording and a time span, not to the number of an event: it stays with the event when the
data is scored again, and applies to every event that it overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from core.config.schema import Stream
from core.data.annotations import annotations_file
from pipelines.dashboard.documents import Document, Text, Time

LONGEST_COMMENT = 2_000
Label = Literal["fault", "false alarm", "maintenance"]


class NewAnnotation(Document):
    """A note about a time span of a recording, as the page sends it."""

    model_config = ConfigDict(extra="forbid")

    recording: Text = Field(max_length=4_000, description="The recording.")
    start_seconds: float = Field(allow_inf_nan=False, description="Start of the span, from the recording's start.")
    end_seconds: float = Field(allow_inf_nan=False, description="End of the span.")
    acknowledged: bool = Field(False, description="Whether a user has acknowledged it.")
    label: Label | None = Field(None, description="Cause of the event; null if it was not labelled.")
    comment: Text = Field("", max_length=LONGEST_COMMENT, description="Free text.")

    @property
    def span(self) -> tuple[str, float, float]:
        return self.recording, self.start_seconds, self.end_seconds

    def overlaps(self, recording: str, start: float | None, end: float | None) -> bool:
        known = recording == self.recording and start is not None and end is not None
        return known and start <= self.end_seconds and self.start_seconds <= end


class Annotation(NewAnnotation):
    """A stored annotation."""

    model_config = ConfigDict(extra="ignore")

    at: Time | None = Field(None, description="When it was noted.")
    data_root: Text | None = Field(None, description="`data.root` of the scores: the sample data has the same names.")


def file_of(root: Path, stream: Stream) -> Path:
    """A list of annotations, oldest first."""
    return annotations_file(root, stream)


def latest_of(
    annotations: Sequence[Annotation], recording: str, start: float | None, end: float | None
) -> Annotation | None:
    """The newest annotation whose span overlaps an event."""
    return next((each for each in reversed(annotations) if each.overlaps(recording, start, end)), None)
