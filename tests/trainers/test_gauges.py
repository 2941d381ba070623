import pytest

from core.devices.backend import backend
from trainers.gauges import Gauges


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
