"""A plant with process sensors only: no command for both streams complains about vibration."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core.errors import EXIT_OK
from core.page import STATE
from pipelines import export_training_dashboard_state, run_local_training_pipeline, validate_training_outputs
from pipelines.dashboard.state_documents import DashboardState
from tests.support.small_workspace import PIPELINE_ARGUMENTS


@pytest.fixture
def sensors_only(copied: Path) -> Path:
    """A finished run of both streams, from which vibration data and its outputs were removed."""
    shutil.rmtree(copied / "data/vib")
    for pattern in ("runs/swinmae*", "checkpoints/swinmae*", "artifacts/**/*swinmae*"):
        for path in copied.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return copied


def test_the_pipeline_has_no_step_for_an_unused_stream(sensors_only, capsys):
    code = run_local_training_pipeline.main(["--repo-root", str(sensors_only), *PIPELINE_ARGUMENTS, "--dry-run"])
    steps = capsys.readouterr().out
    assert code == EXIT_OK
    assert "notebook-patchtst" in steps
    assert "swinmae" not in steps


@pytest.mark.nightly
def test_the_checklist_passes_without_an_unused_stream(sensors_only, capsys):
    arguments = ["--repo-root", str(sensors_only), *PIPELINE_ARGUMENTS, "--json", "--skip-smoke"]
    code = validate_training_outputs.main(arguments)
    report = json.loads(capsys.readouterr().out)
    assert code == EXIT_OK
    assert any("patchtst" in item["id"] for item in report["items"])
    assert not any("swinmae" in item["id"] for item in report["items"])


@pytest.mark.nightly
def test_the_dashboard_explains_an_unused_stream(sensors_only, capsys):
    validate_training_outputs.main(["--repo-root", str(sensors_only), *PIPELINE_ARGUMENTS, "--skip-smoke"])
    arguments = ["--repo-root", str(sensors_only), *PIPELINE_ARGUMENTS]
    assert export_training_dashboard_state.main(arguments) == EXIT_OK
    expected = json.loads(capsys.readouterr().out.splitlines()[-1])
    state = DashboardState.model_validate_json((sensors_only / STATE).read_bytes())
    assert expected["streams"]["swinmae"] == "not in use"
    assert state.streams["swinmae"].light.state == "not in use"
    assert "data/vib" in state.streams["swinmae"].light.detail
    assert not any("Swin" in node.detail for node in state.pipeline)
    assert state.verdict.state == "done", state.verdict
