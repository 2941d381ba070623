"""The benchmark on a pack made for the test: real training, real scoring, and what it leaves."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from inference.benchmark.__main__ import main
from inference.benchmark.detectors import LANDFALL, MODEL_ALONE, SIMPLE, STATISTICS_ALONE
from inference.benchmark.figures import _in_time, _interval, _oracle_f1, _spells
from tests.inference.test_autoregression import plant
from tests.support import REPO_ROOT

ROWS, FAULT = 3000, slice(1200, 1500)


def table(values_nc: np.ndarray) -> pd.DataFrame:
    times = pd.date_range("2026-01-01", periods=len(values_nc), freq="min")
    return pd.DataFrame(values_nc, columns=list("abc")).assign(timestamp=times)


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """Two machines; in the test of each, one channel leaves the others for five hours."""
    folder = tmp_path_factory.mktemp("pack") / "fdc" / "asd"
    folder.mkdir(parents=True)
    for machine in (1, 2):
        table(plant(ROWS, seed=machine)).to_parquet(folder / f"m{machine}.train.parquet", index=False)
        test_nc = plant(ROWS, seed=10 + machine)
        test_nc[FAULT, 1] = plant(ROWS, seed=20 + machine)[FAULT, 1]
        test = table(test_nc)
        test.to_parquet(folder / f"m{machine}.test.parquet", index=False)
        anomaly = np.zeros(ROWS, dtype=int)
        anomaly[FAULT] = 1
        labels = test[["timestamp"]].assign(anomaly=anomaly)
        labels.to_csv(folder / f"m{machine}.test.labels.csv.gz", index=False)
    return folder.parents[1]


def test_a_pack_is_judged_from_its_files_to_the_picture(pack, tmp_path, capsys):
    arguments = [str(pack), "--set", "asd", "--quick", "--out", str(tmp_path), "--repo-root", str(REPO_ROOT)]
    assert main(arguments) == 0
    document = json.loads((tmp_path / "benchmark.json").read_text())
    found = document["sets"]["asd"]
    assert set(found) == {LANDFALL, MODEL_ALONE, STATISTICS_ALONE, *SIMPLE}
    (figures,) = found[LANDFALL]
    assert figures["auroc"] > 0.8
    assert figures["vus_pr"] > 0.5
    assert figures["auroc"] > found["z² + EWMA-10"][0]["auroc"] + 0.1
    assert figures["far"] < 0.05
    assert figures["seen"] == 1.0
    assert figures["unscored"] == 0
    assert set(document["units"]["asd"]) == {"asd/m1", "asd/m2"}
    assert "## ASD" in capsys.readouterr().out
    assert (tmp_path / "benchmark.png").stat().st_size > 5_000


def test_a_pack_without_the_set_is_refused(tmp_path, capsys):
    assert main([str(tmp_path), "--out", str(tmp_path / "out"), "--repo-root", str(REPO_ROOT)]) == 2
    assert "holds none of the sets" in capsys.readouterr().err


def test_delay_and_false_alarms_are_counted_in_the_time_of_the_recording():
    score_n, label_n = np.zeros(1440), np.zeros(1440, dtype=int)
    label_n[100:200], label_n[1000:1010] = 1, 1
    score_n[130:140] = score_n[300:310] = score_n[400] = 1
    judged = pd.DataFrame({"recording": "r", "seconds": 60.0 * np.arange(1440), "score": score_n, "label": label_n})
    found = _in_time(judged, threshold=0.5)
    assert found["delay_s"] == 30 * 60
    assert found["seen"] == 0.5
    assert found["false_alarms_per_day"] == pytest.approx(2 * 1440 / (1440 - 110))


def test_spells_and_the_oracle():
    assert _spells(np.array([1, 1, 0, 0, 1], dtype=bool)).tolist() == [[0, 2], [4, 5]]
    assert _oracle_f1(np.array([3.0, 2.0, 1.0]), np.array([0, 1, 0])) == pytest.approx(2 / 3)


def test_the_interval_of_alarms_in_bursts_is_wider_than_that_of_single_ones():
    single = np.tile(np.arange(100) == 0, 400)
    bursts = np.repeat(np.random.default_rng(0).random(400) < 0.05, 100)
    assert _interval(single) == pytest.approx((0.01, 0.01), abs=1e-3)
    low, high = _interval(bursts)
    assert low <= bursts.mean() <= high
    assert high - low > 5 * (_interval(single)[1] - _interval(single)[0])
