"""The page and its data as one file, which can be opened without a server and sent by mail."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.errors import UsageError
from core.page import PAGE, SINGLE_FILE, has_page
from core.workspace import write_text
from pipelines.dashboard.detail_documents import Series
from pipelines.dashboard.publish import referenced_files
from pipelines.dashboard.run_documents import RunsIndex
from pipelines.dashboard.state_documents import DashboardState, StreamState
from pipelines.problems import Problems, read_model

STATE, INDEX = "dashboard-state.json", "runs/index.json"
# Common limit of mail servers, minus the overhead of their encoding. Documents that do not fit are left out, the least
# important first.
MOST_BYTES = 12 * 2**20
_EVERY_SCORE = re.compile(r"series/\w+/")
# Tags of index.html that load a file.
_LOADED = re.compile(
    r'<link rel="stylesheet" href="(?P<style>[^"]+)">'
    r'|<script defer src="(?P<script>[^"]+)"></script>'
    r'|<script type="module" src="(?P<module>[^"]+)"></script>'
)
# The notice of index.html for a page without a server, with a link to the single file; removed in that file.
_NOT_SERVED = re.compile(r'<div class="card notice">.*?</div>', re.DOTALL)
_IMPORT = re.compile(r'^import\s*\{(?P<names>[^}]*)\}\s*from\s*"(?P<path>\.{1,2}/[^"]+)";', re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?P<kind>(?:const|class|function|async function|function\*) )(?P<name>\w+)", re.MULTILINE
)
_MODULE_WORD = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def write_single_file(root: Path, path: Path | None = None, *, data: Path | None = None) -> Path:
    """Writes the last export as one page; returns its path, by default `artifacts/report.html`. data: folder of the
    export, by default that of the page. Raises UsageError if there is no page, or nothing was exported.
    """
    page, path = root / PAGE, path or root / SINGLE_FILE
    data = data or page / "data"
    if not has_page(root):
        raise UsageError(
            f"{root} contains no dashboard ({PAGE}/index.html)", hint="pass the workspace with --repo-root"
        )
    if not (data / STATE).is_file():
        raise UsageError("nothing was exported yet", hint="run `make export`")
    write_text(path, _Page(page, documents_of(data) | _workspace_from(path.parent, root)).text())
    return path


def _workspace_from(folder: Path, root: Path) -> dict[str, str]:
    """The address of the workspace for links in a page in `folder`; empty if there is none, as on another drive."""
    try:
        return {"workspace": json.dumps(f"{Path(os.path.relpath(root, folder)).as_posix()}/")}
    except ValueError:
        return {}


# ----------------------------------------------------------------------------------------------------------- documents
def documents_of(data: Path) -> dict[str, str]:
    """The text of every exported document that fits, by its path. Raises UsageError for a damaged state."""
    state = read_model(data / STATE, DashboardState, Problems(data))
    if state is None:
        raise UsageError(f"{STATE} is damaged", hint="run `make export`")
    documents: dict[str, str] = {}
    left = MOST_BYTES
    for name in _by_importance(data, state):
        file = data / name
        if name not in documents and file.suffix == ".json" and file.is_file() and file.stat().st_size <= left:
            documents[name] = _text(file)
            left -= file.stat().st_size
    for stream in state.streams.values():
        _remove_missing_references(stream, documents)
    return {STATE: state.model_dump_json(), **documents}


def _by_importance(data: Path, state: DashboardState) -> Iterator[str]:
    """Documents in order of importance: files with single scores are last."""
    yield INDEX
    yield from (f"runs/{stream.run_id}.json" for stream in state.streams.values() if stream.run_id)
    names = list(referenced_files(data, state))
    every_score = [name for name in names if _EVERY_SCORE.match(name)]
    yield from (name for name in names if name not in every_score)
    index = read_model(data / INDEX, RunsIndex, Problems(data))
    yield from (f"runs/{run.run_id}.json" for run in (index.runs if index else ()))
    yield from every_score


def _remove_missing_references(stream: StreamState, documents: dict[str, str]) -> None:
    """Removes references to documents that are not included."""
    for event in stream.detections.events if stream.detections else ():
        event.detail = event.detail if event.detail in documents else None
    stream.quality_file = stream.quality_file if stream.quality_file in documents else None
    if stream.series not in documents:
        stream.series = None
        return
    series = Series.model_validate_json(documents[stream.series])
    for recording in series.recordings:
        recording.details = [part for part in recording.details if part.file in documents]
    documents[stream.series] = series.model_dump_json()


# ---------------------------------------------------------------------------------------------------------------- page
class _Page:
    """The page with embedded style sheets, scripts and documents. Its content security policy lists the digest of each
    script and style, so that nothing else can run, and forbids all connections.
    """

    def __init__(self, folder: Path, documents: Mapping[str, str]):
        self.folder, self.documents = folder, documents
        self.digests: dict[str, list[str]] = {"script": [], "style": []}

    def text(self) -> str:
        page = _NOT_SERVED.sub("", _text(self.folder / "index.html"))
        body = _LOADED.sub(self._in_place, page)
        script, style = (" ".join(f"'sha256-{digest}'" for digest in self.digests[tag]) for tag in ("script", "style"))
        policy = (
            f"default-src 'none'; script-src {script}; style-src {style}; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'"
        )
        return body.replace("<head>", f'<head>\n  <meta http-equiv="Content-Security-Policy" content="{policy}">', 1)

    def _in_place(self, match: re.Match[str]) -> str:
        file = self.folder / match[match.lastgroup]
        match match.lastgroup:
            case "style":
                return self._inline("style", _text(file))
            case "script":
                return self._inline("script", _text(file))
        data = ",".join(f"{json.dumps(name)}:{text}" for name, text in self.documents.items()).replace("<", "\\u003c")
        documents = f'<script type="application/json" id="landfall-data">{{{data}}}</script>'
        module = self._inline("script", bundle(self.folder, match["module"]), ' type="module"')
        return f"{documents}\n  {module}"

    def _inline(self, tag: str, content: str, attributes: str = "") -> str:
        self.digests[tag].append(base64.b64encode(hashlib.sha256(content.encode()).digest()).decode())
        return f"<{tag}{attributes}>{content}</{tag}>"


def bundle(page: Path, entry: str) -> str:
    """A module and all its imports as one module: each becomes a block that stores its exports in a table. Raises
    ValueError for an unsupported form of import or export, and for circular imports.
    """
    blocks: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...] = ()) -> None:
        if name in importers:
            raise ValueError(f"{name} imports itself through {', '.join(importers)}")
        text = _text(page / name)
        for match in _IMPORT.finditer(text):
            imported = _resolved(match["path"], name)
            if imported not in blocks:
                add(imported, (*importers, name))
        blocks[name] = _block(name, _IMPORT.sub(lambda match: _lookup(match, name), text))

    add(entry)
    return "const modules = {};\n" + "".join(blocks.values()).replace("</script", "<\\/script")


def _block(name: str, text: str) -> str:
    exported = ", ".join(match["name"] for match in _EXPORT.finditer(text))
    body = _EXPORT.sub(r"\g<kind>\g<name>", text)
    if left := _MODULE_WORD.search(body):
        raise ValueError(f"{name}: {left[0]!r} cannot be put into a single file")
    return f"{{\n{body}\nmodules[{json.dumps(name)}] = {{ {exported} }};\n}}\n"


def _lookup(match: re.Match[str], importer: str) -> str:
    """An import as a lookup in the table."""
    names = re.sub(r"\s+as\s+", ": ", match["names"])
    return f"const {{{names}}} = modules[{json.dumps(_resolved(match['path'], importer))}];"


def _resolved(specifier: str, importer: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), specifier))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
