"""The stages of the pipeline from the steps of the last run, in the export and during the run."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from core.owner import Owner
from pipelines.export_training_dashboard_state import export_state
from pipelines.steps.stages import LivePipeline, PipelineRun, live_of
from tests.dashboard.builders import START, build_finished_workspace, write, write_run
from tests.dashboard.documents import validate

RUN = "20261121-083000-pipe"
LATER, LONG_AGO = START + timedelta(hours=1), START - timedelta(days=1)


@pytest.fixture
def root(tmp_path):
    """A workspace after a successful run."""
    return build_finished_workspace(tmp_path)


def output(*steps: dict, state: str = "completed", owner: str = "", at: datetime = LATER) -> dict:
    """The content of `pipeline.json`; steps without a stream or a state are of `patchtst` and took 80 s."""
    common = {"stage": "train", "stream": "patchtst", "state": "completed", "seconds": 80.0, "at": at.isoformat()}
    entries = {f"step-{number}": common | step for number, step in enumerate(steps)}
    run = {"schema_version": 1, "run_id": RUN, "state": state, "owner": owner, "updated_at": at.isoformat()}
    return run | {"steps": entries}


def exported(root, run: dict):
    """The export after that run, its stages by name."""
    write(root / f"artifacts/pipeline/{RUN}/pipeline.json", run)
    write(root / "artifacts/pipeline/last.json", {"run_id": RUN, "state": run["state"]})
    state = export_state(root)
    assert state.problems == []
    return state, {node.id: node for node in state.pipeline}


# ----------------------------------------------------------------------------------------------------------- the export
def test_stages_have_durations_or_are_skipped(root):
    steps = ({}, {"stream": "swinmae", "seconds": 61.0}, {"stage": "score", "state": "skipped"}, {"stage": "export"})
    state, nodes = exported(root, output(*steps))
    assert nodes["train"].state == nodes["score"].state == "done"
    assert nodes["train"].steps == "took 80 s and 61 s"
    assert (nodes["score"].detail, nodes["score"].steps) == ("14 events", "PatchTST-SSL unchanged, skipped")
    assert (nodes["export"].detail, nodes["export"].steps) == ("this page's data", None)
    assert (state.verdict.title, state.verdict.detail) == ("Ready", "6 of 8 checks passed, 1 warning, 1 skipped")


def test_a_failed_step_is_the_state_of_its_stage_and_the_verdict_with_the_cell_and_why(root):
    why = "local_patchtst_ssl.ipynb, In [8]: DataError: the split validation has no rows"
    steps = ({"state": "failed", "reason": why}, {"stage": "score", "state": "not run", "reason": "train failed"})
    state, nodes = exported(root, output(*steps, state="failed"))
    assert (nodes["train"].state, nodes["train"].detail) == ("failed", f"PatchTST-SSL failed: {why}")
    assert (nodes["score"].state, nodes["score"].detail) == ("attention", "PatchTST-SSL not run: train failed")
    assert state.verdict.detail == f"Train: PatchTST-SSL failed: {why}"


def test_later_manual_work_overrides_an_older_failure(root):
    steps = [{"state": "failed", "stage": stage, "reason": "gone wrong"} for stage in ("train", "score")]
    state, nodes = exported(root, output(*steps, state="failed", at=LONG_AGO))
    assert nodes["train"].state == nodes["score"].state == "done"
    assert "gone wrong" not in state.model_dump_json()


def test_after_manual_work_only_the_steps_of_the_other_stream_are_reported(root):
    steps = [{"stream": stream, "stage": stage} for stage in ("quality", "train") for stream in ("patchtst", "swinmae")]
    steps += [{"stage": "validate", "stream": None}]
    write_run(root, "patchtst", "20261121-123000-hand", start=LATER + timedelta(hours=1))
    _, nodes = exported(root, output(*steps))
    assert [nodes[stage].steps for stage in ("quality", "train", "validate")] == [
        *["Swin-MAE took 80 s"] * 2,
        None,
    ]


def test_a_check_that_failed_is_reported_with_its_count(root):
    checks = {"stage": "validate", "stream": None, "state": "failed", "reason": "one check failed"}
    report = json.loads((root / "artifacts/validation_report.json").read_text("utf-8"))
    report["items"][0]["status"] = "FAIL"
    write(root / "artifacts/validation_report.json", report | {"passed": False})
    _, nodes = exported(root, output(checks, state="failed"))
    assert nodes["validate"].detail == "1 of 8 checks failed, 1 warning, 1 skipped"
    assert nodes["validate"].steps == "failed: one check failed"


def test_a_pipeline_without_a_process_has_stopped(root):
    live = root / "training_dashboard/data/live/pipeline.json"
    write(live, "{}")
    owner = Owner.this_process().token
    steps = ({"state": "running", "note": "cell 3 of 15"}, {"stage": "score", "state": "waiting"})
    state, nodes = exported(root, output(*steps, state="running", owner=owner))
    assert (nodes["train"].state, nodes["train"].detail) == ("running", "PatchTST-SSL cell 3 of 15")
    assert (nodes["score"].state, nodes["score"].detail) == ("waiting", "")
    assert state.verdict.title == "Running"
    assert live.exists()
    state, nodes = exported(root, output(*steps, state="running"))
    assert nodes["train"].state == "attention"
    assert nodes["train"].detail.startswith("PatchTST-SSL stopped: ")
    assert nodes["score"].detail.startswith("PatchTST-SSL not run: ")
    assert not live.exists()


@pytest.mark.parametrize("text", ['{"run_id": 1', '{"schema_version": 7}', "[]"])
def test_a_damaged_record_is_a_problem_and_stops_nothing(root, text):
    write(root / f"artifacts/pipeline/{RUN}/pipeline.json", text)
    write(root / "artifacts/pipeline/last.json", {"run_id": RUN})
    (problem,) = export_state(root).problems
    assert problem.path == f"artifacts/pipeline/{RUN}/pipeline.json"


# ------------------------------------------------------------------------------------------------------ during a run
def live(*steps: dict, **run: str) -> LivePipeline:
    return live_of(PipelineRun.model_validate(output(*steps, **run)))


def test_the_live_document_always_has_a_verdict():
    going = live({"state": "running"}, state="running")
    assert (going.verdict.title, going.verdict.detail) == ("Pipeline running", f"run {RUN}")
    export = {"stage": "export", "stream": None}
    over = live({}, export)
    assert (over.verdict, over.stages) == (None, [])
    broken = live_of(
        PipelineRun.model_validate(output({}, export | {"state": "failed", "reason": "disk full"}, state="failed"))
    )
    assert broken.verdict.detail == "failed: disk full"
    assert [stage.id for stage in broken.stages] == ["train", "export"]
    for document in (going, over, broken):
        validate(json.loads(document.model_dump_json()), "live-pipeline")
