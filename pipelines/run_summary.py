"""The summary at the end of a run: detected faults, the checklist, paths of the results, and next steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.config.compose import LoadedConfig
from core.config.schema import TITLES, Stream
from core.numbers import counted
from core.page import SINGLE_FILE, STATE, has_page
from core.workspace import relative
from inference.score_text import against_labels
from inference.summary import Summary, is_by_charts, read_summary
from pipelines.checklist import REPORT, Checklist
from pipelines.serve_dashboard import DEFAULT_PORT, HOST
from pipelines.validate_training_outputs import as_text

_NOTEBOOKS = "artifacts/notebooks"


def scoring_summaries(configs: Mapping[Stream, LoadedConfig], root: Path) -> dict[Stream, Summary | None]:
    """The summary of the latest scoring of each stream; None if there is none."""
    return {stream: read_summary(loaded.config, root=root) for stream, loaded in configs.items()}


def as_json(summaries: Mapping[Stream, Summary | None], report: Checklist) -> dict[str, Any]:
    """The summary as data: the scoring summaries by stream, and the checklist."""
    return {"found": dict(summaries), "checklist": report.to_json()}


def summary_text(
    summaries: Mapping[Stream, Summary | None],
    report: Checklist,
    root: Path,
    *,
    off: Mapping[Stream, str] = MappingProxyType({}),
) -> str:
    """off: the streams that are not in use, each with the reason."""
    blocks = ["What was found", *(_found(stream, summary) for stream, summary in summaries.items())]
    blocks += [f"  {TITLES[stream][1]}, {stream}\n    not in use: {reason}" for stream, reason in off.items()]
    return "\n".join(["", *blocks, "", as_text(report), "", _where_to_look(root, summaries), "", _next_steps()])


# ---------------------------------------------------------------------------------------------------- what was found
def _found(stream: Stream, summary: Summary | None) -> str:
    lines = [f"  {TITLES[stream][1]}, {stream}{', control charts alone' if is_by_charts(summary) else ''}"]
    if summary is None:
        lines.append("    nothing was scored")
    elif not summary.get("detection"):
        count = f"{counted(summary['events'], 'event')} in {counted(summary['recordings'], 'recording')}"
        lines.append(f"    {count}; there are no labels to compare them with")
    else:
        lines += [f"    {name:<13} {text}" for name, text in against_labels(summary)]
    return "\n".join(lines)


# -------------------------------------------------------------------------------------------------- paths, next steps
def _where_to_look(root: Path, summaries: Mapping[Stream, Summary | None]) -> str:
    runs = {summary["run_id"] for summary in summaries.values() if summary is not None}
    pages = [relative(page, root) for run in sorted(runs - {None}) for page in (root / _NOTEBOOKS / run).glob("*.html")]
    places = [
        ("dashboard", f"`landfall dashboard` opens {STATE} at http://{HOST}:{DEFAULT_PORT}/"),
        *(("executed notebook", page) for page in sorted(pages)),
        ("scores, events, timelines", "artifacts/scores/"),
        ("losses, data quality", "artifacts/loss/ artifacts/dqvl/"),
        ("every check", REPORT),
    ]
    if has_page(root):
        places.insert(1, ("the dashboard as one file", SINGLE_FILE))
    return "\n".join(["Where to look", *(f"  {title:<26} {place}" for title, place in places)])


def _next_steps() -> str:
    return "\n".join(
        [
            "Next, with your own data (in data/fdc/ and data/vib/, named train_… and test_…)",
            "  landfall check       what each split has and needs",
            "  landfall pipeline    all steps again; or landfall train STREAM and landfall score",
        ]
    )
