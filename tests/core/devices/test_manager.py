import logging
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from core.config.execution import Device, Execution, Memory
from core.devices import compat
from core.devices.capabilities import DeviceCapabilities
from core.devices.compat import (
    DeviceManager,
    DeviceType,
    MemoryStrategy,
    get_default_device,
    get_device,
    get_device_info,
    get_device_manager,
    has_gpu,
    move_to_device,
)
from core.devices.plan import DevicePlan
from core.errors import ConfigError, UsageError
from tests.support import REPO_ROOT
from tests.support.hardware import StandIn

CPU = DeviceCapabilities("cpu", "Plain CPU", 8, 16_000, 8_000, ("float32",), True, "8 cores may be used")
AMPERE = DeviceCapabilities(
    "cuda", "A100", 1, 40_536, 39_000, ("float32", "float16", "bfloat16"), True, "A100 passed", "8.0", "13.0",
    supports_distributed=True,
)  # fmt: skip
FOUR = replace(AMPERE, count=4)
TURING = replace(AMPERE, name="T4", native_dtypes=("float32", "float16"), reason="T4 passed", compute_capability="7.5")
BROKEN = replace(TURING, name="K80", usable=False, reason="cuda:0 is present but failed a small operation: no kernel")
APPLE = DeviceCapabilities("mps", "Apple M3", 1, 16_000, 8_000, ("float32", "float16"), True, "Apple GPU passed")
ARC = DeviceCapabilities("xpu", "Arc A770", 1, 16_000, 15_000, ("float32", "float16", "bfloat16"), True, "Arc passed")
TPU = DeviceCapabilities("tpu", "TPU v5e", 8, 16_384, 16_000, ("float32", "bfloat16"), True, "TPU passed")
IDLE_TPU = replace(TPU, usable=False, reason="no training backend for it is installed")


def manager(*found: DeviceCapabilities, **settings) -> DeviceManager:
    """Settings of the profile by name, those of the section `device` as `device={…}`."""
    return DeviceManager(Execution.model_validate(settings), StandIn(*found))


def plan(*found: DeviceCapabilities, **settings) -> DevicePlan:
    return manager(*found, **settings).plan()


def warnings(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# ---------------------------------------------------------------------------------------------------------- the device
@pytest.mark.parametrize(
    "found, kind, precision, reason",
    [
        ((AMPERE, CPU), "cuda", "bf16-mixed", "A100 computes bfloat16 natively"),
        ((TURING, CPU), "cuda", "16-mixed", "T4 has no native bfloat16; float16 with loss scaling"),
        ((APPLE, CPU), "mps", "32", "mixed precision on mps"),
        ((ARC, CPU), "xpu", "bf16-mixed", "Arc A770 computes bfloat16 natively"),
        ((CPU,), "cpu", "32", f"{CPU.name} does not compute bfloat16 natively"),
        ((replace(CPU, native_dtypes=("float32", "bfloat16")),), "cpu", "bf16-mixed", "computes bfloat16 natively"),
    ],
)
def test_the_best_device_uses_its_native_precision(found, kind, precision, reason):
    chosen = plan(*found)
    assert (chosen.kind, chosen.precision) == (kind, precision)
    assert chosen.device.type == kind
    assert reason in chosen.precision_reason
    assert chosen.device_reason.startswith(f"first usable of {', '.join(device.kind for device in found)}")
    assert chosen.needs_loss_scaling is (precision == "16-mixed")
    assert not chosen.fallback


def test_the_order_of_platforms_is_fixed_and_can_be_changed():
    everything = (CPU, ARC, APPLE, TPU, AMPERE)
    assert plan(*everything).kind == "cuda"
    assert plan(*everything, device={"allow_tpu": True}).kind == "tpu"
    assert plan(*everything, device={"order": ["xpu", "cuda"]}).kind == "xpu"
    assert plan(AMPERE, CPU, device={"order": []}).kind == "cpu"


def test_a_tpu_is_used_only_if_it_is_allowed_and_works():
    assert "device.allow_tpu = false" in plan(TPU, CPU).device_reason
    assert plan(IDLE_TPU, CPU, device={"allow_tpu": True}).kind == "cpu"
    assert plan(TPU, CPU, device={"prefer": "tpu"}).kind == "tpu", "asking for it allows it"


@pytest.mark.parametrize("prefer", ["auto", "gpu", "cpu", "mps", "xpu"])
def test_a_preferred_device_is_not_used_unless_allowed(prefer):
    settings = {"prefer": prefer, "allow_tpu": False, "prefer_cuda": False}
    assert plan(TPU, AMPERE, APPLE, ARC, CPU, device=settings).kind in ("mps", "xpu", "cpu")


def test_a_request_for_a_device_that_is_not_allowed_is_a_conflict():
    with pytest.raises(ValidationError, match="allow_tpu = false"):
        Device(prefer="tpu", allow_tpu=False)
    origins = {"device.prefer": "environment: COMPUTE_PREFER=gpu"}
    settings = Execution.model_validate({"device": {"prefer": "cuda", "prefer_cuda": False}})
    with pytest.raises(UsageError, match="A100") as caught:
        DeviceManager(settings, StandIn(AMPERE, CPU), origins=origins)
    assert all(words in str(caught.value) for words in ("COMPUTE_PREFER=gpu", "device.prefer_cuda = false"))
    with pytest.raises(UsageError, match="every cuda device"):
        DeviceManager(settings, StandIn(CPU))
    assert DeviceManager(settings, StandIn(APPLE, CPU)).plan().kind == "mps", "another GPU is allowed"


@pytest.mark.parametrize("found, settings, words", [
    ((CPU,), {"devices": 4, "device": {"prefer": "gpu"}}, ("Plain CPU replaces", "1 process trains")),
    ((FOUR, CPU), {"devices": 8}, ("4 × A100", "4 processes train")),
    ((FOUR, CPU), {"devices": 4, "distributed": {"strategy": "none"}}, ("strategy = none", "1 process trains")),
    ((APPLE, CPU), {"devices": 2}, ("1 × Apple M3", "1 process trains")),
])  # fmt: skip
def test_unavailable_devices_are_reported_once_with_the_replacement(found, settings, words, caplog):
    origins = {"devices": f"command line: devices={settings['devices']}"}
    used = DeviceManager(Execution.model_validate(settings), StandIn(*found), origins=origins)
    for _ in range(3):
        assert any(text.startswith("devices = ") for text in used.plan(processes=1).misfits)
    (text,) = [text for text in warnings(caplog) if text.startswith("devices = ")]
    assert all(word in text for word in (*words, origins["devices"]))


@pytest.mark.parametrize("devices, settings", [(1, {}), ("auto", {}), (4, {}), (16, {"device": {"prefer": "cpu"}})])
def test_available_devices_are_not_reported(devices, settings, caplog):
    plan(FOUR, CPU, devices=devices, **settings)
    assert warnings(caplog) == []


def test_a_precision_set_by_the_user_is_not_a_profile_mismatch(caplog):
    settings = Execution(precision="bf16-mixed", device={"strict": True})
    by_hand = {"precision": "command line: precision=bf16-mixed"}
    used = DeviceManager(settings, StandIn(TURING, CPU), origins=by_hand).plan()
    assert (used.precision, used.misfits) == ("bf16-mixed", ())
    (text,) = warnings(caplog)
    assert "command line: precision=bf16-mixed" in text
    assert "profile" not in text
    by_profile = {"precision": "configs/local/devices/mine.yaml:5"}
    with pytest.raises(ConfigError, match="bfloat16 is not native"):
        DeviceManager(settings, StandIn(TURING, CPU), origins=by_profile).plan()


def test_a_broken_gpu_is_skipped_with_a_warning(caplog):
    chosen = plan(BROKEN, CPU)
    assert chosen.kind == "cpu"
    assert BROKEN.reason in chosen.device_reason
    assert warnings(caplog) == [f"K80 cannot be used: {BROKEN.reason}"]


@pytest.mark.parametrize("found, reason", [((CPU,), "none was found"), ((BROKEN, CPU), "no kernel")])
def test_a_missing_preferred_device_is_replaced_with_a_warning(found, reason, caplog):
    chosen = plan(*found, device={"prefer": "gpu"})
    assert (chosen.kind, chosen.fallback) == ("cpu", True)
    assert reason in chosen.device_reason
    assert "Plain CPU is used" in warnings(caplog)[-1]


@pytest.mark.parametrize("found, reason", [((CPU,), "none was found"), ((BROKEN, CPU), "no kernel")])
def test_a_strict_preference_is_never_replaced(found, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        plan(*found, device={"prefer": "gpu", "strict": True})
    assert (caught.value.exit_code, "local/devices=auto" in caught.value.hint) == (2, True)


@pytest.mark.parametrize(
    "prefer, kind", [("cpu", "cpu"), ("gpu", "cuda"), ("mps", "mps"), ("xpu", "xpu"), ("auto", "cuda")]
)
def test_a_device_may_be_preferred(prefer, kind):
    assert plan(AMPERE, APPLE, ARC, CPU, device={"prefer": prefer}).kind == kind


def test_the_preference_gpu_accepts_any_gpu():
    assert plan(APPLE, CPU, device={"prefer": "gpu"}).kind == "mps"


def test_cuda_may_be_declined():
    chosen = plan(AMPERE, CPU, device={"prefer_cuda": False})
    assert chosen.kind == "cpu"
    assert "device.prefer_cuda = false" in chosen.device_reason


def test_a_detector_may_return_a_single_platform():
    class One:
        def detect_capabilities(self):
            return CPU

    assert DeviceManager(Execution(), One()).plan().name == "Plain CPU"


# ------------------------------------------------------------------------------------------------------- the arithmetic
@pytest.mark.parametrize("precision", ["auto", "bf16-mixed"])
def test_precision_is_float32_if_mixed_precision_is_not_allowed(precision):
    chosen = plan(AMPERE, CPU, precision=precision, device={"amp": False})
    assert (chosen.precision, chosen.precision_reason) == ("32", "device.amp = false")


def test_emulated_arithmetic_is_used_on_demand_with_a_warning(caplog):
    assert plan(TURING, CPU, precision="bf16-mixed").precision == "bf16-mixed"
    assert "bfloat16 is not native on T4: slow" in caplog.text
    caplog.clear()
    assert plan(AMPERE, CPU, precision="bf16-mixed").precision == "bf16-mixed"
    assert caplog.text == ""


def test_the_arithmetic_of_a_missing_gpu_is_not_forced_on_the_cpu(caplog):
    chosen = plan(CPU, precision="16-mixed", device={"prefer": "gpu"})
    assert chosen.precision == "32"
    assert "16-mixed was requested" in chosen.precision_reason
    assert any("precision 16-mixed" in text for text in warnings(caplog))


def test_double_precision_is_never_mixed():
    chosen = plan(AMPERE, CPU, precision="bf16-mixed", device={"enable_x64": True})
    assert (chosen.precision, chosen.dtype) == ("32", torch.float64)
    with pytest.raises(UsageError, match="no float64"):
        plan(APPLE, CPU, device={"enable_x64": True})


@pytest.mark.parametrize("precision, dtype", [("32", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_autocast_computes_in_the_planned_type(precision, dtype):
    with plan(CPU, precision=precision).autocast():
        assert (torch.ones(4, 4) @ torch.ones(4, 4)).dtype is dtype


# ------------------------------------------------------------------------------------------- processes, threads, memory
@pytest.mark.parametrize(
    "found, devices, count, threads",
    [
        ((FOUR, CPU), 1, 1, 7),
        ((FOUR, CPU), 2, 2, 4),
        ((FOUR, CPU), "auto", 4, 2),
        ((FOUR, CPU), 16, 4, 2),
        ((CPU,), "auto", 1, 7),
        ((CPU,), 2, 2, 4),
        ((CPU,), 16, 16, 1),
    ],
)
def test_one_process_for_each_device_shares_the_cores(found, devices, count, threads):
    chosen = plan(*found, devices=devices)
    assert (chosen.count, chosen.threads) == (count, threads)


def test_without_a_strategy_there_is_one_process():
    assert plan(FOUR, CPU, devices="auto", distributed={"strategy": "none"}).count == 1


def test_threads_are_capped_never_raised():
    assert plan(AMPERE, CPU, max_threads=3).threads == 3
    assert plan(AMPERE, CPU, max_threads=64).threads == 8


def test_each_process_has_its_own_device():
    assert manager(FOUR, CPU, devices=4).plan(index=2).device == torch.device("cuda", 2)


@pytest.mark.parametrize(
    "memory, share",
    [({}, 0.75), ({"strategy": "conservative"}, 0.6), ({"strategy": "aggressive"}, 0.9),
     ({"strategy": "custom", "fraction": 0.5}, 0.5)],
)  # fmt: skip
def test_the_strategy_decides_about_the_memory(memory, share):
    chosen = plan(AMPERE, CPU, device={"memory": memory})
    assert chosen.memory_share == share
    assert chosen.memory_limit_mb == pytest.approx(share * AMPERE.memory_total_mb, abs=1)


def test_memory_of_other_processes_is_not_available():
    assert plan(replace(AMPERE, memory_free_mb=5000), CPU).memory_limit_mb < 6000


@pytest.mark.parametrize("parameters, share", [(10**5, 0.6), (10**7, 0.75), (10**9, 0.9)])
def test_the_strategy_may_follow_the_model(parameters, share):
    found = manager(AMPERE, CPU)
    following = DeviceManager(found.optimize_for_model_size(parameters), StandIn(AMPERE, CPU))
    assert following.plan().memory_share == share
    assert found.plan().memory_share == 0.75, "the manager itself stays as it is"
    automatic = manager(AMPERE, CPU, device={"memory": {"strategy": "auto"}})
    assert automatic.plan(num_parameters=parameters).memory_share == share
    assert automatic.plan().memory_share == 0.75, "before the model is known"


@pytest.mark.parametrize("name, device", [
    (None, "cuda:0"), (1, "cuda:1"), ("cuda:3", "cuda:3"), ("gpu", "cuda:0"), ("GPU:1", "cuda:1"), ("mps", "mps"),
    ("cpu", "cpu"), ("cpu:0", "cpu"),
])  # fmt: skip
def test_a_device_may_be_named(name, device):
    assert manager(FOUR, APPLE, CPU).get_device(name) == torch.device(device)


@pytest.mark.parametrize("name, words", [
    ("tpu:0", "no training backend"), ("cuda:4", "no such device"), ("xpu", "no such device"),
    ("abacus", "not the name"),
    ("cuda:x", "no such device"), (4, "does not exist"),
])  # fmt: skip
def test_an_unusable_device_is_rejected_with_a_reason(name, words):
    found = manager(IDLE_TPU, FOUR, CPU)
    for work in (found.get_device, lambda device: found.move_to_device(torch.ones(1), device_id=device)):
        with pytest.raises(UsageError, match=words) as caught:
            work(name)
    assert isinstance(name, int) or "cuda:0" in caught.value.hint


def test_the_enumerations_match_the_configuration():
    for device in DeviceType:
        assert Device(prefer=device).prefer == device
    assert DeviceType.CUDA is DeviceType.GPU
    for strategy in MemoryStrategy:
        fraction = 0.5 if strategy is MemoryStrategy.CUSTOM else None
        assert Memory(strategy=strategy, fraction=fraction).strategy == strategy
    assert set(Device.model_fields["prefer"].annotation.__args__) == set(DeviceType)
    assert set(Memory.model_fields["strategy"].annotation.__args__) == set(MemoryStrategy)


# ------------------------------------------------------------------------------------------------------------- profiles
A100_NODE = {"devices": 8, "hardware": {"kind": "cuda", "memory_gb": 40, "compute_capability": 8.0}}


def test_a_profile_that_does_not_fit_is_reported_point_by_point(caplog):
    small = replace(TURING, memory_total_mb=15_102, memory_free_mb=15_000)
    chosen = plan(small, CPU, precision="bf16-mixed", **A100_NODE)
    assert any(misfit.startswith("devices = 8: ") for misfit in chosen.misfits)
    for key in ("hardware.memory_gb", "hardware.compute_capability", "precision"):
        assert any(misfit.startswith(f"{key}: ") for misfit in chosen.misfits), key
        assert any(f": {key}: " in text for text in warnings(caplog)), key


def test_a_strict_profile_must_fit():
    with pytest.raises(ConfigError, match="this machine has 1 × A100"):
        plan(AMPERE, CPU, device={"strict": True}, **A100_NODE)
    assert plan(replace(AMPERE, count=8), CPU, device={"strict": True}, **A100_NODE).misfits == ()


# ------------------------------------------------------------------------------------------------ lists, batches, data
def test_the_lists_of_devices():
    found = manager(FOUR, APPLE, BROKEN, CPU, device={"prefer": "cpu"})
    assert found.devices[0] == torch.device("cpu")
    assert found.gpu_devices == [torch.device("cuda", index) for index in range(4)] + [torch.device("mps")]
    assert found.cpu_devices == [torch.device("cpu")]
    assert (found.gpu_count, found.has_gpu, found.device_count) == (5, True, 1)
    assert found.default_device == torch.device("cpu")
    assert found.capabilities is CPU


def preferring(found: DeviceCapabilities, **settings) -> DeviceManager:
    """A manager on a machine with this device and a CPU, of which it uses the former."""
    prefer = {"cuda": "gpu"}.get(found.kind, found.kind)
    return manager(found, CPU, device={"prefer": prefer, **settings})


@pytest.mark.parametrize(
    "found, base, size", [(TPU, 1, 128), (TPU, 2, 256), (TPU, 3, 512), (AMPERE, 8, 32), (APPLE, 3, 12), (CPU, 7, 7)]
)
def test_batches_grow_with_the_device(found, base, size):
    batch = preferring(found).get_batch_config(base)
    assert (batch.base, batch.batch_size, batch.largest) == (base, size, None)
    assert f"{base} × {batch.factor} on {found.kind}" in batch.reason


def test_the_factor_of_a_tpu_is_set_by_configuration():
    assert preferring(TPU, tpu_batch_factor=16).get_batch_config(3).batch_size == 64


@pytest.mark.parametrize(
    "found, free_mb, memory, batch, largest",
    [
        (AMPERE, 10_000, {}, 75, 75),  # three quarters of 10,000 MiB hold 75 samples of 100
        (AMPERE, 10_000, {"strategy": "conservative"}, 60, 60),
        (AMPERE, 2_000, {}, 20, 20),  # others hold the rest
        (TPU, 10_000, {}, 64, 75),  # a power of two
        (AMPERE, 10, {}, 1, 1),  # one sample at least
    ],
)
def test_memory_limits_the_batch(found, free_mb, memory, batch, largest):
    small = replace(found, memory_total_mb=10_000, memory_free_mb=free_mb)
    limited = preferring(small, memory=memory).get_batch_config(50, mb_per_sample=100.0)
    assert (limited.batch_size, limited.largest) == (batch, largest)
    assert f" {largest} samples of 100 MiB" in limited.reason
    assert "MiB" not in preferring(small).get_batch_config(1, mb_per_sample=1e-3).reason


@pytest.mark.parametrize("figures", [{"base_batch_size": 0}, {"base_batch_size": 1, "mb_per_sample": 0.0}])
def test_impossible_figures_of_a_batch_are_rejected(figures):
    with pytest.raises(ValueError, match="must be positive"):
        manager(AMPERE, CPU).get_batch_config(**figures)


def test_floating_point_tensors_are_float64_in_64_bit_mode():
    found = manager(CPU, device={"enable_x64": True})
    assert found.create_tensor([0.1]).item() == 0.1
    assert found.create_tensor([1]).dtype is torch.int64
    assert found.create_tensor([1.0], dtype=torch.float16).dtype is torch.float16


def test_tensors_are_created_on_and_moved_to_the_device():
    found = manager(CPU)
    tensor = found.create_tensor([1.0, 2.0])
    assert found.move_to_device({"a": [tensor]})["a"][0] is tensor
    assert [len(share) for share in found.distribute_data(torch.arange(5), [torch.device("cpu")] * 2)] == [3, 2]
    with pytest.raises(UsageError, match=r"device 3 .*1 of cpu"):
        found.create_tensor([1.0], device_id=3)


# ------------------------------------------------------------------------------------------------- one for the process
@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(compat, "_manager", None)


def test_one_manager_serves_the_process(fresh):
    first = get_device_manager()
    assert get_device_manager() is first
    assert get_device_manager(force_reinit=True) is not first
    assert get_device_manager(prefer="cpu").config.device.prefer == "cpu"
    assert get_device_manager().config.device.prefer == "cpu", "the newest is kept"
    assert get_device_manager(Device(order=["cpu"]), allow_tpu=True).config.device.allow_tpu
    kept = get_device_manager(prefer="cpu").config.device
    assert (kept.order, kept.allow_tpu, kept.prefer) == (("cpu",), True, "cpu"), "changed, not created again"
    assert get_default_device() == get_device() == get_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="tpu:0"):
        move_to_device(torch.ones(1), device_id="tpu:0")
    assert get_device_manager(prefer="cuda").config.device.prefer == "gpu"
    assert get_device_manager(prefer="cpu").config.device.prefer == "cpu"
    assert has_gpu() is get_device_manager().has_gpu


def test_the_environment_decides_without_a_configuration(fresh, monkeypatch):
    monkeypatch.setenv("COMPUTE_PREFER", "CPU")
    monkeypatch.setenv("COMPUTE_TPU_BATCH_FACTOR", "64")
    monkeypatch.setenv("LANDFALL_DEVICE__MEMORY__STRATEGY", "conservative")
    settings = get_device_manager().config.device
    assert (settings.prefer, settings.tpu_batch_factor, settings.memory.share) == ("cpu", 64, 0.6)
    monkeypatch.setenv("COMPUTE_PREFER", "abacus")
    with pytest.raises(ConfigError, match=r"device.prefer"):
        get_device_manager(force_reinit=True)


def test_device_information_equals_the_report(fresh):
    assert get_device_info()["plan"]["kind"] == get_device_manager().capabilities.kind


@pytest.mark.slow
def test_the_package_offers_its_names_without_torch():
    program = (
        "import sys, core.devices; assert 'torch' not in sys.modules; from core.devices import has_gpu, DeviceManager"
    )
    subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, check=True)
