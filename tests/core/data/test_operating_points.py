"""Operating points of vibration: values of the sidecar for each recording."""

from __future__ import annotations

import json

import numpy as np
import pytest

from core.errors import DataError
from tests.core.data.datasets import load, make_config, write_vibration

NAMES = ("a", "b", "c", "d")
SPLITS = {
    split: {"files": [f"data/{name}.npy"]}
    for split, name in zip(("train", "validation", "calibration", "test"), NAMES, strict=True)
}


def points_of(root, *channels: str) -> dict[str, tuple[float, ...]]:
    config = make_config("swinmae", splits=SPLITS, window=40, context_channels=list(channels))
    series = load(root.parent, config).splits["train"].series
    return {recording.file_id: recording.operating_point for recording in series.recordings}


@pytest.fixture
def machine(tmp_path):
    """Four files; `dataset.json` has the load of all, and the speed of each."""
    for name in NAMES:
        write_vibration(tmp_path, name, 1000.0)
    files = {name: {"rpm": 1000 + 100 * number} for number, name in enumerate(NAMES)}
    (tmp_path / "data" / "dataset.json").write_text(json.dumps({"load": 0.5, "files": files}))
    return tmp_path / "data"


def test_a_recording_has_the_values_of_its_sidecar_in_the_order_of_the_configuration(machine):
    assert points_of(machine, "rpm", "load")["data/b.npy"] == (1100.0, 0.5)
    assert points_of(machine)["data/b.npy"] == ()


def test_a_cached_file_has_the_values_that_the_sidecar_has_now(machine):
    assert points_of(machine, "load")["data/a.npy"] == (0.5,)
    (machine / "dataset.json").write_text(json.dumps({"load": 0.7}))
    assert points_of(machine, "load")["data/a.npy"] == (0.7,)


def test_records_of_a_set_have_a_value_each(machine):
    np.savez(machine / "a.npz", x=np.random.default_rng(0).normal(size=(3, 200, 3)).astype(np.float32))
    (machine / "a.json").write_text(json.dumps({"sampling_rate_hz": 1000, "rpm": [900, 950, 1000]}))
    splits = {**SPLITS, "train": {"files": ["data/a.npz"]}}
    config = make_config("swinmae", splits=splits, window=40, context_channels=["rpm", "load"])
    recordings = load(machine.parent, config).splits["train"].series.recordings
    assert [each.operating_point for each in recordings[:3]] == [(900, 0.5), (950, 0.5), (1000, 0.5)]


@pytest.mark.parametrize("value", ["fast", True, None, [1, 2], float("nan")])
def test_a_value_that_is_no_number_is_an_error_that_names_file_and_key(machine, value):
    (machine / "b.json").write_text(json.dumps({"sampling_rate_hz": 1000, "rpm": value}))
    with pytest.raises(DataError, match="rpm") as caught:
        points_of(machine, "rpm")
    assert "b.npy" in str(caught.value)
    assert caught.value.hint
