"""Which windows give the validation loss."""

from __future__ import annotations

import numpy as np
import pytest

from core.config.schema import PatchTSTConfig
from core.data.windows import Series, WindowSet
from trainers.run import validation_windows

FOLDERS = {
    "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt"},
    "dqvl": {"report_dir": "artifacts/dqvl/x"},
}


def windows_of(count: int, *, stride: int, window: int) -> WindowSet:
    series = Series.of([], np.zeros((window + stride * count, 1), dtype=np.float32))
    return WindowSet(series, np.arange(count) * stride, window)


@pytest.mark.parametrize(
    ("count", "stride", "per_epoch", "expected"),
    [(800, 4, 100, 100), (800, 4, 0, 800), (200, 4, 100, 64), (800, 32, 100, 800), (30, 4, 100, 30)],
)
def test_windows_of_the_validation_loss_overlap_less_if_epochs_are_limited(count, stride, per_epoch, expected):
    config = PatchTSTConfig.model_validate(
        {**FOLDERS, "data": {"window": 256, "stride": stride}, "training": {"windows_per_epoch": per_epoch}}
    )
    chosen = validation_windows(windows_of(count, stride=stride, window=256), config)
    assert len(chosen) == expected
    assert chosen.starts_w[0] == 0
    assert chosen.starts_w[-1] == (count - 1) * stride
    assert np.ptp(np.diff(chosen.starts_w)) <= stride
