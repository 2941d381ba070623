"""NVIDIA's GPUs as their driver describes them, and why torch cannot use one. Imports no torch.

The driver is asked through its library, NVML (`nvidia-ml-py`); where that is missing, through the text of nvidia-smi.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pynvml

from core.errors import LandfallError, first_line

log = logging.getLogger(__name__)

_MEBIBYTE = 2**20
_FIELDS = ("name", "memory.total", "memory.free", "driver_version", "compute_cap")
# Oldest driver (major version) that runs programs of a CUDA major version, after
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver describes it; memory in MiB. What the driver does not report is 0 or None."""

    name: str
    memory_total_mb: int
    memory_free_mb: int
    driver_version: str | None = None
    compute_capability: str | None = None


def query() -> list[Gpu]:
    """Every GPU of the machine, none without NVIDIA's driver. Raises LandfallError where the driver fails."""
    if not _has_nvml():
        return query_nvidia_smi()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [_described(handle) for handle in handles]
    except pynvml.NVMLError as error:
        raise LandfallError(f"NVIDIA's driver fails: {error}") from error


def driver_version() -> str | None:
    """Of NVIDIA's driver; None where it does not answer."""
    try:
        return next((gpu.driver_version for gpu in query()), None)
    except LandfallError:
        return None


def utilisation(uuid: str) -> float | None:
    """Share of the last moments in which the GPU ran a kernel, 0 to 1; None where the driver does not report it, as for
    a slice of a GPU (MIG)."""
    if not _has_nvml():
        return None
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    try:
        return pynvml.nvmlDeviceGetUtilizationRates(pynvml.nvmlDeviceGetHandleByUUID(name)).gpu / 100
    except pynvml.NVMLError:
        return None


def power_limits_w() -> dict[str, float]:
    """The enforced power limit of each GPU in watts, by `plain_uuid`; GPUs whose driver reports none are missing."""
    if not _has_nvml():
        return _power_limits_by_nvidia_smi()
    limits = {}
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            with contextlib.suppress(pynvml.NVMLError_NotSupported):
                limits[plain_uuid(pynvml.nvmlDeviceGetUUID(handle))] = (
                    pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
                )
    except pynvml.NVMLError as error:
        log.debug("no power limits: %s", error)
    return limits


def _power_limits_by_nvidia_smi(timeout_s: float = 10.0) -> dict[str, float]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        answer = _ask(program, ("uuid", "power.limit"), timeout_s).stdout
    except LandfallError as error:
        log.debug("no power limits: %s", error.message)
        return {}
    rows = [row for row in csv.reader(answer.splitlines(), skipinitialspace=True) if len(row) == 2]
    return {plain_uuid(uuid): float(watts) for uuid, watts in rows if re.fullmatch(r"\d+(\.\d+)?", watts.strip())}


def plain_uuid(text: str) -> str:
    """The driver writes `GPU-5a0b…`, torch `5a0b…`."""
    return text.lower().removeprefix("gpu-")


@functools.cache
def _has_nvml() -> bool:
    """Whether the driver's library answers; it stays open for the process."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.debug("no NVML: %s", error)
        return False
    return True


def _described(handle: Any) -> Gpu:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = memory.total, memory.free
    except pynvml.NVMLError_NotSupported:  # a GPU that shares the CPU's memory
        total = free = 0
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        pynvml.nvmlDeviceGetName(handle), total // _MEBIBYTE, free // _MEBIBYTE, pynvml.nvmlSystemGetDriverVersion(),
        f"{major}.{minor}",
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- nvidia-smi
def query_nvidia_smi(timeout_s: float = 10.0) -> list[Gpu]:
    """As `query`, from the text of nvidia-smi; none where it is not installed."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    answer = _ask(program, _FIELDS, timeout_s)
    if "not a valid field" in answer.stdout:  # older drivers do not know the compute capability
        answer = _ask(program, _FIELDS[:-1], timeout_s)
    if "No devices were found" in answer.stdout:
        return []
    gpus = list(_gpus(answer.stdout))
    if answer.returncode or not gpus:
        said = (answer.stdout.strip() or answer.stderr.strip() or "nothing").splitlines()[0]
        raise LandfallError(f"nvidia-smi failed (exit code {answer.returncode}): {said}")
    return gpus


def _ask(program: str, fields: tuple[str, ...], timeout_s: float) -> subprocess.CompletedProcess[str]:
    command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise LandfallError(f"nvidia-smi gave no answer in {timeout_s:g} s") from error
    except OSError as error:
        raise LandfallError(f"nvidia-smi does not start: {error}") from error


def _gpus(text: str) -> Iterator[Gpu]:
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) >= len(_FIELDS) - 1:
            name, total, free, driver, capability = (*row, "")[: len(_FIELDS)]
            yield Gpu(name, _megabytes(total), _megabytes(free), _version(driver), _version(capability))


def _megabytes(text: str) -> int:
    """0 for [N/A], of a GPU that shares the CPU's memory."""
    return int(text) if text.strip().isdigit() else 0


def _version(text: str) -> str | None:
    return text if re.fullmatch(r"\d+(\.\d+)*", text) else None


# ------------------------------------------------------------------------------------------------------------- reasons
def why_unusable(gpu: Gpu, torch: Any) -> str:
    """The first of `_REASONS` that applies."""
    return next(reason for explain in _REASONS if (reason := explain(gpu, torch)))


def missing_kernels(capability: str | None, torch: Any) -> str | None:
    """Why no kernel of this torch build runs on a GPU of that compute capability; None where one does.

    Machine code (sm_86) runs on the same major version from its minor version on, intermediate code (compute_90) on
    everything newer, code for one model (sm_90a) there alone.
    """
    built_for = torch.cuda.get_arch_list()
    if capability is None or not built_for or any(_runs_on(architecture, capability) for architecture in built_for):
        return None
    return (
        f"torch {torch.__version__} has no kernels for compute capability {capability}, only for {', '.join(built_for)}"
    )


def _runs_on(architecture: str, capability: str) -> bool:
    parsed = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
    if parsed is None:  # one of AMD's names
        return True
    wanted, have = (int(parsed[2]), int(parsed[3])), tuple(int(part) for part in capability.split("."))
    if parsed[4] == "a":
        return have == wanted
    return have >= wanted and (have[0] == wanted[0] or (parsed[1] == "compute" and not parsed[4]))


def _build_without_cuda(gpu: Gpu, torch: Any) -> str | None:
    if torch.version.cuda is not None:
        return None
    kind = "ROCm" if torch.version.hip else "CPU-only"
    return f"torch {torch.__version__} is a {kind} build; install one for CUDA"


def _hidden(gpu: Gpu, torch: Any) -> str | None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"CUDA_VISIBLE_DEVICES={visible!r} hides it" if visible in ("", "-1") else None


def _driver_too_old(gpu: Gpu, torch: Any) -> str | None:
    oldest = OLDEST_DRIVERS.get(int(torch.version.cuda.split(".")[0]))
    if gpu.driver_version is None or oldest is None or int(gpu.driver_version.split(".")[0]) >= oldest:
        return None
    return (
        f"driver {gpu.driver_version} is too old for CUDA {torch.version.cuda} of torch {torch.__version__}: "
        f"update it to {oldest} or newer, or install torch for an older CUDA"
    )


def _no_kernels(gpu: Gpu, torch: Any) -> str | None:
    return missing_kernels(gpu.compute_capability, torch)


def _torch_fails(gpu: Gpu, torch: Any) -> str:
    try:
        torch.cuda.init()
    except Exception as error:  # a broken driver raises anything
        return f"torch cannot start CUDA: {first_line(error)}"
    return "torch finds no CUDA device and does not say why"


_REASONS: tuple[Callable[[Gpu, Any], str | None], ...] = (
    _build_without_cuda,
    _hidden,
    _driver_too_old,
    _no_kernels,
    _torch_fails,
)
