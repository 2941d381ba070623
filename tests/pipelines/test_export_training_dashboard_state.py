"""The dashboard export describes real run folders, and damaged ones never stop it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from core.config.data import Data, Split, Splits
from core.owner import Owner
from core.run_status import StepPoint
from core.workspace import write_json
from pipelines.dashboard.run_documents import RunRecord
from pipelines.dashboard.runs import decimate, read_history
from pipelines.export_training_dashboard_state import export_state, main
from pipelines.problems import Problems
from pipelines.stream_configs import CONTRACT
from tests.dashboard import builders
from tests.dashboard.builders import (
    FIRST,
    REPOSITORY,
    SECOND,
    build_finished_workspace,
    build_workspace,
    write,
    write_run,
)
from tests.dashboard.documents import load, validate


@pytest.fixture
def root(tmp_path):
    """An empty workspace."""
    return tmp_path


@pytest.fixture
def workspace(root):
    return build_workspace(root)


# ------------------------------------------------------------------------------------------------------------ the whole
def test_an_empty_workspace_is_not_started(root):
    state = export_state(root)
    assert {stream.state for stream in state.streams.values()} == {"not started"}
    assert state.verdict.state == "waiting"
    assert state.problems == []
    validate(load(root, "dashboard-state.json"), "dashboard-state")
    assert load(root, "runs/index.json") == {"schema_version": 1, "runs": []}


def test_all_documents_match_their_published_schemas(workspace):
    export_state(workspace)
    validate(load(workspace, "dashboard-state.json"), "dashboard-state")
    validate(load(workspace, "runs/index.json"), "runs-index")
    for run_id in (FIRST, SECOND):
        validate(load(workspace, f"runs/{run_id}.json"), "run")


def test_the_state_agrees_with_the_folders(workspace):
    state = export_state(workspace)
    patchtst, swinmae = state.streams["patchtst"], state.streams["swinmae"]
    assert (patchtst.state, patchtst.run_id, patchtst.progress) == ("completed", SECOND, 1.0)
    assert patchtst.best.epoch == 11
    assert patchtst.duration_seconds == 12 * 61 + 9
    assert patchtst.hardware == "NVIDIA RTX 4000 Ada · bf16-mixed"
    assert patchtst.scores.detection["auroc"] == 0.9412
    assert patchtst.scores.threshold.calibration_scores == 2140
    assert (swinmae.state, swinmae.reason) == ("failed", builders.SCRIPT)
    assert swinmae.progress == pytest.approx(5 / 12)
    assert swinmae.scores.detection is None
    assert swinmae.checkpoint.run_id == FIRST
    assert state.problems == []


def test_stages_and_verdict_name_problems(workspace):
    state = export_state(workspace)
    stages = {node.id: node for node in state.pipeline}
    assert list(stages) == ["data", "quality", "train", "score", "validate", "export", "migration"]
    states = [node.state for node in state.pipeline]
    assert states == ["done", "attention", "failed", "done", "failed", "done", "waiting"]
    assert stages["validate"].detail == "1 of 8 checks failed, 1 warning, 1 skipped"
    assert (state.verdict.state, state.verdict.title) == ("failed", "Not ready")
    assert "Swin-MAE failed" in state.verdict.detail


def test_a_complete_workspace_is_ready(root):
    build_finished_workspace(root)
    verdict = export_state(root).verdict
    assert (verdict.state, verdict.title) == ("done", "Ready")
    assert verdict.detail == "6 of 8 checks passed, 1 warning, 1 skipped"


def test_scores_near_chance_are_not_ready(root):
    build_finished_workspace(root)
    path = root / "artifacts/scores/patchtst_summary.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    for auroc, state in ((0.55, "attention"), (0.65, "done")):
        builders.write(path, summary | {"detection": {"auroc": auroc}})
        verdict = export_state(root).verdict
        assert verdict.state == state
        assert ("PatchTST-SSL are near chance" in verdict.detail) == (state == "attention")


def test_a_dropped_file_is_named_and_does_not_change_the_verdict(root):
    build_finished_workspace(root)
    builders.write_quality(root, "fdc", 3, dropped=True)
    verdict = export_state(root).verdict
    assert verdict.state == "done"
    assert "Quality: 6 kept, 1 dropped" in verdict.detail


def test_a_run_after_the_last_validation_and_scores_of_an_older_model_need_attention(root):
    build_finished_workspace(root)
    write_run(root, "patchtst", "20261121-200000-ffff", start=builders.START + timedelta(hours=12))
    builders.write_checkpoint(root, "patchtst", "20261121-200000-ffff")
    state = export_state(root)
    assert state.verdict.state == "attention"
    assert "after the last validation" in state.verdict.detail
    assert "scores of PatchTST-SSL" in state.verdict.detail


def test_scores_of_charts_alone_need_no_training(root):
    for stream in ("patchtst", "swinmae"):
        builders.write_scores(root, stream, None, labels=False)
    builders.write_quality(root, "fdc", 3)
    builders.write_checklist(root, failing=False)
    state = export_state(root)
    stages = {node.id: node for node in state.pipeline}
    assert stages["train"].state == "done"
    assert "charts" in stages["train"].detail
    assert state.verdict.state == "done"


@pytest.mark.parametrize(("minutes", "state"), [(19, "done"), (21, "attention")])
def test_a_later_scoring_by_charts_alone_replaces_that_of_the_model(root, minutes, state):
    """The scores are of minute 20, and the model is in use since `minutes`."""
    build_finished_workspace(root)
    for stream in ("patchtst", "swinmae"):
        builders.write_scores(root, stream, None, labels=False)
        since = (builders.START + timedelta(minutes=minutes)).timestamp()
        os.utime(root / f"checkpoints/{stream}_ssl.json", (since, since))
    stages = {node.id: node for node in export_state(root).pipeline}
    assert stages["score"].state == state


def test_a_checklist_older_than_the_scores_does_not_count(root):
    build_finished_workspace(root)
    builders.write_checklist(root, failing=True)
    assert export_state(root).verdict.state == "failed"
    path = root / "artifacts/scores/patchtst_summary.json"
    later = builders.iso(builders.START + timedelta(hours=12))
    write(path, json.loads(path.read_text(encoding="utf-8")) | {"scored_at": later})
    state = export_state(root)
    assert state.verdict.state == "attention"
    assert "landfall validate" in state.verdict.detail


def test_quality_is_that_of_the_present_files(workspace):
    """Reports of the sample data, and of a command with another folder, stay on disk."""
    other = workspace / "lot_stuck.csv"
    other.write_text("timestamp,a\n")
    quality = export_state(workspace).streams["patchtst"].quality
    assert (quality.files, [message.file_id for message in quality.worst]) == (1, [other.name])
    write(workspace / "data/fdc/train_1.csv", "timestamp,a\n")
    report = {"file_id": "data/fdc/train_1.csv", "decision": "keep", "hard_fails": [], "warnings": []}
    write(workspace / "artifacts/dqvl/fdc/own.json", report)
    split = Split(files=("data/fdc/train_*",))
    config = CONTRACT["patchtst"].model_copy(update={"data": Data(splits=Splits(train=split))})
    quality = export_state(workspace, configs={**CONTRACT, "patchtst": config}).streams["patchtst"].quality
    assert (quality.files, quality.warned) == (1, 0)


def test_quality_counts_files_and_puts_the_gravest_first(workspace):
    quality = export_state(workspace).streams["patchtst"].quality
    assert (quality.files, quality.kept, quality.dropped, quality.warned) == (14, 13, 1, 1)
    assert [(message.severity, message.file_id) for message in quality.worst] == [
        ("drop", "lot_broken.csv"),
        ("warn", "lot_stuck.csv"),
    ]


def test_a_finding_that_repeats_in_every_file_is_named_once(root):
    for number, excess in enumerate((20.0, 90.0, 40.0)):
        warning = builders.finding("jump", excess, 12.0, f"a step of {excess}", "o2_flow")
        report = {"file_id": f"lot_{number}.csv", "decision": "keep", "hard_fails": [], "warnings": [warning]}
        write(root / f"artifacts/dqvl/fdc/{number}.json", report)
    quality = export_state(root).streams["patchtst"].quality
    assert [(message.file_id, message.files) for message in quality.worst] == [("lot_1.csv", 3)]
    assert (quality.warned, quality.more) == (3, 0)


# ------------------------------------------------------------------------------------------------------------ run state
OWN = Owner.this_process()


def running_run(root, owner, age=timedelta(hours=1)):
    updated = (datetime.now(UTC) - age).isoformat()
    return write_run(root, "patchtst", SECOND, state="running", done=4, owner=owner, updated_at=updated)


@pytest.mark.parametrize("owner", ["", replace(OWN, machine="0" * 8).token], ids=["unknown", "on another host"])
@pytest.mark.parametrize("age, expected", [(timedelta(minutes=3), "stopped"), (timedelta(minutes=1), "running")])
def test_a_run_on_another_host_is_running_until_it_is_silent(root, owner, age, expected):
    running_run(root, owner, age)
    stream = export_state(root).streams["patchtst"]
    assert stream.state == expected
    assert stream.reason == ("no longer running" if expected == "stopped" else None)


@pytest.mark.parametrize("owner, expected", [(OWN, "running"), (replace(OWN, started=OWN.started + 1), "stopped")])
def test_a_reused_process_id_is_not_the_run(root, owner, expected):
    running_run(root, owner.token)
    assert export_state(root).streams["patchtst"].state == expected


def test_a_running_run_is_read_again_without_changed_files(root):
    folder = running_run(root, OWN.token)
    assert export_state(root).streams["patchtst"].state == "running"
    status = json.loads((folder / "status.json").read_text())
    stamp = (folder / "status.json").stat()
    ended = replace(OWN, started=OWN.started ^ 1)  # as long
    write(folder / "status.json", status | {"owner": ended.token})
    os.utime(folder / "status.json", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert export_state(root).streams["patchtst"].state == "stopped"


def test_an_incomplete_last_line_is_skipped_with_a_warning(workspace, caplog):
    with caplog.at_level(logging.WARNING):
        state = export_state(workspace)
    assert "is truncated and skipped" in caplog.text
    assert state.problems == []
    assert len(load(workspace, f"runs/{FIRST}.json")["streams"]["patchtst"]["history"]) == 4


def test_a_run_merges_both_streams_under_one_id(workspace):
    export_state(workspace)
    record = RunRecord.model_validate(load(workspace, f"runs/{SECOND}.json"))
    assert record.state == "failed"
    assert {name: len(stream.history) for name, stream in record.streams.items()} == {"patchtst": 12, "swinmae": 5}
    assert record.streams["patchtst"].config["training"]["epochs"] == 12
    assert record.duration_seconds == (timedelta(minutes=13, seconds=5 * 61 + 9)).total_seconds()


def test_nan_losses_become_null(root):
    folder = write_run(root, "patchtst", SECOND, state="failed", done=1)
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"kind": "epoch", "epoch": 2, "train_loss": float("nan"), "val_loss": None}) + "\n")
    export_state(root)
    last = load(root, f"runs/{SECOND}.json")["streams"]["patchtst"]["history"][-1]
    assert (last["epoch"], last["train_loss"], last["val_loss"]) == (2, None, None)


@pytest.mark.parametrize("loss", [None, float("nan")])
def test_a_run_that_never_had_a_finite_validation_loss_has_no_best(root, loss):
    write_run(root, "patchtst", SECOND, state="failed", done=0, best={"epoch": 1, "val_loss": loss})
    stream = export_state(root).streams["patchtst"]
    assert (stream.state, stream.best) == ("failed", None)


def test_a_resumed_run_keeps_the_later_record_of_an_epoch(tmp_path):
    lines = [{"kind": "epoch", "epoch": epoch, "train_loss": loss} for epoch, loss in ((1, 3.0), (2, 2.0), (2, 1.5))]
    path = write(tmp_path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    epochs, steps, first_time = read_history(path, Problems(tmp_path))
    assert [(point.epoch, point.train_loss) for point in epochs] == [(1, 3.0), (2, 1.5)]
    assert (steps, first_time) == ([], None)


def test_thinning_keeps_ends_extremes_and_gaps():
    points = [StepPoint(epoch=1, step=step, loss=1.0 + (step % 7) / 10) for step in range(50_000)]
    points[31_111].loss, points[40_404].loss, points[12_345].loss = 99.0, 0.001, None
    thin = decimate(points)
    assert len(thin) <= 2000
    assert {0, 12_345, 31_111, 40_404, 49_999} <= {point.step for point in thin}
    assert [point.step for point in thin] == sorted(point.step for point in thin)
    assert decimate(points[:2000]) == points[:2000]


# --------------------------------------------------------------------------------------------------------------- events
def test_the_worst_events_come_first_with_shares_as_numbers_and_the_statement_in_words(workspace):
    builders.write_scores(workspace, "patchtst", SECOND, labels=True, events=60)
    state = export_state(workspace)
    found, unlabelled = state.streams["patchtst"].detections, state.streams["swinmae"].detections
    assert (found.total, len(found.events)) == (60, 50)
    assert [event.id for event in found.events] == list(range(60, 10, -1))
    worst = load(workspace, "dashboard-state.json")["streams"]["patchtst"]["detections"]["events"][0]
    assert (worst["start"], worst["duration_seconds"]) == ("2026-01-09T06:00:25.000", 1.5)  # the recording's own clock
    assert worst["channels"] == [
        {"name": "rf_reflected_W", "share": 0.71}, {"name": "esc_current_uA", "share": 0.07}
    ]  # fmt: skip
    assert found.false_alarms == builders.STATEMENT
    assert unlabelled.false_alarms is None


def test_a_scoring_without_an_event_list_is_shown(workspace):
    (workspace / "artifacts/scores/patchtst_events.json").unlink()
    state = export_state(workspace)
    assert (state.streams["patchtst"].detections.total, state.problems) == (7, [])


# -------------------------------------------------------------------------------------------------------------- history
def test_an_unchanged_record_is_not_rewritten_and_a_changed_one_is(workspace):
    export_state(workspace)
    files = [workspace / f"training_dashboard/data/runs/{run}.json" for run in (FIRST, SECOND)]
    before = [path.stat().st_ino for path in files]
    write_run(workspace, "swinmae", SECOND, start=builders.START + timedelta(minutes=13), scale=0.5)
    export_state(workspace)
    after = [path.stat().st_ino for path in files]
    assert before[0] == after[0]
    assert before[1] != after[1]
    assert load(workspace, f"runs/{SECOND}.json")["state"] == "completed"


def test_a_record_outlives_its_run_folder(workspace):
    export_state(workspace)
    for stream in ("patchtst", "swinmae"):
        shutil.rmtree(workspace / "runs" / f"{stream}_ssl" / FIRST)
    state = export_state(workspace)
    runs = load(workspace, "runs/index.json")["runs"]
    assert [(run["run_id"], run["folder_present"]) for run in runs] == [(SECOND, True), (FIRST, False)]
    assert state.runs.total == 2


def test_without_history_only_the_state_is_written(workspace):
    state = export_state(workspace, persist_run_history=False)
    assert state.runs.total == 2
    assert not state.runs.exported
    assert not (workspace / "training_dashboard/data/runs").exists()


def test_a_run_can_be_requested_and_an_unknown_one_is_a_problem(workspace):
    asked = export_state(workspace, run_id=FIRST)
    assert (asked.streams["patchtst"].run_id, asked.streams["patchtst"].state) == (FIRST, "stopped")
    unknown = export_state(workspace, run_id="20991231-000000-0000")
    assert unknown.streams["patchtst"].run_id == SECOND
    assert "20991231-000000-0000" in unknown.problems[0].message


# ---------------------------------------------------------------------------------------------------- files and command
def test_the_command_prints_one_line_of_json(workspace, capsys):
    out = workspace / "elsewhere" / "state.json"
    assert main(["--repo-root", str(workspace), "--out", str(out), "--persist-run-history"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == {
        "written": "elsewhere/state.json",
        "verdict": "failed",
        "streams": {"patchtst": "completed", "swinmae": "failed"},
        "runs": 2,
        "problems": 0,
    }
    assert {path.name for path in out.parent.iterdir()} >= {"state.json", "runs", "quality"}


@pytest.mark.slow
def test_the_export_does_not_import_torch():
    code = "import sys; import pipelines.export_training_dashboard_state, pipelines.serve_dashboard; "
    code += "sys.exit(bool({'torch', 'plotly', 'pandas', 'matplotlib'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


def test_a_record_of_another_version_is_read_again(workspace):
    export_state(workspace)
    record = workspace / f"training_dashboard/data/runs/{SECOND}.json"
    write_json(record, {"schema_version": 0})
    export_state(workspace)
    assert load(workspace, f"runs/{SECOND}.json")["schema_version"] == 1


# ------------------------------------------------------------------------------------------------- other configurations
POOL = "20991231-235959-0000"


def move_run(root, stream, run_id, log_dir):
    (root / log_dir).mkdir(parents=True)
    (root / f"runs/{stream}_ssl/{run_id}").rename(root / log_dir / run_id)


def test_runs_of_another_configuration_are_listed_separately(root):
    """`landfall pool` trains a model of its own, here after the plant's."""
    build_finished_workspace(root)
    write_run(root, "patchtst", POOL, start=builders.START + timedelta(days=1))
    move_run(root, "patchtst", POOL, "runs/patchtst_ssl_pool")
    assert export_state(root).streams["patchtst"].run_id == SECOND
    listed = {run["run_id"]: run for run in load(root, "runs/index.json")["runs"]}
    assert listed.keys() == {SECOND, POOL}
    record = load(root, f"runs/{POOL}.json")
    assert record["streams"]["patchtst"]["log_dir"] == "runs/patchtst_ssl_pool"
    validate(record, "run")
    assert export_state(root, run_id=POOL).streams["patchtst"].run_id == POOL, "where it is requested"


def test_the_command_reads_the_folders_that_its_configurations_name(root, capsys):
    build_finished_workspace(root)
    shutil.copytree(REPOSITORY / "configs", root / "configs")
    (root / "configs/site.yaml").write_text(
        "defaults: [patchtst_ssl_local, _self_]\n"
        "logging: {log_dir: runs/site, checkpoint_path: checkpoints/site.pt, artifacts_dir: artifacts/site}\n"
        "dqvl: {report_dir: artifacts/site/quality}\n"
    )
    move_run(root, "patchtst", SECOND, "runs/site")
    for suffix in ("pt", "json"):
        (root / f"checkpoints/patchtst_ssl.{suffix}").rename(root / f"checkpoints/site.{suffix}")
    (root / "artifacts/site").mkdir()
    (root / "artifacts/scores").rename(root / "artifacts/site/scores")
    (root / "artifacts/dqvl/fdc").rename(root / "artifacts/site/quality")

    def exported(*words):
        assert main(["--repo-root", str(root), *words]) == 0
        capsys.readouterr()
        return load(root, "dashboard-state.json")["streams"]["patchtst"]

    assert exported()["state"] == "not started", "the standard folders are empty"
    shown = exported("--patch-config", "configs/site.yaml")
    assert (shown["run_id"], shown["checkpoint"]["path"]) == (SECOND, "checkpoints/site.pt")
    assert shown["scores"] is not None
    assert shown["quality"]["files"] == 3
    assert main(["--repo-root", str(root), "--swin-config", "configs/none.yaml"]) == 2


def test_a_run_names_its_weights_and_its_executed_notebook(workspace):
    weights, notebook = f"runs/patchtst_ssl/{SECOND}/model.pt", f"artifacts/notebooks/{SECOND}/local_patchtst_ssl.ipynb"
    for file in (weights, notebook):
        builders.write(workspace / file, "")
    state = export_state(workspace)
    run = load(workspace, f"runs/{SECOND}.json")["streams"]["patchtst"]
    assert (run["weights"], run["notebook"]) == (weights, notebook)
    assert state.streams["patchtst"].notebook == notebook
    assert state.streams["swinmae"].notebook is None
    page = builders.write(workspace / notebook.replace(".ipynb", ".html"), "")
    assert export_state(workspace).streams["patchtst"].notebook == page.relative_to(workspace).as_posix()
    (workspace / weights).unlink()
    export_state(workspace)
    assert load(workspace, f"runs/{SECOND}.json")["streams"]["patchtst"]["weights"] is None, "they were pruned"
