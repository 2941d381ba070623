"""The record of a run about the devices that it used."""

from types import SimpleNamespace

import pytest

from core.devices import nvidia
from core.devices.detect import devices_used
from core.devices.plan import DevicePlan
from tests.support import REPO_ROOT
from trainers.environment import environment_record

CPU = DevicePlan("cpu", "Plain CPU", "32", 1, "a test", "a test")
UUIDS = ("5a0b1c2d-0000-1111-2222-333344445555", "6a0b1c2d-0000-1111-2222-333344445555")


def machine(hip: str | None = None) -> SimpleNamespace:
    """A simulated torch with two H200."""
    gpus = [
        SimpleNamespace(name="NVIDIA H200", total_memory=143_771 * 2**20, major=9, minor=0, uuid=uuid) for uuid in UUIDS
    ]
    cuda = SimpleNamespace(get_device_properties=gpus.__getitem__)
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda=None if hip else "13.0", hip=hip))


@pytest.fixture
def driver(monkeypatch):
    gpus = [nvidia.Gpu("NVIDIA H200", 1, 1, "580.65.06", "9.0", uuid=UUIDS[0], power_limit_w=700.0)]
    monkeypatch.setattr(nvidia, "query", lambda: gpus)


@pytest.mark.parametrize("count, index, indices", [(2, 1, [0, 1]), (1, 1, [1])])
def test_every_gpu_in_use_is_described(driver, count, index, indices):
    found = devices_used(DevicePlan("cuda", "x", "32", 1, "", "", count=count, index=index), machine())
    assert [device.index for device in found] == indices
    assert {(d.name, d.driver_version, d.cuda_version, d.compute_capability, d.memory_mb) for d in found} == {
        ("NVIDIA H200", "580.65.06", "13.0", "9.0", 143_771)
    }
    assert [device.power_limit_w for device in found] == [700.0 if i == 0 else None for i in indices]


def test_the_start_report_has_one_line_with_known_facts(driver):
    first, second = devices_used(DevicePlan("cuda", "x", "32", 1, "", "", count=2), machine())
    assert str(first) == "cuda:0 NVIDIA H200, driver 580.65.06, CUDA 13.0, capability 9.0, power limit 700 W"
    assert "power limit" not in str(second)


def test_amd_gpus_have_no_nvidia_driver_or_capability(driver):
    (found,) = devices_used(DevicePlan("cuda", "x", "32", 1, "", ""), machine(hip="6.2"))
    assert (found.hip_version, found.driver_version, found.compute_capability) == ("6.2", None, None)


def test_the_record_of_a_run_names_the_devices_it_used():
    (device,) = environment_record(REPO_ROOT, CPU, {})["devices_used"]
    assert (device["kind"], device["name"], device["power_limit_w"]) == ("cpu", "Plain CPU", None)
