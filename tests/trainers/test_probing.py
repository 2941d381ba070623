import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from core.config.compose import LoadedConfig
from core.config.schema import (
    AnyConfig,
    Data,
    Logging,
    PatchTSTConfig,
    PatchTSTModel,
    Quality,
    Scalogram,
    SwinMAEConfig,
    SwinMAEModel,
)
from core.data.inputs import Inputs, build_transform
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from core.devices.plan import DevicePlan
from core.errors import LandfallError
from core.models.factory import build_model
from tests.support import most_nightly
from trainers import optimizer, probing
from trainers.context import RunContext
from trainers.micro_batch import ProbeResult
from trainers.probing import CACHE_FILE, measure

PLAN = DevicePlan("cpu", "Plain CPU", "32", 1, "a test", "a test", memory_limit_mb=8000)
PLACES = {"logging": Logging(log_dir="runs", checkpoint_path="model.pt"), "dqvl": Quality(report_dir="quality")}
SMALL = PatchTSTModel(patch_length=8, d_model=16, num_heads=2, num_layers=1, d_ff=32)
SMALL_SWIN = SwinMAEModel(embed_dim=12, depths=(1, 1), num_heads=(2, 4), decoder_depths=(1,))
PATCHTST = PatchTSTConfig(**PLACES, data=Data(window=32), model=SMALL)
SWINMAE = SwinMAEConfig(
    **PLACES, data=Data(window=64), scalogram=Scalogram(frequencies=16, image_size=32), model=SMALL_SWIN
)


@pytest.fixture(autouse=True)
def _any_time(monkeypatch):
    """On a busy machine the time of a probe would end before its memory does."""
    monkeypatch.setattr(probing, "BUDGET_S", {"cpu": 1e6})


def windows(config: AnyConfig, count: int) -> WindowSet:
    rows = count + config.data.window - 1
    values_tc = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    recording = Recording("r", Path("r"), values_tc, np.arange(rows), ("a", "b", "c"), 1000.0, "index")
    return WindowSet(Series.of([recording], values_tc), np.arange(count), config.data.window)


def inputs(config: AnyConfig, count: int) -> Inputs:
    fitted = {"mean": 0.0, "deviation": 1.0} if isinstance(config, SwinMAEConfig) else {}
    transform = build_transform(config, sampling_rate_hz=1000.0, fitted=fitted)
    return Inputs(windows(config, count), transform, PLAN.device)


def small_model(config: AnyConfig) -> nn.Module:
    torch.manual_seed(0)
    return build_model(config, num_channels=3)


def measure_on(root: Path, config: AnyConfig = PATCHTST, model: nn.Module | None = None, **changes) -> ProbeResult:
    options = {"plan": PLAN, "effective": 16, "checkpointing": False, **changes}
    train, validation = inputs(config, options.pop("num_windows", 40)), inputs(config, 12)
    context = RunContext(LoadedConfig(config, "a test", {}), root, options.pop("plan"))
    return measure(context, model or small_model(config), train, validation, **options)


@pytest.mark.parametrize("config", [PATCHTST, SWINMAE], ids=lambda config: config.stream)
@pytest.mark.parametrize("checkpointing", most_nightly([True, False], but=1))
def test_measuring_does_not_change_the_models(tmp_path, config, checkpointing):
    model = small_model(config)
    before, rng = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    recomputed = []
    model.register_forward_pre_hook(lambda module, _: recomputed.append(module.gradient_checkpointing))
    result = measure_on(tmp_path, config, model, checkpointing=checkpointing)
    assert not result.needs_checkpointing
    assert len(result.trials) > 1
    assert 0 < result.peak_mb < PLAN.memory_limit_mb
    assert result.seconds_per_step > 0
    assert set(recomputed) == {checkpointing}
    assert model.gradient_checkpointing is False
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), rng)


def test_real_steps_are_measured(tmp_path, monkeypatch):
    """Forward and backward through all windows of the size, gradients clipped, an optimizer step, and validation."""
    seen = []
    monkeypatch.setattr(optimizer.AdamW, "step", lambda self: seen.append("step"))
    monkeypatch.setattr(probing.nn.utils, "clip_grad_norm_", lambda parameters, norm: seen.append(("clip", norm)))
    model = small_model(PATCHTST)
    model.register_forward_hook(lambda module, args, _: seen.append((module.training, tuple(args[0].shape))))
    model.head.weight.register_hook(lambda gradient: seen.append("backward"))
    measure_on(tmp_path, model=model, config=PATCHTST.model_copy(update={"gradient_clip_val": 0.5}))
    assert seen[:4] == [(True, (1, 32, 3)), "backward", ("clip", 0.5), "step"]
    validated = [event for event in seen if event[0] is False]
    assert validated == [(False, (size, 32, 3)) for size in (1, 8, 12)], "at most the number of validation windows"


@pytest.mark.parametrize("num_windows, effective, tried", [(40, 16, [1, 8, 16]), (40, 5, [1, 2, 4]), (9, 64, [1, 8])])
def test_neither_step_nor_data_set_is_exceeded(tmp_path, num_windows, effective, tried):
    result = measure_on(tmp_path, num_windows=num_windows, effective=effective)
    assert [trial.size for trial in result.trials] == tried
    assert result.largest <= min(num_windows, effective)


@pytest.mark.parametrize("norm, tried", [("batch", [1, 12]), ("layer", [1, 8, 16])])
def test_complete_groups_of_batch_normalisation_are_tested(tmp_path, norm, tried):
    config = PATCHTST.model_copy(update={"model": SMALL.model_copy(update={"norm": norm, "norm_windows": 12})})
    assert [trial.size for trial in measure_on(tmp_path, config).trials] == tried


# ---------------------------------------------------------------------------------------------------------------- cache
def test_a_cached_result_is_not_measured_again(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    first = measure_on(tmp_path)
    assert (tmp_path / "artifacts" / CACHE_FILE).is_file()
    monkeypatch.setattr(probing, "Probe", None)
    assert measure_on(tmp_path) == first
    assert f"micro-batch {first.micro} cached" in caplog.text
    similar = replace(PLAN, memory_limit_mb=8040, device_reason="another reason")
    assert measure_on(tmp_path, plan=similar) == first, "limits that differ less than the headroom share a result"


@pytest.mark.parametrize(
    "change",
    [
        {"plan": replace(PLAN, name="Another CPU")},
        {"plan": replace(PLAN, precision="bf16-mixed")},
        {"plan": replace(PLAN, memory_limit_mb=9000)},
        {"plan": replace(PLAN, threads=2)},
        {"plan": replace(PLAN, compiled=True)},
        {"checkpointing": True},
        {"effective": 8},
        {"num_windows": 41},
        {"config": PATCHTST.model_copy(update={"model": SMALL.model_copy(update={"d_ff": 48})})},
        {"config": PATCHTST.model_copy(update={"data": Data(window=64)})},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_of_the_inputs_is_measured_again(tmp_path, monkeypatch, change):
    first = measure_on(tmp_path)
    fresh = replace(first, reason="measured again")
    monkeypatch.setattr(probing.Probe, "run", lambda probe: fresh)
    assert measure_on(tmp_path, **change).reason == "measured again"


# ---------------------------------------------------------------------------------------------------- too little memory
def test_too_little_memory_asks_for_checkpointing_first(tmp_path):
    tight = replace(PLAN, memory_limit_mb=50)
    assert measure_on(tmp_path, plan=tight).needs_checkpointing
    for _ in ("measured", "from the cache"):
        with pytest.raises(LandfallError, match=r"Plain CPU, .*: 1 used [\d,]+ MiB") as raised:
            measure_on(tmp_path, plan=tight, checkpointing=True)
        assert "limit 50 MiB" in raised.value.message
        assert "model.size=reduced" in raised.value.hint
