import json
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import pytest
import torch

from core import host
from core.devices import detect, nvidia, tpu
from core.devices.detect import DETECTORS, SystemDetector, detect_cpu, detect_cuda, detect_mps, detect_xpu, detected
from tests.support import REPO_ROOT

GIB = 2**30
MIB = 2**20
ABSENT = SimpleNamespace(is_available=lambda: False)


class FakeTorch:
    """torch with hardware that this machine does not have: its devices are the CPU, so that operations really run."""

    def __init__(self, *, cuda=ABSENT, mps=ABSENT, xpu=ABSENT, matmul=torch.matmul, cuda_version="13.0", hip=None):
        self.cuda, self.xpu, self.matmul = cuda, xpu, matmul
        self.mps, self.backends = mps, SimpleNamespace(mps=mps)
        self.version = SimpleNamespace(cuda=cuda_version, hip=hip)
        self.distributed = SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: True)
        self.devices_used: list[tuple] = []

    def device(self, *name):
        self.devices_used.append(name)
        return torch.device("cpu")

    def __getattr__(self, name):
        return getattr(torch, name)


def gpu(name="NVIDIA A100-SXM4-40GB", capability=(8, 0), memory=40 * GIB):
    major, minor = capability
    return SimpleNamespace(name=name, major=major, minor=minor, total_memory=memory, is_integrated=0)


A100 = gpu()
T4 = gpu("Tesla T4", (7, 5), 15_102 * MIB)
P100 = gpu("Tesla P100-PCIE-16GB", (6, 0), 16_281 * MIB)


def cuda(*gpus, archs=("sm_75", "sm_80", "sm_90"), free=10 * GIB):
    return SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: len(gpus),
        get_device_properties=lambda index: gpus[index],
        get_arch_list=lambda: list(archs),
        mem_get_info=lambda device: (free, gpus[0].total_memory),
        is_bf16_supported=lambda including_emulation=True: including_emulation or gpus[0].major >= 8,
    )


def no_kernel(first, second):
    raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")


def only_bf16(fault):
    return lambda first, second: (fault if first.dtype == torch.bfloat16 else torch.matmul)(first, second)


@pytest.fixture(autouse=True)
def _plain_machine(tmp_path, monkeypatch):
    for name in ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "TPU_NAME", "TPU_ZONE", "TPU_ACCELERATOR_TYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia, "driver_version", lambda: "580.65.06")


# --------------------------------------------------------------------------------------------------------------- CUDA
def test_a_healthy_gpu():
    found = detect_cuda(FakeTorch(cuda=cuda(A100)))
    assert (found.kind, found.name, found.count, found.usable) == ("cuda", A100.name, 1, True)
    assert (found.memory_total_mb, found.memory_free_mb) == (40 * 1024, 10 * 1024)
    assert found.native_dtypes == ("float32", "float16", "bfloat16")
    assert (found.compute_capability, found.cuda_version, found.hip_version) == ("8.0", "13.0", None)
    assert found.driver_version == "580.65.06"
    assert (found.supports_mixed_precision, found.supports_distributed, found.unified_memory) == (True, True, False)
    assert found.reason.startswith(f"{A100.name} passed ")


def test_a_t4_only_emulates_bfloat16():
    fake = FakeTorch(cuda=cuda(T4))
    assert fake.cuda.is_bf16_supported()
    found = detect_cuda(fake)
    assert found.native_dtypes == ("float32", "float16")
    assert (found.usable, found.supports_mixed_precision, found.nominal_gb) == (True, True, 16)


@pytest.mark.parametrize("fault", [no_kernel, lambda first, second: first])
def test_a_type_with_a_failing_product_is_not_native(fault, caplog):
    found = detect_cuda(FakeTorch(cuda=cuda(A100), matmul=only_bf16(fault)))
    assert (found.usable, found.native_dtypes) == (True, ("float32", "float16"))
    assert "bfloat16" in caplog.text


def test_a_p100_that_fails_its_first_kernel_is_unusable():
    found = detect_cuda(FakeTorch(cuda=cuda(P100), matmul=no_kernel))
    assert (found.name, found.usable, found.memory_free_mb, found.native_dtypes) == (P100.name, False, 0, ())
    assert "CUDA error: no kernel image" in found.reason
    assert "compute capability 6.0, only for sm_75, sm_80, sm_90" in found.reason
    assert not found.supports_mixed_precision


def test_a_gpu_that_computes_wrong_numbers():
    found = detect_cuda(FakeTorch(cuda=cuda(A100), matmul=lambda first, second: torch.matmul(first, second) * 2))
    assert not found.usable
    assert "wrong numbers" in found.reason


def test_a_gpu_without_free_memory_is_unusable():
    def full(first, second):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    found = detect_cuda(FakeTorch(cuda=cuda(A100), matmul=full))
    assert not found.usable
    assert "CUDA out of memory" in found.reason


def test_the_smaller_of_two_different_gpus_decides():
    found = detect_cuda(FakeTorch(cuda=cuda(A100, T4, free=30 * GIB)))
    assert (found.count, found.name) == (2, f"{A100.name} + Tesla T4")
    assert (found.memory_total_mb, found.memory_free_mb, found.compute_capability) == (15_102, 15_102, "7.5")
    assert found.native_dtypes == ("float32", "float16")
    assert "the GPUs differ" in found.reason
    assert found.reason.endswith("14.7 GiB")


def test_equal_gpus_are_named_once():
    found = detect_cuda(FakeTorch(cuda=cuda(*[A100] * 8)))
    assert (found.count, found.name) == (8, A100.name)
    assert "differ" not in found.reason


def test_a_second_gpu_without_kernels_is_left_out():
    found = detect_cuda(FakeTorch(cuda=cuda(A100, P100, T4)))
    assert (found.usable, found.count, found.name) == (True, 1, A100.name)
    assert f"GPU 1 ({P100.name})" in found.reason


@pytest.mark.parametrize("rank, count, index", [("1", 2, 1), ("3", 1, 0)])
def test_each_process_tests_only_its_own_gpu(monkeypatch, rank, count, index):
    monkeypatch.setenv("LOCAL_RANK", rank)
    fake = FakeTorch(cuda=cuda(*[A100] * count))
    assert detect_cuda(fake).count == count
    assert fake.devices_used == [("cuda", index)]


def test_rocm_gpus_appear_as_cuda():
    radeon = gpu("AMD Instinct MI210", (9, 0), 64 * GIB)
    fake = FakeTorch(cuda=cuda(radeon, archs=("gfx90a",)), cuda_version=None, hip="6.4.1")
    found = detect_cuda(fake)
    assert (found.kind, found.usable, found.hip_version, found.cuda_version) == ("cuda", True, "6.4.1", None)
    assert (found.compute_capability, found.driver_version) == (None, None)
    assert "bfloat16" in found.native_dtypes


def test_a_gpu_that_shares_the_cpus_memory():
    orin = SimpleNamespace(**{**vars(gpu("Orin", (8, 7), 30 * GIB)), "is_integrated": 1})
    assert detect_cuda(FakeTorch(cuda=cuda(orin))).unified_memory


def test_a_machine_without_gpu_has_no_gpu_entry():
    assert detect_cuda(FakeTorch()) is None


def write_nvidia_smi(folder, script):
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)


def test_nvidia_smi_finds_the_gpus_torch_cannot_use(tmp_path):
    rows = ("Tesla T4, 15360, 15000, 535.1, 7.5", "Tesla V100, 16384, 900, 535.1, 7.0")
    write_nvidia_smi(tmp_path, "; ".join(f"echo '{row}'" for row in rows))
    found = detect_cuda(FakeTorch(cuda_version=None))
    assert (found.kind, found.usable, found.count, found.name) == ("cuda", False, 2, "Tesla T4 + Tesla V100")
    assert (found.memory_total_mb, found.memory_free_mb, found.driver_version) == (15360, 900, "535.1")
    assert "CPU-only build" in found.reason


def test_an_incomplete_driver_is_listed_without_an_error(tmp_path):
    write_nvidia_smi(tmp_path, "echo 'NVIDIA-SMI has failed'; exit 9")
    found = detected("cuda", "CUDA GPU", lambda: detect_cuda(FakeTorch()))
    assert (found.usable, found.count) == (False, 0)
    assert "nvidia-smi failed (exit code 9): NVIDIA-SMI has failed" in found.reason


# ---------------------------------------------------------------------------------------------------------- MPS and XPU
def metal(recommended=11 * GIB, allocated=GIB):
    return SimpleNamespace(
        is_available=lambda: True,
        get_name=lambda: "Apple M2",
        recommended_max_memory=lambda: recommended,
        driver_allocated_memory=lambda: allocated,
    )


def test_apples_gpu_shares_the_memory(monkeypatch):
    monkeypatch.setattr(detect, "memory_mb", lambda: host.HostMemory(16_384, 12_000, "the machine"))
    found = detect_mps(FakeTorch(mps=metal()))
    assert (found.kind, found.name, found.count, found.usable) == ("mps", "Apple M2", 1, True)
    assert (found.memory_total_mb, found.memory_free_mb, found.unified_memory) == (16_384, 10 * 1024, True)
    assert found.native_dtypes == ("float32", "float16")
    assert (found.supports_mixed_precision, found.supports_distributed) == (True, False)
    assert "at most 11.0 GiB" in found.reason


def test_the_apple_gpu_has_at_most_the_free_memory_of_the_machine(monkeypatch):
    monkeypatch.setattr(detect, "memory_mb", lambda: host.HostMemory(16_384, 2_000, "the machine"))
    assert detect_mps(FakeTorch(mps=metal())).memory_free_mb == 2_000
    assert detect_mps(FakeTorch(mps=metal(allocated=12 * GIB))).memory_free_mb == 0


def test_a_broken_apple_gpu_is_listed():
    found = detect_mps(FakeTorch(mps=metal(), matmul=no_kernel))
    assert (found.usable, found.memory_free_mb, found.native_dtypes) == (False, 0, ())
    assert "failed a small operation" in found.reason


def arc(mem_get_info=lambda device: (12 * GIB, 16 * GIB), *, native_bf16=True):
    properties = SimpleNamespace(
        name="Intel Arc A770", total_memory=16 * GIB, has_fp16=True, driver_version="1.6.3", is_integrated_gpu=False
    )
    return SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        get_device_properties=lambda device: properties,
        is_bf16_supported=lambda including_emulation=True: including_emulation or native_bf16,
        mem_get_info=mem_get_info,
        memory_reserved=lambda device: 2 * GIB,
    )


def test_intels_gpu():
    found = detect_xpu(FakeTorch(xpu=arc()))
    assert (found.kind, found.name, found.usable, found.driver_version) == ("xpu", "Intel Arc A770", True, "1.6.3")
    assert (found.memory_total_mb, found.memory_free_mb) == (16 * 1024, 12 * 1024)
    assert found.native_dtypes == ("float32", "float16", "bfloat16")
    assert detect_xpu(FakeTorch(xpu=arc(native_bf16=False))).native_dtypes == ("float32", "float16")


def test_the_intel_driver_may_not_report_free_memory():
    def silent(device):
        raise RuntimeError("The device does not support querying the available free memory")

    assert detect_xpu(FakeTorch(xpu=arc(silent))).memory_free_mb == 14 * 1024


def test_a_broken_intel_gpu_is_listed():
    found = detect_xpu(FakeTorch(xpu=arc(), matmul=no_kernel))
    assert (found.usable, found.memory_free_mb) == (False, 0)


def test_processes_cannot_communicate_without_their_libraries():
    fake = FakeTorch(cuda=cuda(A100), xpu=arc())
    fake.distributed = SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: False)
    assert not detect_cuda(fake).supports_distributed
    assert not detect_xpu(fake).supports_distributed
    fake.distributed = SimpleNamespace(is_available=lambda: False, is_nccl_available=lambda: True)
    assert not detect_cuda(fake).supports_distributed


# ----------------------------------------------------------------------------------------------------------------- CPU
def test_the_cpu_has_the_cores_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr(detect, "memory_mb", lambda: host.HostMemory(2_048, 1_500, "cgroup v2"))
    monkeypatch.setattr(detect, "usable_cores", lambda: 4)
    monkeypatch.setattr(detect, "physical_cores", lambda: 2)
    found = detect_cpu()
    assert (found.kind, found.usable, found.count, found.physical_cores) == ("cpu", True, 4, 2)
    assert (found.memory_total_mb, found.memory_free_mb) == (2_048, 1_500)
    assert found.reason == "4 cores may be used (2 physical), 2.0 GiB of memory (cgroup v2)"
    assert found.supports_distributed is torch.distributed.is_gloo_available()


@pytest.mark.parametrize("flags, native", [({"avx2"}, False), ({"avx512_bf16"}, True), ({"amx_bf16"}, True)])
def test_bfloat16_of_a_cpu_needs_its_instructions(monkeypatch, flags, native):
    monkeypatch.setattr(detect, "cpu_flags", lambda: frozenset(flags))
    found = detect_cpu()
    assert ("bfloat16" in found.native_dtypes) is native
    assert found.supports_mixed_precision is native


@pytest.mark.parametrize("limit, native", [("AVX2", False), ("avx512_core", False), ("AVX512_CORE_BF16", True)])
def test_bfloat16_of_a_cpu_needs_that_its_library_may_use_them(monkeypatch, limit, native):
    monkeypatch.setattr(detect, "cpu_flags", lambda: frozenset({"avx512_bf16"}))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    found = detect_cpu()
    assert ("bfloat16" in found.native_dtypes) is native
    assert ("excludes bfloat16" in found.reason) is not native


# --------------------------------------------------------------------------------------------------------- the system
@pytest.mark.parametrize(
    "detector, namespace", [(detect_cuda, "cuda"), (detect_mps, "mps"), (detect_xpu, "xpu")], ids=["cuda", "mps", "xpu"]
)
def test_a_driver_that_raises_is_an_unusable_device(detector, namespace):
    def broken():
        warnings.warn("CUDA initialization: unknown error", stacklevel=1)
        raise OSError("libcuda.so.1: invalid ELF header\nand more")

    with warnings.catch_warnings(record=True) as output:
        warnings.simplefilter("always")
        fake = FakeTorch(**{namespace: SimpleNamespace(is_available=broken)})
        found = detected(namespace, "GPU", lambda: detector(fake))
    assert (found.kind, found.usable) == (namespace, False)
    assert found.reason == "its driver fails: libcuda.so.1: invalid ELF header"
    assert output == []


def test_a_broken_tpu_library_is_an_unusable_device(monkeypatch):
    def broken(_name):
        raise ValueError("torch_xla.__spec__ is None")

    monkeypatch.setattr(tpu, "find_spec", broken)
    found = SystemDetector().detect_capabilities()
    assert (found[0].kind, found[0].usable) == ("tpu", False)
    assert found[-1].usable


def test_detectors_are_asked_in_the_order_of_preference(monkeypatch):
    fake = FakeTorch(cuda=cuda(A100), mps=metal(), xpu=arc())
    monkeypatch.setenv("TPU_NAME", "node-1")
    detectors = [detector for _, _, detector in DETECTORS]
    found = [detectors[0](), *(detector(fake) for detector in detectors[1:])]
    assert [one.kind for one in found] == ["tpu", "cuda", "mps", "xpu", "cpu"]


def test_every_entry_can_be_written_as_json():
    fake = FakeTorch(cuda=cuda(A100, T4), mps=metal(), xpu=arc())
    for _, _, detector in DETECTORS[1:]:
        entry = detector(fake).to_json()
        assert json.loads(json.dumps(entry))["kind"] == entry["kind"]


def test_this_machine_is_detected_fast():
    assert SystemDetector().detect_capabilities()[-1].kind == "cpu"
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("starting a GPU takes its time")
    durations = []
    for _ in range(3):
        started = time.perf_counter()
        SystemDetector().detect_capabilities()
        durations.append(time.perf_counter() - started)
    assert min(durations) < 2.0, "it imports nothing large and asks no slow program"


@pytest.mark.slow
def test_detection_imports_no_framework_but_torch():
    program = """
import sys
from core.devices.detect import SystemDetector
SystemDetector().detect_capabilities()
assert not {"jax", "tensorflow", "torch_xla"} & set(sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
