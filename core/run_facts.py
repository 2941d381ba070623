"""Facts about a run in addition to its log: the detection figures of its latest scoring, and the user's notes.

<run folder>/detection.json    figures of the latest scoring with the model of the run
<run folder>/notes.json        tags and a note
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from core.documents import SCHEMA_VERSION, Document, Number, Text, Time
from core.errors import WriteError
from core.reading import json_object_or_none
from core.workspace import write_json

log = logging.getLogger(__name__)

DETECTION, NOTES = "detection.json", "notes.json"


class RunDetection(Document):
    """Figures of the latest scoring with the model of a run; those against labels are null without labels."""

    scored_at: Time | None = Field(None, description="Time of the scoring.")
    scores: int | None = Field(None, description="Number of scores.")
    recordings: int | None = Field(None, description="Number of recordings.")
    events: int | None = Field(None, description="Events found.")
    alarms: int | None = Field(None, description="Scores above the threshold.")
    threshold: Number = Field(None, description="The threshold.")
    faults_total: int | None = Field(None, description="Labelled faults.")
    faults_found: int | None = Field(None, description="Labelled faults found.")
    false_events: int | None = Field(None, description="Events that are matched to no labelled fault.")
    false_events_per_hour: Number = Field(None, description="`false_events` per recorded hour.")
    auroc: Number = Field(None, description="Area under the ROC curve of rows; chance is 0.5.")
    f1: Number = Field(None, description="F1 of the alarms.")
    data: Text | None = Field(
        None, description="Digest of the scored files: only runs with the same one are comparable."
    )


class RunNotes(Document):
    tags: list[Text] = Field(default_factory=list, description="Tags of the run, set by users.")
    note: Text = Field("", description="A note.")


def record_detection(folder: Path, summary: Mapping[str, Any]) -> None:
    """Stores the figures of a scoring in the folder of the run of its model, if the folder exists and is writable;
    otherwise logs why not, because the scores themselves are complete."""
    labelled, threshold = summary.get("detection") or {}, summary["threshold"]["value"]
    data = summary.get("made_of", {}).get("data", {}).get("content of data.splits.test")
    figures = RunDetection.model_validate({**labelled, **summary, "threshold": threshold, "data": data})
    try:
        if folder.is_dir():
            write_json(folder / DETECTION, {"schema_version": SCHEMA_VERSION, **figures.model_dump(mode="json")})
    except (OSError, WriteError) as error:
        log.info("the detection figures of %s are not stored: %s", folder.name, error)


def read_notes(folder: Path) -> dict[str, Any]:
    """`tags`, a list of texts, and `note`; both may be empty."""
    found = json_object_or_none(folder / NOTES) or {}
    tags = found.get("tags")
    return {
        "tags": [str(tag) for tag in tags] if isinstance(tags, list) else [],
        "note": str(found.get("note") or ""),
    }


def note_run(folder: Path, *, add: Sequence[str] = (), remove: Sequence[str] = (), note: str | None = None) -> dict:
    """Changes the tags and, unless it is None, the note of a run; returns both."""
    found = read_notes(folder)
    tags = [tag for tag in dict.fromkeys([*found["tags"], *add]) if tag not in remove]
    changed = {"tags": tags, "note": found["note"] if note is None else note}
    write_json(folder / NOTES, {"schema_version": SCHEMA_VERSION, **changed})
    return changed
