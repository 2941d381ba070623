"""How recordings are divided into splits with `by: auto`."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.config.compose import load_config, local_config_file
from core.config.recipe import as_trained
from core.config.schema import AnyConfig
from core.data.dataset import load_stream_data
from core.data.splits import TRAINING_SPLITS, SplitName
from tests.support import REPO_ROOT

SPLITS: tuple[SplitName, ...] = (*TRAINING_SPLITS, "calibration")


def local(root: Path, stream: str = "patchtst", *overrides: str) -> AnyConfig:
    words = (f"data.root={root}", "data.store_dir=''", "dqvl.enabled=false", "logging.progress=off", *overrides)
    return load_config(local_config_file(stream), words, root=REPO_ROOT, environment={}).config


def write_runs(root: Path, count: int, rows: int, *, first: int = 0) -> None:
    """Runs of a recipe, one in a file; the names are in the opposite order of the time stamps."""
    folder = root / "data/fdc"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        times = pd.Timestamp("2026-01-01") + pd.Timedelta(hours=number) + pd.to_timedelta(np.arange(rows), unit="s")
        values = np.random.default_rng(number).normal(size=(rows, 3))
        frame = pd.DataFrame(values, columns=["flow", "pressure", "current"])
        frame.insert(0, "timestamp", times)
        frame.to_csv(folder / f"train_{500 - number}.csv", index=False)


def write_batches(root: Path, count: int, *, shift: float = 0.0) -> None:
    """Runs that heat, react for different times and cool; each begins later in this course by `shift` of it."""
    folder = root / "data/fdc"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        generator = np.random.default_rng(number)
        heat, react, cool = np.linspace(20, 80, 300), np.full(int(generator.integers(500, 700)), 80.0), [20.0] * 300
        values_tc = np.concatenate([heat, react, cool])[:, None] + generator.normal(size=(len(react) + 600, 2))
        times = (
            pd.Timestamp("2026-01-01") + pd.Timedelta(hours=number) + pd.to_timedelta(np.arange(len(values_tc)), "s")
        )
        frame = pd.DataFrame(
            np.roll(values_tc, int(shift * number * len(values_tc)), axis=0), columns=["inner", "jacket"]
        )
        frame.insert(0, "timestamp", times)
        frame.to_csv(folder / f"train_{number:02}.csv", index=False)


def by_split(config: AnyConfig, root: Path) -> tuple[AnyConfig, dict[str, list[str]]]:
    """The configuration that was chosen, and the names of the recordings in each split, in order."""
    data = load_stream_data(config, root=root, splits=SPLITS)
    names = [Path(each.file_id).stem for each in next(iter(data.splits.values())).series.recordings]
    of = {name: [names[index] for index in dict.fromkeys(data.splits[name].segments.recordings)] for name in SPLITS}
    return data.config, of


def test_many_runs_are_divided_by_recording_in_the_order_of_time(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_runs(tmp_path, 20, 110)
    config, found = by_split(local(tmp_path), tmp_path)
    assert {config.data.splits.train.by, config.data.splits.calibration.by} == {"recording"}
    assert [len(found[name]) for name in SPLITS] == [12, 3, 5]
    assert set(found["train"]) == {f"train_{500 - number}" for number in range(12)}
    assert set(found["calibration"]) == {f"train_{500 - number}" for number in range(15, 20)}
    assert "the splits train, validation, calibration are divided by recording: each has 3 or more of the 20" in (
        caplog.text
    )


@pytest.mark.parametrize(
    ("count", "rows", "guard", "by"), [(19, 1_000, -1, "time"), (8, 110, -1, "recording"), (8, 110, 0, "time")]
)
def test_few_recordings_are_divided_by_time_if_they_are_long_enough(tmp_path, count, rows, guard, by):
    write_runs(tmp_path, count, rows)
    config, found = by_split(local(tmp_path, "patchtst", "data.window=16", f"data.guard={guard}"), tmp_path)
    assert config.data.splits.validation.by == by
    assert (set(found["train"]) == set(found["calibration"])) == (by == "time")


@pytest.mark.parametrize(
    ("count", "shift", "by"),
    [
        pytest.param(10, 0.0, "recording", id="ten runs"),
        pytest.param(10, 0.3, "time", id="ten files of a repeated recipe, not cut at its beginning"),
        pytest.param(5, 0.0, "time", id="too few runs for each split"),
    ],
)
def test_a_few_runs_of_a_recipe_are_divided_by_recording(tmp_path, caplog, count, shift, by):
    caplog.set_level(logging.INFO)
    write_batches(tmp_path, count, shift=shift)
    config, found = by_split(local(tmp_path), tmp_path)
    assert {config.data.splits[name].by for name in SPLITS} == {by}
    assert ("take the same course" in caplog.text) == (by == "recording")
    if by == "recording":
        assert [len(found[name]) for name in SPLITS] == [6, 2, 2]


def test_numbers_of_rows_divide_each_recording(tmp_path):
    write_runs(tmp_path, 20, 500)
    bounds = ("train.stop=300", "validation.start=300", "validation.stop=400", "calibration.start=400")
    config, found = by_split(local(tmp_path, "patchtst", *(f"data.splits.{each}" for each in bounds)), tmp_path)
    assert config.data.splits.train.by == "time"
    assert found["train"] == found["calibration"]


def test_files_without_time_stamps_are_in_the_order_of_their_numbers(tmp_path):
    folder = tmp_path / "data/vib"
    folder.mkdir(parents=True)
    for number in range(1, 13):
        np.save(folder / f"train_{number}.npy", np.random.default_rng(number).normal(size=(300, 3)).astype(np.float32))
    config = local(tmp_path, "swinmae", "data.sampling_rate_hz=1000", "scoring.threshold.min_calibration=2")
    config, found = by_split(config, tmp_path)
    assert config.data.splits.train.by == "recording"
    assert set(found["calibration"]) == {"train_9", "train_10", "train_11", "train_12"}


@pytest.mark.parametrize(
    ("count", "rows", "rate_hz", "by", "window", "fewest"),
    [
        pytest.param(60, 2_560, 25_600, "recording", 1_280, 100, id="a snapshot of a tenth of a second, many times"),
        pytest.param(8, 5_000, 1_000, "time", 375, 8, id="a load of five seconds in each file"),
        pytest.param(60, 60_000, 1_000, "time", 1_024, 100, id="many files of a minute"),
    ],
)
def test_vibration_of_any_usual_length_has_windows_in_every_split(tmp_path, count, rows, rate_hz, by, window, fewest):
    folder = tmp_path / "data/vib"
    folder.mkdir(parents=True)
    for number in range(count):
        values_ta = np.random.default_rng(number).normal(size=(rows, 2)).astype(np.float32)
        np.save(folder / f"train_{number:03}.npy", values_ta)
    config = local(tmp_path, "swinmae", f"data.sampling_rate_hz={rate_hz}")
    data = load_stream_data(config, root=tmp_path, splits=SPLITS)
    assert (data.config.data.splits.train.by, data.config.data.window) == (by, window)
    assert len(data.splits["validation"]) >= 8
    assert len(data.splits["calibration"]) >= max(fewest, config.scoring.threshold.min_calibration)


def test_new_recordings_do_not_change_the_division_of_a_trained_model(tmp_path):
    write_runs(tmp_path, 19, 1_000)
    trained, _ = by_split(local(tmp_path), tmp_path)
    write_runs(tmp_path, 10, 1_000, first=19)
    assert by_split(local(tmp_path), tmp_path)[0].data.splits.train.by == "recording"
    stored = trained.model_dump(mode="json")
    config, _ = by_split(as_trained(local(tmp_path), stored), tmp_path)
    assert config.data.splits.train.by == "time"
    assert as_trained(local(tmp_path), stored, is_other_data=True).data.splits.train.by == "auto"
    other = local(tmp_path, "patchtst", "data.splits.calibration.files=[data/fdc/train_4*.csv]")
    assert as_trained(other, stored).data.splits.calibration.by == "auto"
