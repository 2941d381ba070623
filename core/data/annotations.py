"""Time spans that a user labelled on the dashboard: `artifacts/scores/<stream>_annotations.json`.

Faults and false alarms are labels for evaluation where a recording has no label file; maintenance is left out of the
evaluation. Rows with a fault or maintenance are left out of the splits that define normal operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from core.config.schema import AnyConfig, Stream
from core.data.recording import LabelledSpan, Recording
from core.errors import DataError, first_line
from core.reading import read_json

Label = Literal["fault", "false alarm", "maintenance"]


def annotations_file(root: Path, stream: Stream, artifacts_dir: str = "artifacts") -> Path:
    """A list of annotations, oldest first (`pipelines.dashboard.annotations`)."""
    return root / artifacts_dir / "scores" / f"{stream}_annotations.json"


def labelled_spans(config: AnyConfig, root: Path) -> dict[str, tuple[LabelledSpan, ...]]:
    """The labelled spans of each recording of this data root, by its file id.

    Raises DataError for a damaged file.
    """
    path = annotations_file(root, config.stream, config.logging.artifacts_dir)
    found: dict[str, list[LabelledSpan]] = defaultdict(list)
    try:
        for each in read_json(path) if path.is_file() else []:
            if each.get("label") in get_args(Label) and each.get("data_root") in (None, config.data.root):
                span = LabelledSpan(float(each["start_seconds"]), float(each["end_seconds"]), each["label"])
                found[each["recording"]].append(span)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "correct or remove the annotations"
        raise DataError(f"cannot be read: {first_line(error)}", path=path, hint=hint) from error
    return {recording: tuple(spans) for recording, spans in found.items()}


def with_annotations(recordings: Sequence[Recording], config: AnyConfig, root: Path) -> list[Recording]:
    spans = labelled_spans(config, root)
    return [replace(each, labelled=spans[each.file_id]) if each.file_id in spans else each for each in recordings]
