import json
import logging
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from core.config.compose import config_from_dict
from core.config.data import Scaling
from core.config.schema import AnyConfig
from core.data.annotations import annotations_file
from core.data.dataset import SPLIT_NAMES, TRAINING_SPLITS, StreamData, check_quality
from core.data.scaling import Scaler
from core.data.splits import SCORING_SPLITS
from core.data.store import Store
from core.errors import DataError, QualityError
from tests.core.data.datasets import SPLIT, VIBRATION, WINDOW, load, make_config, write_ramp, write_vibration


def rows_of(data: StreamData, split: str) -> np.ndarray:
    """The value of column a at each row of each window, (W, T)."""
    windows = data.splits[split]
    return windows.batch(torch.arange(len(windows)))[:, :, 0].numpy().astype(int)


# --------------------------------------------------------------------------------------------------------------- recipe
AUTO = {"window": "auto", "stride": "auto", "score_stride": "auto"}


def adaptive(rows: int, root: Path, **data) -> AnyConfig:
    write_ramp(root, "plant.csv", rows)
    plain = make_config(**{**AUTO, "guard": -1, **data}).model_dump(mode="json")
    plain["model"] |= {"patch_length": "auto"}
    return config_from_dict(plain, source="a test")


@pytest.mark.parametrize(("rows", "window", "patch"), [(10_000, 256, 16), (1_200, 64, 8), (250, 16, 8)])
def test_a_recipe_follows_from_the_splits_of_normal_data(tmp_path, caplog, rows, window, patch):
    caplog.set_level(logging.INFO)
    config = adaptive(rows, tmp_path)
    data = load(tmp_path, config)
    assert (data.config.data.window, data.config.model.patch_length) == (window, patch)
    assert data.splits["train"].window == window
    assert f"data.window = {window}: " in caplog.text
    assert data.config.data.splits == config.data.splits
    again = load(tmp_path, data.config, SCORING_SPLITS, scaler=data.scaler)
    assert again.config == data.config


def test_gaps_make_windows_shorter(tmp_path):
    config = adaptive(10_000, tmp_path)
    write_ramp(tmp_path, "plant.csv", 10_000)
    frame = pd.read_csv(tmp_path / "data/plant.csv", parse_dates=["timestamp"])
    frame["timestamp"] += pd.to_timedelta(np.arange(len(frame)) // 100 * 3600, unit="s")
    frame.to_csv(tmp_path / "data/plant.csv", index=False)
    assert load(tmp_path, config).config.data.window == 32


def test_a_recipe_needs_the_splits_of_training(tmp_path):
    write_ramp(tmp_path, "later.csv", 500)
    plain = adaptive(5_000, tmp_path).model_dump(mode="json")
    for name in ("train", "validation"):
        plain["data"]["splits"][name]["files"] = ["data/plant.csv"]
    plain["data"]["splits"]["test"] = {"files": ["data/later.csv"]}
    config = config_from_dict(plain, source="a test")
    scaler = load(tmp_path, config).scaler
    with pytest.raises(DataError, match="train"):
        load(tmp_path, config, ("test",), scaler=scaler)


# ------------------------------------------------------------------------------------------------------------ splitting
def test_windows_never_cross_a_recording_a_gap_or_a_split(tmp_path):
    write_ramp(tmp_path, "one.csv", 400, gap_at=90)
    write_ramp(tmp_path, "two.csv", 300, first=10_000)
    config = make_config()
    train = rows_of(load(tmp_path, config), "train")
    validation = rows_of(load(tmp_path, config), "validation")
    test = rows_of(load(tmp_path, config, SCORING_SPLITS, scaler=load(tmp_path, config).scaler), "test")
    for windows in (train, validation, test):
        assert (np.diff(windows, axis=1) == 1).all(), "a window jumps between recordings"
    assert not ((train < 90).any(axis=1) & ((train >= 90) & (train < 10_000)).any(axis=1)).any(), "across the gap"
    assert set(train.ravel()) <= {*range(200), *range(10_000, 10_150)}
    assert set(validation.ravel()) <= {*range(200, 280), *range(10_150, 10_210)}
    assert set(test.ravel()) == {*range(340, 400), *range(10_255, 10_300)}, "scoring leaves no row out"


@pytest.mark.parametrize(
    "guard, start, first", [(-1, 0.5, 220), (0, 0.5, 200), (7, 0.5, 207), (20, 205, 220), (20, 230, 230)]
)
def test_a_guard_keeps_splits_of_one_file_apart(tmp_path, guard, start, first):
    write_ramp(tmp_path, "one.csv", 400)
    splits = {
        **SPLIT,
        "validation": {"files": ["data/*.csv"], "start": start, "stop": 280 if isinstance(start, int) else 0.7},
    }
    data = load(tmp_path, make_config(splits=splits, guard=guard))
    assert rows_of(data, "train").max() <= 199
    assert rows_of(data, "validation").min() == first


def test_scored_windows_without_look_ahead_include_earlier_rows(tmp_path):
    """Windows do not cross a gap; the scored rows are those of the split, each in the newest patch of a window."""
    write_ramp(tmp_path, "a.csv", 400, gap_at=290)
    data = load(tmp_path, make_config(look_ahead=False, score_stride=64), (*TRAINING_SPLITS, *SCORING_SPLITS))
    calibration, test = rows_of(data, "calibration"), rows_of(data, "test")
    assert data.splits["calibration"].segments.rows_k2.tolist() == [[280, 290], [290, 340]]
    assert calibration[:, 0].tolist() == [264, 268, 270, *range(290, 320, 4), 320]
    assert test[:, 0].tolist() == [*range(324, 380, 4), 380]
    newest = np.unique(np.concatenate([calibration[:, -4:].ravel(), test[:, -4:].ravel()]))
    assert newest.tolist() == [*range(280, 290), *range(306, 400)]
    assert rows_of(data, "validation")[0, 0] == 200


def test_splits_that_share_rows_are_rejected(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    splits = {**SPLIT, "validation": {"files": ["data/one.csv"], "start": 0.4, "stop": 0.7}}
    with pytest.raises(DataError, match=r"train and validation .*160 to 200") as caught:
        load(tmp_path, make_config(splits=splits))
    assert caught.value.path == tmp_path / "data" / "one.csv"


def test_a_split_that_is_not_loaded_is_checked_for_overlap(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    splits = {**SPLIT, "test": {"files": ["data/one.csv"], "start": 0.0, "stop": 0.1}}
    with pytest.raises(DataError, match=r"train and test .* 0 to 40"):
        load(tmp_path, make_config(splits=splits))


def test_splits_may_consist_of_complete_recordings(tmp_path):
    for number in range(4):
        write_ramp(tmp_path, f"{number}.csv", 60, first=1000 * number)
    files = {"files": ["data/*.csv"], "by": "recording"}
    splits = {
        "train": {**files, "stop": 0.5},
        "validation": {**files, "start": 2, "stop": 3},
        "calibration": {**files, "start": 3, "stop": 4},
        "test": {"files": ["data/none.csv"]},
    }
    data = load(tmp_path, make_config(splits=splits, guard=-1))
    assert set(rows_of(data, "train").ravel() // 1000) == {0, 1}
    assert set(rows_of(data, "validation").ravel() // 1000) == {2}
    assert rows_of(data, "validation").min() == 2000, "no guard where no split shares the file"


def test_labelled_faults_are_left_out_of_normal_operation_but_scored(tmp_path):
    write_ramp(tmp_path, "one.csv", 1000)
    before = load(tmp_path, make_config(), SPLIT_NAMES)
    notes = [
        {"recording": "data/one.csv", "start_seconds": 770.0, "end_seconds": 779.0, "label": "fault"},
        {"recording": "data/one.csv", "start_seconds": 720.0, "end_seconds": 729.0, "label": "false alarm"},
        {"recording": "data/one.csv", "start_seconds": 900.0, "end_seconds": 909.0, "label": "fault"},
        {"recording": "data/one.csv", "start_seconds": 820.0, "end_seconds": 829.0, "label": "fault", "data_root": "x"},
    ]
    path = annotations_file(tmp_path, "patchtst")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notes), encoding="utf-8")
    data = load(tmp_path, make_config(), SPLIT_NAMES)
    left = set(range(700, 770 - WINDOW)) | set(range(780 + WINDOW, 850))
    assert set(rows_of(data, "calibration").ravel()) == left
    assert len(data.splits["test"]) == len(before.splits["test"])
    assert len(data.splits["calibration"]) < len(before.splits["calibration"])
    path.write_text("[3]", encoding="utf-8")
    with pytest.raises(DataError, match="patchtst_annotations"):
        load(tmp_path, make_config())


# ---------------------------------------------------------------------------------------------------- nothing to learn
def test_rows_in_short_segments_are_reported(tmp_path, caplog):
    write_ramp(tmp_path, "one.csv", 400, gap_at=10)
    load(tmp_path, make_config())
    assert "train: 10 of 200 rows" in caplog.text


def test_a_split_shorter_than_a_window_is_a_data_error(tmp_path):
    write_ramp(tmp_path, "one.csv", 80)
    with pytest.raises(DataError, match=r"validation .*20 rows \(longest: 16\)") as caught:
        load(tmp_path, make_config())
    assert "record 100 rows" in caught.value.hint
    assert {"data.window", "data.gap_factor"} <= set(re.findall(r"[\w.]+", caught.value.hint))


@pytest.mark.parametrize(
    "split, change, guard",
    [
        ("train", {"by": "recording", "start": 5, "stop": 9}, 0),
        ("validation", {"start": 0.5, "stop": 0.55}, 50),
    ],
)
def test_a_split_without_rows_is_a_data_error(tmp_path, split, change, guard):
    write_ramp(tmp_path, "one.csv", 400)
    splits = {**SPLIT, split: {"files": ["data/*.csv"], **change}}
    with pytest.raises(DataError, match=rf"data\.splits\.{split}"):
        load(tmp_path, make_config(splits=splits, guard=guard))


def test_a_split_without_files_and_a_glob_without_match_are_named(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    with pytest.raises(DataError, match=r"data\.splits\.train\.files"):
        load(tmp_path, make_config(splits={**SPLIT, "train": {}}))
    with pytest.raises(DataError, match=r"x_\*"):
        load(tmp_path, make_config(splits={**SPLIT, "train": {"files": ["data/x_*"]}}))


# ---------------------------------------------------------------------------------------------------- files that differ
@pytest.mark.parametrize("split, rows", [("train", slice(0, 100)), ("validation", slice(100, 140))])
def test_a_split_without_observed_values_is_rejected(tmp_path, split, rows):
    write_ramp(tmp_path, "a.csv", 200)
    frame = pd.read_csv(tmp_path / "data/a.csv")
    frame.loc[rows.start : rows.stop - 1, ["a", "b"]] = np.nan
    frame.to_csv(tmp_path / "data/a.csv", index=False)
    with pytest.raises(DataError, match=rf"windows .*data\.splits\.{split}") as caught:
        load(tmp_path, make_config())
    assert f"data.splits.{split}" in caught.value.hint
    frame.loc[rows.start, "b"] = 1.0
    frame.to_csv(tmp_path / "data/a.csv", index=False)
    assert len(load(tmp_path, make_config()).splits[split])


@pytest.mark.parametrize("failure", [RuntimeError("codec gone\nand more"), MemoryError()])
def test_a_reader_that_fails_unexpectedly_is_reported_with_its_file(tmp_path, monkeypatch, failure):
    for name in ("a.csv", "b.csv"):
        write_ramp(tmp_path, name, 200)
    read = Store.read

    def fail_on_b(store, path, **options):
        if path.name == "b.csv":
            raise failure
        return read(store, path, **options)

    monkeypatch.setattr(Store, "read", fail_on_b)
    with pytest.raises(DataError, match=rf"b\.csv: .*{type(failure).__name__}: ") as caught:
        load(tmp_path, make_config())
    assert caught.value.path == tmp_path / "data/b.csv"
    assert caught.value.__cause__ is failure
    assert "\n" not in str(caught.value)


def test_differing_channels_name_the_file_and_the_channels(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    write_ramp(tmp_path, "two.csv", 400, columns=("a", "c"))
    with pytest.raises(DataError, match=r"data/one\.csv: 1 of 2 missing \(b\), 1 additional \(c\)") as caught:
        load(tmp_path, make_config())
    assert caught.value.path.name == "two.csv"


def test_vibration_files_with_different_rates_are_rejected(tmp_path):
    write_vibration(tmp_path, "one", 1000)
    write_vibration(tmp_path, "two", 2000)
    with pytest.raises(DataError, match=r"\b2000\b.*data/one\.npy.*\b1000\b") as caught:
        load(tmp_path, make_config("swinmae", splits=VIBRATION, window=40))
    assert caught.value.path.name == "two.npy"
    assert "data.resample_hz" in caught.value.hint


def test_vibration_without_a_sampling_rate_is_rejected(tmp_path):
    write_vibration(tmp_path, "one", None)
    config = {"splits": VIBRATION, "window": 40}
    with pytest.raises(DataError, match="sampling_rate_hz") as caught:
        load(tmp_path, make_config("swinmae", **config))
    assert caught.value.path.name == "one.npy"
    assert load(tmp_path, make_config("swinmae", **config, sampling_rate_hz=500.0)).sampling_rate_hz == 500.0


# -------------------------------------------------------------------------------------------------------------- quality
def stop_changing(source: Path, target: Path) -> None:
    pd.read_csv(source).assign(a=1.0, b=2.0).to_csv(target, index=False)


def test_each_file_has_a_report_and_failed_files_are_left_out(tmp_path, caplog):
    write_ramp(tmp_path, "good.csv", 400)
    stop_changing(tmp_path / "data/good.csv", tmp_path / "data/dead.csv")
    data = load(tmp_path, make_config(), run_id="run-1")
    reports = [json.loads(path.read_text()) for path in (tmp_path / "artifacts/dqvl/x").glob("*.json")]
    assert {report["file_id"]: report["decision"] for report in reports} == {
        "data/good.csv": "keep",
        "data/dead.csv": "drop",
    }
    assert {report["run_id"] for report in reports} == {"run-1"}
    assert [recording.file_id for recording in data.splits["train"].series.recordings] == ["data/good.csv"]
    assert "data/dead.csv dropped: 100.00 %" in caplog.text


def test_messages_name_files_of_a_data_root_by_their_path_from_the_workspace(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = tmp_path / "samples"
    folder.mkdir()
    write_ramp(folder, "good.csv", 400)
    stop_changing(folder / "data/good.csv", folder / "data/dead.csv")
    config = make_config()
    config = config.model_copy(update={"data": config.data.model_copy(update={"root": "samples"})})
    load(tmp_path, config)
    dropped = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert [text.partition(" ")[0] for text in dropped] == ["samples/data/dead.csv"]


def test_no_report_is_written_or_named_on_request(tmp_path, caplog):
    caplog.set_level("INFO")
    write_ramp(tmp_path, "good.csv", 400)
    data = load(tmp_path, make_config(), write_reports=False)
    assert len(data.reports) == 1
    assert not (tmp_path / "artifacts/dqvl").exists()
    assert "artifacts/dqvl" not in caplog.text


def test_when_every_file_is_dropped_the_first_reasons_are_reported(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    stop_changing(tmp_path / "data/one.csv", tmp_path / "data/one.csv")
    for judge in (load, lambda root, config: check_quality(config, root=root)):
        with pytest.raises(QualityError, match=r"data/one\.csv: .*\b100\.00 %"):
            judge(tmp_path, make_config())


def test_files_with_other_channels_are_an_error_of_the_quality_check_too(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    write_ramp(tmp_path, "two.csv", 400, columns=("a", "other"))
    config = make_config()
    with pytest.raises(DataError, match="channels differ"):
        check_quality(config, root=tmp_path)
    assert len(list((tmp_path / config.dqvl.report_dir).glob("*.json"))) == 2, "both have a report"


def test_a_linked_data_folder_keeps_its_name_in_reports(tmp_path):
    plant, root = tmp_path / "drive", tmp_path / "workspace"
    plant.mkdir()
    root.mkdir()
    write_ramp(plant, "one.csv", 400)
    (root / "data").symlink_to(plant / "data")
    assert [report.file_id for report in load(root, make_config()).reports] == ["data/one.csv"]


# -------------------------------------------------------------------------------------------------------------- scaling
def test_scaling_is_learned_from_training_rows_only(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    config = make_config(scaling={"method": "zscore"})
    before = load(tmp_path, config).scaler
    frame = pd.read_csv(tmp_path / "data/one.csv")
    frame.loc[200:, "a"] += 1e5
    frame.to_csv(tmp_path / "data/one.csv", index=False)
    assert load(tmp_path, config).scaler == before
    training_tc = np.stack([np.arange(200.0), -np.arange(200.0)], axis=1).astype(np.float32)
    assert before == Scaler.fit([training_tc], ("a", "b"), Scaling(method="zscore"))


def test_a_given_scaler_is_applied_unchanged(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    scaler = Scaler("zscore", ("a", "b"), (10.0, 0.0), (2.0, 1.0), 1e9, {})
    data = load(tmp_path, make_config(), SCORING_SPLITS, scaler=scaler)
    assert data.scaler is scaler
    assert rows_of(data, "calibration").min() == (280 - 10) // 2


def test_a_scaler_of_other_channels_is_rejected(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    scaler = Scaler("none", ("a", "z"), (0.0, 0.0), (1.0, 1.0), 1e9, {})
    with pytest.raises(DataError, match=r"1 of 2 missing \(z\), 1 additional \(b\)") as raised:
        load(tmp_path, make_config(), SCORING_SPLITS, scaler=scaler)
    assert all(way in raised.value.hint for way in ("landfall train patchtst", "--detector charts"))


def test_many_differing_channels_are_counted_and_only_the_first_are_named(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    scaler = Scaler("none", (*(f"s{at}" for at in range(9)), "b", "a"), (0.0,) * 11, (1.0,) * 11, 1e9, {})
    with pytest.raises(DataError, match=r"trained on: 9 of 11 missing \(s0, s1, s2, …\) "):
        load(tmp_path, make_config(), SCORING_SPLITS, scaler=scaler)


def test_loading_logs_the_number_of_windows(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_ramp(tmp_path, "one.csv", 400)
    data = load(tmp_path, make_config())
    assert f"train: {len(data.splits['train'])} windows" in caplog.text
