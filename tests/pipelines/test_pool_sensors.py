"""Normalised sensors of several machines: written, skipped and protected files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from core import checkpoint
from core.config.compose import load_config
from core.data.dataset import load_stream_data
from pipelines.pool_sensors import GROUP, INDEX, main
from trainers.train_patchtst_ssl import main as train

ROWS = 400


@pytest.fixture
def machines(workspace: Path) -> Path:
    """A press in bar and degrees, and a pump with a sensor of a hostile name and one that stands still."""
    rng = np.random.default_rng(3)
    wave_t = np.sin(np.arange(ROWS) / 9)
    press = {"pressure": 1e5 + 40 * wave_t, "temperature": 80 + 0.2 * rng.normal(size=ROWS)}
    pump = {"../../flow<b>": 3 + wave_t, "door": np.full(ROWS, 1.0), "mode": np.arange(ROWS) // 200}
    pump["../../flow<b>"][50:60] = np.nan
    for name, sensors in (("press", press), ("pump", pump)):
        frame = pd.DataFrame({"timestamp": pd.date_range("2026-01-01", periods=ROWS, freq="s"), **sensors})
        (workspace / "plant").mkdir(exist_ok=True)
        frame.to_csv(workspace / "plant" / f"{name}.csv", index=False)
    return workspace


def pool(root: Path, *words: str) -> int:
    return main(["plant/*.csv", "--repo-root", str(root), *words])


def written(root: Path) -> dict[str, pd.Series]:
    """The written values of each sensor, by name."""
    groups = json.loads((root / "data/pool" / INDEX).read_text())["groups"]
    return {
        facts["sensor"]: pd.read_parquet(root / "data/pool" / name).set_index("timestamp")[f"sensor_{place}"]
        for name, group in groups.items()
        for place, facts in enumerate(group)
    }


def test_the_sensors_of_each_machine_become_a_group_in_units_of_their_spread(machines, capsys):
    assert pool(machines) == 0
    assert json.loads(capsys.readouterr().out) == {"sensors": 3, "left_out": 2, "folder": "data/pool"}
    found = written(machines)
    assert set(found) == {"pressure", "temperature", "../../flow<b>"}
    for values in found.values():
        assert values.index.tolist() == pd.date_range("2026-01-01", periods=ROWS, freq="s").tolist()
        assert abs(values.median()) < 0.1
        assert 0.5 < values.std() < 1.5
    assert found["../../flow<b>"].isna().to_numpy().nonzero()[0].tolist() == list(range(50, 60))
    index = json.loads((machines / "data/pool" / INDEX).read_text())
    assert [name.split(": ")[1] for name in index["left_out"]] == ["door", "mode"]
    press = pd.read_parquet(machines / "data/pool/000_plant_press_csv/000.parquet").drop(columns="timestamp")
    assert press.shape == (ROWS, GROUP)
    assert press.columns[press.notna().any()].tolist() == ["sensor_0", "sensor_1"]
    (pressure,) = (facts for group in index["groups"].values() for facts in group if facts["sensor"] == "pressure")
    measured = pd.read_csv(machines / "plant/press.csv")["pressure"]
    restored = found["pressure"].to_numpy() * pressure["scale"] + pressure["center"]
    np.testing.assert_allclose(restored, measured, atol=0.02)  # float32


def test_a_machine_with_many_sensors_becomes_complete_groups(machines):
    """20 sensors: three groups of eight, the last with four sensors of the others."""
    rng = np.random.default_rng(4)
    sensors = {f"s{number:02d}": rng.normal(size=ROWS) for number in range(20)}
    frame = pd.DataFrame({"timestamp": pd.date_range("2026-01-01", periods=ROWS, freq="s"), **sensors})
    (machines / "large").mkdir()
    frame.to_csv(machines / "large/line.csv", index=False)
    assert main(["large/*.csv", "--repo-root", str(machines)]) == 0
    groups = json.loads((machines / "data/pool" / INDEX).read_text())["groups"]
    names = [[facts["sensor"] for facts in group] for group in groups.values()]
    assert [len(set(group)) for group in names] == [GROUP, GROUP, GROUP]
    assert {name for group in names for name in group} == set(sensors)
    assert sorted(names[0]) != sorted(sensors)[:GROUP]  # drawn at random
    assert pool(machines, "--force") == 0
    assert main(["large/*.csv", "--repo-root", str(machines), "--force"]) == 0
    again = json.loads((machines / "data/pool" / INDEX).read_text())["groups"]
    assert again == groups


def test_every_file_is_in_the_pool_folder_for_any_sensor_name(machines):
    pool(machines)
    inside = {path.relative_to(machines / "data/pool").as_posix() for path in (machines / "data/pool").rglob("*.*")}
    assert inside == {"pool.json", "000_plant_press_csv/000.parquet", "001_plant_pump_csv/000.parquet"}
    assert [path.name for path in (machines / "data").iterdir()] == ["pool"]


def test_the_configuration_of_the_pool_reads_it_as_recordings_of_equal_channels(machines):
    pool(machines)
    config = load_config(
        "configs/patchtst_ssl_pool.yaml", ["data.window=64", "model.size=custom"], root=machines
    ).config
    data = load_stream_data(config, root=machines, splits=("train",))
    assert data.channels == tuple(f"sensor_{place}" for place in range(GROUP))
    assert data.config.model.channel_attention == "all"
    assert len(data.splits["train"].series.recordings) == 2
    windows_each = len(range(0, round(0.8 * ROWS) - 64 + 1, config.data.stride))
    assert len(data.splits["train"]) == 2 * windows_each


@pytest.mark.slow
def test_a_model_of_the_pool_transfers_to_a_machine_with_other_channels(machines):
    """The three commands of docs/pretrain.md, on little data; then the attention between channels is that of the
    pool."""
    short = [
        *("training.windows_per_epoch=32", "training.batch_size=16", "device.prefer=cpu", "logging.tensorboard=false"),
        *("model.size=custom", "model.d_model=16", "model.num_layers=1", "model.patch_length=8"),
        "data.window=32",
    ]
    root = ["--repo-root", str(machines)]
    assert pool(machines) == 0
    assert train(["--config", "configs/patchtst_ssl_pool.yaml", *root, "training.epochs=2", *short]) == 0
    pooled = checkpoint.load(machines / "checkpoints/patchtst_ssl_pool.pt")
    assert len(pooled["model"]["channel_c1d"]) == GROUP

    rng = np.random.default_rng(5)
    (machines / "data/fdc").mkdir()
    shared_t = rng.normal(size=ROWS).cumsum()
    for name in ("train_new", "test_new"):
        sensors = {f"n{number}": shared_t + rng.normal(size=ROWS) for number in range(3)}
        frame = pd.DataFrame({"timestamp": pd.date_range("2026-02-01", periods=ROWS, freq="s"), **sensors})
        frame.to_csv(machines / f"data/fdc/{name}.csv", index=False)
    start = "training.start_from=checkpoints/patchtst_ssl_pool.pt"
    still = ["training.learning_rate=1e-12", "training.epochs=1", "data.guard=0", "data.root=."]
    splits = [f'data.splits.{split}.files=["data/fdc/train_*"]' for split in ("train", "validation", "calibration")]
    assert train([*root, start, *short, *still, *splits]) == 0
    weights = checkpoint.load(machines / "checkpoints/patchtst_ssl.pt")["model"]
    assert weights["channel_c1d"].shape[0] == 3
    attention = [name for name in weights if "channel_attention" in name]
    assert attention
    for name in attention:
        assert torch.allclose(weights[name], pooled["model"][name], atol=1e-6), name


def test_a_pool_is_replaced_only_on_request_and_other_files_never(machines, capsys):
    pool(machines)
    assert pool(machines) == 2
    assert "--force" in capsys.readouterr().err
    (machines / "plant/press.csv").unlink()
    assert pool(machines, "--force") == 0
    assert set(written(machines)) == {"../../flow<b>"}

    (machines / "data/pool" / INDEX).unlink()
    assert pool(machines, "--force") == 2
    assert "--out" in capsys.readouterr().err
    assert list((machines / "data/pool").rglob("*.parquet"))
    assert pool(machines, "--force", "--out", "plant/pump.csv") == 2
    assert (machines / "plant/pump.csv").is_file()


def test_reports_of_other_machines_are_separate(machines):
    pool(machines)
    assert sorted(path.name for path in (machines / "artifacts/dqvl").iterdir()) == ["pool"]
    assert len(list((machines / "artifacts/dqvl/pool").glob("*.json"))) == 2


def test_an_existing_pool_is_kept_if_no_sensor_is_usable(machines, capsys):
    pool(machines)
    before = written(machines)
    for file in (machines / "plant").iterdir():
        file.unlink()
    still = pd.DataFrame({"timestamp": pd.date_range("2026-01-01", periods=ROWS, freq="s"), "a": 1.0, "b": 2.0})
    still["b"] = np.arange(ROWS) % 2
    still.to_csv(machines / "plant/still.csv", index=False)
    assert pool(machines, "--force") == 3
    assert "none of the 2 sensors" in capsys.readouterr().err
    assert written(machines).keys() == before.keys()


def test_vibration_data_is_rejected(machines, capsys):
    assert pool(machines, "--config", "configs/swinmae_ssl_local.yaml") == 2
    assert "only process sensors" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named_with_a_remedy(machines, capsys):
    (machines / "plant/broken.csv").write_text("no table\n")
    assert pool(machines) == 3
    reported = capsys.readouterr().err
    assert "plant/broken.csv" in reported
    assert "export it again" in reported
