"""Calibration with newer reference data: what is fitted again, what is reported, and undo."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.errors import EXIT_DATA, EXIT_OK, EXIT_OUTPUT, EXIT_USAGE, DataError
from core.numbers import ratio_in_words
from inference.detector.file import load_detector
from inference.false_alarms import FalseAlarms
from inference.recalibrate import drift_in_words, main, previous_detector_path
from tests.inference.detector.scoring import assert_same, file_of, score
from tests.inference.trained_workspace import OVERRIDES, SHARED

NEWER = {
    "patchtst": ["data.splits.calibration.files=[data/fdc/newer_*.csv]", "data.splits.calibration.start=0.0"],
    "swinmae": ["data.splits.calibration.files=[data/vib/newer.npy]", "data.splits.calibration.start=0.0"],
}
both_streams = pytest.mark.parametrize("stream", ["patchtst", "swinmae"])


def calibrate(root: Path, stream: str, *arguments: str) -> int:
    return main(["--stream", stream, "--repo-root", str(root), *OVERRIDES[stream], *SHARED, *arguments])


def write_newer(root: Path, stream: str, *, drift: float) -> None:
    """Normal data of another month, noisier by a factor, in files that training never saw."""
    rng = np.random.default_rng(7)
    if stream == "swinmae":
        values_ta = np.sin(np.arange(20_000) * 0.3)[:, None] + drift * 0.2 * rng.normal(size=(20_000, 3))
        np.save(root / "data/vib/newer.npy", values_ta.astype(np.float32))
        return
    for number in range(2):
        driver_t1 = np.sin(np.arange(700) / 7)[:, None]
        frame = pd.DataFrame(driver_t1 + drift * 0.1 * rng.normal(size=(700, 4)), columns=list("pqrs"))
        start = pd.Timestamp("2026-03-01") + pd.Timedelta(number, "D")
        frame.insert(0, "timestamp", start + pd.to_timedelta(np.arange(700), "s"))
        frame.to_csv(root / f"data/fdc/newer_{number}.csv", index=False)


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.nightly)])
def test_calibration_reports_drift_and_is_kept_until_undone(trained, stream, capsys, caplog):
    write_newer(trained, stream, drift=4.0)
    file = file_of(trained, stream)
    old = score(trained, stream)
    written = file.read_bytes()
    with caplog.at_level(logging.INFO):
        assert calibrate(trained, stream, *NEWER[stream]) == EXIT_OK
    assert "calibrating run " in caplog.text
    output = json.loads(capsys.readouterr().out)
    change = output["change"]
    assert output["detector"] == f"checkpoints/{stream}_ssl.detector.npz"
    assert change["threshold"] == {"old": old.detector.threshold.value, "new": output["threshold"]["value"]}
    assert change["old_on_new"]["low"] > old.detector.threshold.false_alarm_rate
    assert change["high_score_ratio"] > 1.5
    assert "has drifted" in change["sentence"]
    assert all(name.split("/")[-1].startswith("newer") for name in change["learned_from"])
    assert previous_detector_path(file).read_bytes() == written
    assert load_detector(file).change == change

    caplog.set_level(logging.INFO)
    caplog.clear()
    new = score(trained, stream)
    assert "`landfall calibrate` fitted" in caplog.text
    assert "train: " not in caplog.text
    assert new.detector.threshold.to_json() == output["threshold"]
    assert np.nanmedian(new.scores.score_s) < np.nanmedian(old.scores.score_s)

    assert calibrate(trained, stream, "--undo") == EXIT_OK
    assert file.read_bytes() == written
    assert_same(score(trained, stream), old)
    assert calibrate(trained, stream, "--undo") == EXIT_OK
    assert_same(score(trained, stream), new)
    assert calibrate(trained, stream, "--from-config") == EXIT_OK
    caplog.clear()
    assert_same(score(trained, stream), old)
    assert "has not changed" in caplog.text


@pytest.mark.nightly
def test_more_data_of_the_same_process_is_not_drift(trained, capsys):
    write_newer(trained, "patchtst", drift=1.0)
    score(trained, "patchtst")
    assert calibrate(trained, "patchtst", *NEWER["patchtst"]) == EXIT_OK
    change = json.loads(capsys.readouterr().out)["change"]
    assert "No clear drift" in change["sentence"]
    assert change["high_score_ratio"] == pytest.approx(1.0, abs=0.2)


@pytest.mark.slow
def test_no_drift_is_reported_without_a_previous_detector(trained, capsys):
    write_newer(trained, "patchtst", drift=1.0)
    assert calibrate(trained, "patchtst", *NEWER["patchtst"]) == EXIT_OK
    assert "no earlier detector" in json.loads(capsys.readouterr().out)["change"]["sentence"]
    assert calibrate(trained, "patchtst", "--undo") == EXIT_USAGE
    assert "nothing was calibrated" in capsys.readouterr().err


@pytest.mark.nightly
def test_recordings_keep_their_own_reference(trained):
    rows = {"train": (0, 300), "validation": (300, 380), "calibration": (380, 640), "test": (640, 900)}
    own = [
        f"data.splits.{split}={{files: ['data/fdc/train_*.csv'], start: {start}, stop: {stop}}}"
        for split, (start, stop) in rows.items()
    ]
    own.append("scoring.allow_training_rows=true")
    assert len(score(trained, "patchtst", *own).detector.own_past) == 2
    newer = ["data.splits.calibration.start=500", "data.splits.calibration.stop=800"]
    assert calibrate(trained, "patchtst", *own, *newer) == EXIT_OK
    assert load_detector(file_of(trained, "patchtst")).own_past == ("data/fdc/train_1.csv", "data/fdc/train_2.csv")
    assert calibrate(trained, "patchtst", *own, newer[0], "data.splits.calibration.stop=700") == EXIT_OK
    assert load_detector(file_of(trained, "patchtst")).own_past == ()


@pytest.mark.nightly
def test_the_first_detector_is_kept_through_two_calibrations(trained, capsys):
    """At a plant without the training files."""
    write_newer(trained, "patchtst", drift=1.0)
    first = score(trained, "patchtst").detector
    for _ in range(2):
        assert calibrate(trained, "patchtst", *NEWER["patchtst"]) == EXIT_OK
    for path in (trained / "data/fdc").glob("train_*.csv"):
        path.unlink()
    assert calibrate(trained, "patchtst", "--from-config") == EXIT_OK
    assert load_detector(file_of(trained, "patchtst")).threshold == first.threshold
    assert json.loads(capsys.readouterr().out.split("\n}\n")[-2] + "\n}")["change"] is None


@pytest.mark.slow
def test_a_damaged_detector_does_not_replace_a_valid_one(trained):
    write_newer(trained, "patchtst", drift=1.0)
    score(trained, "patchtst")
    assert calibrate(trained, "patchtst", *NEWER["patchtst"]) == EXIT_OK
    file = file_of(trained, "patchtst")
    kept = previous_detector_path(file).read_bytes()
    file.write_bytes(b"torn")
    assert calibrate(trained, "patchtst", *NEWER["patchtst"]) == EXIT_OK
    assert previous_detector_path(file).read_bytes() == kept


@pytest.mark.nightly
def test_drift_cannot_be_reported_with_other_settings(trained, capsys):
    write_newer(trained, "patchtst", drift=1.0)
    score(trained, "patchtst")
    assert calibrate(trained, "patchtst", *NEWER["patchtst"], "scoring.smoothing_span=3") == EXIT_OK
    assert "drift is unknown" in json.loads(capsys.readouterr().out)["change"]["sentence"]


@pytest.mark.slow
def test_a_failed_calibration_changes_nothing(trained, capsys):
    write_newer(trained, "patchtst", drift=1.0)
    score(trained, "patchtst")
    written = file_of(trained, "patchtst").read_bytes()
    assert calibrate(trained, "patchtst") == EXIT_USAGE
    assert "no newer data" in capsys.readouterr().err
    assert calibrate(trained, "patchtst", "--config", "configs/patchtst_ssl_local.yaml") == EXIT_USAGE
    assert "no newer data" in capsys.readouterr().err
    few = ["data.splits.calibration.stop=40", "scoring.threshold.min_calibration=100"]
    assert calibrate(trained, "patchtst", *NEWER["patchtst"], *few) == EXIT_DATA
    assert calibrate(trained, "patchtst", "data.splits.calibration.files=[data/fdc/none_*.csv]") == EXIT_DATA
    assert calibrate(trained, "patchtst", *NEWER["patchtst"], "--checkpoint", "checkpoints/none.pt") == EXIT_OUTPUT
    assert file_of(trained, "patchtst").read_bytes() == written
    assert not previous_detector_path(file_of(trained, "patchtst")).exists()


@pytest.mark.nightly
def test_scoring_with_other_settings_keeps_the_calibration(trained, caplog):
    write_newer(trained, "patchtst", drift=2.0)
    assert calibrate(trained, "patchtst", *NEWER["patchtst"]) == EXIT_OK
    written = file_of(trained, "patchtst").read_bytes()
    score(trained, "patchtst", "scoring.model_weight=1")
    assert "`landfall calibrate` fitted" in caplog.text
    assert file_of(trained, "patchtst").read_bytes() == written


@pytest.mark.parametrize(
    ("achieved", "ratio", "expected"),
    [
        ((0.12, 0.08, 0.17), 1.83, "has drifted"),
        ((0.009, 0.003, 0.018), 1.1, "No clear drift"),
        ((0.0, 0.0, 0.002), 0.95, "No clear drift"),
        ((0.0, 0.0, 0.002), 0.5, "become quieter"),
    ],
)
def test_drift_is_reported_if_the_rate_is_outside_the_interval(achieved, ratio, expected):
    words = drift_in_words(FalseAlarms(*achieved, scores=1000, bursts=9), 0.01, ratio)
    assert expected in words
    assert f"{ratio_in_words(ratio)} times" in words


# ----------------------------------------------------------------------------------------------- rows of the training
TRAINED = {
    "patchtst": ["data.splits.calibration.files=[data/fdc/train_2.csv]", "data.splits.calibration.start=0.0"],
    "swinmae": ["data.splits.calibration.files=[data/vib/train_2.npy]", "data.splits.calibration.start=0.0"],
}
ELSEWHERE = [f"data.splits.{split}.files=[data/gone_*]" for split in ("train", "validation")]


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.slow)])
def test_calibrating_on_training_rows_is_rejected_with_these_rows(trained, stream, capsys, caplog):
    score(trained, stream)
    written = file_of(trained, stream).read_bytes()
    assert calibrate(trained, stream, *TRAINED[stream]) == EXIT_DATA
    output = capsys.readouterr().err
    suffix, last = {"patchtst": ("csv", 540), "swinmae": ("npy", 3000)}[stream]
    assert f"rows 0 to {last} of data/{'fdc' if suffix == 'csv' else 'vib'}/train_2.{suffix}" in output
    assert "scoring.allow_training_rows=true" in output
    assert file_of(trained, stream).read_bytes() == written

    assert calibrate(trained, stream, *TRAINED[stream], "scoring.allow_training_rows=true") == EXIT_OK
    assert "scoring.allow_training_rows = true" in caplog.text
    assert file_of(trained, stream).read_bytes() != written


@pytest.mark.nightly
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.slow)])
def test_fitting_a_detector_to_training_rows_is_rejected(trained, stream):
    """If the configuration does not name the training split, only the checkpoint contains it."""
    with pytest.raises(DataError, match="train_2"):
        score(trained, stream, *ELSEWHERE, *TRAINED[stream])
    assert not file_of(trained, stream).exists()
    score(trained, stream, *ELSEWHERE, *TRAINED[stream], "scoring.allow_training_rows=true")
    with pytest.raises(DataError, match="train_2"):  # the detector that was accepted is not used without that either
        score(trained, stream, *ELSEWHERE, *TRAINED[stream])
    assert calibrate(trained, stream, *ELSEWHERE, *TRAINED[stream], "--from-config") == EXIT_DATA


@pytest.mark.nightly
def test_training_rows_are_recognised_in_an_extended_copy(trained, capsys):
    frame = pd.read_csv(trained / "data/fdc/train_1.csv", parse_dates=["timestamp"])
    later = frame.assign(timestamp=frame["timestamp"] + pd.Timedelta(len(frame), "s"))
    pd.concat([frame, later]).to_parquet(trained / "data/fdc/plant_log.parquet")
    named = ["data.splits.calibration.files=[data/fdc/plant_log.parquet]"]
    assert calibrate(trained, "patchtst", *named, "data.splits.calibration.start=0.0") == EXIT_DATA
    assert "rows 0 to 540 of data/fdc/plant_log.parquet" in capsys.readouterr().err
    # What chose the best epoch (rows 540 to 675) was not trained on.
    assert calibrate(trained, "patchtst", *named, "data.splits.calibration.start=540") == EXIT_OK
