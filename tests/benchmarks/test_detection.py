"""The benchmark on a small pack: real training, real scoring, and outputs."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.detection import masked
from benchmarks.detection.__main__ import main
from benchmarks.detection.detectors import CHARTS_ALONE, LANDFALL, MODEL_ALONE, SIMPLE, Scored
from benchmarks.detection.metrics import _oracle_f1, over_units, unit_metrics
from benchmarks.detection.peers import TRANSFORMERS, TransformersPatchTST
from benchmarks.detection.pretraining import PRETRAINED, PRETRAINED_ALONE
from benchmarks.detection.report import Findings
from benchmarks.detection.sets import QUICK, BenchmarkSet
from benchmarks.detection.unit import Unit
from core import checkpoint
from core.config.data import Scaling
from core.config.schema import PatchTSTModel, Scoring
from core.data.scaling import Scaler
from core.data.windows import Series
from tests.inference.charts.plants import plant
from tests.inference.conftest import make_score_table
from tests.support import REPO_ROOT, SHARED_DATA, needs_shared_data

ROWS, FAULT = 3000, slice(1200, 1500)
MONTH = 720


def table(values_nc: np.ndarray) -> pd.DataFrame:
    times = pd.date_range("2026-01-01", periods=len(values_nc), freq="min")
    return pd.DataFrame(values_nc, columns=list("abc")).assign(timestamp=times)


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """Two machines; in the test split of each, one channel is decoupled for five hours."""
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


def run(pack, out, *arguments: str) -> int:
    return main([str(pack), "--quick", "--out", str(out), "--repo-root", str(REPO_ROOT), *arguments])


def found_in(out) -> dict:
    return json.loads((out / "benchmark.json").read_text())


@pytest.mark.nightly
def test_a_benchmark_pack_is_evaluated_from_files_to_picture(pack, tmp_path, capsys):
    assert run(pack, tmp_path, "--set", "asd", "--seeds", "2") == 0
    document = found_in(tmp_path)
    found = document["sets"]["asd"]
    assert set(found) == {LANDFALL, MODEL_ALONE, CHARTS_ALONE, *SIMPLE}
    metrics = found[LANDFALL][0]
    assert metrics["auroc"] > 0.8
    assert metrics["vus_pr"] > 0.5
    assert metrics["auroc"] > found["z² + EWMA-10"][0]["auroc"] + 0.1
    assert metrics["far"] < 0.05
    assert metrics["event_recall"] == 1.0  # of two faults
    assert metrics["event_recall_by_chance"] < 0.5
    assert metrics["false_events"] == pytest.approx(metrics["false_events_per_day"] * metrics["recorded_hours"] / 24)
    assert metrics["unscored"] == 0
    assert set(document["units"]["asd"]) == {"asd/m1", "asd/m2"}
    assert "## ASD" in capsys.readouterr().out
    assert (tmp_path / "benchmark.png").stat().st_size > 5_000

    for of_unit in document["units"]["asd"].values():
        assert [each["seed"] for each in of_unit[MODEL_ALONE]] == [1, 2]
        first, second = of_unit[MODEL_ALONE]
        assert first["threshold"] != second["threshold"]  # another seed is another training
        first, second = of_unit[CHARTS_ALONE]
        assert first["threshold"] == second["threshold"]
        assert [each["seed"] for each in of_unit["isolation forest"]] == [1]


@pytest.mark.nightly
def test_the_transformers_model_is_an_additional_detector(pack, tmp_path):
    pytest.importorskip("transformers")
    alone = tmp_path / "pack" / "fdc" / "asd"
    alone.mkdir(parents=True)
    for file in (pack / "fdc" / "asd").glob("m1.*"):
        (alone / file.name).symlink_to(file)
    assert run(tmp_path / "pack", tmp_path, "--set", "asd", "--peers") == 0
    found = found_in(tmp_path)["sets"]["asd"]
    assert set(found) == {LANDFALL, MODEL_ALONE, CHARTS_ALONE, TRANSFORMERS, *SIMPLE}
    assert 0.5 < found[TRANSFORMERS][0]["auroc"] != found[MODEL_ALONE][0]["auroc"]


@pytest.mark.nightly
def test_training_may_start_from_the_sensors_of_other_sets(pack, tmp_path):
    """One machine with other channels; the model has not seen the set itself."""
    other = tmp_path / "pack" / "fdc" / "smd"
    other.mkdir(parents=True)
    (other.parent / "asd").symlink_to(pack / "fdc" / "asd")
    values_nc = plant(ROWS, seed=5)
    elsewhere = table(values_nc).rename(columns={"a": "level"}).assign(still=1.0)
    elsewhere.to_parquet(other / "m.train.parquet", index=False)
    assert run(tmp_path / "pack", tmp_path, "--set", "asd_400", "--pretrained") == 0
    document = found_in(tmp_path)
    assert set(document["units"]["asd_400"]) == {"asd_400/m1", "asd_400/m2"}
    found = document["sets"]["asd_400"]
    assert set(found) == {LANDFALL, MODEL_ALONE, CHARTS_ALONE, PRETRAINED, PRETRAINED_ALONE, *SIMPLE}
    assert found[PRETRAINED_ALONE][0]["auroc"] != found[MODEL_ALONE][0]["auroc"]
    pooled = json.loads((tmp_path / "work/pools/elsewhere_than_asd_400_1/pool.json").read_text())
    assert {facts["sensor"] for group in pooled["groups"].values() for facts in group} == {"level", "b", "c"}
    output = checkpoint.load(tmp_path / "work/asd_400_m1.pretrained.pt")["config"]
    train = output["data"]["splits"]["train"]
    assert (train["start"], train["stop"]) == (0, 235)


def test_starting_weights_need_other_sets(pack, tmp_path, capsys):
    assert run(pack, tmp_path, "--set", "asd_400", "--pretrained") == 2
    assert "no unit" in capsys.readouterr().err


def test_the_table_shows_the_spread_over_seeds():
    findings = Findings(seeds=2, quick=False)
    for seed, error in ((1, 0.4), (2, 0.6)):
        metrics = {"validation_mse": None, "test_mse": error, "train_seconds": 10.0}
        findings.add("ett", "ett/a", seed, {LANDFALL: metrics, **({"a line": metrics} if seed == 1 else {})})
        findings.add("ett", "ett/b", seed, {LANDFALL: {**metrics, "test_mse": 0.5}})
    lines = findings.markdown().splitlines()
    assert "| detector | masked MSE (lower is better) | training, s |" in lines
    assert "| Landfall | 0.500 ± 0.071 | 20 ± 0 |" in lines
    assert "| a line | 0.400 | 10 |" in lines


def test_a_pack_without_the_requested_set_is_rejected(tmp_path, capsys):
    assert main([str(tmp_path), "--out", str(tmp_path / "out"), "--repo-root", str(REPO_ROOT)]) == 2
    assert "none of the sets" in capsys.readouterr().err


def scored(score_n, label_n) -> Scored:
    """Of a test of a minute per row, with normal rows that set the threshold to 1 for a rate of 1 in 10."""
    normal = make_score_table({"n": np.where(np.arange(400) % 40, 1.0, 1.1)})
    return Scored("made", normal, make_score_table({"r": score_n}, labels={"r": label_n}, step_seconds=60.0), 0.0, 0.0)


def test_the_benchmark_counts_faults_and_events_as_the_product_does():
    """A fault that an old event runs into is not found, one that an event starts in is; alarms apart are one event."""
    score_n, label_n = np.zeros(1440), np.zeros(1440, dtype=int)
    for fault in ((100, 200), (500, 600), (1000, 1010)):
        label_n[slice(*fault)] = 1
    score_n[130:140] = score_n[145:150] = 2  # found, half an hour after its start
    score_n[480:520] = 2  # touches the second fault, but started 20 rows before it
    score_n[300] = 2  # too short for an event
    settings = Scoring(event_gap=5, event_min_length=3)
    unit, rows = Unit("u", (), false_alarm_rate=0.1), BenchmarkSet("s", "S", "patchtst", iter)
    found = unit_metrics(scored(score_n, label_n), unit, rows, settings)
    assert (found["faults_total"], found["faults_found"], found["false_events"]) == (3, 1, 1)
    assert found["event_recall"] == pytest.approx(1 / 3)
    assert 0 < found["event_recall_by_chance"] < 0.3
    assert found["event_delay_seconds"] == 30 * 60
    assert found["recorded_hours"] == pytest.approx(24)
    assert found["false_events_per_day"] == pytest.approx(1)
    # Over units: of all faults and hours, not the mean of shares.
    other = unit_metrics(scored(score_n[480:720], label_n[480:720]), unit, rows, settings)
    assert (other["faults_total"], other["faults_found"], other["false_events"]) == (1, 0, 1)
    total = over_units([found, other])
    assert total["event_recall"] == pytest.approx(1 / 4)
    chance = (3 * found["event_recall_by_chance"] + other["event_recall_by_chance"]) / 4
    assert total["event_recall_by_chance"] == pytest.approx(chance)
    assert total["false_events_per_day"] == pytest.approx(2 / (28 / 24))


def test_healthy_recordings_of_other_sessions_make_no_false_events():
    table = make_score_table({"a": np.zeros(60), "moved": np.full(60, 2.0)}, labels={"a": [0] * 60, "moved": [0] * 60})
    unit = Unit("u", (), false_alarm_rate=0.1, other_sessions="moved")
    detector = replace(scored([0], [0]), test=table)
    found = unit_metrics(detector, unit, BenchmarkSet("s", "S", "swinmae", iter), Scoring())
    assert (found["false_events"], found["far_other_sessions"], found["event_recall"]) == (0, 1.0, None)


def test_the_table_never_shows_found_faults_without_chance_and_false_events():
    findings = Findings(seeds=1, quick=False)
    label_n = np.zeros(200, dtype=int)
    label_n[50:60] = 1
    detector = scored(2.0 * label_n, label_n)
    unit, rows = Unit("u", (), false_alarm_rate=0.1), BenchmarkSet("asd", "ASD", "patchtst", iter)
    findings.add("asd", "u", 1, {LANDFALL: unit_metrics(detector, unit, rows, Scoring())})
    lines = findings.markdown().splitlines()
    table = [line.split(" | ") for line in lines if line.startswith(("| detector", "| Landfall"))]
    cells = dict(zip(*table, strict=True))
    assert cells["faults found"] == "100.0%"
    assert 0 < float(cells["found by chance"].rstrip("%")) < 10
    assert cells["false events per day"] == "0.0"
    assert "event_gap" in lines[2]  # the tolerance


def test_the_oracle_uses_the_threshold_with_the_largest_f1():
    assert _oracle_f1(np.array([3.0, 2.0, 1.0]), np.array([0, 1, 0])) == pytest.approx(2 / 3)


# ------------------------------------------------------------------------------------------------------- filling in
@pytest.fixture(scope="module")
def hourly(tmp_path_factory):
    """Twenty months of a channel that has a day, a slow drift and noise."""
    rng, hours = np.random.default_rng(0), np.arange(20 * MONTH)
    noise_n, step_n = rng.normal(size=(2, len(hours)))
    value_n = 2 * np.sin(2 * np.pi * hours / 24) + np.cumsum(step_n) / 50 + noise_n
    file = tmp_path_factory.mktemp("hourly") / "fdc" / "ett" / "ETTx.csv.gz"
    file.parent.mkdir(parents=True)
    times = pd.date_range("2026-01-01", periods=len(hours), freq="h")
    pd.DataFrame({"date": times, "load": value_n}).to_csv(file, index=False)
    return file


@pytest.fixture
def tiny(monkeypatch):
    """A training of two steps."""
    overrides = ("training.epochs=1", "training.windows_per_epoch=64", "data.stride=24")
    monkeypatch.setitem(QUICK, "filling_in", overrides)


def filled_in_step_by_step(file) -> dict[str, float]:
    """The protocol of the published baselines, one masked value after the other."""
    value_n = pd.read_csv(file)["load"].to_numpy()
    value_n = (value_n - value_n[: 12 * MONTH].mean()) / value_n[: 12 * MONTH].std()

    def cut(first: int, stop: int, stride: int) -> list[np.ndarray]:
        pieces = [value_n[at : at + 504] for at in range(first, stop - 503, stride)]
        return [(piece - piece.mean()) / (piece.std() + 1e-5) for piece in pieces]

    covariance = np.cov(np.transpose(cut(0, 12 * MONTH, 24))) + 1e-3 * np.eye(504)
    rng, squares = np.random.default_rng(0), {}
    for _ in range(4):
        patches = set(rng.choice(42, 17, replace=False))
        hidden = [t for t in range(504) if t // 12 in patches]
        seen = [t for t in range(504) if t // 12 not in patches]
        gain = covariance[np.ix_(hidden, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
        days = [[t + 24 * k for k in (-1, 1, -2, 2, -3, 3, -4, 4, -5, 5) if t + 24 * k in seen][:2] for t in hidden]
        for window in cut(16 * MONTH - 512, 20 * MONTH, 12):
            of_days = [window[each].mean() if each else 0.0 for each in days]
            for name, filled in (
                ("instance mean", np.zeros(len(hidden))),
                ("linear interpolation", np.interp(hidden, seen, window[seen])),
                ("same hour of neighbouring days", np.array(of_days)),
                ("Gaussian conditional mean, a window a day", gain @ window[seen]),
            ):
                squares.setdefault(name, []).append(np.mean((filled - window[hidden]) ** 2))
    return {name: float(np.mean(each)) for name, each in squares.items()}


@pytest.mark.nightly
def test_models_and_simple_methods_fill_masked_patches(hourly, tiny, tmp_path):
    pytest.importorskip("transformers")
    assert run(hourly.parents[2], tmp_path, "--set", "ett", "--peers") == 0
    found = found_in(tmp_path)["sets"]["ett"]
    assert set(found) == {LANDFALL, TRANSFORMERS, *masked.SIMPLE}
    for name, error in filled_in_step_by_step(hourly).items():
        assert found[name][0]["test_mse"] == pytest.approx(error, rel=1e-4), name
    assert found[LANDFALL][0]["test_mse"] != found[TRANSFORMERS][0]["test_mse"]


def test_the_error_of_a_model_is_that_of_its_masked_values():
    class OffByTwo(torch.nn.Module):
        unit_shape = (1, 42)

        def forward(self, x_btc, mask_bcn):
            hidden_btc = mask_bcn.repeat_interleave(12, -1).transpose(1, 2)
            return SimpleNamespace(reconstruction=torch.where(hidden_btc, x_btc + 2, torch.nan))

    x_wtc = np.random.default_rng(0).normal(size=(100, 504, 1))
    fill = masked.filled_by(SimpleNamespace(model=OffByTwo(), device=torch.device("cpu")))
    assert masked.masked_mse(fill, x_wtc) == pytest.approx(4.0)


@needs_shared_data
@pytest.mark.parametrize(
    "method, error",
    [
        ("instance mean", 1.003),
        ("linear interpolation", 1.066),
        ("same hour of neighbouring days", 0.677),
        ("Gaussian conditional mean, a window a day", 0.711),
    ],
)
def test_simple_methods_reproduce_published_figures(method, error):
    values_nc = pd.read_csv(SHARED_DATA / "fdc/ett/ETTh1.csv.gz").drop(columns="date").to_numpy(np.float32)
    scaler = Scaler.fit([values_nc[: 12 * MONTH]], list("abcdefg"), Scaling(method="zscore"))
    series = Series.of([], values_nc, scaler)
    fill = masked.weighted(masked.SIMPLE[method](series))
    assert masked.masked_mse(fill, masked.windows(series, "test")) == pytest.approx(error, abs=5e-4)


@pytest.mark.nightly
def test_a_file_of_fewer_months_is_left_out(hourly, tiny, tmp_path, caplog):
    file = tmp_path / "pack" / "fdc" / "ett" / "short.csv"
    file.parent.mkdir(parents=True)
    pd.read_csv(hourly).iloc[: 13 * MONTH].to_csv(file.with_suffix(".csv.gz"), index=False)
    assert run(tmp_path / "pack", tmp_path / "out", "--set", "ett") == 2
    assert "evaluated on the first 11520" in caplog.text


# ------------------------------------------------------------------------------------------------- transformers' model
@pytest.mark.nightly
def test_the_peer_predicts_like_transformers_with_the_same_mask():
    transformers = pytest.importorskip("transformers")
    settings = PatchTSTModel(patch_length=8, d_model=16, num_heads=2, num_layers=2, d_ff=32)
    peer = TransformersPatchTST(settings, num_channels=3, window=64).eval()
    theirs = transformers.PatchTSTForPretraining(
        transformers.PatchTSTConfig(
            num_input_channels=3, context_length=64, patch_length=8, patch_stride=8, d_model=16, num_hidden_layers=2,
            num_attention_heads=2, ffn_dim=32, scaling=None,
        )
    ).eval()  # fmt: skip
    theirs.model.encoder.load_state_dict(peer.encoder.state_dict())
    theirs.head.load_state_dict(peer.head.state_dict())
    x_btc = torch.randn(4, 64, 3, generator=torch.Generator().manual_seed(0))
    mask_bcn = peer.draw_mask(4, generator=torch.Generator().manual_seed(1))

    class SameMask(torch.nn.Module):
        def forward(self, x_bcnp):
            return x_bcnp.masked_fill(mask_bcn.unsqueeze(-1), 0.0), mask_bcn

    theirs.model.masking = SameMask()
    with torch.no_grad():
        ours, reference = peer(x_btc, mask_bcn), theirs(past_values=x_btc)
    torch.testing.assert_close(ours.reconstruction, peer.unpatchify(reference.prediction_output))
    torch.testing.assert_close(ours.loss, reference.loss)


def test_an_error_without_transformers_names_the_package_to_install(pack, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(pack, tmp_path, "--peers") == 2
    assert "pip install 'transformers" in capsys.readouterr().err
