"""The summary at the end of a run: detected faults, the checklist, paths of the results, and next steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.config.compose import LoadedConfig
from core.config.schema import Stream
from core.numbers import counted
from core.workspace import relative
from inference.run_scoring_example import read_summary
from pipelines.dashboard.lights import is_near_chance
from pipelines.dashboard.single_file import FILE as SINGLE_FILE
from pipelines.dashboard.single_file import has_page
from pipelines.dashboard.state_documents import TITLES
from pipelines.export_training_dashboard_state import DEFAULT_OUT
from pipelines.serve_dashboard import DEFAULT_PORT, HOST
from pipelines.validate_training_outputs import REPORT, ValidationReport, as_text

_MOST_MISSED = 3
_NOTEBOOKS = "artifacts/notebooks"

Summary = dict[str, Any]


def scoring_summaries(configs: Mapping[Stream, LoadedConfig], root: Path) -> dict[Stream, Summary | None]:
    """The summary of the latest scoring of each stream; None if there is none."""
    return {stream: read_summary(loaded.config, root=root) for stream, loaded in configs.items()}


def as_json(summaries: Mapping[Stream, Summary | None], report: ValidationReport) -> dict[str, Any]:
    """The summary as data: the scoring summaries by stream, and the checklist."""
    return {"found": dict(summaries), "checklist": report.to_json()}


def summary_text(
    summaries: Mapping[Stream, Summary | None],
    report: ValidationReport,
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
    by_charts = summary is not None and summary.get("detector", {}).get("kind") == "charts"
    lines = [f"  {TITLES[stream][1]}, {stream}{', control charts alone' if by_charts else ''}"]
    if summary is None:
        lines.append("    nothing was scored")
    elif not summary.get("detection"):
        count = f"{counted(summary['events'], 'event')} in {counted(summary['recordings'], 'recording')}"
        lines.append(f"    {count}; there are no labels to compare them with")
    else:
        lines += [f"    {name:<13} {text}" for name, text in _against_labels(summary)]
    return "\n".join(lines)


def _against_labels(summary: Summary) -> list[tuple[str, str]]:
    detection, missed = summary["detection"], summary.get("missed_faults", [])
    total, found, auroc = (detection.get(name) for name in ("faults_total", "faults_found", "auroc"))
    lines = []
    if total:
        chance = detection["event_recall_by_chance"] * total
        most = detection["event_recall_by_chance_q95"] * total
        lines.append(("faults found", f"{found} of {total} (by chance {chance:.1f}, at most {most:.0f} in 95 %)"))
    if missed:
        rest = f"; and {len(missed) - _MOST_MISSED} more" if len(missed) > _MOST_MISSED else ""
        lines.append(("missed", "; ".join(map(_fault, missed[:_MOST_MISSED])) + rest))
    if detection.get("false_events") is not None:
        lines.append(("false events", _false_events(detection)))
    if auroc is not None:
        near = "  ! near chance: the scores hardly separate faults from normal rows" if is_near_chance(auroc) else ""
        lines.append(("row AUROC", f"{auroc:.3f} (chance is 0.5){near}"))
    if alone := (summary.get("charts_alone") or {}).get("detection"):
        lines.append(("charts alone", _charts_alone(alone)))
    if choice := summary.get("detector", {}).get("weight_choice"):
        lines.append(("weight of the model", f"{choice['weight']:g}: {choice['reason']}"))
    return lines


def _charts_alone(detection: Mapping[str, Any]) -> str:
    """The result of the control charts without the model."""
    faults, auroc = f"{detection['faults_found']} of {detection['faults_total']} faults found", detection["auroc"]
    ranked = "" if auroc is None else f", row AUROC {auroc:.3f}"
    return f"{faults}, {counted(detection['false_events'], 'false event')}{ranked} (without the model)"


def _fault(fault: Mapping[str, Any]) -> str:
    time = fault["start"].replace("T", " ") if fault["start"] else f"second {fault['start_seconds']:.1f}"
    name = f"{fault['fault']}, " if fault["fault"] else ""
    return f"{name}{fault['recording'].rpartition('/')[2]} from {time}"


def _false_events(detection: Mapping[str, Any]) -> str:
    hours, rate = detection["recorded_hours"], detection["false_events_per_hour"]
    time = f"{hours:,.1f} recorded hours" if hours >= 1 else f"{60 * hours:.1f} recorded minutes"
    per_hour = f", {_short(rate)} per hour" if rate is not None else ""
    return f"{detection['false_events']} in {time}{per_hour}"


def _short(value: float) -> str:
    """Two digits or an integer, never an exponent."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}" if value >= 0.001 else "less than 0.001"


# ----------------------------------------------------------------------------------------------------------- and then
def _where_to_look(root: Path, summaries: Mapping[Stream, Summary | None]) -> str:
    runs = {summary["run_id"] for summary in summaries.values() if summary is not None}
    pages = [relative(page, root) for run in sorted(runs - {None}) for page in (root / _NOTEBOOKS / run).glob("*.html")]
    places = [
        ("dashboard", f"`landfall dashboard` opens {DEFAULT_OUT} at http://{HOST}:{DEFAULT_PORT}/"),
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
