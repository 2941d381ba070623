"""NVIDIA GPUs as the driver describes them, and reasons why torch cannot use one. Does not import torch.

The driver is queried through its library, NVML (`nvidia-ml-py`); if that is missing, through the text of nvidia-smi.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import logging
import os
import re
import shutil
from dataclasses import dataclass
from typing import Any

import pynvml

from core.errors import LandfallError, first_line
from core.process_memory import MIB
from core.programs import answer_of

log = logging.getLogger(__name__)

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
    """Every GPU of the machine, none without NVIDIA's driver. Raises LandfallError if the driver fails."""
    if not _has_nvml():
        return query_nvidia_smi()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [_described(handle) for handle in handles]
    except pynvml.NVMLError as error:
        raise LandfallError(f"NVIDIA's driver fails: {error}") from error


def driver_version() -> str | None:
    """The version of NVIDIA's driver; None without it, or if it fails."""
    try:
        return next((gpu.driver_version for gpu in query()), None)
    except LandfallError as error:
        log.debug("no facts about NVIDIA's GPUs: %s", error.message)
        return None


def utilisation(uuid: str) -> float | None:
    """Recent utilisation of the GPU, 0 to 1; None if the driver does not report it, as for a slice of a GPU (MIG)."""
    if not _has_nvml():
        return None
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    try:
        return pynvml.nvmlDeviceGetUtilizationRates(pynvml.nvmlDeviceGetHandleByUUID(name)).gpu / 100
    except pynvml.NVMLError:
        return None


@functools.cache
def _has_nvml() -> bool:
    """Whether the driver's library works; it stays open for the process."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.debug("no NVML: %s", error)
        return False
    return True


def _described(handle: Any) -> Gpu:
    total = free = 0  # of a GPU that shares the CPU's memory
    with contextlib.suppress(pynvml.NVMLError_NotSupported):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = memory.total // MIB, memory.free // MIB
    return Gpu(
        pynvml.nvmlDeviceGetName(handle),
        total,
        free,
        pynvml.nvmlSystemGetDriverVersion(),
        "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
    )


# ---------------------------------------------------------------------------------------------------------- nvidia-smi
def query_nvidia_smi(timeout_s: float = 10.0) -> list[Gpu]:
    """Like `query`, from the text of nvidia-smi; empty if it is not installed."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    answer = answer_of(command, timeout_s)
    if "No devices were found" in answer.stdout:
        return []
    rows = csv.reader(answer.stdout.splitlines(), skipinitialspace=True)
    gpus = [_parsed(*row) for row in rows if len(row) == len(_FIELDS)]
    if answer.returncode or not gpus:
        said = (answer.stdout.strip() or answer.stderr.strip() or "nothing").splitlines()[0]
        raise LandfallError(f"nvidia-smi failed (exit code {answer.returncode}): {said}")
    return gpus


def _parsed(name: str, total: str, free: str, driver: str, capability: str) -> Gpu:
    """A GPU from a row of nvidia-smi, in which [N/A] stands for missing values."""
    total_mb, free_mb, driver_version, compute_capability = (
        text if re.fullmatch(r"\d+(\.\d+)*", text) else None for text in (total, free, driver, capability)
    )
    return Gpu(name, int(float(total_mb or 0)), int(float(free_mb or 0)), driver_version, compute_capability)


# ------------------------------------------------------------------------------------------------------------- reasons
def why_unusable(gpu: Gpu, torch: Any) -> str:
    """Why torch finds no CUDA device on a machine with this GPU."""
    if torch.version.cuda is None:
        kind = "ROCm" if torch.version.hip else "CPU-only"
        return f"torch {torch.__version__} is a {kind} build; install one for CUDA"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides it"
    oldest = OLDEST_DRIVERS.get(int(torch.version.cuda.split(".")[0]), 0)
    if gpu.driver_version is not None and int(gpu.driver_version.split(".")[0]) < oldest:
        return (
            f"driver {gpu.driver_version} is too old for CUDA {torch.version.cuda} of torch {torch.__version__}: "
            f"update it to {oldest} or newer, or install torch for an older CUDA"
        )
    if (problem := missing_kernels(gpu.compute_capability, torch)) is not None:
        return problem
    try:
        torch.cuda.init()
    except Exception as error:  # a broken driver may raise any error
        return f"torch cannot start CUDA: {first_line(error)}"
    return "torch finds no CUDA device and does not say why"


def missing_kernels(capability: str | None, torch: Any) -> str | None:
    """Why no kernel of this torch build runs on a GPU of that compute capability; None if one does.

    Machine code (sm_86) runs on the same major version from its minor version on, intermediate code (compute_90) on all
    newer ones, and code for one model (sm_90a) only there.
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
