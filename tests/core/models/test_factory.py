import pytest
import torch

from core.config.schema import PatchTSTConfig, SwinMAEConfig
from core.errors import DataError
from core.models.factory import build_model, count_parameters
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE

FOLDERS = {
    "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt"},
    "dqvl": {"report_dir": "artifacts/dqvl/x"},
}


def test_the_stream_selects_the_model():
    model = build_model(PatchTSTConfig(**FOLDERS), num_channels=5)
    assert isinstance(model, PatchTST)
    assert model(torch.randn(2, 256, 5)).loss.isfinite()
    model = build_model(SwinMAEConfig(**FOLDERS), num_channels=1)
    assert isinstance(model, SwinMAE)
    assert model.in_channels == 3
    with pytest.raises(DataError, match="4 vibration channels"):
        build_model(SwinMAEConfig(**FOLDERS), num_channels=4)


def test_initial_weights_depend_on_the_seed():
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(build_model(PatchTSTConfig(**FOLDERS), num_channels=2).state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert not torch.equal(states[0]["embed.weight"], states[2]["embed.weight"])


def test_frozen_weights_are_not_counted():
    model = torch.nn.Linear(3, 2)
    assert count_parameters(model) == 8
    model.bias.requires_grad_(False)
    assert count_parameters(model) == 6
