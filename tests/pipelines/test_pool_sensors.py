"""Normalised sensors of several machines: written, skipped and protected files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.config.compose import load_config
from core.data.dataset import load_stream_data
from pipelines.pool_sensors import INDEX, main

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


def written(root: Path) -> dict[str, pd.DataFrame]:
    """The content of the file of each sensor, by name."""
    index = json.loads((root / "data/pool" / INDEX).read_text())
    return {facts["sensor"]: pd.read_parquet(root / "data/pool" / name) for name, facts in index["sensors"].items()}


def test_each_sensor_becomes_a_file_in_units_of_its_own_spread(machines, capsys):
    assert pool(machines) == 0
    assert json.loads(capsys.readouterr().out) == {"sensors": 3, "left_out": 2, "folder": "data/pool"}
    found = written(machines)
    assert set(found) == {"pressure", "temperature", "../../flow<b>"}
    for frame in found.values():
        assert frame["timestamp"].tolist() == pd.date_range("2026-01-01", periods=ROWS, freq="s").tolist()
        assert abs(frame["value"].median()) < 0.1
        assert 0.5 < frame["value"].std() < 1.5
    assert found["../../flow<b>"]["value"].isna().to_numpy().nonzero()[0].tolist() == list(range(50, 60))
    left_out = json.loads((machines / "data/pool" / INDEX).read_text())["left_out"]
    assert [name.split(": ")[1] for name in left_out] == ["door", "mode"]


def test_every_file_is_in_the_pool_folder_for_any_sensor_name(machines):
    pool(machines)
    inside = {path.relative_to(machines / "data/pool").as_posix() for path in (machines / "data/pool").rglob("*.*")}
    assert inside == {
        "pool.json",
        "000_plant_press_csv/000_pressure.parquet",
        "000_plant_press_csv/001_temperature.parquet",
        "001_plant_pump_csv/000_flow_b.parquet",
    }
    assert [path.name for path in (machines / "data").iterdir()] == ["pool"]


def test_the_configuration_of_the_pool_reads_it_as_recordings_of_one_channel(machines):
    pool(machines)
    config = load_config(
        "configs/patchtst_ssl_pool.yaml", ["data.window=64", "model.size=custom"], root=machines
    ).config
    data = load_stream_data(config, root=machines, splits=("train",))
    assert data.channels == ("value",)
    assert len(data.splits["train"].series.recordings) == 3
    windows_each = len(range(0, round(0.8 * ROWS) - 64 + 1, config.data.stride))
    assert len(data.splits["train"]) == 3 * windows_each


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
