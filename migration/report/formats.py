"""Findings and the table of rules as text, JSON, GitHub annotations and SARIF."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from core.secrets.redaction import printable
from core.workspace import json_text
from migration.report.document import FoundItem, NotebookReport, Report, as_json, landfall_version, place_of, where
from migration.report.reference import wrapped
from migration.rules.rule import Rule
from migration.rules.table import RULES

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
# Maximum number of actions per notebook in a summary of several.
_SHOWN_ACTIONS = 5
_MANY = 4


# ------------------------------------------------------------------------------------------------------------ summaries
def summary_text(report: Report) -> str:
    """Outputs and manual changes, one paragraph per notebook, and the totals."""
    done = [notebook for notebook in report.notebooks if notebook.status != "failed"]
    most = _SHOWN_ACTIONS if len(done) > _MANY else None
    lines = [line for notebook in done for line in _paragraph(notebook, most)]
    return "\n".join(map(printable, [*lines, totals(report)])) + "\n"


def totals(report: Report) -> str:
    counts = report.summary
    parts = [f"{counts.migrated} migrated", f"{counts.unchanged} already local"]
    parts += [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"{counts.needing_human} need manual changes"] if counts.needing_human else []
    return f"{_count(counts.notebooks, 'notebook')}: {', '.join(parts)}"


def _paragraph(notebook: NotebookReport, most: int | None) -> Iterator[str]:
    yield f"{notebook.input} → {notebook.output}" if notebook.output else f"{notebook.input} is already local"
    facts = [_count(notebook.changes, "change")]
    facts += [f"made for a {notebook.hardware}"] if notebook.hardware else []
    names = ", ".join(name.rpartition("/")[2] for name in notebook.files)
    facts += [f"also written: {names}"] if names else []
    if notebook.changes or len(facts) > 1:
        yield f"  {', '.join(facts)}"
    if notebook.output and notebook.uses_drive:
        yield "  uses Google Drive: copy what it reads, and folders it writes to, to the parameter `drive_dir`"
        yield from ["    its code names these; leave out what it makes itself:"] * bool(notebook.drive)
        yield from _copies(notebook.drive, most)
    if notebook.output and notebook.content:
        yield "  reads files that no cell seems to make: copy them to the folder of the parameter `work_dir`"
        yield from _copies(notebook.content, most)
    if notebook.output and notebook.uploads:
        yield from wrapped(f"uploads files: {notebook.uploads}", "  ", 4)
    if notebook.output and notebook.secret_names:
        names = ", ".join(name for name in notebook.secret_names if name.isidentifier())
        others = ", ".join(name for name in notebook.secret_names if not name.isidentifier())
        text = f"set {names} in the environment; `userdata.get` also reads `.env` in the work folder" if names else ""
        text += "; " * bool(text and others)
        text += f"put {others} into `.env` in the work folder, because no shell can set it" if others else ""
        yield from wrapped(f"needs secrets: {text}", "  ", 4)
    todo = notebook.needs_human
    for item in todo[:most]:
        yield from wrapped(f"{place_of(item)}: {item.message} ({item.rule})", "  ! ", 4)
        yield from wrapped(item.action, "    → ", 6)
    if most is not None and len(todo) > most:
        yield f"  ! {len(todo) - most} more; --report FILE.json lists them all"


def _copies(files: Mapping[str, str], most: int | None) -> Iterator[str]:
    """The files to copy, at most so many of them."""
    yield from (f"    copy {source} to {here}" for source, here in list(files.items())[:most])
    if most is not None and len(files) > most:
        yield f"    copy {len(files) - most} more; --report FILE.json lists them all"


# ---------------------------------------------------------------------------------------------------------------- check
def check_text(report: Report) -> str:
    """One line per finding, as in linters, and the totals."""
    lines = []
    for notebook in report.notebooks:
        for item in notebook.findings:
            lines.append(f"{notebook.input}: {where(item.cell, item.line)}: {item.rule} {_one_line(item.message)}")
            lines += [f"    → {_one_line(item.action)}"] if item.keeps == "needs-human" and item.action else []
    items = [item for notebook in report.notebooks for item in notebook.findings]
    human = sum(item.keeps == "needs-human" for item in items)
    found_in = sum(bool(notebook.findings) for notebook in report.notebooks)
    if items:
        parts = [f"{len(items) - human} that `landfall migrate` rewrites"] if len(items) > human else []
        parts += [f"{human} that need manual changes"] if human else []
        lines.append(f"{_count(len(items), 'finding')} in {_count(found_in, 'notebook')}: {', '.join(parts)}")
    elif not report.summary.failed:
        lines.append(f"{_count(report.summary.notebooks, 'notebook')}: no Colab-only constructs")
    return "".join(f"{printable(line)}\n" for line in lines)


def github_text(report: Report) -> str:
    """Workflow commands, which GitHub shows as annotations of the notebook's lines."""
    return "".join(f"{line}\n" for notebook in report.notebooks for line in _annotations(notebook))


def _annotations(notebook: NotebookReport) -> Iterator[str]:
    if notebook.error is not None:
        yield f"::error file={_property(notebook.input)},title=landfall migrate::{_data(notebook.error)}"
    for item in notebook.findings:
        title = _property(f"{item.rule} {item.name}")
        where = f"file={_property(notebook.input)},line={item.file_line or 1},title={title}"
        yield f"::warning {where}::{_data(_described(item))}"


def _data(text: str) -> str:
    return printable(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif_text(report: Report) -> str:
    """SARIF 2.1.0; `helpUri` is the rule's anchor, relative to Landfall's repository."""
    index = {rule.id: row for row, rule in enumerate(RULES)}
    driver = {
        "name": "landfall migrate",
        "version": landfall_version(),
        "rules": [_sarif_rule(rule) for rule in RULES],
    }
    failures = [
        {"level": "error", "message": {"text": f"{notebook.input}: {notebook.error}"}}
        for notebook in report.notebooks
        if notebook.error is not None
    ]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not failures, "toolExecutionNotifications": failures}],
        "columnKind": "unicodeCodePoints",
        "results": [result for notebook in report.notebooks for result in _sarif_results(notebook, index)],
    }
    return json_text({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    text = f"Matches {rule.matches}. Writes {rule.writes}."
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.replace("`", "").split()),
        "shortDescription": {"text": rule.name},
        "fullDescription": {"text": text},
        "helpUri": rule.anchor,
        "help": {"text": text, "markdown": f"{text} Behaviour: {rule.keeps.value}."},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"keeps": rule.keeps.value},
    }


def _sarif_results(notebook: NotebookReport, index: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for item in notebook.findings:
        yield {
            "ruleId": item.rule,
            "ruleIndex": index[item.rule],
            "level": "warning",
            "message": {"text": _described(item)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(notebook.input)},
                        "region": {"startLine": item.file_line or 1},
                    }
                }
            ],
            "properties": {"cell": item.cell, "line": item.line, "keeps": item.keeps},
        }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path, safe="/~")


def _described(item: FoundItem) -> str:
    action = f" — {item.action}" if item.action else ""
    return f"{where(item.cell, item.line)}: {item.message}{action}"


FORMATS: dict[str, Callable[[Report], str]] = {
    "json": as_json,
    "github": github_text,
    "sarif": sarif_text,
}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
