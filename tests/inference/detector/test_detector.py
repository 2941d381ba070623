"""The stored detector: scores are identical, do not depend on the path of the data, and foreign files are rejected."""

from __future__ import annotations

import logging
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detection.detectors import Trained
from benchmarks.detection.detectors import scored as benchmarked
from core.config.schema import PatchTSTConfig, Scoring
from core.config.scoring import ALARM_SETTINGS, WITHOUT_EFFECT
from core.data.identity import digest_of_split
from core.errors import DataError, OutputError
from inference.detector import stored as stored_detector
from inference.detector.detector import settings_of
from inference.detector.file import load_detector, save_detector
from inference.detector.fitting import fit
from inference.detector.stored import load_splits, open_model
from inference.entries import SplitErrors
from inference.groups import reference_of
from inference.thresholds import calibrate
from tests.inference.charts.plants import Splits, plant
from tests.inference.detector.scoring import assert_same, file_of, score
from tests.inference.trained_workspace import configuration
from tests.support import most_nightly

both_streams = pytest.mark.parametrize("stream", ["patchtst", "swinmae"])
# Every recording with a past of its own: the first rows of each are normal, the rest is scored.
OWN_PAST = [
    f"data.splits.{split}={{files: ['data/fdc/train_*.csv'], start: {start}, stop: {stop}}}"
    for split, (start, stop) in
    {"train": (0, 300), "validation": (300, 380), "calibration": (380, 640), "test": (640, 900)}.items()
]  # fmt: skip
OWN_PAST.append("scoring.allow_training_rows=true")  # the model was trained on other rows of these files
WHERE = {"logging": {"log_dir": "r", "checkpoint_path": "m.pt"}, "dqvl": {"report_dir": "q"}}


# --------------------------------------------------------------------------------------------------------- used again
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "overrides"),
    [
        ("patchtst", []),
        ("swinmae", []),
        pytest.param("patchtst", OWN_PAST, marks=pytest.mark.nightly),
        pytest.param("patchtst", ["scoring.model_weight=1"], marks=pytest.mark.nightly),
        pytest.param("swinmae", ["scoring.model_weight=1"], marks=pytest.mark.nightly),
        pytest.param("swinmae", ["data.store_dir=''"], marks=pytest.mark.nightly),
    ],
)
def test_scores_of_a_stored_detector_are_bit_identical(trained, stream, overrides, caplog):
    caplog.set_level(logging.INFO)
    fresh = score(trained, stream, *overrides)
    assert re.search(rf"fitting .*{stream}_ssl\.detector\.npz", caplog.text)
    written = file_of(trained, stream).read_bytes()
    caplog.clear()
    assert_same(score(trained, stream, *overrides), fresh)
    assert "fitting" not in caplog.text
    assert file_of(trained, stream).read_bytes() == written


@pytest.mark.parametrize(
    ("stream", "overrides"),
    [
        ("patchtst", []),
        pytest.param("swinmae", [], marks=pytest.mark.nightly),
        pytest.param("patchtst", OWN_PAST, marks=pytest.mark.nightly),
    ],
)
def test_the_benchmark_uses_the_scores_of_the_detector(trained, stream, overrides):
    loaded = configuration(stream, trained, *overrides)
    config, scoring = open_model(loaded, root=trained)
    data = load_splits(config, scoring, ("train", "validation", "calibration", "test"), root=trained)
    share = config.scoring.model_weight
    (judged,) = benchmarked(Trained(scoring, config, 0.0), data, {"ours": share})
    detected = score(trained, stream, *overrides)
    np.testing.assert_array_equal(detected.scores.score_s, judged.test["score"])
    known = judged.normal["score"].dropna()
    np.testing.assert_array_equal(detected.detector.sample.score_n, known)


@pytest.mark.slow
@both_streams
def test_scores_are_equal_without_the_training_data(trained, stream, tmp_path, caplog):
    fresh = score(trained, stream)
    plant_root = tmp_path / "plant"
    for folder in ("configs", "checkpoints"):
        shutil.copytree(trained / folder, plant_root / folder)
    for file in (trained / "data").rglob("test_*"):
        copy = plant_root / file.relative_to(trained)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    caplog.clear()
    caplog.set_level(logging.INFO)
    assert_same(score(plant_root, stream), fresh)
    assert "the detector of" in caplog.text
    assert "its data is missing" in caplog.text
    assert "fewer reference rows" not in caplog.text

    file_of(plant_root, stream).unlink()
    with pytest.raises(DataError, match=rf"\bcalibration\b.*{stream}_ssl\.detector\.npz") as caught:
        score(plant_root, stream)
    assert f"copy {stream}_ssl.detector.npz" in str(caught.value)


@pytest.mark.slow
def test_another_threshold_is_computed_without_a_new_fit(trained, caplog):
    score(trained, "patchtst")
    written = file_of(trained, "patchtst").read_bytes()
    caplog.set_level(logging.INFO)
    caplog.clear()
    rate = "scoring.threshold.false_alarm_rate=0.05"
    asked = score(trained, "patchtst", rate)
    assert "fitting" not in caplog.text
    assert file_of(trained, "patchtst").read_bytes() == written
    file_of(trained, "patchtst").unlink()
    assert_same(asked, score(trained, "patchtst", rate))
    rare = score(trained, "patchtst", "scoring.threshold.false_alarm_rate=0.0001").detector.threshold
    assert rare.value > asked.detector.sample.sorted_n[-1]
    assert rare.shortfall


# ---------------------------------------------------------------------------------------------------------- made again
def append_a_row(root: Path) -> list[str]:
    file = root / "data/fdc/train_1.csv"
    file.write_text(file.read_text() + "2026-02-05 00:00:00,0.1,0.2,0.3,0.4\n")
    return []


def tear(root: Path) -> list[str]:
    file = file_of(root, "patchtst")
    file.write_bytes(file.read_bytes()[:-100])
    return []


def of_another_model(root: Path) -> list[str]:
    file = file_of(root, "patchtst")
    save_detector(replace(load_detector(file), checkpoint_sha256="0" * 64), file)
    return []


REASONS = {
    "settings": (lambda _: ["scoring.smoothing_span=3"], "scoring.smoothing_span = 10, now 3"),
    "data": (append_a_row, "train and validation and calibration"),
    "torn": (tear, "cannot be read"),
    "model": (of_another_model, "belongs to another model"),
    "recordings": (lambda _: OWN_PAST, "train and validation and calibration"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", most_nightly(REASONS, but=2))
def test_an_outdated_detector_is_fitted_again_with_a_reason(trained, name, caplog):
    change, expected = REASONS[name]
    score(trained, "patchtst")
    overrides = change(trained)
    caplog.clear()
    caplog.set_level(logging.INFO)
    again = score(trained, "patchtst", *overrides)
    (line,) = [record.getMessage() for record in caplog.records if "fitting a detector" in record.getMessage()]
    assert expected in line
    assert_same(score(trained, "patchtst", *overrides), again)


def test_a_detector_belongs_to_all_settings_of_scores_and_to_none_of_alarms():
    scoring = {"model_weight", "look_ahead", "operating_context", "score_switches", "smoothing_span", "charts"}
    expected = {*(f"scoring.{name}" for name in scoring), "data.context_channels", "data.score_stride"}
    assert settings_of(PatchTSTConfig(**WHERE)).keys() == expected
    assert Scoring.model_fields.keys() > ALARM_SETTINGS | WITHOUT_EFFECT, "their names"


@pytest.mark.slow
def test_the_score_of_a_recording_does_not_depend_on_what_else_is_scored(trained, caplog):
    both = score(trained, "patchtst", *OWN_PAST)
    caplog.set_level(logging.INFO)
    one = score(trained, "patchtst", *OWN_PAST, "data.splits.test.files=[data/fdc/train_1.csv]")
    assert "fitting" not in caplog.text
    np.testing.assert_array_equal(one.scores.score_s, both.scores.score_s[: len(one.scores.score_s)])
    file_of(trained, "patchtst").unlink()
    again = score(trained, "patchtst", *OWN_PAST, "data.splits.test.files=[data/fdc/train_1.csv]")
    np.testing.assert_array_equal(again.scores.score_s, one.scores.score_s)
    assert again.detector.threshold == one.detector.threshold


# ------------------------------------------------------------------------------------------------------------ the file
@pytest.mark.slow
def test_a_detector_file_is_read_back_unchanged(trained):
    score(trained, "patchtst", *OWN_PAST)
    file = file_of(trained, "patchtst")
    detector = load_detector(file)
    save_detector(detector, file.with_name("copy.npz"))
    assert file.with_name("copy.npz").read_bytes() == file.read_bytes()
    assert detector.own_past == ("data/fdc/train_1.csv", "data/fdc/train_2.csv")
    assert set(detector.charts.charts) == {*detector.own_past, ""}
    assert detector.threshold.value == calibrate(detector.sample, detector.alarm_settings).value
    assert detector.threshold.achieved is not None


@pytest.mark.slow
@both_streams
def test_every_changed_byte_of_a_detector_is_detected(trained, stream):
    score(trained, stream)
    file = file_of(trained, stream)
    held = dict(np.load(file, allow_pickle=False))
    for name, array in held.items():
        if name == "sha256" or not array.size:
            continue
        changed = np.array(array)
        flat = changed.reshape(-1).view(np.uint8)
        flat[len(flat) // 2] ^= 1
        np.savez(file.open("wb"), **{**held, name: changed})
        with pytest.raises(OutputError, match=r"sha256|cannot be read"):
            load_detector(file)


def test_invalid_files_are_rejected_and_no_pickle_is_opened(tmp_path):
    path = tmp_path / "x.detector.npz"
    for made in ({"header": np.zeros(3)}, {"sha256": np.array([{}], dtype=object)}):
        np.savez(path, **made)
        with pytest.raises(OutputError, match=r"x\.detector\.npz: cannot be read"):
            load_detector(path)
    with pytest.raises(OutputError, match="cannot be read"):
        load_detector(tmp_path / "missing.npz")


def test_an_array_with_an_open_bracket_in_its_header_is_rejected(tmp_path):
    header = b"{'descr': (".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("header.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(OutputError, match="cannot be read"):
        load_detector(tmp_path / "x.npz")


# ------------------------------------------------------------------------------------------------- each by its own past
def made_up_errors(splits: dict, name: str, seed: int) -> SplitErrors:
    """What a model might give for the rows of a split: about 1, without information."""
    segments_k2 = splits[name].segments.rows_k2
    row_s = np.concatenate([np.arange(start, stop) for start, stop in segments_k2])
    error_sc = np.random.default_rng(seed).gamma(2, 0.5, size=(len(row_s), 3)).astype(np.float32)
    return SplitErrors(error_sc, row_s, np.repeat(np.arange(len(segments_k2)), np.diff(segments_k2)[:, 0]), 1)


@pytest.mark.slow
def test_an_unknown_recording_is_scored_by_all_references(caplog):
    """Two machines with reference data, and a later one that is similar."""
    machines = Splits([plant(3000, seed=0), plant(3000, seed=1), plant(1500, seed=2)])
    normal_rows = {"train": (0, 1000), "calibration": (1000, 2000)}
    splits = machines.of(
        **{name: dict.fromkeys((0, 1), rows) for name, rows in normal_rows.items()},
        test={0: (2000, 3000), 1: (2000, 3000), 2: (0, 1500)},
    )
    config = PatchTSTConfig(**WHERE, scoring={"model_weight": 0.3, "smoothing_span": 10})
    normal = reference_of(splits)
    detector = fit(config, "0", normal, {"calibration": made_up_errors(splits, "calibration", 0)})
    assert detector.own_past == ("machine_0", "machine_1")
    scores = detector.score(made_up_errors(splits, "test", 1), splits["test"])
    assert "1 recordings, such as machine_2," in caplog.text
    for known in (scores.score_s[:1000], scores.score_s[1000:2000], scores.score_s[2000:]):
        assert (known > detector.threshold.value).mean() < 0.05
        assert np.quantile(known, 0.9) == pytest.approx(np.quantile(detector.sample.score_n, 0.9), rel=0.25)


@pytest.mark.slow
def test_the_charts_know_how_quiet_the_calibration_data_is():
    """Their mean is about 1 in all reference data, and less in a part with smaller disturbances. It is compared with
    that of all reference data where the charts of rare commands make both small."""
    values_nc = plant(1600, 3)
    quiet_nc = np.concatenate([values_nc[:1200], 50 + 0.5 * (values_nc[1200:] - 50)])
    commands_nc = (np.random.default_rng(4).random((1600, 5)) < [0.1, 0.1, 0.002, 0.002, 0.002]).astype(float)
    config = PatchTSTConfig(**WHERE, scoring={"model_weight": 0.0, "smoothing_span": 10})

    def chart_mean(values_nc: np.ndarray) -> float:
        splits = Splits([values_nc])
        normal = reference_of(splits.of(train={0: (0, 1200)}, calibration={0: (1200, 1600)}))
        errors = {"calibration": SplitErrors.without_model("patchtst", normal["calibration"])}
        return fit(config, None, normal, errors).sample.chart_mean

    assert chart_mean(values_nc) == pytest.approx(1.0, abs=0.2)
    assert 0.1 < chart_mean(quiet_nc) < 0.5
    assert chart_mean(commands_nc) > 0.6  # the mean itself is 0.26


def test_the_identity_of_data_depends_on_content_not_on_path(trained, tmp_path):
    def data_of(root: Path, *overrides: str):
        config, scoring = open_model(configuration("patchtst", root, *overrides), root=root)
        splits = load_splits(config, scoring, ("calibration", "test"), root=root).splits
        return digest_of_split(splits["calibration"])

    moved = Path(shutil.copytree(trained, tmp_path / "elsewhere"))
    assert data_of(moved) == data_of(trained)
    assert data_of(trained, "data.splits.calibration.stop=0.99") != data_of(trained)
    assert data_of(trained, "data.score_stride=4") != data_of(trained)


@pytest.mark.slow
def test_the_calibration_sample_is_ordered_in_time_with_its_rate(trained):
    """The files of the sample data are a day apart, and a row takes a second; vibration has no time stamps."""
    sample = score(trained, "patchtst").detector.sample
    assert sample.seconds_per_score == 1.0
    assert (np.diff(sample.segment_n) >= 0).all()
    sample = score(trained, "swinmae").detector.sample
    assert sample.seconds_per_score == pytest.approx(0.064)


@pytest.mark.slow
def test_an_unwritable_folder_does_not_stop_scoring(trained, caplog, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(stored_detector, "save_detector", full)
    assert score(trained, "patchtst").detector.threshold.value > 0
    assert "not stored" in caplog.text
