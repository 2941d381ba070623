import logging
import subprocess
import sys
import threading

import pytest
import torch

from core import process_memory
from core.process_memory import HighWaterMark, SampledPeak
from tests.support import REPO_ROOT
from tests.support.waiting import PATIENCE_S, until

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="kernel interfaces of Linux")


# In a process of its own: what other tests gave back would be taken again, and not count.
PEAKS = """
import torch
from core.process_memory import HighWaterMark, SampledPeak, release, resident_mb

meter = {meter}
meter.reset()
before_mb = meter.peak_mb()
blocks = [torch.ones(2**14) for _ in range(3_200)]  # 64 KiB each: the C library keeps what it gets back of them
print(meter.peak_mb() - before_mb)
blocks = blocks[-1]
print(meter.peak_mb() - before_mb)
release()
meter.reset()
print(meter.peak_mb() - before_mb)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("meter", [pytest.param("HighWaterMark()", marks=only_linux), "SampledPeak(resident_mb)"])
def test_a_peak_is_remembered_until_the_next_reset(meter):
    command = [sys.executable, "-c", PEAKS.format(meter=meter)]
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    high_mb, later_mb, after_reset_mb = map(float, done.stdout.split())
    assert high_mb == pytest.approx(200, rel=0.2)
    assert later_mb == pytest.approx(200, rel=0.2)
    assert after_reset_mb < 40


@only_linux
def test_the_kernel_counter_includes_short_peaks():
    meter = process_memory.peak_meter()
    assert isinstance(meter, HighWaterMark)
    meter.reset()
    before_mb = meter.peak_mb()
    torch.ones(200 * 2**18).sum()
    assert meter.peak_mb() - before_mb == pytest.approx(200, rel=0.2)


def test_a_sampling_thread_finds_the_peak():
    def read() -> float:
        return 100.0 if threading.current_thread() is threading.main_thread() else 300.0

    meter = SampledPeak(read, interval_s=0.001)
    assert meter.peak_mb() == 100.0
    meter.reset()
    until(lambda sampled=meter: sampled.peak_mb() == 300.0)
    thread = meter._thread
    del meter
    thread.join(timeout=PATIENCE_S)
    assert not thread.is_alive()


def test_the_peak_is_sampled_without_a_kernel_counter(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(process_memory, "_CLEAR_REFS", tmp_path / "absent")
    process_memory.peak_meter.cache_clear()
    with caplog.at_level(logging.INFO):
        assert isinstance(process_memory.peak_meter(), SampledPeak)
    process_memory.peak_meter.cache_clear()
    assert "sampled instead" in caplog.text


GUARDED = """
import resource
import numpy as np
from core import process_memory

before = resource.getrlimit(resource.RLIMIT_DATA)
def bound():
    return resource.getrlimit(resource.RLIMIT_DATA)[0]

with process_memory.limited(process_memory.resident_mb() + 100):
    outer = bound()
    np.empty(50 * 2**17)
    try:
        np.empty(400 * 2**17)
    except MemoryError:
        print("refused")
    with process_memory.limited(process_memory.resident_mb() + 50):
        print("tighter" if bound() < outer else "looser")
    with process_memory.limited(process_memory.resident_mb() + 10_000):
        print("kept" if bound() == outer else "lifted")
    print("outer back" if bound() == outer else "lost")
print("restored" if resource.getrlimit(resource.RLIMIT_DATA) == before else "left behind")
print(len(np.empty(400 * 2**17)) // 2**17)
"""


@only_linux
def test_a_memory_limit_applies_within_its_block():
    done = subprocess.run([sys.executable, "-c", GUARDED], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["refused", "tighter", "kept", "outer back", "restored", "400"]


@only_linux
def test_a_limit_below_the_current_memory_is_ignored_with_a_message(caplog):
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with process_memory.limited(process_memory.resident_mb() / 2):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "already holds more" in caplog.text


def test_other_systems_than_linux_set_no_limit_and_report_it(monkeypatch, caplog):
    monkeypatch.setattr(sys, "platform", "darwin")
    with process_memory.limited(100_000):
        pass
    assert "darwin" in caplog.text


@only_linux
@pytest.mark.parametrize("status", ["VmRSS:\t  100 kB\n", None])
def test_no_limit_is_set_if_the_kernel_hides_memory(monkeypatch, tmp_path, caplog, status):
    import resource

    file = tmp_path / "status"
    if status:
        file.write_text(status)
    monkeypatch.setattr(process_memory, "_STATUS", file)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with process_memory.limited(100_000):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert "no memory limit: " in caplog.text
