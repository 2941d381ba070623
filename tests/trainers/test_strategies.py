from dataclasses import replace

import pytest

from core.errors import LandfallError
from tests.trainers.objectives import CPU, config_of, context_of, model_of
from trainers.distributed import World
from trainers.strategies import FSDP, SingleDevice, strategy_for


@pytest.mark.parametrize(
    "plan, refused",
    [
        (replace(CPU, precision="16-mixed"), "cannot compute in 16-mixed"),
        (replace(CPU, compiled=True), "cannot compile the model"),
    ],
)
def test_settings_that_fsdp_does_not_support_are_rejected(workspace, plan, refused):
    model = model_of(config_of(workspace))
    with pytest.raises(LandfallError, match=f"distributed.strategy = fsdp {refused}") as caught:
        FSDP(model, plan, World(0, 2))
    assert "distributed.strategy=ddp" in caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("strategy", ["none", "ddp", "fsdp"])
def test_a_single_process_uses_the_single_device_strategy(workspace, strategy):
    config = config_of(workspace, f"distributed.strategy={strategy}")
    model = model_of(config)
    held = strategy_for(model, context_of(config))
    assert type(held) is SingleDevice
    assert held.network is model
    assert held.model_state().keys() == model.state_dict().keys()


PUBLISHED = ("model.channel_attention=none", "model.masks=[patches]", "model.drop_masked_tokens=true")


@pytest.mark.parametrize("overrides", [(), PUBLISHED])
def test_blocks_contain_nearly_all_weights(workspace, overrides):
    model = model_of(config_of(workspace, *overrides))
    inside = sum(weight.numel() for block in model.blocks for weight in block.parameters())
    assert 0.6 < inside / sum(weight.numel() for weight in model.parameters()) < 1.0
