import pytest

from core.config.compose import config_from_dict
from core.config.schema import AnyConfig


@pytest.fixture
def config() -> AnyConfig:
    """A small PatchTST configuration."""
    values = {
        "stream": "patchtst",
        "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt", "tensorboard": False},
        "dqvl": {"report_dir": "artifacts/dqvl/x"},
        "training": {"epochs": 3},
    }
    return config_from_dict(values, source="a test")
