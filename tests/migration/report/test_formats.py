import json
import re
from urllib.parse import unquote

import pytest

from migration.notebook.findings import Finding, Keeps
from migration.python.source import CellSource
from migration.report.document import NotebookReport, make_report
from migration.report.drive import drive_files
from migration.report.formats import check_text, github_text, sarif_text, summary_text
from migration.report.page import page
from migration.report.reference import rules_json, rules_text
from migration.rules.rule import Rule
from migration.rules.table import RULES
from tests.migration.report_samples import HOSTILE, item, sample_report

RULE = RULES[0].id
ROWS = [
    Rule("LF201", "`google.colab` import", "an import", "nothing", Keeps.EXACT),
    Rule("LF801", "a secret", "a token | key " + "long " * 40, "", Keeps.NEEDS_HUMAN),
]


def test_the_summary_lists_outputs_and_manual_steps():
    text = summary_text(sample_report(RULE, hostile="a thing"))
    assert text.splitlines() == [
        "nb, ü:1.ipynb → out/nb.ipynb",
        "  2 changes, made for a GPU T4, also written: nb.requirements.txt",
        f"  ! cell 3, line 2: a thing ({RULE})",
        "    → a thing",
        "plain.ipynb is already local",
        "3 notebooks: 1 migrated, 1 already local, 1 failed, 1 need manual changes",
    ]


def test_the_summary_of_many_notebooks_is_short():
    notebooks = [
        NotebookReport(
            f"{name}.ipynb", "migrated", f"local_{name}.ipynb", keeps={"needs-human": 7}, findings=(item(),) * 7
        )
        for name in "abcde"
    ]
    text = summary_text(make_report(notebooks, "write"))
    assert text.count("! cell 3, line 2") == 25
    assert text.count("! 2 more; --report FILE.json lists them all") == 5
    assert summary_text(make_report(notebooks[:2], "write")).count("! cell 3, line 2") == 14


def test_the_summary_says_where_files_of_the_drive_belong():
    files = {"MyDrive/x/a.csv": "drive/x/a.csv"}
    drive = NotebookReport("a.ipynb", "migrated", "local_a.ipynb", changes=1, uses_drive=True, drive=files)
    plain = NotebookReport("b.ipynb", "migrated", "local_b.ipynb", changes=1)
    lines = summary_text(make_report([drive, plain], "write")).splitlines()
    assert [number for number, line in enumerate(lines) if "drive_dir" in line] == [2]
    assert "leave out what it makes itself" in lines[3]
    assert lines[4] == "    copy MyDrive/x/a.csv to drive/x/a.csv"
    written = NotebookReport("a.ipynb", "migrated", "local_a.ipynb", changes=1, uses_drive=True)
    assert "copy what it reads" in summary_text(make_report([written], "write"))


def test_the_summary_says_where_uploaded_files_belong():
    notebook = NotebookReport("a.ipynb", "migrated", "local_a.ipynb", changes=1, rules={"LF210": 1})
    assert "  uploads files: put them into the folder `uploads`" in summary_text(make_report([notebook], "write"))
    assert "Uploads files" in page(make_report([notebook], "write"))


def test_the_summary_says_where_files_of_content_belong():
    files = {f"/content/{name}.csv": f"{name}.csv" for name in "abcdefghijklmnopqrstuvwxyz"}
    notebooks = [
        NotebookReport(f"{name}.ipynb", "migrated", f"local_{name}.ipynb", changes=1, content=files) for name in "abcde"
    ]
    lines = summary_text(make_report(notebooks[:1], "write")).splitlines()
    at = next(number for number, line in enumerate(lines) if "`work_dir`" in line)
    assert lines[at + 1] == "    copy /content/a.csv to a.csv"
    assert sum(line.startswith("    copy /content/") for line in lines) == len(files)
    text = summary_text(make_report(notebooks, "write"))
    assert text.count("more; --report FILE.json lists them all") == 5


@pytest.mark.parametrize(
    "line, paths",
    [
        (r"!unzip -q /content/drive/My\ Drive/a\ b/x.zip -d /content", ["MyDrive/a b/x.zip"]),
        ('!cp "/content/drive/My Drive/a b.csv" .', ["MyDrive/a b.csv"]),
        ("a('/content/drive/MyDrive/q/r.csv'); b('/content/gdrive/MyDrive/z')", ["MyDrive/q/r.csv", "MyDrive/z"]),
        ("f'/content/drive/MyDrive/runs/{name}/x.csv'", ["MyDrive/runs"]),
        ("'/content/drive/MyDrive/' + name", []),
        ("'/content/drive/Shareddrives/team/b.csv'", ["Shareddrives/team/b.csv"]),
        ("open('/content/content/drive/MyDrive/a/info.json')", []),
        ("open(f'{folder}/content/drive/MyDrive/a/info.json')", []),
    ],
)
def test_files_of_the_drive_are_named_as_they_are_there(line, paths):
    assert list(drive_files([Finding("LF402", Keeps.EXACT, 0, 1, "", before=line)], [CellSource(line)])) == paths


def test_files_that_are_only_written_are_not_copied():
    lines = [
        "a = pd.read_csv('/content/drive/MyDrive/a.csv')",
        "a.to_csv('/content/drive/MyDrive/b.csv')",
        "a.to_csv('/content/drive/MyDrive/a.csv')",
    ]
    findings = [Finding("LF402", Keeps.EXACT, 0, row, "", before=line) for row, line in enumerate(lines, 1)]
    assert drive_files(findings, [CellSource("\n".join(lines))]) == ("MyDrive/a.csv",)


def test_the_summary_names_the_secrets_once():
    notebook = NotebookReport("a.ipynb", "migrated", "local_a.ipynb", changes=1, secret_names=("A_KEY", "B_KEY"))
    text = summary_text(make_report([notebook], "write"))
    assert text.count("A_KEY, B_KEY") == text.count("`.env`") == 1


def test_a_secret_that_no_shell_can_set_belongs_into_the_file():
    notebook = NotebookReport("a.ipynb", "migrated", "local_a.ipynb", secret_names=("A_KEY", "api-key"))
    text = " ".join(summary_text(make_report([notebook], "write")).split())
    assert "set A_KEY in the environment" in text
    assert "put api-key into `.env`" in text


def test_check_has_a_line_for_each_finding():
    text = check_text(sample_report(RULE, mode="check", hostile="a\nthing"))
    assert text.splitlines() == [
        f"nb, ü:1.ipynb: cell 3, line 2: {RULE} a thing",
        "    → a thing",
        f"nb, ü:1.ipynb: cell 3: {RULE} a cell is no Python",
        f"nb, ü:1.ipynb: notebook: {RULE} a cell is no Python",
        "3 findings in 1 notebook: 2 that `landfall migrate` rewrites, 1 that need manual changes",
    ]


def test_check_reports_local_notebooks_unless_one_failed():
    clean = NotebookReport("a.ipynb", "unchanged")
    assert check_text(make_report([clean], "check")) == "1 notebook: no Colab-only constructs\n"
    failed = NotebookReport("b.ipynb", "failed", error="no notebook")
    assert check_text(make_report([clean, failed], "check")) == ""


def test_each_finding_is_one_github_annotation():
    lines = github_text(sample_report(RULE)).splitlines()
    assert len(lines) == 4
    command = re.compile(r"::(warning|error) file=([^,:]*)(?:,line=(\d+))?,title=([^,:]*)::(.*)")
    found = [command.fullmatch(line).groups() for line in lines]
    assert [(kind, line) for kind, _, line, _, _ in found] == [
        ("warning", "41"),
        ("warning", "1"),
        ("warning", "1"),
        ("error", None),
    ]
    assert unquote(found[0][1]) == "nb, ü:1.ipynb"
    assert unquote(found[0][3]) == f"{RULE} name, of: {HOSTILE}"
    assert unquote(found[0][4]) == f"cell 3, line 2: {HOSTILE} — {HOSTILE}"


def test_sarif_output_matches_its_schema():
    document = json.loads(sarif_text(sample_report(RULE)))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    rules = driver["rules"]
    assert driver["name"] == "landfall migrate"
    assert [rule["id"] for rule in rules] == [rule.id for rule in RULES]
    for rule in rules:
        assert rule["helpUri"] == f"docs/migration-rules.md#{rule['id'].lower()}"
        assert rule["shortDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] == "warning"
    assert len(run["results"]) == 3
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == RULE
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "nb%2C%20%C3%BC%3A1.ipynb"
        assert place["region"]["startLine"] >= 1
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 41
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "bad.ipynb" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_the_table_of_rules_as_text_and_as_json():
    text = rules_text(ROWS)
    assert text.startswith(
        "LF201  exact        `google.colab` import\n       finds   an import\n       writes  nothing\n"
    )
    assert "LF801  needs-human  a secret\n" in text
    assert max(map(len, text.splitlines())) <= 100
    assert json.loads(rules_json(ROWS))[0] == {
        "id": "LF201",
        "name": "`google.colab` import",
        "matches": "an import",
        "writes": "nothing",
        "keeps": "exact",
        "anchor": "docs/migration-rules.md#lf201",
    }
