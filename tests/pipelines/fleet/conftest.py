"""A workspace with a fleet file: machines that share the small workspace's data, and one whose data is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.small_workspace import build_small_workspace, install_page

SMALL = [
    "device.prefer=cpu", "precision='32'", "max_threads=1", "data.window=32", "data.stride=8", "data.score_stride=16",
    "model.size=custom", "model.patch_length=8", "model.d_model=16", "model.num_heads=2",
    "model.num_layers=1", "model.d_ff=32", "training.epochs=3", "training.batch_size=8", "training.learning_rate=0.01",
    "scoring.operating_context='off'", "scoring.event_gap=1", "scoring.event_min_length=1",
    "scoring.threshold.false_alarm_rate=0.01",
]  # fmt: skip
SMALL_VIBRATION = [
    "device.prefer=cpu", "max_threads=1", "data.window=128", "data.stride=32", "data.score_stride=64",
    "scalogram.frequencies=16", "scalogram.image_size=32", "scoring.threshold.false_alarm_rate=0.05",
]  # fmt: skip
PRESS = {"stream": "patchtst", "data": ".", "tags": ["press"]}
MACHINES = [
    {"id": "press-1", **PRESS},
    {"id": "press-2", **PRESS, "overrides": ["training.epochs=2"]},
    {"id": "pump", **PRESS, "detector": "charts"},
    {"id": "fan", "stream": "swinmae", "data": ".", "detector": "charts", "overrides": SMALL_VIBRATION},
    {"id": "broken", **PRESS, "data": "nowhere"},
]


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    root = build_small_workspace(tmp_path / "plant")
    install_page(root)
    fleet = {"tags": {"press": {"overrides": SMALL}}, "machines": MACHINES}
    (root / "configs/fleet.yaml").write_text(yaml.safe_dump(fleet), encoding="utf-8")
    return root
