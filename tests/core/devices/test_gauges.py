import pytest

from core.devices import nvml
from core.devices.backend import backend
from core.devices.gauges import Gauges

UUID = "5a0b1c2d-0000-1111-2222-333344445555"


class Driver:
    """NVIDIA's library of a machine with one GPU, which computes 57 percent of the time unless it is a slice."""

    def __init__(self, *, is_slice: bool = False):
        self.is_slice = is_slice

    def nvmlDeviceGetHandleByUUID(self, name, handle):
        handle._obj.value = 1
        return 0 if name == f"GPU-{UUID}".encode() else 6

    def nvmlDeviceGetUtilizationRates(self, handle, found):
        found._obj.gpu, found._obj.memory = 57, 3
        return 3 if self.is_slice or handle.value != 1 else 0


@pytest.fixture
def driver(monkeypatch):
    """Installs a driver, and forgets what was known of the one before."""

    def install(found):
        monkeypatch.setattr(nvml, "_library", lambda: found)
        nvml._handle.cache_clear()

    yield install
    nvml._handle.cache_clear()


def test_a_reading_is_taken_once_a_second():
    gauges = Gauges("cpu")
    reading = gauges.read()
    assert reading.memory_mb > 10
    assert reading.gpu_utilisation is None
    assert gauges.read() is None


def test_a_gpu_is_known_by_its_uuid_with_or_without_what_torch_leaves_out(driver):
    driver(Driver())
    assert nvml.utilisation(UUID) == nvml.utilisation(f"GPU-{UUID}") == 0.57


def test_a_slice_of_a_gpu_another_gpu_and_a_machine_without_driver_tell_nothing(driver):
    driver(Driver(is_slice=True))
    assert nvml.utilisation(UUID) is None
    driver(Driver())
    assert nvml.utilisation("00000000-0000-0000-0000-000000000000") is None
    driver(None)
    assert nvml.utilisation(UUID) is None


@pytest.mark.skipif(not backend("cuda").is_present, reason="no CUDA device")
def test_a_gpu_says_what_it_does():
    reading = Gauges("cuda").read()
    assert reading.memory_mb >= 0
    assert reading.gpu_utilisation is None or 0 <= reading.gpu_utilisation <= 1
