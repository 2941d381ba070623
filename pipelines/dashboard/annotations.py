"""Annotations by users: a time span of a recording with a label and a comment. One file per stream, next to the scores.

The span is that of an event, or any other span, such as maintenance. It does not refer to the number of an event, so an
annotation stays with its event when the data is scored again. It applies to every event that it overlaps; maintenance
only to events that begin in it or have their middle in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ConfigDict, Field, model_validator

from core.data.annotations import Label
from pipelines.dashboard.documents import Document, Text, Time

LONGEST_COMMENT = 2_000


class NewAnnotation(Document):
    """A note about a time span of a recording, as the page sends it."""

    model_config = ConfigDict(extra="forbid")

    recording: Text = Field(max_length=4_000, description="The recording.")
    start_seconds: float = Field(allow_inf_nan=False, description="Start of the span, from the recording's start.")
    end_seconds: float = Field(allow_inf_nan=False, description="End of the span.")
    acknowledged: bool = Field(False, description="Whether its events are acknowledged.")
    label: Label | None = Field(None, description="Label of the span; null if it was not labelled.")
    comment: Text = Field("", max_length=LONGEST_COMMENT, description="Free text.")

    @model_validator(mode="after")
    def _is_in_order(self) -> NewAnnotation:
        if self.end_seconds < self.start_seconds:
            raise ValueError("the end is before the start")
        return self

    @property
    def is_empty(self) -> bool:
        return not (self.acknowledged or self.label or self.comment)

    @property
    def span(self) -> tuple[str, float, float]:
        return self.recording, self.start_seconds, self.end_seconds

    def applies_to(self, recording: str, start: float | None, end: float | None) -> bool:
        """Whether it is an annotation of an event. Maintenance that follows a fault does not explain the fault."""
        if recording != self.recording or start is None or end is None:
            return False
        if self.label == "maintenance":
            return any(self.start_seconds <= time <= self.end_seconds for time in (start, (start + end) / 2))
        return start <= self.end_seconds and self.start_seconds <= end


class Annotation(NewAnnotation):
    """A stored annotation."""

    model_config = ConfigDict(extra="ignore")

    at: Time | None = Field(None, description="When it was noted.")
    data_root: Text | None = Field(None, description="`data.root` of the scores.")


def of_data(annotations: Sequence[Annotation], data_root: str | None) -> list[Annotation]:
    """The annotations of the data in this `data.root`. Files of the sample data may have the same names."""
    return [each for each in annotations if None in (data_root, each.data_root) or each.data_root == data_root]


def annotation_of(
    annotations: Sequence[Annotation], recording: str, start: float | None, end: float | None
) -> Annotation | None:
    """The annotation of an event: of those that apply to it, the one with the most similar span, and of equals the
    newest."""
    return min(
        (each for each in reversed(annotations) if each.applies_to(recording, start, end)),
        key=lambda each: abs(each.start_seconds - start) + abs(each.end_seconds - end),
        default=None,
    )
