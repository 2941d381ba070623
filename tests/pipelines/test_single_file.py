"""The page as one file: its content, omissions and rejected inputs."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import numpy as np
import pytest

from core.errors import EXIT_USAGE, UsageError
from pipelines.dashboard import single_file
from pipelines.dashboard.series import MAX_BINS
from pipelines.dashboard.single_file import bundle, documents_of, write_single_file
from pipelines.export_training_dashboard_state import export_state, main
from tests.dashboard.builders import FIRST, SECOND, build_workspace, write
from tests.pipelines.more_inputs import RECORDING, write_event, write_score_table
from tests.support.small_workspace import install_page


@pytest.fixture
def workspace(tmp_path):
    build_workspace(tmp_path)
    install_page(tmp_path)
    write_score_table(tmp_path, "patchtst", {RECORDING: np.ones(MAX_BINS + 1)})
    write_event(tmp_path, "patchtst", 7)
    export_state(tmp_path)
    return tmp_path


def inlined(text):
    return json.loads(re.search(r'<script type="application/json" id="landfall-data">(.*?)</script>', text, re.S)[1])


def test_all_exported_documents_are_in_the_file(workspace):
    data = workspace / "training_dashboard/data"
    text = write_single_file(workspace).read_text(encoding="utf-8")
    exported = {path.relative_to(data).as_posix(): json.loads(path.read_text()) for path in data.rglob("*.json")}
    assert inlined(text) == exported | {"workspace": "../"}
    assert {"series/patchtst/0.json", "events/patchtst/7.json", f"runs/{FIRST}.json"} <= set(exported)


def test_the_page_opened_from_disk_links_to_the_file(workspace):
    page = workspace / "training_dashboard"
    (link,) = re.findall(r'<a href="([^"]+)"', (page / "index.html").read_text(encoding="utf-8"))
    assert (page / link).resolve() == write_single_file(workspace).resolve()


def test_the_file_loads_nothing_and_runs_only_its_scripts(workspace):
    text = write_single_file(workspace).read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; ")
    pieces = re.findall(r"<(?:script(?: type=\"module\")?|style)>(.*?)</(?:script|style)>", text, re.S)
    digests = {base64.b64encode(hashlib.sha256(piece.encode()).digest()).decode() for piece in pieces}
    assert len(digests) >= 3
    assert set(re.findall(r"'sha256-([^']*)'", policy)) == digests


def test_text_from_data_cannot_end_its_script(workspace):
    assert "</script>" in (workspace / "training_dashboard/data/events/patchtst/7.json").read_text()
    text = write_single_file(workspace).read_text(encoding="utf-8")
    assert inlined(text)["events/patchtst/7.json"]["channels"][0]["name"] == "</script>"


def test_documents_that_do_not_fit_are_left_out_without_links(workspace, monkeypatch):
    data = workspace / "training_dashboard/data"
    series = (data / "series/patchtst.json").stat().st_size
    needed = [data / "runs/index.json", data / f"runs/{SECOND}.json", data / "series/patchtst.json"]
    monkeypatch.setattr(single_file, "MOST_BYTES", sum(path.stat().st_size for path in needed) + 10)
    documents = {name: json.loads(text) for name, text in documents_of(data).items()}
    assert set(documents) == {"dashboard-state.json", *(path.relative_to(data).as_posix() for path in needed)}
    assert documents["series/patchtst.json"]["recordings"][0]["details"] == []
    stream = documents["dashboard-state.json"]["streams"]["patchtst"]
    assert {event["detail"] for event in stream["detections"]["events"]} == {None}
    assert (stream["series"], stream["quality_file"]) == ("series/patchtst.json", None)
    monkeypatch.setattr(single_file, "MOST_BYTES", series - 1)
    assert json.loads(documents_of(data)["dashboard-state.json"])["streams"]["patchtst"]["series"] is None


@pytest.mark.parametrize("name", ["report.html", "deep/er/report.html"])
def test_the_command_writes_to_the_requested_path(workspace, capsys, monkeypatch, name):
    monkeypatch.chdir(workspace)
    assert main(["--repo-root", str(workspace), "--single-file", name]) == 0
    assert json.loads(capsys.readouterr().out)["single_file"] == name
    assert inlined((workspace / name).read_text())["dashboard-state.json"]["runs"]["total"] == 2


def test_a_missing_page_or_export_has_a_hint(tmp_path, capsys):
    assert main(["--repo-root", str(tmp_path), "--single-file", str(tmp_path / "x.html")]) == EXIT_USAGE
    assert "contains no dashboard" in capsys.readouterr().err
    install_page(tmp_path / "fresh")
    with pytest.raises(UsageError, match="make export"):
        write_single_file(tmp_path / "fresh")
    write(tmp_path / "fresh/training_dashboard/data/dashboard-state.json", "{")
    with pytest.raises(UsageError, match="damaged"):
        write_single_file(tmp_path / "fresh")


# ------------------------------------------------------------------------------------------------------------- modules
def test_modules_are_bundled_once_in_dependency_order(tmp_path):
    write(
        tmp_path / "a.mjs",
        'import { b, c as d } from "./sub/b.mjs";\nimport {\n  e,\n} from "./sub/e.mjs";\nb(d, e);\n',
    )
    write(tmp_path / "sub/b.mjs", 'import { e } from "./e.mjs";\nexport function b() {}\nexport const c = e;\n')
    write(tmp_path / "sub/e.mjs", 'const hidden = "</script>";\nexport class e {}\nexport async function f() {}\n')
    text = bundle(tmp_path, "a.mjs")
    order = re.findall(r'^modules\["([^"]+)"\] = \{ (.*) \};$', text, re.M)
    assert order == [("sub/e.mjs", "e, f"), ("sub/b.mjs", "b, c"), ("a.mjs", "")]
    assert 'const { b, c: d } = modules["sub/b.mjs"];' in text
    assert not re.search(r"^(?:import|export)\b|</script", text, re.M)


@pytest.mark.parametrize(
    "line",
    ['import x from "./b.mjs";', "export default 1;", "export { x };", 'export * from "./b.mjs";', "export let x;"],
)
def test_an_unknown_module_form_is_rejected(tmp_path, line):
    write(tmp_path / "a.mjs", f"{line}\n")
    write(tmp_path / "b.mjs", "")
    with pytest.raises(ValueError, match="single file"):
        bundle(tmp_path, "a.mjs")


def test_circular_imports_of_modules_are_rejected(tmp_path):
    write(tmp_path / "a.mjs", 'import { b } from "./b.mjs";\n')
    write(tmp_path / "b.mjs", 'import { a } from "./a.mjs";\n')
    with pytest.raises(ValueError, match="imports itself"):
        bundle(tmp_path, "a.mjs")
