import errno
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch

from core.config.execution import DeviceKind
from core.devices.backend import BACKENDS, CachingBackend, MpsBackend, XlaBackend, backend
from core.devices.memory import is_out_of_memory

MIB = 2**20


class Accelerator:
    """A simulated torch.cuda, torch.xpu or torch.mps with 16 GiB that records every call."""

    def __init__(self):
        self.calls: list[str] = []
        self.fraction = 0.9
        self.reserved = self.peak = 300 * MIB
        self.rng = torch.arange(4, dtype=torch.uint8)

    def set_device(self, index):
        self.calls.append(f"set_device {index}")

    def synchronize(self):
        self.calls.append("synchronize")

    def empty_cache(self):
        self.calls.append("empty_cache")
        self.reserved = 200 * MIB

    def reset_peak_memory_stats(self):
        self.calls.append("reset_peak")
        self.peak = self.reserved

    def device_count(self):
        return 1

    def get_rng_state(self):
        return self.rng

    def set_rng_state(self, state):
        self.rng = state

    def memory_reserved(self):
        return self.reserved

    driver_allocated_memory = memory_reserved

    def max_memory_reserved(self):
        return self.peak

    def mem_get_info(self, device=None):
        return 15_000 * MIB, 16_384 * MIB

    def recommended_max_memory(self):
        return 12_000 * MIB

    def get_per_process_memory_fraction(self):
        return self.fraction

    def set_per_process_memory_fraction(self, fraction):
        self.fraction = fraction


@pytest.fixture
def api():
    return Accelerator()


@pytest.fixture(params=["cuda", "xpu", "mps"])
def gpu(request, api):
    return MpsBackend("mps", api) if request.param == "mps" else CachingBackend(request.param, api)


def test_every_platform_has_a_table_row():
    assert set(BACKENDS) == set(get_args(DeviceKind))
    assert all(backend(kind).kind == kind for kind in BACKENDS)


# --------------------------------------------------------------------------------------------------------- accelerators
def test_a_gpu_is_synchronised_and_its_cache_emptied(gpu, api):
    gpu.synchronize()
    gpu.empty_cache()
    assert api.calls == ["synchronize", "empty_cache"]
    assert gpu.is_present


def test_a_process_takes_the_gpu_of_its_index(api):
    CachingBackend("cuda", api).select(3)
    MpsBackend("mps", api).select(0)
    assert api.calls == ["set_device 3"]


def test_random_states_of_cpu_and_gpu_are_restored(gpu, api):
    torch.manual_seed(5)
    states = [state.clone() for state in gpu.rng_state()]
    drawn = torch.rand(3)
    api.rng = torch.zeros(4, dtype=torch.uint8)
    gpu.set_rng_state(states)
    assert torch.equal(torch.rand(3), drawn)
    assert api.rng.tolist() == [0, 1, 2, 3]


def test_states_of_a_cpu_run_do_not_change_the_gpu_generator(gpu, api):
    gpu.set_rng_state(backend("cpu").rng_state())
    assert api.rng.tolist() == [0, 1, 2, 3]


def test_the_peak_of_a_gpu_is_counted_since_the_cache_was_emptied(gpu, api):
    assert gpu.reserved_mb() == 300
    gpu.reset_peak_memory()
    assert "empty_cache" in api.calls
    assert gpu.peak_memory_mb() == gpu.reserved_mb() == 200
    api.reserved = api.peak = 500 * MIB
    assert gpu.peak_memory_mb() == 500


def test_memory_of_a_gpu_is_reported_in_mib(api):
    assert CachingBackend("cuda", api).memory_mb() == (15_000, 16_384)
    assert MpsBackend("mps", api).memory_mb()[1] == backend("cpu").memory_mb()[1]  # Apple's is the machine's


@pytest.mark.parametrize("limit_mb, fraction", [(8_192, 0.5), (20_000, 1.0)])
def test_a_limit_is_a_share_of_the_gpu_and_is_restored(api, limit_mb, fraction):
    with CachingBackend("cuda", api).limited(limit_mb):
        assert api.fraction == fraction
    assert api.fraction == 0.9


def test_a_limit_is_removed_even_if_the_run_fails(api):
    with pytest.raises(ZeroDivisionError), CachingBackend("cuda", api).limited(8_192):
        raise ZeroDivisionError
    assert api.fraction == 0.9


def test_a_limit_on_apple_is_a_share_of_what_metal_recommends(api, monkeypatch):
    monkeypatch.delenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", raising=False)
    with MpsBackend("mps", api).limited(6_000):
        assert api.fraction == 0.5
    assert api.fraction == 1.7
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.6")
    with MpsBackend("mps", api).limited(14_000):
        assert api.fraction == 1.0
    assert api.fraction == 0.6


class OldXpu:
    """torch.xpu of a version without memory limits."""

    mem_get_info = Accelerator.mem_get_info


def test_a_driver_that_does_not_report_free_memory():
    def silent(device):
        raise RuntimeError("The device does not support querying the available free memory")

    api = SimpleNamespace(
        mem_get_info=silent,
        get_device_properties=lambda device: SimpleNamespace(total_memory=16_384 * MIB),
        memory_reserved=lambda device: 1_000 * MIB,
    )
    assert CachingBackend("xpu", api).memory_mb() == (15_384, 16_384)


def test_a_platform_that_cannot_limit_memory_says_so(caplog):
    with CachingBackend("xpu", OldXpu()).limited(100):
        pass
    assert "xpu" in caplog.text


def test_older_torch_does_not_restore_the_previous_limit(api):
    older = ModuleType("cuda")
    older.mem_get_info, older.set_per_process_memory_fraction = api.mem_get_info, api.set_per_process_memory_fraction
    with CachingBackend("cuda", older).limited(8_192):
        assert api.fraction == 0.5
    assert api.fraction == 1.0


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_the_real_modules_have_the_functions_of_the_table(kind):
    """Fails when a torch release renames a function; no GPU is needed to see that."""
    used = {"synchronize", "empty_cache", "get_rng_state", "set_rng_state", "device_count"}
    used |= {"set_per_process_memory_fraction"}
    if kind == "mps":
        used |= {"driver_allocated_memory", "recommended_max_memory"}
    else:
        used |= {"set_device", "memory_reserved", "max_memory_reserved", "mem_get_info"}
        used |= {"reset_peak_memory_stats", "get_per_process_memory_fraction"}
    assert {name for name in used if not hasattr(getattr(torch, kind), name)} == set()


def test_a_tpu_is_used_through_torch_xla(monkeypatch, caplog):
    xla, calls = ModuleType("fake_xla"), []
    xla.mark_step = lambda: calls.append("mark_step")
    xla.wait_device_ops = lambda: calls.append("wait")
    xla.get_rng_state = lambda: 2**63 + 1
    xla.set_rng_state = calls.append
    xla.get_memory_info = lambda: {"bytes_used": 1_024 * MIB, "bytes_limit": 32_768 * MIB}
    monkeypatch.setitem(sys.modules, "fake_xla", xla)
    tpu = XlaBackend(module="fake_xla")
    tpu.synchronize()
    tpu.set_rng_state(tpu.rng_state())
    assert calls == ["mark_step", "wait", 2**63 + 1]
    assert tpu.memory_mb() == (31_744, 32_768)
    tpu.reset_peak_memory()
    assert tpu.peak_memory_mb() == tpu.reserved_mb() == 1_024
    with caplog.at_level(logging.INFO), tpu.limited(100):
        assert "XLA plans" in caplog.text


def test_absent_hardware_is_named_with_the_available_one():
    assert backend("cpu").is_present
    assert backend("cuda").is_present is torch.cuda.is_available()
    assert not XlaBackend(module="no_such_module.core").is_present


# ------------------------------------------------------------------------------------------------------------------ CPU
def test_random_states_of_the_cpu_are_restored():
    cpu = backend("cpu")
    states = cpu.rng_state()
    drawn = torch.rand(3)
    cpu.set_rng_state(states)
    assert torch.equal(torch.rand(3), drawn)


def test_the_memory_of_the_cpu_is_that_of_the_process():
    cpu = backend("cpu")
    cpu.reset_peak_memory()
    cpu.synchronize()
    before_mb = cpu.reserved_mb()
    block = torch.ones(100 * 2**18)
    assert cpu.reserved_mb() - before_mb == pytest.approx(100, rel=0.2)
    del block
    assert cpu.peak_memory_mb() - before_mb == pytest.approx(100, rel=0.2)
    free_mb, total_mb = cpu.memory_mb()
    assert 0 < free_mb < total_mb


@pytest.mark.skipif(sys.platform != "linux", reason="only the C library of Linux can be asked")
def test_the_cache_of_the_cpu_is_that_of_the_c_library():
    cpu = backend("cpu")
    blocks = [torch.ones(2**14) for _ in range(1_600)]  # 64 KiB each
    last = torch.ones(2**14)  # keeps the C library from giving back the end of its heap by itself
    del blocks
    before_mb = cpu.reserved_mb()
    cpu.empty_cache()
    assert before_mb - cpu.reserved_mb() > 70
    assert last.sum() == 2**14


# -------------------------------------------------------------------------------------------------------- out of memory
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("HIP out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("MPS backend out of memory (MPS allocated: 18.50 GiB, max allowed: 18.72 GiB)."),
        RuntimeError("Invalid buffer size: 24.00 GiB"),
        RuntimeError("XPU out of memory. Tried to allocate 1.71 GiB"),
        RuntimeError("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
        RuntimeError("RESOURCE_EXHAUSTED: Attempting to reserve 12.04G at the bottom of memory."),
        RuntimeError("std::bad_alloc"),
        RuntimeError("could not create a primitive"),  # met with a convolution under RLIMIT_DATA
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_every_out_of_memory_error_is_recognised(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        ValueError("the page about CUDA out of memory"),
        OSError(errno.ENOENT, "out of memory.csv"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_are_not_out_of_memory_errors(error):
    assert not is_out_of_memory(error)


@pytest.mark.parametrize("allocate", [torch.empty, np.ones, bytearray])
def test_the_real_out_of_memory_error_of_the_cpu_is_recognised(allocate):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        allocate(2**46)
    assert is_out_of_memory(caught.value)
