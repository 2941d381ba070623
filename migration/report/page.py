"""The report of a migration as one HTML file: no script, nothing loaded, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from core.errors import UsageError
from core.workspace import write_text
from migration.report.document import FoundItem, NotebookReport, Place, Report, as_json, place_of, shown, where

GENERATOR = '<meta name="generator" content="landfall migrate">'
_SEVERITIES = {"breaks": "breaks now", "decision": "needs a decision", "information": "information"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_KEEPS = {
    "exact": "same behaviour",
    "equivalent": "same purpose, by local means",
    "needs-human": "needs manual changes",
}
_STYLE = """
:root { color-scheme: light dark; --paper: #f5f3ee; --surface: #fffefb; --ink: #1c2830; --muted: #55636c;
  --line: #dcd8cd; --good: #1f6848; --warn: #7f5209; --bad: #a1262b; }
@media (prefers-color-scheme: dark) { :root { --paper: #10171b; --surface: #182127; --ink: #e5eaed; --muted: #a2b0b8;
  --line: #2d3a42; --good: #7dcea1; --warn: #e2b968; --bad: #f39490; } }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1, h2, h3 { font-weight: 600; line-height: 1.2; }
h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; margin: .8rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); }
td.number { font-variant-numeric: tabular-nums; text-align: right; }
code { font: .9em ui-monospace, monospace; }
section, article { background: var(--surface); border: 1px solid var(--line); border-radius: 6px; padding: .2rem 1rem;
  margin: 1rem 0; }
pre { overflow-x: auto; margin: .3rem 0; padding: .4rem .6rem; border-left: 3px solid var(--line);
  white-space: pre-wrap; font: .85rem/1.4 ui-monospace, monospace; }
pre.before { border-color: var(--bad); } pre.after { border-color: var(--good); }
.needs-human, .failed { color: var(--bad); } .equivalent { color: var(--warn); } .exact { color: var(--good); }
.muted { color: var(--muted); } .action { font-weight: 600; } summary { cursor: pointer; padding: .3rem 0; }
li { margin: .6rem 0; }
"""


class _Markup(str):
    """Text that is already HTML; all other text is escaped when it becomes part of an element."""


def write_report(report: Report, path: Path, *, force: bool = False) -> Path:
    """Writes the JSON to `path` and the page next to it; returns the page's path. Raises UsageError if another kind of
    file with the name of the page exists, unless `force`.
    """
    html = page_of(path)
    if html.exists() and not force and GENERATOR not in html.read_text(encoding="utf-8", errors="replace")[:1000]:
        raise UsageError(
            f"{shown(html)} is not a report of Landfall", hint="choose another name for the report, or --force"
        )
    write_text(path, as_json(report))
    write_text(html, page(report))
    return html


def page_of(path: Path) -> Path:
    return path.with_suffix(".html")


def page(report: Report) -> str:
    """The complete page."""
    body = _element(
        "body",
        _element("h1", "Migration report"),
        _element("p", _mode_line(report), class_="muted"),
        _overview(report),
        _to_do(report.notebooks),
        _counts(report),
        _element("h2", "Notebooks"),
        *(_notebook(notebook) for notebook in report.notebooks),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n{GENERATOR}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Migration report</title>\n<style>{_STYLE}</style>\n</head>\n{body}\n</html>\n"
    )


def _mode_line(report: Report) -> str:
    did = {"write": "Notebooks were written.", "check": "A check: nothing was written.", "diff": "Nothing was written."}
    return f"landfall migrate {report.landfall}. {did[report.mode]} Cells count from 0, lines from 1."


def _overview(report: Report) -> _Markup:
    counts = report.summary
    rows: list[tuple[str, object]] = [
        ("notebooks", counts.notebooks),
        ("migrated", counts.migrated),
        ("already local", counts.unchanged),
        ("failed", counts.failed),
        ("that need manual changes", counts.needing_human),
        *((f"made for a {name}", count) for name, count in counts.hardware.items()),
    ]
    return _table((), rows)


def _counts(report: Report) -> _Markup:
    kinds = [(count, _KEEPS[kind]) for kind, count in report.summary.keeps.items()]
    names = {item.rule: item.name for notebook in report.notebooks for item in notebook.findings}
    rules = [(count, rule, _prose(names.get(rule, ""))) for rule, count in report.summary.rules.items()]
    return _joined(
        _element("h2", "What was found"),
        _table(("findings", "behaviour"), kinds),
        _table(("findings", "rule", ""), rules),
    )


def _to_do(notebooks: Iterable[NotebookReport]) -> _Markup:
    waiting = [one for one in notebooks if one.needs_human or one.error or one.drive or one.content or one.uploads]
    if not waiting:
        return _joined(_element("h2", "For you to do"), _element("p", "Nothing."))
    return _joined(
        _element("h2", "For you to do"),
        *(
            _element(
                "section",
                _element("h3", notebook.output or notebook.input),
                _element("p", notebook.error, class_="failed") if notebook.error else "",
                _table(
                    ("copy, unless the notebook makes it", "to"), [*notebook.drive.items(), *notebook.content.items()]
                ),
                _element("p", _prose(f"Uploads files: {notebook.uploads}.")) if notebook.uploads else "",
                _element("ol", *(_element("li", _finding(item)) for item in notebook.needs_human))
                if notebook.needs_human
                else "",
            )
            for notebook in waiting
        ),
    )


def _notebook(notebook: NotebookReport) -> _Markup:
    facts = [
        ("written", notebook.output),
        ("also written", ", ".join(notebook.files)),
        ("made for", notebook.hardware),
        ("needs the packages", ", ".join(line for line in notebook.requirements.python if line[:2] != "--")),
        ("needs the secrets", ", ".join(notebook.secret_names)),
        ("needs on the system", ", ".join(notebook.requirements.system)),
        ("sha256 of the input", notebook.sha256),
    ]
    return _element(
        "article",
        _element("h3", notebook.input),
        _element("p", f"{notebook.status}: {notebook.error}" if notebook.error else notebook.status, class_="muted"),
        _table((), [(name, value) for name, value in facts if value]),
        _places("Hazards", notebook.hazards),
        _places("Secrets", notebook.secrets),
        _element(
            "details",
            _element("summary", f"{len(notebook.findings)} findings"),
            _element("ul", *(_element("li", _finding(item)) for item in notebook.findings)),
        )
        if notebook.findings
        else "",
    )


def _places(title: str, places: Iterable[Place]) -> _Markup:
    rows = [(place.rule, where(place.cell, place.line), _prose(place.kind)) for place in places]
    return _joined(_element("h4", title), _table(("rule", "where", "what"), rows)) if rows else _Markup()


def _finding(item: FoundItem) -> _Markup:
    return _joined(
        _element("strong", place_of(item)),
        f" · {item.rule} ",
        _prose(item.name),
        " · ",
        _element("span", _SEVERITIES[item.severity], class_=item.keeps) if item.keeps == "needs-human" else "",
        " · " if item.keeps == "needs-human" else "",
        _element("span", _KEEPS[item.keeps], class_=item.keeps),
        _element("div", _prose(item.message)),
        _element("div", _prose(item.action), class_="action") if item.action else "",
        _element("pre", item.before, class_="before") if item.before else "",
        _element("pre", item.after, class_="after") if item.changed and item.after else "",
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> _Markup:
    body = [_element("tr", *(_cell(value) for value in row)) for row in rows]
    top = [_element("tr", *(_element("th", name) for name in head))] if head else []
    return _element("table", *top, *body) if body else _Markup()


def _cell(value: object) -> _Markup:
    text = value if isinstance(value, str) else str(value)
    return _element("td", text, class_="number" if isinstance(value, int) else "")


def _prose(text: str) -> _Markup:
    """A sentence with code in backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _joined(text)
    return _joined(*(_element("code", part) if at % 2 else part for at, part in enumerate(parts)))


def _element(tag: str, *children: str, class_: str = "") -> _Markup:
    attribute = f' class="{escape(class_)}"' if class_ else ""
    return _Markup(f"<{tag}{attribute}>{_joined(*children)}</{tag}>")


def _joined(*children: str) -> _Markup:
    return _Markup("".join(_escaped(children)))


def _escaped(children: Iterable[str]) -> Iterator[str]:
    for child in children:
        yield child if isinstance(child, _Markup) else escape(child)
