import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import nbformat
import pytest
import yaml
from pre_commit.clientlib import load_manifest

import landfall
from core.workspace import schema_text
from migration.command import build_parser, main
from migration.report.document import Report
from migration.rules.table import RULES
from tests.migration.made_notebooks import code, markdown, save
from tests.support import REPO_ROOT

COLAB = code("import os\nopen('/content/x.txt')\nprint('done')")
TPU = code("import jax.tools.colab_tpu\njax.tools.colab_tpu.setup_tpu()")
HELP_BUDGET = 0.4
HEAVY = {"torch", "numpy", "pandas", "IPython", "nbformat", "pydantic", "jsonschema", "hydra", "psutil"}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(REPO_ROOT)}
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, env=environment, timeout=120, check=False
    )


def files() -> list[str]:
    return sorted(path.relative_to(Path()).as_posix() for path in Path().rglob("*") if path.is_file())


# ------------------------------------------------------------------------------------------------------------ migrating
@pytest.mark.parametrize("words", [("landfall", "migrate"), ("migration",)])
def test_a_notebook_is_migrated_next_to_itself_by_both_commands(words):
    before = save(Path("colab_a.ipynb"), markdown("# A"), COLAB).read_bytes()
    done = run(*words, "colab_a.ipynb")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("colab_a.ipynb → local_a.ipynb\n")
    assert files() == ["colab_a.ipynb", "local_a.ipynb"]
    assert Path("colab_a.ipynb").read_bytes() == before
    nbformat.validate(nbformat.read("local_a.ipynb", as_version=4))


def test_the_output_can_be_named(capsys):
    save(Path("a.ipynb"), COLAB)
    assert main(["a.ipynb", "-o", "made/here/b.ipynb"]) == 0
    assert files() == ["a.ipynb", "made/here/b.ipynb"]


def test_a_folder_is_migrated_with_its_tree(capsys):
    save(Path("nb/a.ipynb"), COLAB)
    save(Path("nb/deep/a.ipynb"), COLAB)
    save(Path("nb/.ipynb_checkpoints/a-checkpoint.ipynb"), COLAB)
    assert main(["nb", "--out-dir", "out"]) == 0
    assert [name for name in files() if name.startswith("out")] == ["out/a.ipynb", "out/deep/a.ipynb"]
    assert capsys.readouterr().out.endswith("2 notebooks: 2 migrated, 0 already local\n")


def test_a_second_run_over_a_folder_changes_nothing(capsys):
    save(Path("nb/colab_a.ipynb"), COLAB)
    assert main(["nb"]) == 0
    capsys.readouterr()
    assert main(["nb"]) == 0
    output = capsys.readouterr()
    assert files() == ["nb/colab_a.ipynb", "nb/local_a.ipynb"]
    assert output.err == ("landfall migrate: nb/local_a.ipynb is skipped: it is the local form of colab_a.ipynb\n")


def test_folders_become_parameters_of_the_notebook(capsys):
    save(Path("a.ipynb"), code("open('/content/drive/MyDrive/a')"))
    assert main(["a.ipynb", "--work-dir", "scratch", "--drive-dir", "team/drive"]) == 0
    text = Path("local_a.ipynb").read_text(encoding="utf-8")
    assert "scratch" in text
    assert "team/drive" in text


def test_a_file_that_no_cell_creates_belongs_into_the_work_folder():
    save(Path("a.ipynb"), code("pd.read_csv('/content/in/a.csv')"))
    assert main(["a.ipynb", "--work-dir", "scratch", "--report", "r.json"]) == 0
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert report["notebooks"][0]["content"] == {"/content/in/a.csv": str(Path("scratch/in/a.csv"))}


def test_an_invalid_notebook_does_not_stop_the_others():
    save(Path("nb/a.ipynb"), COLAB)
    Path("nb/bad.ipynb").write_text("<html>", encoding="utf-8")
    done = run("migration", "nb", "gone.ipynb")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("landfall migrate: nb/bad.ipynb: ")
    assert "HTML" in lines[0]
    assert lines[1].startswith("landfall migrate: gone.ipynb: ")
    assert Path("nb/local_a.ipynb").is_file()


def test_an_edited_output_is_kept(capsys):
    save(Path("a.ipynb"), COLAB)
    assert main(["a.ipynb"]) == 0
    Path("local_a.ipynb").write_text("edited", encoding="utf-8")
    assert main(["a.ipynb"]) == 2
    assert "local_a.ipynb exists and differs — --force overwrites it" in capsys.readouterr().err
    assert Path("local_a.ipynb").read_text(encoding="utf-8") == "edited"
    assert main(["a.ipynb", "--force"]) == 0
    assert Path("local_a.ipynb").read_text(encoding="utf-8") != "edited"


def test_the_input_is_never_the_output(capsys):
    before = save(Path("a.ipynb"), COLAB).read_bytes()
    Path("alias").symlink_to(".")
    for arguments in (["-o", "a.ipynb"], ["--out-dir", "."], ["--out-dir", "alias"]):
        assert main(["a.ipynb", *arguments, "--force"]) == 2
        assert "is an input" in capsys.readouterr().err
    assert Path("a.ipynb").read_bytes() == before


def test_strict_fails_after_writing_if_manual_steps_remain(capsys):
    save(Path("a.ipynb"), COLAB)
    save(Path("tpu.ipynb"), TPU)
    assert main(["a.ipynb", "--strict"]) == 0
    assert main(["tpu.ipynb"]) == 0
    capsys.readouterr()
    assert main(["tpu.ipynb", "--strict", "--force"]) == 1
    text = capsys.readouterr().out
    assert "! cell 0, line" in text
    assert "→" in text.partition("! cell 0")[2]
    assert Path("local_tpu.ipynb").is_file()


# ------------------------------------------------------------------------------------------------------------- checking
def test_check_finds_what_only_colab_has_and_writes_nothing(capsys):
    save(Path("a.ipynb"), markdown("# A"), COLAB)
    assert main(["--check", "a.ipynb"]) == 1
    text = capsys.readouterr().out
    assert "a.ipynb: cell 1, line 2: LF4" in text
    assert files() == ["a.ipynb"]


def test_check_passes_for_migrated_notebooks(capsys):
    save(Path("a.ipynb"), markdown("# A"), COLAB, code("!pip install numpy"), accelerator="GPU")
    assert main(["a.ipynb"]) == 0
    capsys.readouterr()
    assert main(["--check", "local_a.ipynb"]) == 0
    assert capsys.readouterr().out == "1 notebook: no Colab-only constructs\n"


def test_check_accepts_an_old_format_and_missing_ids(capsys):
    plain = {"nbformat": 4, "nbformat_minor": 2, "metadata": {}, "cells": [code("x = 1")]}
    Path("a.ipynb").write_text(json.dumps(plain), encoding="utf-8")
    assert main(["--check", "a.ipynb"]) == 0


def test_check_fails_for_an_invalid_notebook(capsys):
    save(Path("a.ipynb"), COLAB)
    Path("bad.ipynb").write_text("", encoding="utf-8")
    assert main(["--check", "a.ipynb", "bad.ipynb"]) == 2
    assert "bad.ipynb" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--check"], []])
def test_a_folder_without_notebooks_is_an_error(options, capsys):
    Path("empty").mkdir()
    assert main([*options, "empty"]) == 2
    assert "empty" in capsys.readouterr().err


def test_check_as_json_follows_the_schema(capsys):
    save(Path("a.ipynb"), COLAB)
    assert main(["--check", "--format", "json", "a.ipynb"]) == 1
    report = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json.loads(schema_text(Report))).validate(report)
    assert (report["mode"], report["notebooks"][0]["output"]) == ("check", None)
    path = [found for found in report["notebooks"][0]["findings"] if "/content" in found["before"]]
    assert path[0]["line"] == 2


def test_check_for_github_and_for_code_scanning(capsys):
    path = save(Path("nb/a.ipynb"), COLAB)
    assert main(["--check", "--format", "github", "nb"]) == 1
    commands = capsys.readouterr().out.splitlines()
    line = 1 + next(row for row, text in enumerate(path.read_text("utf-8").splitlines()) if "/content" in text)
    assert any(command.startswith(f"::warning file=nb/a.ipynb,line={line},title=LF4") for command in commands)
    assert main(["--check", "--format", "sarif", "nb"]) == 1
    results = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert {place["artifactLocation"]["uri"] for place in places} == {"nb/a.ipynb"}
    assert line in [place["region"]["startLine"] for place in places]


def test_diff_shows_the_sources_and_writes_nothing(capsys):
    save(Path("a.ipynb"), markdown("# A"), COLAB)
    assert main(["--diff", "a.ipynb"]) == 0
    text = capsys.readouterr().out
    assert "--- a.ipynb:cell 1\n+++ a.ipynb:cell 1\n" in text
    assert "-open('/content/x.txt')\n" in text
    assert " print('done')\n" in text
    assert files() == ["a.ipynb"]
    assert main(["--check", "--diff", "a.ipynb"]) == 1
    assert capsys.readouterr().out == text


# ------------------------------------------------------------------------------------------------------------ reporting
def test_the_report_is_json_by_the_schema_and_a_page(capsys):
    save(Path("nb/a.ipynb"), COLAB, TPU, accelerator="TPU")
    save(Path("nb/b.ipynb"), code("x = 1"))
    Path("nb/bad.ipynb").write_text("", encoding="utf-8")
    assert main(["nb", "--out-dir", "out", "--report", "made/report.json"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "made/report.json, made/report.html" in output.err
    text = Path("made/report.json").read_text(encoding="utf-8")
    report = json.loads(text)
    jsonschema.Draft202012Validator(json.loads(schema_text(Report))).validate(report)
    assert [(entry["input"], entry["status"]) for entry in report["notebooks"]] == [
        ("nb/a.ipynb", "migrated"),
        ("nb/b.ipynb", "migrated"),
        ("nb/bad.ipynb", "failed"),
    ]
    assert (report["summary"]["failed"], report["summary"]["needing_human"]) == (1, 1)
    assert str(Path.cwd()) not in text
    known = {rule.id for rule in RULES}
    for entry in report["notebooks"]:
        assert set(entry["rules"]) <= known
        for found in entry["findings"]:
            assert found["action"] or found["keeps"] != "needs-human"
    assert "out/a.ipynb" in Path("made/report.html").read_text(encoding="utf-8")


def test_the_report_never_takes_the_place_of_an_input(capsys):
    save(Path("a.ipynb"), COLAB)
    Path("report.json").symlink_to("a.ipynb")
    assert main(["a.ipynb", "--report", "report.json"]) == 2
    assert "report.json is an input" in capsys.readouterr().err
    assert main(["a.ipynb", "--report", "a.ipynb"]) == 2
    assert "name it FILE.json" in capsys.readouterr().err


def test_the_table_of_rules_is_printed(capsys):
    assert main(["--rules"]) == 0
    text = capsys.readouterr().out
    assert all(f"{rule.id}  {rule.keeps.value}" in text for rule in RULES)
    assert main(["--rules", "--format", "json"]) == 0
    assert {row["id"] for row in json.loads(capsys.readouterr().out)} == {rule.id for rule in RULES}
    assert main(["--rules", "--format", "sarif"]) == 2


# ------------------------------------------------------------------------------------------------------------ arguments
@pytest.mark.parametrize(
    "arguments, expected",
    [
        ([], "no notebook was passed"),
        (["a.ipynb", "--check", "-o", "b.ipynb"], "--check and --diff write no notebook"),
        (["a.ipynb", "--diff", "--out-dir", "b"], "--check and --diff write no notebook"),
        (["a.ipynb", "a.ipynb", "-o", "b.ipynb"], "-o is "),
        (["a.ipynb", "--out-dir", "a.ipynb"], "a.ipynb is not a folder"),
        (["a.ipynb", "--report", "report.html"], "name it FILE.json"),
        (["a.ipynb", "--work-dir", " "], "--work-dir is "),
        (["a.ipynb", "--drive-dir", "a\nb"], "--drive-dir is "),
        (["a.ipynb", "--jobs", "-1"], "--jobs "),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(arguments, expected, capsys):
    save(Path("a.ipynb"), COLAB)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert files() == ["a.ipynb"]


def test_inputs_may_be_before_and_after_the_options(capsys):
    for name in "ab":
        save(Path(f"{name}.ipynb"), COLAB)
    assert main(["a.ipynb", "--out-dir", "out", "b.ipynb", "--in-place", "never", "--jobs", "1"]) == 0
    assert {"out/a.ipynb", "out/b.ipynb"} <= set(files())


def test_help_lists_every_option_and_imports_little():
    program = f"""
import sys
import migration.command
try:
    migration.command.main(["--help"])
except SystemExit:
    sys.exit(" ".join(sorted({HEAVY} & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    options = [option for action in build_parser()._actions for option in action.option_strings]
    assert [option for option in options if option not in done.stdout] == []
    assert isinstance(build_parser(), argparse.ArgumentParser)


def test_help_starts_fast():
    """In processor seconds, which do not depend on other work on this machine."""
    seconds = []
    for _ in range(3):
        before = os.times()
        assert run("landfall", "migrate", "--help").returncode == 0
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    assert min(seconds) < HELP_BUDGET


# ----------------------------------------------------------------------------------------------------------- pre-commit
@pytest.mark.slow
def test_the_hook_of_pre_commit_runs_the_linter_on_the_files_it_is_given():
    manifest = REPO_ROOT / ".pre-commit-hooks.yaml"
    (hook,) = load_manifest(manifest)
    assert hook["id"] == yaml.safe_load(manifest.read_text(encoding="utf-8"))[0]["id"] == "landfall-migrate-check"
    assert (hook["language"], hook["types"], hook["pass_filenames"]) == ("python", ["jupyter"], True)
    command, *words = hook["entry"].split()
    assert (command, words[0]) == ("landfall", "migrate")
    assert words[0] in landfall.COMMANDS
    save(Path("a b.ipynb"), COLAB)
    dirty = run(command, *words, "a b.ipynb")
    assert dirty.returncode == 1
    assert "a b.ipynb: cell 0, line 2: LF4" in dirty.stdout
    run(command, "migrate", "a b.ipynb")
    assert run(command, *words, "local_a b.ipynb").returncode == 0
