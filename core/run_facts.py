"""Facts about a run in addition to its log: the detection figures of its latest scoring, and the user's notes.

<run folder>/detection.json    figures of the latest scoring with the model of the run
<run folder>/notes.json        tags and a note
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import WriteError
from core.reading import json_object_or_none
from core.workspace import write_json

log = logging.getLogger(__name__)

DETECTION, NOTES = "detection.json", "notes.json"
# Figures of a scoring summary and of its comparison with labels; runs are compared by them.
_FIGURES = ("scored_at", "scores", "recordings", "alarms", "events")
_LABELLED = ("faults_total", "faults_found", "false_events", "false_events_per_hour", "auroc", "f1")


def record_detection(folder: Path, summary: Mapping[str, Any]) -> None:
    """Stores the figures of a scoring in the folder of the run of its model, if the folder exists and is writable;
    otherwise logs why not, because the scores themselves are complete."""
    labelled = summary.get("detection") or {}
    figures = {name: summary[name] for name in _FIGURES} | {name: labelled.get(name) for name in _LABELLED}
    data = summary.get("made_of", {}).get("data", {}).get("content of data.splits.test")
    document = {"schema_version": 1, **figures, "threshold": summary["threshold"]["value"], "data": data}
    try:
        if folder.is_dir():
            write_json(folder / DETECTION, document)
    except (OSError, WriteError) as error:
        log.info("the detection figures of %s are not stored: %s", folder.name, error)


def read_detection(folder: Path) -> dict[str, Any] | None:
    return json_object_or_none(folder / DETECTION)


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
    write_json(folder / NOTES, {"schema_version": 1, **changed})
    return changed
