"""The main job on a small workspace: its outputs, and its messages when a step fails."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import yaml

from core import checkpoint
from core.config.compose import load_config
from core.config.schema import STREAMS
from core.errors import (
    EXIT_DATA,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_OUTPUT,
    EXIT_RESUMABLE,
    EXIT_USAGE,
    NotebookError,
)
from core.numbers import counted
from inference import recalibrate
from pipelines import run_local_training_pipeline
from pipelines.run_local_training_pipeline import main
from pipelines.steps.table import pipeline_steps
from tests.dashboard.documents import load, validate
from tests.support import REPO_ROOT
from tests.support.small_workspace import CONFIGS, PIPELINE_ARGUMENTS, RUN_ID, build_small_workspace, write_process_data

QUALITY = {"patchtst": "fdc", "swinmae": "vib"}
each_stream = pytest.mark.parametrize("stream", STREAMS)


@pytest.fixture(scope="module")
def root(finished_workspace) -> Path:
    return finished_workspace.root


def read_json(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def is_whole_png(path: Path) -> bool:
    body = path.read_bytes()
    return body.startswith(b"\x89PNG\r\n\x1a\n") and body.endswith(b"IEND\xaeB`\x82")


# --------------------------------------------------------------------------------------------- what a run leaves behind
def test_the_command_succeeds_with_checklist_and_paths(finished_workspace):
    assert finished_workspace.exit_code == EXIT_OK, finished_workspace.stdout
    assert "29 passed, 0 failed, 0 warnings, 0 skipped" in finished_workspace.stdout
    places = finished_workspace.stdout.partition("Where to look")[2].partition("Next")[0].split()
    found = [place for place in places if "/" in place and "://" not in place]
    assert len(found) == 7
    assert sum(place.endswith(("patchtst_ssl.html", "swinmae_ssl.html")) for place in found) == 2
    assert all((finished_workspace.root / place).exists() for place in found)


def test_the_summary_starts_with_the_events(finished_workspace):
    lines = finished_workspace.stdout.splitlines()
    first, checklist = lines.index("What was found"), next(i for i, line in enumerate(lines) if "Checklist" in line)
    assert first < checklist
    for stream in STREAMS:
        place = next(i for i, line in enumerate(lines) if line.endswith(f", {stream}"))
        detection = read_json(finished_workspace.root / f"artifacts/scores/{stream}_summary.json")["detection"]
        assert first < place < checklist
        assert f"{detection['faults_found']} of {detection['faults_total']}" in lines[place + 1]
        assert f"{detection['auroc']:.3f}" in "".join(lines[place:checklist])


@pytest.mark.parametrize(("stream", "epochs"), [("patchtst", 3), ("swinmae", 4)])
def test_the_log_is_short_and_details_are_in_files(finished_workspace, stream, epochs):
    log = finished_workspace.log
    assert len(log) + len(finished_workspace.stdout.splitlines()) <= 60
    assert sum("started: " in line for line in log) == sum("completed in " in line for line in log) == 8
    assert not [line for line in log if f"epoch 1/{epochs}" in line]
    file = finished_workspace.root / f"artifacts/pipeline/{RUN_ID}/notebook-{stream}.log"
    assert f"epoch 1/{epochs}" in file.read_text(encoding="utf-8")


@each_stream
def test_the_checkpoint_loads_without_pickled_code_and_describes_itself(root, stream):
    path = root / f"checkpoints/{stream}_ssl.pt"
    payload = checkpoint.load(path)  # verifies size and sha256, and loads with weights_only
    sidecar = read_json(root / f"checkpoints/{stream}_ssl.json")
    assert sidecar["config"] == payload["config"]
    assert sidecar["run_id"] == payload["run_id"] == RUN_ID
    assert sidecar["hardware"]["kind"] == "cpu"
    assert math.isfinite(sidecar["metrics"]["best_val_loss"])


@each_stream
def test_the_loss_is_a_table_and_a_picture(root, stream):
    with (root / f"artifacts/loss/{stream}_loss_history.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "train_loss", "val_loss", "lr", "seconds", "windows_per_second"]
    config = read_json(root / f"checkpoints/{stream}_ssl.json")["config"]
    assert [int(row["epoch"]) for row in rows] == list(range(1, config["training"]["epochs"] + 1))
    assert is_whole_png(root / f"artifacts/loss/{stream}_loss_curve.png")


@each_stream
def test_the_log_of_the_run_is_complete(root, stream):
    folder = root / f"runs/{stream}_ssl" / RUN_ID
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {record["kind"] for record in records} == {"step", "epoch"}
    saved = read_json(root / f"checkpoints/{stream}_ssl.json")["config"]
    logged = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    del logged["training"]["resume"], logged["training"]["allow_changes"]  # how it began is not what was trained
    assert logged == saved
    assert {"python", "torch", "device", "git", "packages"} <= read_json(folder / "environment.json").keys()
    assert read_json(folder / "status.json")["state"] == "completed"
    assert list(folder.glob("events.out.tfevents.*"))


@each_stream
def test_every_file_has_a_quality_report_of_this_run(root, stream):
    folder = QUALITY[stream]
    reports = [read_json(path) for path in (root / "artifacts/dqvl" / folder).glob("*.json")]
    sensors = {path for path in (root / "data" / folder).iterdir() if path.suffix == (".csv", ".npy")[folder == "vib"]}
    names = {path.relative_to(root).as_posix() for path in sensors if ".labels." not in path.name}
    assert {report["file_id"] for report in reports} == names
    assert {(report["schema_version"], report["decision"]) for report in reports} == {(1, "keep")}
    assert {report["run_id"] for report in reports} == {RUN_ID}


@each_stream
def test_the_scaler_is_in_a_file_and_in_the_checkpoint(root, stream):
    written = read_json(root / f"artifacts/scaler_{stream}.json")
    saved = checkpoint.load(root / f"checkpoints/{stream}_ssl.pt")["scaler"]
    assert {name: written[name] for name in saved} == json.loads(json.dumps(saved))
    assert written["run_id"] == RUN_ID


@each_stream
def test_scores_events_and_timeline_belong_together(root, stream):
    folder = root / "artifacts/scores"
    summary = read_json(folder / f"{stream}_summary.json")
    scores = pd.read_parquet(folder / f"{stream}_scores.parquet")
    events = pd.read_csv(folder / f"{stream}_events.csv")
    assert summary["run_id"] == RUN_ID
    assert len(scores) == summary["scores"] + summary["unscored_rows"]
    assert len(events) == summary["events"] > 0
    assert is_whole_png(folder / f"{stream}_timeline.png")
    assert [panel["event_id"] for panel in summary["panels"]] == events.nlargest(3, "severity")["event_id"].tolist()
    assert all(is_whole_png(root / panel["png"]) for panel in summary["panels"])


@each_stream
def test_injected_faults_of_the_sample_data_are_found(root, stream):
    assert read_json(root / f"artifacts/scores/{stream}_summary.json")["detection"]["auroc"] > 0.9


@each_stream
def test_the_executed_notebook_shows_every_cell_and_its_pictures(root, stream):
    notebook = nbformat.read(root / "artifacts/notebooks" / RUN_ID / f"local_{stream}_ssl.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert all(output.output_type != "error" for output in outputs)
    panels = read_json(root / f"artifacts/scores/{stream}_summary.json")["panels"]
    assert panels
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4 + len(panels)
    assert not [output for output in outputs if output.get("name") == "stderr"], "a warning spoils the page"


@each_stream
def test_the_executed_notebook_ends_with_what_was_found_and_the_next_command(root, stream):
    notebook = nbformat.read(root / "artifacts/notebooks" / RUN_ID / f"local_{stream}_ssl.ipynb", as_version=4)
    (output,) = [cell for cell in notebook.cells if cell.cell_type == "code"][-1].outputs
    summary = read_json(root / f"artifacts/scores/{stream}_summary.json")
    assert output.text.startswith(summary["threshold"]["statement"])
    assert f"{stream}: {counted(summary['events'], 'event')} " in output.text
    assert output.text.rstrip().splitlines()[-1].startswith("next: landfall ")


def test_the_dashboard_documents_match_their_schemas_and_say_ready(root):
    state = load(root, "dashboard-state.json")
    validate(state, "dashboard-state")
    validate(load(root, f"runs/{RUN_ID}.json"), "run")
    validate(load(root, "runs/index.json"), "runs-index")
    assert (state["verdict"]["state"], state["problems"]) == ("done", [])
    assert {stream["run_id"] for stream in state["streams"].values()} == {RUN_ID}
    assert [run["run_id"] for run in load(root, "runs/index.json")["runs"]] == [RUN_ID]


def test_the_notebooks_are_unchanged(root):
    for path in (root / "notebooks").iterdir():
        assert path.suffix == ".ipynb"
        assert not any(cell.get("outputs") for cell in nbformat.read(path, as_version=4).cells)


# ------------------------------------------------------------------------------------------------------ when steps fail
@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return build_small_workspace(tmp_path)


def run(root: Path, *overrides: str) -> int:
    return main([*PIPELINE_ARGUMENTS, "--repo-root", str(root), "--run-id", RUN_ID, *overrides])


@pytest.mark.nightly
def test_the_result_is_json_on_request(copied, capsys):
    assert run(copied, "--only", "checklist", "--json") == EXIT_OK
    printed = json.loads(capsys.readouterr().out)
    assert printed["checklist"] == read_json(copied / "artifacts/validation_report.json")
    assert printed["found"] == {
        stream: read_json(copied / f"artifacts/scores/{stream}_summary.json") for stream in STREAMS
    }


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


@pytest.mark.nightly
def test_a_failing_notebook_is_reported_in_one_line_with_a_dashboard(fresh, capsys):
    """No split is long enough for such a window, which the quality check cannot detect. One step at a time: of two
    streams that fail at once, either may be the first."""
    assert run(fresh, "--jobs", "1", "data.window=8192") == EXIT_DATA
    line = last_line(capsys)
    executed = f"artifacts/notebooks/{RUN_ID}/local_patchtst_ssl.ipynb"
    assert line.startswith("landfall pipeline: local_patchtst_ssl.ipynb, In [5]: DataError: the split validation")
    assert line.endswith(f"the executed copy is {executed}")
    code = [cell for cell in nbformat.read(fresh / executed, as_version=4).cells if cell.cell_type == "code"]
    assert [output.ename for cell in code for output in cell.outputs if output.output_type == "error"] == ["DataError"]
    assert all(cell.execution_count is None for cell in code[5:])
    state = load(fresh, "dashboard-state.json")
    validate(state, "dashboard-state")
    stages = {node["id"]: (node["state"], node["detail"]) for node in state["pipeline"]}
    assert stages["train"][0] == "failed"
    assert stages["train"][1].startswith("PatchTST-SSL failed: local_patchtst_ssl.ipynb, In [5]: DataError")
    assert stages["score"][0] == "attention"
    assert [part.partition(" not run: notebook-patchtst")[0] for part in stages["score"][1].split("; ")] == [
        "PatchTST-SSL", "Swin-MAE"
    ]  # fmt: skip


@pytest.mark.nightly
def test_a_dead_kernel_is_reported_in_one_line(fresh, capsys):
    path = fresh / "notebooks/local_patchtst_ssl.ipynb"
    notebook = nbformat.read(path, as_version=4)
    is_parameters = ["parameters" in cell.metadata.get("tags", ()) for cell in notebook.cells]
    notebook.cells[is_parameters.index(True) + 1 :] = [nbformat.v4.new_code_cell("import os; os._exit(137)")]
    nbformat.write(notebook, path)
    assert run(fresh) == EXIT_FAILURE
    line = last_line(capsys)
    assert line.startswith("landfall pipeline: local_patchtst_ssl.ipynb, In [3] (Settings): its kernel died")
    assert "exit code 137; peak memory " in line
    assert (fresh / f"artifacts/notebooks/{RUN_ID}/local_patchtst_ssl.ipynb").is_file()


@pytest.mark.parametrize(
    ("ename", "code"),
    {
        "DataError": EXIT_DATA, "QualityError": EXIT_DATA, "CheckpointError": EXIT_OUTPUT,
        "StoppedError": EXIT_RESUMABLE, "ZeroDivisionError": EXIT_FAILURE, "EXIT_DATA": EXIT_FAILURE,
        "KeyboardInterrupt": EXIT_INTERRUPTED,
    }.items(),
)  # fmt: skip
def test_the_error_in_a_notebook_decides_the_exit_code(ename, code):
    error = NotebookError("local.ipynb", 3, ename, "what went wrong\nand more", hint="look")
    assert error.exit_code == code
    assert str(error) == f"local.ipynb, In [3]: {ename}: what went wrong — look"


@pytest.mark.slow
def test_a_glob_without_matches_ends_before_any_notebook(fresh, capsys):
    assert run(fresh, "data.splits.test.files=[data/none/*]") == EXIT_DATA
    assert "data/none does not exist" in last_line(capsys)
    assert not (fresh / "artifacts/notebooks").exists()
    verdict = load(fresh, "dashboard-state.json")["verdict"]
    assert (verdict["state"], verdict["title"]) == ("failed", "Not ready")
    assert verdict["detail"].startswith("Quality: PatchTST-SSL failed: ")
    assert "data/none does not exist" in verdict["detail"]


@pytest.mark.nightly
def test_data_that_fails_the_quality_check_is_reported_and_shown(fresh, capsys):
    assert run(fresh, "dqvl.hard.rms_max=0.01") == EXIT_DATA
    assert "none of the 4 files" in last_line(capsys)
    state = load(fresh, "dashboard-state.json")
    assert state["streams"]["swinmae"]["quality"]["dropped"] == 4
    assert next(node for node in state["pipeline"] if node["id"] == "quality")["state"] == "failed"


@pytest.mark.nightly
def test_scoring_runs_only_if_the_notebook_wrote_no_scores(copied):
    folder = copied / "artifacts/scores"
    kept = (folder / "patchtst_summary.json").read_bytes()
    (folder / "swinmae_summary.json").unlink()
    assert run(copied, "--only", "scores-*", "--only", "checklist") == EXIT_OK
    assert (folder / "patchtst_summary.json").read_bytes() == kept
    assert read_json(folder / "swinmae_summary.json")["run_id"] == RUN_ID


@pytest.mark.nightly
def test_scores_follow_the_requested_threshold(copied):
    """A later run without the option does not resume with it."""
    file, step = copied / "artifacts/scores/patchtst_summary.json", ("--only", "scores-patchtst")
    before = read_json(file)["threshold"]
    asked = ("scoring.threshold.false_alarm_rate=0.05", "scoring.threshold.false_events_per_day=null")
    assert run(copied, *step, *asked) == EXIT_OK
    assert read_json(file)["threshold"]["false_alarm_rate"] == 0.05
    assert read_json(file)["threshold"]["value"] < before["value"]
    assert run(copied, *step, "--resume") == EXIT_OK
    assert read_json(file)["threshold"] == before


@pytest.mark.nightly
def test_scores_follow_a_calibration(copied):
    summary, step = copied / "artifacts/scores/patchtst_summary.json", ("--only", "scores-patchtst", "--resume")
    before = read_json(summary)["threshold"]["value"]
    shutil.copy(copied / "data/fdc/test_2.csv", copied / "data/fdc/newer.csv")
    named = ("data.splits.calibration.files=[data/fdc/newer.csv]", "data.splits.calibration.start=0.0")
    command = ("--stream", "patchtst", "--config", CONFIGS["patchtst"], "--repo-root", str(copied))
    assert recalibrate.main([*command, *named]) == EXIT_OK
    assert run(copied, "--from", "checklist", "--skip", "dashboard") == EXIT_OUTPUT
    assert run(copied, *step) == EXIT_OK
    assert read_json(summary)["threshold"]["value"] != before


@pytest.mark.nightly
def test_a_failing_check_is_named_and_is_the_exit_code_and_the_verdict(copied, capsys):
    (copied / "artifacts/scaler_patchtst.json").unlink()
    assert run(copied, "--from", "checklist") == EXIT_OUTPUT
    printed = capsys.readouterr()
    assert "✗ FAIL  Scaler, patchtst: artifacts/scaler_patchtst.json is missing" in printed.out
    reason = read_json(copied / f"artifacts/pipeline/{RUN_ID}/pipeline.json")["steps"]["checklist"]["reason"]
    assert reason.startswith("1 of 29 checks failed: Scaler, patchtst: artifacts/scaler_patchtst.json is missing")
    assert reason in printed.err.splitlines()[-1]
    assert load(copied, "dashboard-state.json")["verdict"]["state"] == "failed"


# ------------------------------------------------------------------------------------------------ choosing and resuming
@pytest.mark.nightly
def test_resuming_a_finished_run_repeats_only_the_dashboard(copied, capsys):
    before = {path: path.stat().st_mtime_ns for path in (copied / "checkpoints").iterdir()}
    assert run(copied, "--resume") == EXIT_OK
    history = read_json(copied / f"artifacts/pipeline/{RUN_ID}/pipeline.json")["steps"]
    assert {name: step["state"] for name, step in history.items() if step["state"] != "skipped"} == {
        "dashboard": "completed"
    }
    assert history["notebook-patchtst"]["reason"].endswith(f" since run {RUN_ID}")
    assert {path: path.stat().st_mtime_ns for path in (copied / "checkpoints").iterdir()} == before
    assert "29 passed" in capsys.readouterr().out


def test_a_dry_run_lists_steps_with_reasons_and_runs_nothing(copied, capsys):
    labels = copied / "data/vib/test_good.labels.csv"
    labels.write_text("start,end\n1,2\n", encoding="utf-8")
    before = sorted(path for path in copied.rglob("*") if "cache" not in path.parts)
    assert run(copied, "--resume", "--dry-run") == EXIT_OK
    output = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert output["notebook-patchtst"].startswith("skip: ")
    assert output["notebook-swinmae"] == "run: data: data/vib/test_good.labels.csv changed"
    assert output["checklist"].startswith("skip, unless quality-swinmae ")
    assert output["dashboard"] == "run: always runs"
    assert sorted(path for path in copied.rglob("*") if "cache" not in path.parts) == before


def order_of(root: Path, *words: str):
    return run_local_training_pipeline._order(run_local_training_pipeline._parser().parse_args(words), root)


def test_data_copied_while_the_sample_data_is_trained_waits_for_the_next_run(tmp_path):
    root = build_small_workspace(tmp_path / "plant")
    (root / "samples").mkdir()
    (root / "data").rename(root / "samples/data")
    order = order_of(root, *PIPELINE_ARGUMENTS)
    write_process_data(root / "data/fdc")
    (scores,) = [step for step in pipeline_steps(order, root) if step.name == "scores-patchtst"]
    given = [word for word in scores.command if "=" in word]
    assert load_config(CONFIGS["patchtst"], given, root=root).config.data.root == "samples"
    assert load_config(CONFIGS["patchtst"], [], root=root).config.data.root == "."


def test_a_requested_folder_of_data_is_used(tmp_path):
    root = build_small_workspace(tmp_path / "plant")
    shutil.copytree(root / "data", root / "samples/data")
    assert order_of(root, *PIPELINE_ARGUMENTS, "data.root=samples").overrides == ["data.root=samples"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("-p", "epoch=3"), "did you mean epochs?"),
        (("--only", "notebooks-patchtst"), "did you mean notebook-patchtst?"),
    ],
)
def test_unknown_arguments_are_rejected_before_any_step(fresh, capsys, words, problem):
    assert run(fresh, *words) == EXIT_USAGE
    assert problem in last_line(capsys)
    assert not (fresh / "artifacts").exists()


@pytest.mark.parametrize("words", [("--jobs", "0"), ("--timeout", "soon"), ("-p", "epochs=many"), ("-p", "epochs")])
def test_invalid_options_are_usage_errors(fresh, words):
    with pytest.raises(SystemExit) as caught:
        run(fresh, *words)
    assert caught.value.code == EXIT_USAGE


@pytest.mark.nightly
def test_ctrl_c_saves_and_resume_continues_the_same_run(fresh):
    words = ["--only", "notebook-patchtst", "training.epochs=30"]
    command = [sys.executable, "-m", "pipelines.run_local_training_pipeline", "--repo-root", str(fresh)]
    command += [*PIPELINE_ARGUMENTS, "--verbose", *words]
    with subprocess.Popen(command, cwd=REPO_ROOT, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "epoch 3/30" in line:
                process.send_signal(signal.SIGINT)
                break
        last = process.stderr.read().splitlines()[-1]
    assert process.returncode == EXIT_INTERRUPTED
    assert re.search(r"In \[\d+\]: StoppedError: .*SIGINT; saved checkpoints/patchtst_ssl\.last\.pt", last)
    (folder,) = (fresh / "runs/patchtst_ssl").iterdir()
    assert read_json(folder / "status.json")["state"] == "stopped"
    saved = checkpoint.describe(fresh / "checkpoints/patchtst_ssl.last.pt")["epoch"]

    assert main([*PIPELINE_ARGUMENTS, "--repo-root", str(fresh), "--resume", *words]) == EXIT_OK
    assert [path.name for path in (fresh / "runs/patchtst_ssl").iterdir()] == [folder.name]
    assert read_json(folder / "status.json")["state"] == "completed"
    log = (fresh / f"artifacts/pipeline/{folder.name}/notebook-patchtst.log").read_text(encoding="utf-8")
    assert f"resuming {folder.name} after {saved} epochs" in log
