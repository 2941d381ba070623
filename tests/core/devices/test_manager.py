import json
from dataclasses import replace

import pytest
import torch

import landfall
from core.config.schema import Device
from core.devices.detect import DeviceCapabilities, SystemDetector, usable_cores
from core.devices.manager import DeviceManager, DevicePlan
from core.errors import UsageError

CPU = DeviceCapabilities("cpu", "Plain CPU", 8, 16_000, 8_000, ("float32",), True, "8 cores may be used")
AMPERE = DeviceCapabilities(
    "cuda", "A100", 1, 40_000, 39_000, ("float32", "float16", "bfloat16"), True, "A100 passed", "8.0", "13.0"
)
TURING = replace(AMPERE, name="T4", native_dtypes=("float32", "float16"), reason="T4 passed", compute_capability="7.5")
BROKEN = replace(TURING, name="K80", usable=False, reason="cuda:0 is present but failed a small operation: no kernel")
APPLE = DeviceCapabilities("mps", "Apple M3", 1, 16_000, 8_000, ("float32", "float16"), True, "Apple GPU passed")


class StandIn:
    """Hardware this machine does not have."""

    def __init__(self, *found: DeviceCapabilities):
        self.found = list(found)

    def detect_capabilities(self) -> list[DeviceCapabilities]:
        return self.found


def plan(*found: DeviceCapabilities, **settings) -> DevicePlan:
    return DeviceManager(Device(**settings), StandIn(*found)).plan()


@pytest.mark.parametrize(
    "found, kind, precision, reason",
    [
        ((AMPERE, CPU), "cuda", "bf16-mixed", "A100 computes bfloat16 natively"),
        ((TURING, CPU), "cuda", "16-mixed", "T4 has no native bfloat16; float16 with loss scaling"),
        ((APPLE, CPU), "mps", "32", "mixed precision on mps is not chosen unasked"),
        ((CPU,), "cpu", "32", "mixed precision on cpu is not chosen unasked"),
    ],
)
def test_the_best_device_computes_in_what_its_hardware_has(found, kind, precision, reason):
    chosen = plan(*found)
    assert (chosen.kind, chosen.precision) == (kind, precision)
    assert chosen.device == torch.device(kind)
    assert reason in chosen.precision_reason
    assert chosen.device_reason.startswith(f"first usable of {', '.join(device.kind for device in found)}")
    assert chosen.needs_loss_scaling is (precision == "16-mixed")


def test_a_broken_gpu_is_passed_over_loudly(caplog):
    chosen = plan(BROKEN, CPU)
    assert chosen.kind == "cpu"
    assert BROKEN.reason in chosen.device_reason
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"K80 cannot be used: {BROKEN.reason}" in caplog.text


@pytest.mark.parametrize("found, reason", [((CPU,), "none was found"), ((BROKEN, CPU), "no kernel")])
def test_a_gpu_that_is_insisted_on_is_never_replaced(found, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        plan(*found, kind="cuda")
    assert "local/devices=auto" in caught.value.hint


def test_a_device_may_be_insisted_on():
    chosen = plan(AMPERE, CPU, kind="cpu")
    assert (chosen.kind, chosen.device_reason) == ("cpu", "device.kind = cpu")


def test_cuda_may_be_declined():
    chosen = plan(AMPERE, CPU, prefer_cuda=False)
    assert chosen.kind == "cpu"
    assert "device.prefer_cuda = false" in chosen.device_reason


@pytest.mark.parametrize("precision", ["auto", "bf16-mixed"])
def test_without_amp_everything_is_32_bit(precision):
    chosen = plan(AMPERE, CPU, amp=False, precision=precision)
    assert (chosen.precision, chosen.precision_reason) == ("32", "device.amp = false")


def test_emulated_arithmetic_is_used_on_demand_with_a_warning(caplog):
    assert plan(TURING, CPU, precision="bf16-mixed").precision == "bf16-mixed"
    assert "T4 has no native bfloat16" in caplog.text
    caplog.clear()
    assert plan(AMPERE, CPU, precision="bf16-mixed").precision == "bf16-mixed"
    assert caplog.text == ""


def test_threads_default_to_the_cores_that_may_be_used():
    assert plan(AMPERE, CPU).threads == 8
    assert plan(AMPERE, CPU, threads=3).threads == 3


@pytest.mark.parametrize("precision, dtype", [("32", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_autocast_computes_in_the_planned_type(precision, dtype):
    with plan(CPU, precision=precision).autocast():
        assert (torch.ones(4, 4) @ torch.ones(4, 4)).dtype is dtype


def test_this_machine_has_a_cpu_that_computes():
    *_, cpu = SystemDetector().detect_capabilities()
    assert (cpu.kind, cpu.usable, cpu.count) == ("cpu", True, usable_cores())
    assert 0 < cpu.memory_free_mb <= cpu.memory_total_mb
    assert "float32" in cpu.native_dtypes
    assert cpu.name


def test_the_report_is_valid_json(capsys):
    assert landfall.main(["devices", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["plan"]["kind"] in {device["kind"] for device in report["devices"] if device["usable"]}
    assert report["plan"]["device_reason"]


def test_the_report_reads_as_text(capsys):
    assert landfall.main(["devices"]) == 0
    text = capsys.readouterr().out
    assert "cpu" in text
    assert "→ precision" in text
