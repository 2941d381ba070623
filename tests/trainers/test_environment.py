"""What a run records about the device that it used."""

import pytest

from core.config.execution import Execution
from core.devices.backend import backend
from core.devices.capabilities import DeviceCapabilities
from core.devices.manager import DeviceManager
from tests.support import REPO_ROOT
from tests.support.hardware import StandIn
from trainers.environment import Gauges, environment_record

CPU = DeviceCapabilities("cpu", "Plain CPU", 4, 8000, 8000, ("float32",), usable=True, reason="a test")
H200 = DeviceCapabilities(
    "cuda", "NVIDIA H200", 2, 143_771, 143_771, ("float32", "bfloat16"), usable=True, reason="a test",
    compute_capability="9.0", cuda_version="13.0", driver_version="580.65.06",
)  # fmt: skip


@pytest.mark.parametrize(
    "machine, name, facts",
    [
        (StandIn(H200, CPU), "NVIDIA H200", ("driver 580.65.06", "CUDA 13.0", "capability 9.0")),
        (StandIn(CPU), "Plain CPU", ()),
    ],
)
def test_the_record_of_a_run_names_device_driver_and_platform(machine, name, facts):
    plan = DeviceManager(Execution(), machine).plan()
    device = environment_record(REPO_ROOT, plan, {})["device"]
    assert (device["name"], device["platform_facts"]) == (name, facts)


def test_a_reading_is_taken_once_a_second():
    gauges = Gauges("cpu")
    reading = gauges.read()
    assert reading.memory_mb > 10
    assert reading.gpu_utilisation is None
    assert gauges.read() is None


@pytest.mark.skipif(not backend("cuda").is_present, reason="no CUDA device")
def test_a_gpu_reports_its_utilisation():
    reading = Gauges("cuda").read()
    assert reading.memory_mb >= 0
    assert reading.gpu_utilisation is None or 0 <= reading.gpu_utilisation <= 1
