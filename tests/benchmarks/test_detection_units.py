"""Packs with other files: less data, fewer channels, labels of one kind, missing files."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from benchmarks.detection import process, vibration
from benchmarks.detection.__main__ import main
from benchmarks.detection.detectors import CHANCE, LANDFALL, SIMPLE, Rows, _standardised, _waves
from benchmarks.detection.process import SHORTEST_WINDOW, _shares
from benchmarks.detection.report import Findings
from core.data.windows import Series, WindowSet
from tests.inference.charts.plants import plant
from tests.support import REPO_ROOT


def table(values_nc: np.ndarray) -> pd.DataFrame:
    times = pd.date_range("2026-01-01", periods=len(values_nc), freq="min")
    return pd.DataFrame(values_nc).rename(columns="c{}".format).assign(timestamp=times)


def files_of(overrides: tuple[str, ...], split: str) -> list[str]:
    output = [text.split("=", 1)[1] for text in overrides if text.startswith(f"data.splits.{split}.files=")]
    return json.loads(output[-1])


@pytest.mark.nightly
def test_units_that_cannot_be_evaluated_are_left_out(tmp_path, caplog, monkeypatch):
    """A sensor alone, 300 normal rows, no anomaly; a machine without labels and a damaged one; a set without its split;
    a bearing that leaves none when it is left out."""
    pack = tmp_path / "päck (1), a=b"
    asd, awfd, femto = pack / "fdc/asd", pack / "fdc/st_awfd_d2", pack / "vibration/femto"
    for folder in (asd, awfd, femto):
        folder.mkdir(parents=True)
    (femto / "Bearing1_1.npz").touch()
    for machine in ("alone", "unlabelled"):
        table(plant(300, seed=1, num_channels=1)).to_parquet(asd / f"{machine}.train.parquet", index=False)
        test = table(plant(200, seed=2, num_channels=1))
        test.to_parquet(asd / f"{machine}.test.parquet", index=False)
    test[["timestamp"]].assign(anomaly=0).to_csv(asd / "alone.test.labels.csv.gz", index=False)
    (asd / "a_torn_one.train.parquet").write_bytes(b"PAR1")
    (asd / "a_torn_one.test.parquet").write_bytes(b"PAR1")
    table(plant(10, seed=3)).to_parquet(awfd / "D2.parquet", index=False)

    monkeypatch.setattr("benchmarks.detection.__main__._QUICK_UNITS", 3)
    out, sets = pack / "out", "asd,st_awfd_d2,femto,femto_80_95"
    assert main([str(pack), "--quick", "--set", sets, "--out", str(out), "--repo-root", str(REPO_ROOT)]) == 0
    found = json.loads((out / "benchmark.json").read_text())
    assert set(found["left_out"]) == {"asd/a_torn_one", "asd/unlabelled", "st_awfd_d2", "femto", "femto_80_95"}
    assert "a_torn_one.train.parquet" in found["left_out"]["asd/a_torn_one"]
    assert "labelled" in found["left_out"]["asd/unlabelled"]
    assert "D2.run_labels.csv.gz" in found["left_out"]["st_awfd_d2"]
    assert "- asd/unlabelled: no row" in (out / "benchmark.md").read_text()

    metrics = found["units"]["asd"]["asd/alone"][LANDFALL][0]
    assert metrics["normal_decisions"] == 75
    assert 0.0 <= metrics["far_expected_low"] < metrics["far_expected_high"]
    assert metrics["vus_pr"] is None
    assert 0.0 <= metrics["far"] < 0.5


@pytest.mark.parametrize(
    ("achieved", "expected"),
    [
        ({"0.01": {"rate": 0.02, "low": 0.005, "high": 0.03}, "0.05": None}, "Kept"),
        ({"0.01": {"rate": 0.02, "low": 0.015, "high": 0.03}, "0.05": None}, "Not kept at 1.0%"),
        ({"0.01": None, "0.05": None}, "Unknown"),
    ],
)
def test_an_alarm_rate_is_reported_only_if_it_is_known(achieved, expected):
    findings = Findings(seeds=1, quick=True)
    metrics = {"auroc": 1.0, "achieved": {"0.001": None, **achieved}, "drift_median": 1.0, "drift_90": 1.1}
    findings.add("fan", "fan_high", 1, {LANDFALL: metrics})
    assert findings.markdown().splitlines()[-1].startswith(expected)


def test_a_pack_without_usable_units_is_not_called_empty(tmp_path, capsys):
    (tmp_path / "fdc/tep").mkdir(parents=True)
    for name in ("d00_te_normal", "d01_te"):
        table(plant(200, seed=1)).to_parquet(tmp_path / f"fdc/tep/{name}.parquet", index=False)
    assert main([str(tmp_path), "--out", str(tmp_path / "out"), "--repo-root", str(REPO_ROOT)]) == 2
    assert "no unit" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------- rows and files
@pytest.mark.parametrize("num_rows", [3 * (SHORTEST_WINDOW + 1), 300, 312, 334, 433, 1000, 23687])
def test_a_short_machine_has_a_window_in_each_split(num_rows):
    rows = {
        split: round(stop * num_rows) - round(start * num_rows) for split, (start, stop) in _shares(num_rows).items()
    }
    assert min(rows.values()) >= SHORTEST_WINDOW
    assert sum(rows.values()) == num_rows
    if num_rows > 440:
        assert rows["train"] == round(0.6 * num_rows)
        assert rows["calibration"] == num_rows - round(0.75 * num_rows)


def test_skab_works_without_experiments_of_other_kinds(tmp_path):
    folder = tmp_path / "fdc/skab"
    folder.mkdir(parents=True)
    for name in ("valve1_0.csv.gz", "valve1_0.labels.csv.gz", "anomaly_free.csv.gz"):
        (folder / name).touch()
    (unit,) = process.skab(tmp_path, tmp_path)
    for split in ("train", "validation", "calibration", "test"):
        assert files_of(unit.overrides, split) == ["fdc/skab/valve1_0.csv.gz"]


def test_faults_of_an_earlier_pack_are_ignored(tmp_path):
    units = []
    for pack, faults in (("first", ["d01_te", "d02_te"]), ("second", ["d04_te"])):
        (tmp_path / pack / "fdc/tep").mkdir(parents=True)
        for name in ("d00_train_normal", "d00_te", *faults):
            table(plant(200, seed=1)).to_parquet(tmp_path / pack / f"fdc/tep/{name}.parquet", index=False)
        units += process.tep(tmp_path / pack, tmp_path / "work")
    assert [files_of(unit.overrides, "test") for unit in units] == [
        ["d01_te.parquet", "d02_te.parquet"],
        ["d04_te.parquet"],
    ]


def test_few_healthy_motors_fill_every_split(tmp_path):
    folder = tmp_path / "vibration/motor_pump_3axis"
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text("{}")
    for name in (*(f"H{number}" for number in range(6)), "F0"):
        (folder / f"{name}.npy").touch()
    (unit,) = vibration.motor(tmp_path, tmp_path / "work")
    splits = [files_of(unit.overrides, split) for split in ("train", "validation", "calibration", "test")]
    assert [len(files) for files in splits] == [3, 1, 2, 1]
    assert sorted(file for files in splits for file in files) == sorted(path.name for path in folder.glob("*.npy"))


# ------------------------------------------------------------------------------------------------------ simple methods
def whole_rows(z_nc: np.ndarray) -> Rows:
    return Rows(z_nc, np.zeros(len(z_nc), dtype=np.int64))


@pytest.mark.parametrize("method", [name for name in SIMPLE if name != CHANCE])
def test_a_running_mean_restarts_with_each_segment(method):
    """The end of the first segment does not affect the second."""
    rng = np.random.default_rng(0)
    normal_nc, quiet_nc = (rng.normal(size=(rows, 1)) + 0.1 * rng.normal(size=(rows, 3)) for rows in (500, 200))
    normal = whole_rows(normal_nc)
    wild_nc = quiet_nc.copy()
    wild_nc[90:100, 0] = 50.0
    segment_n = np.repeat([0, 1], 100)
    quiet_n, wild_n = (SIMPLE[method](normal, Rows(values_nc, segment_n))[1] for values_nc in (quiet_nc, wild_nc))
    np.testing.assert_allclose(wild_n[100:], quiet_n[100:])
    assert not np.allclose(wild_n[90:100], quiet_n[90:100])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", SIMPLE)
@pytest.mark.parametrize("num_channels", [1, 4])
def test_simple_methods_score_single_missing_and_extreme_channels(method, num_channels):
    normal_nc, new_nc = plant(300, seed=1, num_channels=num_channels), plant(300, seed=2, num_channels=num_channels)
    new_nc[150, 0] = normal_nc[10, -1] = 3e38
    if num_channels > 1:
        normal_nc[:, 1] = np.nan
        normal_nc[:, 2] = new_nc[:, 2] = 5.0
    for score_n in SIMPLE[method](*map(whole_rows, _standardised(normal_nc, new_nc))):
        assert np.isfinite(score_n.astype(np.float32)).all()
    assert score_n[150] >= np.median(score_n)


def test_missing_samples_are_replaced_by_the_mean_of_their_window():
    values_nc = np.arange(24, dtype=np.float32).reshape(12, 2)
    values_nc[1, 0] = values_nc[8:, 1] = np.nan
    waves = _waves(WindowSet(Series.of([], values_nc), np.array([0, 4, 8]), 4, np.array([[0, 12]])))
    np.testing.assert_allclose(waves[0], [[-10 / 3, -3], [0, -1], [2 / 3, 1], [8 / 3, 3]])
    np.testing.assert_allclose(waves[1], [[-3, -3], [-1, -1], [1, 1], [3, 3]])
    np.testing.assert_allclose(waves[2], [[-3, 0], [-1, 0], [1, 0], [3, 0]])
