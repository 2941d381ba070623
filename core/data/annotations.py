"""Annotations by users: a time span of a recording with a label and a comment. One file per stream, next to the scores:
`artifacts/scores/<stream>_annotations.json`.

The span is that of an event, or any other span, such as maintenance. It does not refer to the number of an event, so an
annotation stays with its event when the data is scored again. It applies to every event that it overlaps; maintenance
only to events that begin in it or have their middle in it.

Faults and false alarms are labels for evaluation where a recording has no label file; maintenance is left out of the
evaluation. Rows with a fault or maintenance are left out of the splits that define normal operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, TypeAdapter, model_validator

from core.config.schema import AnyConfig, Stream
from core.data.recording import LabelledSpan, Recording
from core.documents import Document, Text, Time, explain
from core.errors import DataError
from core.reading import read_json

Label = Literal["fault", "false alarm", "maintenance"]
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


# ---------------------------------------------------------------------------------------------------------------- files
_STORED = TypeAdapter(list[Annotation])


def annotations_file(root: Path, stream: Stream, artifacts_dir: str = "artifacts") -> Path:
    """A list of annotations, oldest first."""
    return root / artifacts_dir / "scores" / f"{stream}_annotations.json"


def read_annotations(path: Path) -> list[Annotation]:
    """Raises ValueError for a damaged file, OSError for one that cannot be read."""
    return _STORED.validate_python(read_json(path)) if path.is_file() else []


def annotations_text(annotations: Sequence[Annotation]) -> str:
    return _STORED.dump_json(list(annotations), indent=2).decode() + "\n"


# --------------------------------------------------------------------------------------------------------------- labels
def labelled_spans(config: AnyConfig, root: Path) -> dict[str, tuple[LabelledSpan, ...]]:
    """The labelled spans of each recording of this data root, by its file id.

    Raises DataError for a damaged file.
    """
    path = annotations_file(root, config.stream, config.logging.artifacts_dir)
    try:
        annotations = read_annotations(path)
    except (OSError, ValueError) as error:
        hint = "correct or remove the annotations"
        raise DataError(f"cannot be read: {explain(error)}", path=path, hint=hint) from error
    found: dict[str, list[LabelledSpan]] = defaultdict(list)
    for each in of_data(annotations, config.data.root):
        if each.label is not None:
            found[each.recording].append(LabelledSpan(each.start_seconds, each.end_seconds, each.label))
    return {recording: tuple(spans) for recording, spans in found.items()}


def with_annotations(recordings: Sequence[Recording], config: AnyConfig, root: Path) -> list[Recording]:
    spans = labelled_spans(config, root)
    return [replace(each, labelled=spans[each.file_id]) if each.file_id in spans else each for each in recordings]
