from types import SimpleNamespace

import pynvml
import pytest

from core.devices import nvidia
from core.devices.nvidia import Gpu, query_nvidia_smi
from core.errors import LandfallError

UUID = "5a0b1c2d-0000-1111-2222-333344445555"
T4 = Gpu("Tesla T4", 15360, 15000, "535.104.05", "7.5")
T4_ROW = "Tesla T4, 15360, 15000, 535.104.05, 7.5"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script in the place of nvidia-smi."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    def write(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


# -------------------------------------------------------------------------------------------------------------- query
def test_nvidia_smi_is_not_run_if_it_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert query_nvidia_smi() == []


def test_the_driver_describes_every_gpu(program):
    program(
        f"""[ "$*" = "--query-gpu=name,memory.total,memory.free,driver_version,compute_cap\
 --format=csv,noheader,nounits" ] || exit 3
echo '{T4_ROW}'
echo 'NVIDIA GB10, [N/A], [N/A], 580.95, 12.1'"""
    )
    assert query_nvidia_smi() == [T4, Gpu("NVIDIA GB10", 0, 0, "580.95", "12.1")]


@pytest.mark.parametrize("code", [0, 6])
def test_a_driver_without_a_gpu_reports_no_gpu(program, code):
    program(f"echo 'No devices were found'; exit {code}")
    assert query_nvidia_smi() == []


@pytest.mark.parametrize(
    "script, said",
    [
        ("echo 'NVIDIA-SMI has failed because it could not reach the driver.'; exit 9", "exit code 9.*could not reach"),
        ("echo 'Unable to determine the device handle for GPU0: Unknown Error'", "Unable to determine"),
        ("echo 'libnvidia-ml.so: not found' >&2; exit 127", "libnvidia-ml.so"),
        ("exit 1", "exit code 1.*nothing"),
    ],
)
def test_an_incomplete_driver_is_an_error_with_its_output(program, script, said):
    program(script)
    with pytest.raises(LandfallError, match=said):
        query_nvidia_smi()


def test_a_hanging_driver_is_stopped_by_a_timeout(program):
    program("exec sleep 30")
    with pytest.raises(LandfallError, match=r"no answer in 0\.1 s"):
        query_nvidia_smi(timeout_s=0.1)


def test_a_program_that_does_not_start_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "nvidia-smi"
    path.write_bytes(b"\x7fELF of another machine")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LandfallError, match="does not start"):
        query_nvidia_smi()


# --------------------------------------------------------------------------------------------------------------- NVML
class Driver:
    """NVIDIA's library of a machine with two GPUs: one is busy 57 percent of the time, unless it is a slice, and one
    shares the CPU's memory."""

    def __init__(self, monkeypatch, *, is_slice: bool = False, fails: bool = False):
        self.is_slice, self.fails = is_slice, fails
        nvidia._has_nvml.cache_clear()
        for name in (name for name in dir(self) if name.startswith("nvml")):
            monkeypatch.setattr(pynvml, name, getattr(self, name))

    def nvmlInit(self):
        if self.fails:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=15360 * 2**20, free=15000 * 2**20)

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return (7, 5) if handle == 0 else (12, 1)

    def nvmlDeviceGetName(self, handle):
        return "Tesla T4" if handle == 0 else "NVIDIA GB10"

    def nvmlSystemGetDriverVersion(self):
        return "535.104.05"

    def nvmlDeviceGetHandleByUUID(self, name):
        if name != f"GPU-{UUID}":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle):
        if self.is_slice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=57, memory=3)


@pytest.fixture(autouse=True)
def _driver_of_this_machine():
    nvidia._has_nvml.cache_clear()
    yield
    nvidia._has_nvml.cache_clear()


def test_nvml_describes_every_gpu(monkeypatch):
    Driver(monkeypatch)
    assert nvidia.query() == [T4, Gpu("NVIDIA GB10", 0, 0, "535.104.05", "12.1")]
    assert nvidia.driver_version() == "535.104.05"


def test_without_nvml_the_text_of_nvidia_smi_is_read(monkeypatch, program):
    Driver(monkeypatch, fails=True)
    program(f"echo '{T4_ROW}'")
    assert nvidia.query() == [T4]
    assert nvidia.utilisation(UUID) is None


def test_a_driver_that_fails_is_an_error(monkeypatch):
    driver = Driver(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: driver.nvmlDeviceGetHandleByUUID("none"))
    with pytest.raises(LandfallError, match="driver fails"):
        nvidia.query()
    assert nvidia.driver_version() is None


def test_utilisation_is_matched_by_uuid(monkeypatch):
    Driver(monkeypatch)
    assert nvidia.utilisation(UUID) == nvidia.utilisation(f"GPU-{UUID}") == 0.57
    assert nvidia.utilisation("00000000-0000-0000-0000-000000000000") is None


def test_the_utilisation_of_a_slice_of_a_gpu_is_unknown(monkeypatch):
    Driver(monkeypatch, is_slice=True)
    assert nvidia.utilisation(UUID) is None


# ------------------------------------------------------------------------------------------------------------- reasons
def fake_torch(cuda="12.6", hip=None, archs=("sm_75", "sm_80", "sm_90"), init=lambda: None):
    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(cuda=cuda, hip=hip),
        cuda=SimpleNamespace(get_arch_list=lambda: list(archs), init=init),
    )


def broken_init():
    raise RuntimeError("CUDA unknown error\nfurther lines")


@pytest.mark.parametrize(
    "torch, gpu, reason",
    [
        (fake_torch(cuda=None), T4, "torch 2.13.0 is a CPU-only build"),
        (fake_torch(cuda=None, hip="6.4"), T4, "torch 2.13.0 is a ROCm build"),
        (fake_torch(cuda="13.0"), T4, "driver 535.104.05 is too old"),
        (fake_torch(), Gpu("P100", 16384, 1, "535.1", "6.0"), "torch 2.13.0 has no kernels"),
        (fake_torch(init=broken_init), T4, "torch cannot start CUDA: CUDA unknown error"),
        (fake_torch(), T4, "torch finds no CUDA device"),
        (fake_torch(cuda="99.0", archs=()), Gpu("new", 1, 1), "torch finds no CUDA device"),
    ],
)
def test_the_reason_says_why_torch_cannot_use_a_gpu(torch, gpu, reason, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvidia.why_unusable(gpu, torch).startswith(reason)


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_gpu_may_be_hidden_on_purpose(value, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert nvidia.why_unusable(T4, fake_torch()) == f"CUDA_VISIBLE_DEVICES={value!r} hides it"


@pytest.mark.parametrize(
    "arch, runs_on, not_on",
    [
        ("sm_80", ("8.0", "8.6", "8.9"), ("7.5", "9.0")),
        ("sm_86", ("8.6", "8.9"), ("8.0",)),
        ("sm_90a", ("9.0",), ("10.0", "8.9")),
        ("sm_100a", ("10.0",), ("10.3",)),
        ("sm_100f", ("10.0", "10.3"), ("12.0",)),
        ("sm_120", ("12.0", "12.1"), ("10.0",)),
        ("compute_80", ("8.0", "9.0", "12.0"), ("7.5",)),
        ("compute_90a", ("9.0",), ("12.0",)),
    ],
)
def test_which_gpus_run_the_code_of_a_build(arch, runs_on, not_on):
    torch = fake_torch(archs=["sm_50", arch])
    assert [nvidia.missing_kernels(capability, torch) for capability in runs_on] == [None] * len(runs_on)
    assert all(arch in nvidia.missing_kernels(capability, torch) for capability in not_on)


def test_unknown_builds_cause_no_warning():
    assert nvidia.missing_kernels(None, fake_torch()) is None
    assert nvidia.missing_kernels("6.0", fake_torch(archs=())) is None
    assert nvidia.missing_kernels("9.0", fake_torch(archs=("gfx90a",))) is None
