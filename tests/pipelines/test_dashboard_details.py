"""Documents that the export writes next to the state: series, events, quality; and hardware and migration."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from core.run_status import EpochPoint
from core.workspace import utc_now
from pipelines.dashboard.runs import has_collapsed
from pipelines.dashboard.series import MAX_BINS, POINTS_PER_PART, export_series
from pipelines.export_training_dashboard_state import export_state
from pipelines.problems import Problems
from pipelines.stream_configs import CONTRACT
from tests.dashboard import builders
from tests.dashboard.builders import SECOND, build_workspace, write_run
from tests.dashboard.documents import load, validate
from tests.pipelines.more_inputs import RECORDING, write_devices, write_event, write_migration, write_score_table


@pytest.fixture
def workspace(tmp_path):
    build_workspace(tmp_path)
    write_score_table(tmp_path, "patchtst", {"data/06.csv": np.linspace(0, 1, 60), RECORDING: np.full(60, 0.5)})
    write_event(tmp_path, "patchtst", 7)
    return tmp_path


# ----------------------------------------------------------------------------------------------------------- a real run
def test_every_document_of_a_real_run_matches_its_schema_and_path(finished_workspace):
    root = finished_workspace.root
    state = load(root, "dashboard-state.json")
    validate(state, "dashboard-state")
    for name, stream in state["streams"].items():
        series, quality = load(root, stream["series"]), load(root, stream["quality_file"])
        validate(series, "series")
        validate(quality, "quality")
        assert sum(recording["points"] for recording in series["recordings"]) >= stream["scores"]["scores"]
        assert len(quality["files"]) == stream["quality"]["files"]
        assert {channel["missing"] for file in quality["files"] for channel in file["channels"]} == {0.0}
        details = [event["detail"] for event in stream["detections"]["events"] if event["detail"]]
        assert details
        for detail in details:
            validate(load(root, detail), "event")
        assert [decision["what"] for decision in stream["decisions"]][:3] == ["device", "precision", "memory"]
        assert all(decision["reason"] for decision in stream["decisions"][:3])
        assert 0 < stream["memory"]["measured_mb"] < stream["memory"]["limit_mb"]
        assert name in {"patchtst", "swinmae"}
    assert state["device"]["kind"] == "cpu"
    assert [notebook["source"] for notebook in state["migration"]["notebooks"]] == [
        "notebooks/colab_patchtst_ssl.ipynb", "notebooks/colab_swinmae_ssl.ipynb",
    ]  # fmt: skip
    (record,) = (load(root, path.relative_to(path.parents[1]).as_posix()) for path in run_records(root))
    readings = [point["memory_mb"] for point in record["streams"]["patchtst"]["step_history"]]
    assert max(filter(None, readings)) == record["streams"]["patchtst"]["peak_memory_mb"]


def run_records(root):
    return [path for path in (root / "training_dashboard/data/runs").glob("*.json") if path.stem != "index"]


# --------------------------------------------------------------------------------------------------------------- series
def test_short_series_contain_all_scores_labels_events_and_times(workspace):
    state = export_state(workspace)
    series = load(workspace, state.streams["patchtst"].series)
    first, second = series["recordings"]
    assert (series["threshold"], first["name"], second["name"]) == (0.83, "data/06.csv", RECORDING)
    assert first["t"] == list(range(60))
    assert first["low"] == first["high"] == np.linspace(0, 1, 60).round(5).tolist()
    assert (first["start"], first["labels"]) == ("2026-01-09T06:00:00.000", [[20.0, 29.0]])
    assert (first["events"], second["events"], first["details"]) == ([6], [7], [])


@pytest.mark.parametrize("name", ["segment", "stretch"])  # the second is that of earlier versions
def test_a_line_breaks_at_a_pause_of_the_recording(workspace, name):
    path = write_score_table(workspace, "patchtst", {"a": np.linspace(0, 1, 6)})
    table = pd.read_parquet(path)
    table["segment"] = [0, 0, 0, 1, 1, 1]
    table.loc[3:, "seconds"] += 1000.0
    table.rename(columns={"segment": name}).to_parquet(path, index=False)
    (recording,) = load(workspace, export_state(workspace).streams["patchtst"].series)["recordings"]
    assert recording["t"] == [0.0, 1.0, 2.0, 502.5, 1003.0, 1004.0, 1005.0]
    assert recording["low"] == [0.0, 0.2, 0.4, None, 0.6, 0.8, 1.0]
    assert recording["points"] == 6


def test_a_pause_is_kept_for_any_bin_size(workspace):
    path = write_score_table(workspace, "patchtst", {"a": np.full(50_000, 0.5)})
    table = pd.read_parquet(path)
    table["segment"] = np.searchsorted([7_005, 30_003], np.arange(50_000), side="right")
    table["seconds"] += 1000.0 * table["segment"]
    table.to_parquet(path, index=False)
    (recording,) = load(workspace, export_state(workspace).streams["patchtst"].series)["recordings"]
    assert [t for t, low in zip(recording["t"], recording["low"], strict=True) if low is None] == [7504.5, 31502.5]
    assert recording["t"] == sorted(recording["t"])
    assert len(recording["t"]) == len(recording["high"]) <= MAX_BINS + 4


@pytest.mark.nightly
def test_a_million_scores_become_bins_and_detail_files(tmp_path):
    score = np.random.default_rng(0).gamma(2, 1, 1_000_000).astype(np.float32)
    score[777_777], score[500:1000] = 99.0, np.nan
    write_score_table(tmp_path, "swinmae", {"long": score}, stamped=False)
    problems = Problems(tmp_path)
    name = export_series(tmp_path, CONTRACT["swinmae"], [], tmp_path / "data", problems)
    series = json.loads((tmp_path / "data" / name).read_text(), parse_constant=pytest.fail)
    (recording,) = series["recordings"]
    assert (recording["points"], len(recording["t"]), recording["start"]) == (1_000_000, MAX_BINS, None)
    assert recording["high"].index(99.0) == 777_777 * MAX_BINS // 1_000_000
    assert recording["high"][0] is not None
    assert recording["low"][1] is None
    parts = [json.loads((tmp_path / "data" / part["file"]).read_text()) for part in recording["details"]]
    validate(parts[0], "series-detail")
    assert {len(part["t"]) for part in parts} == {POINTS_PER_PART}
    everything = np.array([value for part in parts for value in part["score"]], dtype=float)
    np.testing.assert_allclose(everything, score, atol=1e-4)
    assert (recording["details"][3]["from_s"], parts[3]["t"][0]) == (150_000.0, 150_000.0)


def test_an_unchanged_table_is_not_read_again_and_a_changed_one_is(workspace):
    def files():
        return {
            path: path.stat().st_mtime_ns for path in (workspace / "training_dashboard/data/series").rglob("*.json")
        }

    write_score_table(workspace, "patchtst", {RECORDING: np.zeros(MAX_BINS + 1)})
    export_state(workspace)
    first = files()
    export_state(workspace)
    assert files() == first
    write_score_table(workspace, "patchtst", {RECORDING: np.ones(MAX_BINS + 1)})
    export_state(workspace)
    assert files().keys() == first.keys()
    assert all(time_ns != first[path] for path, time_ns in files().items())


def test_many_recordings_share_the_bins(tmp_path):
    write_score_table(tmp_path, "patchtst", {f"r{number}": np.ones(300) for number in range(200)})
    name = export_series(tmp_path, CONTRACT["patchtst"], [], tmp_path / "data", Problems(tmp_path))
    recordings = json.loads((tmp_path / "data" / name).read_text())["recordings"]
    assert {(len(recording["t"]), len(recording["details"])) for recording in recordings} == {(200, 1)}


# --------------------------------------------------------------------------------------------------------------- events
def test_documents_of_events_are_copied_only_for_the_current_scoring(workspace):
    write_event(workspace, "patchtst", 6, start_s=1.0)
    write_event(workspace, "swinmae", 5)
    streams = export_state(workspace).streams
    found = {event.id: event.detail for event in streams["patchtst"].detections.events}
    assert {number: detail for number, detail in found.items() if detail} == {7: "events/patchtst/7.json"}
    document = load(workspace, "events/patchtst/7.json")
    validate(document, "event")
    assert document["channels"][0]["seen"] == [0.5, None]
    assert load(workspace, "events/swinmae/5.json")["id"] == 5


def test_documents_of_an_earlier_scoring_are_removed(workspace):
    data = workspace / "training_dashboard/data"
    write_score_table(workspace, "patchtst", {RECORDING: np.zeros(MAX_BINS + 1)})
    export_state(workspace)
    others = data / "patchtst.json"
    others.write_text("{}")
    assert {"events/patchtst/7.json", "series/patchtst.json", "series/patchtst/0.json", "quality/patchtst.json"} <= {
        path.relative_to(data).as_posix() for path in data.rglob("*.json")
    }
    (workspace / "artifacts/scores/patchtst_summary.json").unlink()
    shutil.rmtree(workspace / "artifacts/dqvl/fdc")
    stream = export_state(workspace).streams["patchtst"]
    assert (stream.detections, stream.series, stream.quality_file) == (None, None, None)
    left = {path.relative_to(data).as_posix() for path in data.rglob("*patchtst*") if path.is_file()}
    assert left == {"patchtst.json"}
    assert not list((data / "events/patchtst").iterdir())


# -------------------------------------------------------------------------------------------------------- live and runs
def test_the_current_run_keeps_its_live_document_until_it_ends(workspace):
    live = workspace / "training_dashboard/data/live/swinmae.json"
    write_run(workspace, "swinmae", SECOND, state="running", done=4, updated_at=utc_now(), eta_seconds=33.5)
    builders.write(live, {"schema_version": 1})
    stream = export_state(workspace).streams["swinmae"]
    assert (stream.state, stream.eta_seconds, live.exists()) == ("running", 33.5, True)
    write_run(workspace, "swinmae", SECOND, eta_seconds=33.5)
    stream = export_state(workspace).streams["swinmae"]
    assert (stream.state, stream.eta_seconds, live.exists()) == ("completed", None, False)


@pytest.mark.parametrize(
    "losses, collapsed",
    [
        ([1.0, 0.5, 0.4], False),
        ([1.0, 0.5, 0.55, 0.6], False),
        ([1.0, 0.5, 0.8], True),
        ([0.7, 0.7, 0.7], True),
        ([1.0, 2.0], False),
        ([1.0, None, 0.5, 0.4], False),
    ],
)
def test_a_loss_that_never_moves_or_falls_back_is_a_collapse(losses, collapsed):
    assert has_collapsed([EpochPoint(epoch=at, train_loss=loss) for at, loss in enumerate(losses, 1)]) is collapsed


def test_steps_without_a_loss_are_counted_before_they_are_thinned(tmp_path):
    folder = write_run(tmp_path, "patchtst", SECOND)
    with (folder / "metrics.jsonl").open("a") as metrics:
        for step in range(10_000, 10_007):
            metrics.write(json.dumps({"kind": "step", "epoch": 12, "step": step, "loss": None}) + "\n")
    export_state(tmp_path)
    assert load(tmp_path, f"runs/{SECOND}.json")["streams"]["patchtst"]["nan_steps"] == 7


def test_recoveries_are_reported(tmp_path):
    folder = write_run(tmp_path, "patchtst", SECOND, recoveries=2)
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"kind": "recovery", "epoch": 1, "step": 3, "loss": None}) + "\n")
    export_state(tmp_path)
    record = load(tmp_path, f"runs/{SECOND}.json")
    assert record["streams"]["patchtst"]["recoveries"] == 2
    assert record["problems"] == []


# ----------------------------------------------------------------------------------------------- hardware and migration
def test_the_device_report_becomes_labelled_rows(workspace):
    write_devices(workspace)
    device = export_state(workspace).device
    assert (device.kind, device.name, device.precision) == ("cuda", "NVIDIA RTX 4000 Ada", "bf16-mixed")
    facts = [(fact.what, fact.value, fact.reason) for fact in device.facts]
    assert facts[0] == ("Device", "NVIDIA RTX 4000 Ada", "first usable of cuda, cpu")
    assert ("Memory", "up to 15.0 GiB", "balanced") in facts
    assert ("Cost", "0.50 USD/h", "an estimate") in facts
    (advice,) = [value for what, value, _ in facts if what == "Recommendation" and "cannot be used" in value]
    assert advice.startswith("NVIDIA RTX 4000 Ada cannot be used → ")
    (_, broken) = [fact for fact in facts if fact[0] == "Found"]
    assert broken[1].endswith("not usable")
    assert broken[2] == "the driver is too old"


def test_decisions_of_a_run_come_with_their_reasons(workspace):
    decisions = {row.what: (row.value, row.reason) for row in export_state(workspace).streams["patchtst"].decisions}
    assert decisions["device"] == ("NVIDIA RTX 4000 Ada", "first CUDA device that passed a matrix product")
    assert decisions["precision"] == ("bf16-mixed", "bf16 is native")


def test_migrated_notebooks_list_their_manual_steps(workspace):
    write_migration(workspace)
    write_migration(workspace, "other.ipynb", to_do=False)
    state = export_state(workspace)
    other, plant = state.migration.notebooks
    assert (plant.source, plant.target, plant.report) == (
        "plant.ipynb", "local_plant.ipynb", "artifacts/migration/plant.ipynb.json",
    )  # fmt: skip
    assert (plant.needs_you, other.needs_you) == (["cell 3, line 2: a key → revoke it"], [])
    assert [(rule.rule, rule.count) for rule in state.migration.rules] == [("LF402", 8), ("LF801", 1)]
    assert state.migration.rules[0].title == "folders in Python"
    node = state.pipeline[-1]
    assert (node.id, node.state, node.view) == ("migration", "attention", "migration")
    (workspace / "local_plant.ipynb").unlink()
    assert [notebook.source for notebook in export_state(workspace).migration.notebooks] == ["other.ipynb"]
