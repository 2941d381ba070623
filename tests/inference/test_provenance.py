"""`landfall score --unless-current` skips scoring only if the result would be the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.errors import EXIT_OK
from inference import recalibrate
from inference.run_scoring_example import main
from tests.inference.trained_workspace import FAULT, OVERRIDES, SHARED
from tests.support import REPO_ROOT

PATCHTST = [*OVERRIDES["patchtst"], *SHARED]


def score(root: Path, *overrides: str) -> int:
    return main(["--stream", "patchtst", "--repo-root", str(root), "--unless-current", *PATCHTST, *overrides])


def summary_file(root: Path) -> Path:
    return root / "artifacts/scores/patchtst_summary.json"


def summary(root: Path) -> dict:
    return json.loads(summary_file(root).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scored_once(trained_once, tmp_path_factory) -> Path:
    """A scored workspace; to copy only."""
    root = Path(shutil.copytree(trained_once, tmp_path_factory.mktemp("scored") / "workspace"))
    assert score(root) == EXIT_OK
    return root


@pytest.fixture
def scored(scored_once, tmp_path, caplog) -> Path:
    caplog.set_level("INFO")
    return Path(shutil.copytree(scored_once, tmp_path / "workspace"))


@pytest.mark.slow
def test_current_scores_are_not_computed_again(scored, caplog):
    before = summary_file(scored).read_bytes()
    assert score(scored) == EXIT_OK
    assert "the scores are current" in caplog.text
    # How they are computed, and where files are kept, decides nothing.
    assert score(scored, "scoring.batch_size=3", "data.store_gb=1", "logging.every_steps=3") == EXIT_OK
    assert summary_file(scored).read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("scoring.threshold.false_alarm_rate=0.02", "scoring.threshold.false_alarm_rate was 0.01, is 0.02"),
        pytest.param("scoring.model_weight=0.4", "scoring.model_weight was 0.5, is 0.4", marks=pytest.mark.nightly),
        pytest.param("scoring.event_gap=4", "scoring.event_gap was 3, is 4", marks=pytest.mark.nightly),
        pytest.param("data.score_stride=8", "data.score_stride was 16, is 8", marks=pytest.mark.nightly),
    ],
)
def test_a_changed_setting_causes_a_new_scoring_and_is_named(scored, caplog, override, reason):
    assert score(scored, override) == EXIT_OK
    assert f"scores are recomputed: settings: {reason}" in caplog.text
    caplog.clear()
    assert score(scored, override) == EXIT_OK
    assert "the scores are current" in caplog.text


@pytest.mark.slow
def test_another_threshold_changes_the_files(scored):
    assert score(scored, "scoring.threshold.false_alarm_rate=0.1") == EXIT_OK
    output = summary(scored)["threshold"]
    table = pd.read_parquet(scored / "artifacts/scores/patchtst_scores.parquet")
    assert output["false_alarm_rate"] == 0.1
    assert table["threshold"].iloc[0] == pytest.approx(output["value"])


@pytest.mark.nightly
def test_scores_follow_a_calibration_and_its_undo(scored, caplog):
    newer = pd.read_csv(scored / "data/fdc/train_1.csv")
    newer["timestamp"] = pd.to_datetime(newer["timestamp"]) + pd.Timedelta(30, "D")
    newer[list("pqrs")] += np.random.default_rng(5).normal(0, 0.3, (len(newer), 4))
    newer.to_csv(scored / "data/fdc/newer.csv", index=False)
    calibrate = ["--stream", "patchtst", "--repo-root", str(scored), *PATCHTST]
    named = ["data.splits.calibration.files=[data/fdc/newer.csv]", "data.splits.calibration.start=0.0"]
    before = summary(scored)
    assert recalibrate.main([*calibrate, *named]) == EXIT_OK
    assert score(scored) == EXIT_OK
    assert "model: detector changed" in caplog.text
    assert summary(scored)["threshold"]["value"] != before["threshold"]["value"]
    assert recalibrate.main([*calibrate, "--undo"]) == EXIT_OK
    assert score(scored) == EXIT_OK
    assert summary(scored)["threshold"] == before["threshold"]


@pytest.mark.slow
def test_a_new_test_file_causes_a_new_scoring(scored, caplog):
    shutil.copy(scored / "data/fdc/test_2.csv", scored / "data/fdc/test_3.csv")
    assert score(scored) == EXIT_OK
    assert "files of data.splits.test was 2, is 3" in caplog.text
    assert summary(scored)["recordings"] == 3


@pytest.mark.nightly
def test_changed_values_cause_a_new_scoring(scored, caplog):
    file = scored / "data/fdc/test_2.csv"
    frame = pd.read_csv(file)
    frame.loc[50:80, "r"] += 9.0
    frame.to_csv(file, index=False)
    before = summary(scored)["alarms"]
    assert score(scored) == EXIT_OK
    assert "content of data.splits.test changed" in caplog.text
    assert summary(scored)["alarms"] > before


@pytest.mark.nightly
def test_changed_labels_cause_a_new_evaluation(scored, caplog):
    file = scored / "data/fdc/test_1.labels.csv"
    frame = pd.read_csv(file)
    frame.loc[FAULT.start : FAULT.stop, "anomaly"] = 0
    frame.loc[100:150, "anomaly"] = 1
    frame.to_csv(file, index=False)
    before = summary(scored)["detection"]["auroc"]
    assert score(scored) == EXIT_OK
    assert "labels of data.splits.test changed" in caplog.text
    assert summary(scored)["detection"]["auroc"] < before


@pytest.mark.nightly
def test_changed_reference_data_causes_a_new_detector(scored, caplog):
    file = scored / "data/fdc/train_2.csv"
    frame = pd.read_csv(file)
    frame[list("pqrs")] += np.random.default_rng(3).normal(0, 0.5, (len(frame), 4))
    frame.to_csv(file, index=False)
    before = summary(scored)
    assert score(scored) == EXIT_OK
    assert "content of data.splits.calibration changed" in caplog.text
    assert summary(scored)["detector"]["made_at"] != before["detector"]["made_at"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "written",
    [
        "scores.parquet",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("events.csv", "events.json", "timeline.png", "event")
        ),
        "panel",
    ],
)
def test_a_missing_output_is_written_again(scored, caplog, written):
    output = summary(scored)
    chosen = {"event": output["files"][4], "panel": output["panels"][0]["png"]}
    file = scored / chosen.get(written, f"artifacts/scores/patchtst_{written}")
    file.unlink()
    assert score(scored) == EXIT_OK
    assert f"{file.name} is missing" in caplog.text
    assert file.is_file()
    assert summary(scored)["files"] == output["files"]


@pytest.mark.nightly
def test_an_older_or_damaged_summary_is_ignored(scored, caplog):
    output = summary(scored)
    del output["made_of"]
    summary_file(scored).write_text(json.dumps(output), encoding="utf-8")
    assert score(scored) == EXIT_OK
    assert "inputs" in caplog.text
    summary_file(scored).write_text("{torn", encoding="utf-8")
    assert score(scored) == EXIT_OK
    assert "made_of" in summary(scored)


@pytest.mark.slow
def test_recognising_current_scores_does_not_import_torch(scored):
    program = (
        "import sys; from inference.run_scoring_example import main; "
        f"code = main(['--stream', 'patchtst', '--repo-root', {str(scored)!r}, '--unless-current', *{PATCHTST!r}]); "
        "sys.exit(code or 'torch' in sys.modules or 'pandas' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANDFALL_")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPO_ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the scores are current" in done.stderr
