from types import SimpleNamespace

import pytest

from core.devices import nvidia_smi
from core.devices.nvidia_smi import Gpu
from core.errors import LandfallError

T4 = Gpu("Tesla T4", 15360, 15000, "535.104.05", "7.5")


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
def test_nothing_is_run_where_it_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_smi.query() == []


def test_the_driver_describes_every_gpu(program):
    program(
        """[ "$*" = "--query-gpu=name,memory.total,memory.free,driver_version,compute_cap\
 --format=csv,noheader,nounits" ] || exit 3
echo 'Tesla T4, 15360, 15000, 535.104.05, 7.5'
echo 'NVIDIA GB10, [N/A], [N/A], 580.95, 12.1'"""
    )
    assert nvidia_smi.query() == [T4, Gpu("NVIDIA GB10", 0, 0, "580.95", "12.1")]


def test_an_old_driver_does_not_tell_the_compute_capability(program):
    program(
        """case "$*" in
  *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2 ;;
  *) echo 'Tesla K80, 11441, 11000, 450.80.02' ;;
esac"""
    )
    assert nvidia_smi.query() == [Gpu("Tesla K80", 11441, 11000, "450.80.02", None)]


@pytest.mark.parametrize("code", [0, 6])
def test_a_driver_without_a_gpu_finds_none(program, code):
    program(f"echo 'No devices were found'; exit {code}")
    assert nvidia_smi.query() == []


@pytest.mark.parametrize(
    "script, said",
    [
        ("echo 'NVIDIA-SMI has failed because it could not reach the driver.'; exit 9", "exit code 9.*could not reach"),
        ("echo 'Unable to determine the device handle for GPU0: Unknown Error'", "Unable to determine"),
        ("echo 'libnvidia-ml.so: not found' >&2; exit 127", "libnvidia-ml.so"),
        ("exit 1", "exit code 1.*nothing"),
    ],
)
def test_half_a_driver_is_an_error_with_what_it_said(program, script, said):
    program(script)
    with pytest.raises(LandfallError, match=said):
        nvidia_smi.query()


def test_a_hanging_driver_is_not_waited_for(program):
    program("exec sleep 30")
    with pytest.raises(LandfallError, match=r"no answer in 0\.1 s"):
        nvidia_smi.query(timeout_s=0.1)


def test_a_program_that_does_not_start_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "nvidia-smi"
    path.write_bytes(b"\x7fELF of another machine")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LandfallError, match="does not start"):
        nvidia_smi.query()


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build  (builder@host)",
    ],
)
def test_linux_has_the_driver_version_in_a_file(tmp_path, program, line):
    program("exit 1")
    file = tmp_path / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(f"{line}\nGCC version:  gcc version 12.3.0\n")
    assert nvidia_smi.driver_version(tmp_path) == "535.104.05"


def test_elsewhere_nvidia_smi_tells_the_driver_version(tmp_path, program):
    program("echo 'Tesla T4, 15360, 15000, 535.104.05, 7.5'")
    assert nvidia_smi.driver_version(tmp_path) == "535.104.05"
    program("exit 1")
    assert nvidia_smi.driver_version(tmp_path) is None


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
        (fake_torch(cuda=None), T4, "torch 2.13.0 is a CPU-only build; install one for CUDA"),
        (fake_torch(cuda=None, hip="6.4"), T4, "torch 2.13.0 is a ROCm build; install one for CUDA"),
        (fake_torch(cuda="13.0"), T4, "driver 535.104.05 is too old for CUDA 13.0 of torch 2.13.0: update it to 580"),
        (fake_torch(), Gpu("P100", 16384, 1, "535.1", "6.0"), "torch 2.13.0 has no kernels for compute capability 6.0"),
        (fake_torch(init=broken_init), T4, "torch cannot start CUDA: CUDA unknown error"),
        (fake_torch(), T4, "torch finds no CUDA device and does not say why"),
        (fake_torch(cuda="99.0", archs=()), Gpu("new", 1, 1), "torch finds no CUDA device and does not say why"),
    ],
)
def test_the_reason_says_why_torch_cannot_use_a_gpu(torch, gpu, reason, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvidia_smi.why_unusable(gpu, torch).startswith(reason)


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_gpu_may_be_hidden_on_purpose(value, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert nvidia_smi.why_unusable(T4, fake_torch()) == f"CUDA_VISIBLE_DEVICES={value!r} hides it"


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
    assert [nvidia_smi.missing_kernels(capability, torch) for capability in runs_on] == [None] * len(runs_on)
    assert all(arch in nvidia_smi.missing_kernels(capability, torch) for capability in not_on)


def test_what_cannot_be_judged_is_not_complained_about():
    assert nvidia_smi.missing_kernels(None, fake_torch()) is None
    assert nvidia_smi.missing_kernels("6.0", fake_torch(archs=())) is None
    assert nvidia_smi.missing_kernels("9.0", fake_torch(archs=("gfx90a",))) is None
