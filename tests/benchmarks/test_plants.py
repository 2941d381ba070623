"""The simulated plants, and the commands of a new user on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.plants.files import START, STYLES, write_plant
from benchmarks.plants.journey import journey, metrics_of
from benchmarks.plants.plant import FAULTS, SENSORS, make_plant, signals
from core.config.schema import Data
from core.data.readers import read_recordings

ROWS = 1000


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_changes_only_its_sensors_in_its_rows(fault):
    plant, again = make_plant(fault, 3, ROWS), make_plant(fault, 3, ROWS)
    rng = np.random.default_rng([3, list(FAULTS).index(fault)])
    signals(rng, ROWS)
    normal = signals(rng, ROWS)
    for name in SENSORS:
        np.testing.assert_array_equal(plant.test[name], again.test[name])
        changed = np.flatnonzero(plant.test[name] != normal[name])
        assert bool(len(changed)) == (name in plant.sensors), name
        if len(changed):
            assert plant.start <= changed[0]
            assert changed[-1] < plant.stop


@pytest.mark.parametrize("style", STYLES)
def test_every_style_is_read_with_its_times_and_values(tmp_path, style):
    plant = make_plant("drift", 1, ROWS)
    write_plant(plant, tmp_path, STYLES[style])
    (recording,) = read_recordings(tmp_path / "test_1.csv", root=tmp_path, stream="patchtst", settings=Data())
    assert recording.channels == SENSORS
    assert recording.time_source == "timestamp"
    assert recording.time_ns[0] == START["test"].value
    assert set(np.diff(recording.time_ns)) == {10**9}
    expected_tc = np.stack([plant.test[name] for name in SENSORS], axis=1)
    np.testing.assert_allclose(recording.values_tc, expected_tc, atol=1e-4)


def test_the_figures_follow_from_the_events(tmp_path):
    plant, folder = make_plant("drift", 1), tmp_path / "artifacts/scores"
    folder.mkdir(parents=True)
    times = [plant.start - 100, plant.start - 61, plant.start + 40, plant.stop - 1]
    start, end = (START["test"] + pd.to_timedelta(times[at::2], unit="s") for at in (0, 1))
    events = pd.DataFrame({"start": start, "end": end, "duration_seconds": [39, 359]})
    events["top_channels"] = ["flow_m3h; level_pct", "temperature_c; flow_m3h"]
    events["top_shares"] = ["60 %; 40 %", "70 %; 20 %"]
    events.to_csv(folder / "patchtst_events.csv", index=False)
    summary = {"detection": {"f1": 0.5, "false_events": 1, "auroc": None}}
    (folder / "patchtst_summary.json").write_text(json.dumps(summary), encoding="utf-8")
    found = metrics_of(plant, tmp_path, "charts")
    assert (found.events, found.onset_s, found.end_s, found.sensors, found.healthy) == (2, 40.0, 0.0, True, 20.0)
    assert found.event_f1 == pytest.approx(2 * 360 / (40 + 360 + 400))


@pytest.mark.nightly
def test_a_new_user_checks_and_scores_a_german_export(tmp_path: Path):
    (found,) = journey("exchange", 1, tmp_path / "plant", with_model=False, style="german")
    assert found.onset_s is not None, "two exchanged sensors are found"
    assert found.sensors
    assert (tmp_path / "plant/artifacts/scores/patchtst_timeline.png").is_file()
