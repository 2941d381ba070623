import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from core.errors import UsageError
from core.workspace import schema_text
from migration.command import main
from migration.notebook.findings import Finding, Keeps
from migration.report.document import (
    LONGEST_TEXT,
    NotebookReport,
    Report,
    as_json,
    encodable,
    found_items,
    make_report,
    place_of,
    shown,
    summarise,
)
from migration.report.page import page_of, write_report
from migration.rules.table import RULES
from tests.migration.report_samples import sample_report

RULE = RULES[0].id


SCHEMA = json.loads(schema_text(Report))


def test_a_report_is_valid_and_the_schema_is_strict_about_what_it_names():
    validator = jsonschema.Draft202012Validator(SCHEMA)
    document = json.loads(as_json(sample_report(RULE)))
    validator.validate(document)
    validator.validate(json.loads(as_json(make_report([], "check"))))
    for path, wrong in ((("mode",), "guess"), (("notebooks", 0, "status"), "done"), (("schema_version",), 2)):
        broken = json.loads(as_json(sample_report(RULE)))
        target = broken
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = wrong
        assert not validator.is_valid(broken), path


def test_every_field_is_described():
    described = [SCHEMA, *SCHEMA["$defs"].values()]
    missing = [
        f"{part['title']}.{name}"
        for part in described
        for name, value in part["properties"].items()
        if "description" not in value
    ]
    assert missing == []


def test_counts_are_over_all_notebooks():
    summary = summarise([*sample_report(RULE).notebooks, *sample_report(RULE).notebooks])
    assert (summary.notebooks, summary.migrated, summary.unchanged, summary.failed) == (6, 2, 2, 2)
    assert summary.rules == {RULE: 6}
    assert summary.keeps == {"equivalent": 2, "exact": 2, "needs-human": 2}
    assert summary.hardware == {"GPU T4": 2}
    assert summary.needing_human == 2


def test_findings_are_in_cell_order_with_file_lines():
    findings = [
        Finding(RULE, Keeps.NEEDS_HUMAN, 2, 3, "c", action="act"),
        Finding(RULE, Keeps.EXACT, 0, 1, "b", "x", "y", changed=True),
        Finding(RULE, Keeps.EQUIVALENT, None, None, "a"),
        Finding(RULE, Keeps.EXACT, 9, 1, "d"),
    ]
    items = found_items(findings, [[10, 11], [], [20, 21]])
    assert [(item.message, item.file_line) for item in items] == [("a", None), ("b", 10), ("c", 21), ("d", None)]
    assert items[1].name == RULES[0].name
    assert items[1].anchor == f"docs/migration-rules.md#{RULE.lower()}"


def test_a_cell_with_one_very_long_line_is_shortened():
    (item,) = found_items([Finding(RULE, Keeps.EXACT, 0, 1, "m", before="x" * (LONGEST_TEXT + 7))])
    assert item.before == "x" * LONGEST_TEXT + "… (7 more characters)"


def test_a_lone_surrogate_can_be_written(tmp_path):
    items = found_items([Finding(RULE, Keeps.EXACT, 0, 1, "m\ud83d", before="\udcff", after="😀")])
    assert (items[0].message, items[0].before, items[0].after) == ("m?", "?", "😀")
    assert shown(Path("caf\udce9.ipynb")) == "caf?.ipynb"
    assert encodable("plain") == "plain"


def test_paths_contain_no_personal_data(tmp_path, monkeypatch):
    home = tmp_path / "people" / "ada"
    (home / "work").mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.chdir(home / "work")
    assert shown(Path("nb/a.ipynb")) == "nb/a.ipynb"
    assert shown(home / "work" / "a.ipynb") == "a.ipynb"
    assert shown(home / "elsewhere" / "a.ipynb") == "~/elsewhere/a.ipynb"
    assert shown(Path("../a.ipynb")) == "~/a.ipynb"
    assert shown(tmp_path / "a.ipynb") == (tmp_path / "a.ipynb").as_posix()


def test_the_report_and_its_page_are_in_one_folder(tmp_path):
    path = tmp_path / "made" / "report.json"
    html = write_report(sample_report(RULE), path)
    assert html == page_of(path) == tmp_path / "made" / "report.html"
    assert json.loads(path.read_text(encoding="utf-8"))["schema_version"] == 1
    write_report(sample_report(RULE), path)
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_foreign_page_is_not_overwritten(tmp_path):
    (tmp_path / "report.html").write_text("<html>mine</html>", encoding="utf-8")
    with pytest.raises(UsageError, match=r"report\.html"):
        write_report(sample_report(RULE), tmp_path / "report.json")
    assert not (tmp_path / "report.json").exists()
    write_report(sample_report(RULE), tmp_path / "report.json", force=True)
    assert "mine" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_schema_is_printed(capsys):
    assert main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def _found(cell, **changes):
    values = {"rule": "LF545", "keeps": Keeps.NEEDS_HUMAN, "line": 1, "message": f"m{cell}", "action": "install it"}
    return Finding(cell=cell, **(values | changes))


def test_repeated_manual_steps_are_one_item():
    items = found_items([_found(1), _found(1), _found(4), _found(5, action="other"), _found(6, changed=True)])
    assert [(item.cell, item.also) for item in items] == [(1, (4,)), (5, ()), (6, ())]
    assert [item.message for item in items] == ["m1", "m5", "m6"]  # two findings of one line


@pytest.mark.parametrize("rule", ["LF218", "LF822", "LF823", "LF831", "LF842"])
def test_different_changes_paths_and_modules_are_items_of_their_own(rule):
    changes = {"rule": rule, "message": "sudo"}
    items = found_items([_found(1, **changes), _found(1, **changes | {"message": "npm"}), _found(4, **changes)])
    assert [(item.message, item.also) for item in items] == [("sudo", (4,)), ("npm", ())]


def test_an_action_for_several_lines_of_a_cell_has_their_lines():
    found = {"rule": "LF404", "message": "m", "before": "a"}
    items = found_items([_found(1, **found), _found(1, **found, line=3), _found(4, **found)])
    assert [(item.message, item.also, item.also_lines) for item in items] == [("m (2 lines)", (4,), ((1, 3),))]


def test_form_fields_that_stay_for_one_reason_are_one_item():
    stays = {"rule": "LF603", "keeps": Keeps.EQUIVALENT, "message": "m", "changed": True, "before": "a", "after": "b"}
    findings = [_found(1, **stays), _found(1, **{**stays, "line": 2}), _found(4, **stays)]
    items = found_items([*findings, _found(4, **{**stays, "message": "n"})])
    assert [(item.message, item.also, item.also_lines) for item in items] == [
        ("m (3 lines)", (4,), ((1, 2), (4, 1))),
        ("n", (), ()),
    ]
    assert items[0].before == "a\na\na"


def test_the_same_step_after_several_changes_is_one_item():
    changed = {"rule": "LF561", "message": "m", "changed": True}
    findings = [
        _found(1, **changed),
        _found(1, line=2, **changed),
        _found(4, **changed),
        _found(5, action="o", **changed),
    ]
    items = found_items([replace(found, after="y") for found in findings])
    assert [(item.cell, item.also, item.action) for item in items if item.keeps == "needs-human"] == [
        (1, (4,), "install it"),
        (5, (), "o"),
    ]
    assert [item.message for item in items if item.keeps == "equivalent"] == ["m: see cell 1, line 1"] * 2


@pytest.mark.parametrize("rule", ["LF201", "LF823"])
def test_a_failed_import_and_a_deletion_break_the_notebook(rule):
    assert [item.severity for item in found_items([_found(1, rule=rule)])] == ["breaks"]


def test_breaking_items_are_first_and_name_the_output_cell():
    items = found_items([_found(1, rule="LF811", output_cell=3), _found(2, output_cell=2)])
    report = NotebookReport(input="a", status="migrated", findings=items)
    assert [(item.rule, item.severity) for item in report.needs_human] == [("LF545", "breaks"), ("LF811", "decision")]
    assert [place_of(item) for item in report.needs_human] == [
        "cell 2, line 1",
        "cell 3 (in the original cell 1, line 1)",
    ]
