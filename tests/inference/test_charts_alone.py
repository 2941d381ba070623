"""Control charts without a model: they need no training, are causal, and are reported next to the model's scores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.checkpoint import detector_path
from core.errors import EXIT_OK, EXIT_USAGE, OutputError
from inference import recalibrate
from inference.detector.file import _digest, load_detector
from inference.run_scoring_example import main, score_stream, why_not_current
from inference.score_text import against_labels
from pipelines.checklist import Checklist
from pipelines.dashboard.inputs import read_scores
from pipelines.problems import Problems
from pipelines.run_summary import summary_text
from pipelines.stream_configs import CONTRACT
from tests.inference.trained_workspace import OVERRIDES, SHARED, configuration
from tests.support import most_nightly
from tests.support.small_workspace import write_process_data

both_streams = pytest.mark.parametrize("stream", ["patchtst", "swinmae"])


@pytest.fixture
def untrained(trained) -> Path:
    """A workspace with data and configuration, and without any model."""
    shutil.rmtree(trained / "checkpoints")
    return trained


def run(root: Path, stream: str, *arguments: str) -> int:
    return main(["--stream", stream, "--repo-root", str(root), *OVERRIDES[stream], *SHARED, *arguments])


@pytest.mark.slow
@both_streams
def test_scoring_by_charts_alone_writes_all_outputs(untrained, stream, capsys):
    assert run(untrained, stream, "--detector", "charts", "--json") == EXIT_OK
    summary = json.loads(capsys.readouterr().out)
    folder = untrained / "artifacts/scores"
    assert summary == json.loads((folder / f"{stream}_summary.json").read_text())
    assert (summary["run_id"], summary["checkpoint"], summary["checkpoint_sha256"]) == (None, None, None)
    assert (summary["detector"]["kind"], summary["detector"]["file"]) == ("charts", None)
    assert summary["charts_alone"] is None
    scores, events = pd.read_parquet(folder / f"{stream}_scores.parquet"), pd.read_csv(folder / f"{stream}_events.csv")
    assert (scores["alarm"] == (scores["score"] > summary["threshold"]["value"])).all()
    assert (summary["alarms"], summary["events"]) == (scores["alarm"].sum(), len(events))
    assert summary["detection"]["auroc"] > 0.9
    assert summary["detection"]["faults_found"] == 1
    assert summary["unscored_rows"] == 0
    for name in summary["files"]:
        assert (untrained / name).stat().st_size > 0
    assert summary["panels"]
    document = json.loads(next((folder / f"{stream}_events").glob("*.json")).read_text())
    assert (document["component"], document["component_share"]) == ("charts", 1.0)
    # The charts of process sensors predict rows; those of vibration compare features and expect no waveform.
    assert document["expected_by"] == ("charts" if stream == "patchtst" else None)
    assert all(len(channel["seen"]) > 0 for channel in document["channels"])
    assert all(bool(channel["expected"]) == (stream == "patchtst") for channel in document["channels"])
    assert not (untrained / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("stream", most_nightly(["patchtst", "swinmae"], but=1))
def test_scores_of_charts_do_not_depend_on_later_data(untrained, stream):
    """The second half of a test file changes, the scores of the first half do not."""
    before = score_stream(configuration(stream, untrained), root=untrained, detector="charts").scores
    if stream == "patchtst":
        file = untrained / "data/fdc/test_2.csv"
        frame = pd.read_csv(file)
        frame.loc[150:, list("pqrs")] += 40.0
        frame.to_csv(file, index=False)
        name, first_changed = "data/fdc/test_2.csv", 150
    else:
        file = untrained / "data/vib/test_good.npy"
        values_ta = np.load(file)
        values_ta[3000:] *= 30.0
        np.save(file, values_ta)
        name, first_changed = "data/vib/test_good.npy", 3000
    after = score_stream(configuration(stream, untrained), root=untrained, detector="charts").scores
    mine = before["recording"] == name
    earlier, later = mine & (before["row"] < first_changed), mine & (before["row"] >= first_changed)
    assert earlier.sum() > 10
    pd.testing.assert_series_equal(before.loc[earlier, "score"], after.loc[earlier, "score"])
    assert after.loc[later, "score"].mean() > 2 * before.loc[later, "score"].mean()


@pytest.mark.nightly
def test_charts_are_fitted_to_the_reference_splits_that_the_configuration_names(untrained):
    """Without the second training file, the reference of the first alone counts."""
    everything = score_stream(configuration("patchtst", untrained), root=untrained, detector="charts")
    first = [f"data.splits.{split}.files=[data/fdc/train_1.csv]" for split in ("train", "validation", "calibration")]
    fewer = score_stream(configuration("patchtst", untrained, *first), root=untrained, detector="charts")
    assert fewer.summary["detector"]["recordings"] == 1
    assert fewer.threshold.calibration_scores < everything.threshold.calibration_scores
    assert fewer.threshold.value != everything.threshold.value


@pytest.mark.nightly
def test_scores_of_charts_are_current_until_data_settings_or_detector_change(untrained, trained_once, caplog):
    loaded = configuration("patchtst", untrained)

    def reasons(detector: str, *overrides: str) -> str:
        config = configuration("patchtst", untrained, *overrides).config
        return "; ".join(why_not_current(config, root=untrained, detector=detector))

    score_stream(loaded, root=untrained, detector="charts")
    assert reasons("charts") == ""
    assert "scoring.smoothing_span was" in reasons("charts", "scoring.smoothing_span=4")
    summary = untrained / "artifacts/scores/patchtst_summary.json"
    written = summary.read_bytes()
    with caplog.at_level("INFO"):
        assert run(untrained, "patchtst", "--detector", "charts", "--unless-current") == EXIT_OK
    assert "the scores are current" in caplog.text
    assert summary.read_bytes() == written

    shutil.copytree(trained_once / "checkpoints", untrained / "checkpoints")
    assert "model: checkpoint" in reasons("model")
    score_stream(loaded, root=untrained)
    assert reasons("model") == ""
    assert "model: checkpoint" in reasons("charts")
    score_stream(loaded, root=untrained, detector="charts")
    with (untrained / "data/fdc/test_1.csv").open("a", encoding="utf-8") as file:
        file.write("2026-01-09 00:00:00,0,0,0,0\n")
    assert "content of data.splits.test" in reasons("charts")


def test_a_checkpoint_option_is_rejected_for_charts(untrained, capsys):
    assert run(untrained, "patchtst", "--detector", "charts", "--checkpoint", "other.pt") == EXIT_USAGE
    assert "--checkpoint" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("stream", most_nightly(["patchtst", "swinmae"], but=1))
def test_a_scoring_with_a_model_also_reports_the_charts_alone(trained, stream, caplog):
    """Exactly the report of charts alone; for vibration, the scaler of the model is that of the same training data."""
    weight = "scoring.model_weight=0.5"
    with caplog.at_level("INFO"):
        both = score_stream(configuration(stream, trained, weight), root=trained).summary
    assert "control charts alone:" in caplog.text
    again = score_stream(configuration(stream, trained, weight), root=trained).summary  # by the stored detector
    alone = score_stream(configuration(stream, trained), root=trained, detector="charts").summary
    assert both["detector"]["kind"] == "model"
    for reported in (both["charts_alone"], again["charts_alone"]):
        assert reported["threshold"]["value"] == alone["threshold"]["value"]
        assert (reported["alarms"], reported["events"]) == (alone["alarms"], alone["events"])
        assert reported["detection"] == alone["detection"]
    assert both["threshold"]["value"] != alone["threshold"]["value"]
    lines = dict(against_labels(both))
    assert f"{alone['detection']['auroc']:.3f}" in lines["charts alone"]
    assert f"{both['detection']['auroc']:.3f}" in lines["row AUROC"]
    assert "charts alone" not in dict(against_labels(alone))


@pytest.mark.nightly
def test_a_stored_detector_of_another_format_is_refused_and_then_fitted_again(trained):
    first = score_stream(configuration("patchtst", trained), root=trained)
    path = detector_path(trained / "checkpoints/patchtst_ssl.pt")
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files if name != "sha256"}
    header = json.loads(arrays["header"].tobytes()) | {"format_version": 7}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **arrays, sha256=np.array(_digest(arrays)))
    with pytest.raises(OutputError, match="format version 7") as raised:
        load_detector(path)
    assert "landfall calibrate" in raised.value.hint
    assert score_stream(configuration("patchtst", trained), root=trained).threshold == first.threshold
    assert load_detector(path).threshold == first.threshold


@pytest.mark.slow
def test_calibration_dashboard_and_report_accept_the_summary_of_charts(trained, capsys):
    score_stream(configuration("patchtst", trained), root=trained, detector="charts")
    problems = Problems(trained)
    summary, found = read_scores(trained, CONTRACT["patchtst"], problems)
    assert problems.found == []
    assert (summary.run_id, summary.events) == (None, found.total)
    report = Checklist.of([])
    written = json.loads((trained / "artifacts/scores/patchtst_summary.json").read_text())
    assert "control charts alone" in summary_text({"patchtst": written}, report, trained)
    newer = ["data.splits.calibration.files=[data/fdc/test_2.csv]", "data.splits.calibration.start=0.0",
             "data.splits.calibration.stop=1.0"]  # fmt: skip
    arguments = ["--stream", "patchtst", "--repo-root", str(trained), *OVERRIDES["patchtst"], *SHARED, *newer]
    assert recalibrate.main(arguments) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["threshold"]["value"] > 0


@pytest.mark.slow
def test_without_a_stream_every_stream_in_use_is_scored(workspace, capsys):
    write_process_data(workspace / "data/fdc")
    assert main(["--detector", "charts", "--repo-root", str(workspace), "max_threads=1"]) == EXIT_OK
    printed = capsys.readouterr().out
    assert printed.startswith("patchtst: ")
    assert "swinmae" not in printed
    assert [path.name for path in (workspace / "artifacts/scores").glob("*_summary.json")] == ["patchtst_summary.json"]
