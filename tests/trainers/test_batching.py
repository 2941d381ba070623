import logging
from dataclasses import replace

import pytest

from core.config.compose import LoadedConfig, load_config, local_config_file
from core.config.hardware import Tier, Tiers, load_tiers, resolve_model_size
from core.config.schema import Scalogram, Stream, SwinMAEModel, Training
from core.devices.capabilities import DeviceCapabilities
from core.errors import ConfigError
from tests.support import REPO_ROOT
from trainers.batching import effective_batch

CPU = DeviceCapabilities("cpu", "Plain CPU", 8, 16_000, 8_000, ("float32",), True, "8 cores may be used")
TIERS = load_tiers(REPO_ROOT)


def tier_for(kind: str, memory_mb: int, tiers: Tiers = TIERS, **factor: int) -> Tier:
    device = replace(CPU, kind=kind, name=f"some {kind}", count=1, memory_total_mb=memory_mb)
    return tiers.tier_for(device.kind, device.nominal_gb, **factor)


def tier(name: str):
    return next(tier for tier in TIERS.tiers if tier.name == name)


# --------------------------------------------------------------------------------------------------------------- tiers
@pytest.mark.parametrize(
    "kind, memory_mb, start",
    [
        ("cuda", 81_920, (2048, False, "full")),  # A100, 80 GB
        ("cuda", 40_536, (2048, False, "full")),  # A100, 40 GB
        ("cuda", 24_268, (1536, False, "full")),  # RTX 3090
        ("cuda", 22_723, (1536, False, "full")),  # A10, sold with 24 GB, a part of it taken by ECC
        ("cuda", 15_102, (1024, False, "full")),  # T4, sold with 16 GB
        ("cuda", 11_441, (512, True, "full")),  # K80
        ("mps", 65_536, (512, False, "full")),
        ("mps", 32_768, (512, False, "full")),
        ("mps", 16_384, (256, True, "reduced")),
        ("cpu", 512_000, (256, False, "reduced")),
        ("cpu", 900, (256, False, "reduced")),
        ("xpu", 16_384, (1024, False, "full")),
        ("tpu", 32_768, (2048, False, "full")),
    ],
)
def test_a_device_starts_from_its_tier(kind, memory_mb, start):
    found = tier_for(kind, memory_mb)
    assert found.kind == kind
    assert (found.batch_size, found.gradient_checkpointing, found.model_size) == start


def test_the_order_of_the_rows_does_not_matter():
    turned = TIERS.model_copy(update={"tiers": TIERS.tiers[::-1]})
    assert tier_for("cuda", 24_268, turned).name == "cuda-24gb"


# ------------------------------------------------------------------------------------------------------ effective batch
@pytest.mark.parametrize(
    "settings, num_windows, world_size, batch, words",
    [
        ({"epochs": 20}, 10**6, 1, 2048, "cuda-40gb: 2048"),
        ({"epochs": 20}, 10_000, 1, 128, "20 epochs of 10000 windows"),
        ({"epochs": 20}, 400, 1, 8, "1000 steps"),
        ({"epochs": 10, "windows_per_epoch": 800}, 10**6, 1, 8, "10 epochs of 800 windows"),
        ({"epochs": 10_000}, 100, 1, 64, "an epoch has 100 windows"),
        ({"epochs": 1}, 400, 1, 8, "smallest batch is 8"),
        ({"epochs": 1}, 7, 1, 4, "an epoch has 7 windows"),
        ({"epochs": 1}, 400, 16, 16, "16 processes"),
        ({"epochs": 20, "min_steps": 10}, 400, 1, 256, "an epoch has 400 windows"),
        ({"effective_batch": 48}, 400, 1, 48, "training.effective_batch = 48"),
        ({"effective_batch": 2}, 400, 4, 4, "4 processes"),
    ],
)
def test_the_global_batch_leaves_enough_steps_per_epoch(settings, num_windows, world_size, batch, words):
    found, reason = effective_batch(
        Training(batch_size="auto", **settings), tier("cuda-40gb"), num_windows=num_windows, world_size=world_size
    )
    assert found == batch
    assert words in reason


def test_a_tier_below_the_smallest_batch_applies():
    small = tier("cpu").model_copy(update={"batch_size": 4})
    assert effective_batch(Training(epochs=1), small, num_windows=400)[0] == 4


@pytest.mark.parametrize("name", [row.name for row in TIERS.tiers])
@pytest.mark.parametrize("num_windows", [1, 7, 5_000, 3 * 10**6])
def test_an_automatic_batch_is_a_power_of_two_within_all_bounds(name, num_windows):
    settings = Training(epochs=20)
    batch, _ = effective_batch(settings, tier(name), num_windows=num_windows)
    assert batch.bit_count() == 1
    assert batch <= min(tier(name).batch_size, num_windows)
    assert batch <= 8 or settings.epochs * num_windows / batch >= settings.min_steps


# ----------------------------------------------------------------------------------------------------------- model size
def local(stream: Stream, *overrides: str, environment: dict[str, str] | None = None, root=REPO_ROOT, file=None):
    return load_config(file or local_config_file(stream), overrides, root=root, environment=environment or {})


def resolved(loaded: LoadedConfig, name: str):
    return resolve_model_size(loaded.config, tier(name), TIERS, loaded.origins)


def test_on_a_cpu_the_models_are_the_small_ones():
    process, reason = resolved(local("patchtst"), "cpu")
    model = process.model
    assert (model.d_model, model.num_heads, model.num_layers, model.d_ff) == (64, 4, 3, 128)
    assert (model.size, reason.split()[-1]) == ("reduced", "cpu")
    vibration, _ = resolved(local("swinmae"), "cpu")
    assert vibration.model == SwinMAEModel(
        size="reduced", drop_masked_tokens=True, decoder="light", decoder_depths=(1,)
    )
    assert vibration.scalogram == Scalogram(frequencies=64, image_size=64, frequency_min_hz="auto")


@pytest.mark.parametrize("stream", ["patchtst", "swinmae"])
def test_only_sizes_change(stream):
    loaded = local(stream)
    before = loaded.config.model_dump(mode="json")
    for row in TIERS.tiers:
        config, _ = resolved(loaded, row.name)
        assert config.model.size == row.model_size
        expected = dict(before)
        for name, values in TIERS.models[stream][row.model_size].items():
            expected[name] = expected[name] | values
        expected["model"]["size"] = row.model_size
        assert config.model_dump(mode="json") == expected


def test_a_custom_size_changes_nothing():
    loaded = local("swinmae", "model.size=custom")
    config, reason = resolved(loaded, "cuda-40gb")
    assert config is loaded.config
    assert reason == "model.size = custom"


@pytest.mark.parametrize("size, heads", [("full", 16), ("reduced", 4)])
def test_a_size_may_be_requested_on_any_hardware(size, heads):
    for name in ("cpu", "cuda-40gb"):
        config, reason = resolved(local("patchtst", f"model.size={size}"), name)
        assert (config.model.size, config.model.num_heads) == (size, heads)
        assert reason == f"model.size = {size}"


def test_sizes_from_environment_or_command_line_stay():
    loaded = local("patchtst", "model.d_ff=384", environment={"LANDFALL_MODEL__NUM_LAYERS": "5"})
    config, reason = resolved(loaded, "cuda-40gb")
    assert (config.model.d_ff, config.model.num_layers, config.model.num_heads) == (384, 5, 16)
    assert "full on the tier cuda-40gb, but model.num_layers = 5, model.d_ff = 384 as set" in reason


def test_sizes_from_a_user_file_stay_unless_the_size_is_set_later(workspace):
    (workspace / "site.yaml").write_text("defaults: [patchtst_ssl_local, _self_]\nmodel: {d_model: 64}\n")
    config, reason = resolved(local("patchtst", root=workspace, file="site.yaml"), "cuda-40gb")
    assert (config.model.d_model, config.model.num_heads) == (64, 16)
    assert "but model.d_model = 64 as set" in reason
    config, _ = resolved(local("patchtst", "model.size=full", root=workspace, file="site.yaml"), "cpu")
    assert config.model.d_model == 128


def test_a_configuration_without_origins_takes_the_whole_size():
    config, _ = resolve_model_size(local("patchtst", "model.d_ff=384").config, tier("cuda-40gb"), TIERS, {})
    assert config.model.d_ff == 512


def test_a_full_model_that_does_not_fit_is_replaced_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        config, reason = resolved(local("swinmae", "data.window=256"), "cuda-40gb")
    assert (config.model.size, config.scalogram.image_size) == ("reduced", 64)
    assert reason.startswith("reduced: data.window = 256 ")
    assert "224 columns" in reason
    assert "tier cuda-40gb" in caplog.text


def test_a_requested_full_model_is_not_replaced():
    with pytest.raises(ConfigError, match=r"model.size = full.*224 columns"):
        resolved(local("swinmae", "data.window=256", "model.size=full"), "cpu")


def test_an_error_is_raised_if_even_the_reduced_model_does_not_fit():
    loaded = local("swinmae", "data.window=200", "model.size=custom")
    config = loaded.config.model_copy(update={"data": loaded.config.data.model_copy(update={"window": 100})})
    config = config.model_copy(update={"model": config.model.model_copy(update={"size": "auto"})})
    with pytest.raises(ConfigError, match="64 columns"):
        resolve_model_size(config, tier("cuda-40gb"), TIERS, {})


@pytest.mark.parametrize("factor, batch", [(128, 2048), (64, 1024), (1, 16), (256, 4096)])
def test_the_batch_of_a_tpu_follows_its_factor(factor, batch):
    tpu = tier_for("tpu", 32 * 1024, tpu_batch_factor=factor)
    assert tpu.batch_size == batch
    assert tier_for("cuda", 40_536, tpu_batch_factor=factor) == tier_for("cuda", 40_536)
    settings = Training(effective_batch="auto", windows_per_epoch=0, epochs=1000)
    effective, _ = effective_batch(settings, tpu, num_windows=100_000)
    assert effective == batch
