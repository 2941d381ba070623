"""Finds the devices of this machine with a real operation on each; each detector is a row of a table.

`torch` is a parameter of the detectors so that tests can give them hardware this machine does not have.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from core.config.execution import DeviceKind
from core.devices import nvidia, tpu
from core.devices.backend import memory_bytes
from core.devices.capabilities import DeviceCapabilities
from core.devices.selftest import native_dtypes, tested
from core.errors import first_line
from core.host import BFLOAT16_FLAGS, cpu_flags, cpu_model, memory_mb, physical_cores, usable_cores
from core.numbers import counted, gib
from core.process_memory import MIB

log = logging.getLogger(__name__)

_REDUCED = ("float16", "bfloat16")
# Values of ONEDNN_MAX_CPU_ISA with which oneDNN, the library of torch's matrix products, emulates bfloat16, 20 times as
# slow as float32 (oneDNN developer guide, "CPU Dispatcher Control").
_LIMITS_WITHOUT_BFLOAT16 = frozenset(
    {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}
)
# The communication library of each kind of device; Apple's GPU has none.
_COLLECTIVES: dict[DeviceKind, str] = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}


class SystemDetector:
    """Runs every detector of `DETECTORS`, best device first."""

    def detect_capabilities(self) -> list[DeviceCapabilities]:
        found = [detected(*row) for row in DETECTORS]
        return [capabilities for capabilities in found if capabilities is not None]


def detected(kind: DeviceKind, name: str, detect: Callable[[], DeviceCapabilities | None]) -> DeviceCapabilities | None:
    """The result of a detector. An incomplete driver may raise any error: a device whose detector fails is listed under
    this name as unusable, with the reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reason already contains the warnings of torch
            return detect()
    except Exception as error:
        log.debug("the detector of %s failed", kind, exc_info=True)
        reason = f"its driver fails: {first_line(error)}"
        return DeviceCapabilities(kind, name, 0, 0, 0, (), usable=False, reason=reason)


# --------------------------------------------------------------------------------------------------------------- CUDA
def detect_cuda(torch: Any = torch) -> DeviceCapabilities | None:
    """NVIDIA's GPUs, and AMD's, which ROCm shows under the same names.

    Only the GPU of this process runs an operation, because it uses some hundred MiB, which other processes may need on
    their GPUs. The others are checked by the architectures that torch was built for.
    """
    if not torch.cuda.is_available():
        return _known_to_the_driver(torch)
    gpus, left_out = _with_kernels(torch)
    found = _tested(
        "cuda",
        gpus,
        _cuda_dtypes(gpus, torch),
        torch,
        compute_capability=_capability(gpus, torch),
        cuda_version=torch.version.cuda,
        hip_version=torch.version.hip,
        driver_version=None if torch.version.hip else nvidia.driver_version(),
        unified_memory=all(bool(gpu.is_integrated) for gpu in gpus),
    )
    own = gpus[_own_index(len(gpus))]
    no_kernels = None if found.usable else nvidia.missing_kernels(_capability([own], torch), torch)
    return replace(found, reason="; ".join(filter(None, [found.reason, no_kernels, left_out])))


def _with_kernels(torch: Any) -> tuple[list[Any], str | None]:
    """The GPUs before the first one without torch kernels, at least one, and a note on those left out.

    Processes use the GPUs in order, so GPUs after the first unusable one are not counted.
    """
    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    for index, gpu in enumerate(gpus):
        problem = nvidia.missing_kernels(_capability([gpu], torch), torch)
        if problem and index > 0:
            left_out = f"GPU {index} ({gpu.name}) and any after it are left out: {problem}"
            return gpus[:index], f"{left_out}; CUDA_VISIBLE_DEVICES can hide it"
    return gpus, None


def _capability(gpus: Sequence[Any], torch: Any) -> str | None:
    """The lowest compute capability of the GPUs; None for AMD's GPUs, which have other version numbers."""
    if torch.version.hip:
        return None
    return "{}.{}".format(*min((gpu.major, gpu.minor) for gpu in gpus))


def _cuda_dtypes(gpus: Sequence[Any], torch: Any) -> tuple[str, ...]:
    """Types that every GPU supports: torch checks only the first one, and the others may be older."""
    first = torch.cuda.is_bf16_supported(including_emulation=False)
    others = bool(torch.version.hip) or all(gpu.major >= 8 for gpu in gpus[1:])
    return _REDUCED if first and others else ("float16",)


def _known_to_the_driver(torch: Any) -> DeviceCapabilities | None:
    gpus = nvidia.query()
    if not gpus:
        return None
    return DeviceCapabilities(
        kind="cuda",
        name=_joined(gpu.name for gpu in gpus),
        count=len(gpus),
        memory_total_mb=min(gpu.memory_total_mb for gpu in gpus),
        memory_free_mb=min(gpu.memory_free_mb for gpu in gpus),
        native_dtypes=(),
        usable=False,
        reason=nvidia.why_unusable(gpus[0], torch),
        compute_capability=gpus[0].compute_capability,
        cuda_version=torch.version.cuda,
        driver_version=gpus[0].driver_version,
    )


# ---------------------------------------------------------------------------------------------------------------- MPS
def detect_mps(torch: Any = torch) -> DeviceCapabilities | None:
    """Apple's GPU, which shares the machine's memory; Metal recommends a maximum.

    bfloat16 is not listed: it works from macOS 14 on, but it is unknown whether the chip emulates it.
    """
    if not torch.backends.mps.is_available():
        return None
    failure, dtypes = tested(torch.device("mps"), ("float16",), torch)
    memory, free = memory_mb(), 0
    reason = failure or "Apple GPU passed a forward and backward pass; memory is shared with the CPU"
    if failure is None:
        recommended = torch.mps.recommended_max_memory() // MIB
        free = min(memory.free_mb, recommended - torch.mps.driver_allocated_memory() // MIB)
        reason += f", at most {gib(recommended)} are recommended"
    name_of_chip = getattr(torch.backends.mps, "get_name", cpu_model)  # since torch 2.9
    return DeviceCapabilities(
        kind="mps",
        name=name_of_chip(),
        count=1,
        memory_total_mb=memory.total_mb,
        memory_free_mb=max(0, free),
        native_dtypes=dtypes,
        usable=failure is None,
        reason=reason,
        supports_mixed_precision=_is_mixed(dtypes),
        unified_memory=True,
    )


# ---------------------------------------------------------------------------------------------------------------- XPU
def detect_xpu(torch: Any = torch) -> DeviceCapabilities | None:
    if not torch.xpu.is_available():
        return None
    gpus = [torch.xpu.get_device_properties(index) for index in range(torch.xpu.device_count())]
    claimed = {
        "float16": all(gpu.has_fp16 for gpu in gpus),
        "bfloat16": torch.xpu.is_bf16_supported(including_emulation=False),
    }
    return _tested(
        "xpu",
        gpus,
        [name for name, is_claimed in claimed.items() if is_claimed],
        torch,
        driver_version=gpus[0].driver_version,
        unified_memory=all(getattr(gpu, "is_integrated_gpu", False) for gpu in gpus),
    )


# ---------------------------------------------------------------------------------------------------------------- CPU
def detect_cpu(torch: Any = torch) -> DeviceCapabilities:
    """Cores and memory that this process may use. The CPU needs no test operation."""
    memory, cores, physical = memory_mb(), usable_cores(), physical_cores()
    reason = f"{counted(cores, 'core')} may be used ({physical} physical), {gib(memory.total_mb)} of memory"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    if limit in _LIMITS_WITHOUT_BFLOAT16:
        reason += f", ONEDNN_MAX_CPU_ISA = {limit} excludes bfloat16"
    claimed = ("bfloat16",) if BFLOAT16_FLAGS & cpu_flags() and limit not in _LIMITS_WITHOUT_BFLOAT16 else ()
    dtypes = native_dtypes(torch.device("cpu"), claimed, torch)
    return DeviceCapabilities(
        kind="cpu",
        name=cpu_model(),
        count=cores,
        memory_total_mb=memory.total_mb,
        memory_free_mb=memory.free_mb,
        native_dtypes=dtypes,
        usable=True,
        reason=f"{reason} ({memory.source})",
        supports_mixed_precision=_is_mixed(dtypes),
        supports_distributed=_supports_distributed("cpu", torch),
        physical_cores=physical,
    )


# -------------------------------------------------------------------------------------------------------------- shared
def _tested(
    kind: DeviceKind, gpus: Sequence[Any], claimed: Sequence[str], torch: Any, **facts: Any
) -> DeviceCapabilities:
    """The GPUs of a platform, after an operation on that of this process.

    claimed: types that the driver reports. facts: further fields.
    """
    index, least_memory = _own_index(len(gpus)), min(gpu.total_memory for gpu in gpus)
    device = torch.device(kind, index)
    failure, dtypes = tested(device, claimed, torch)
    reason = failure or f"{gpus[index].name} passed a forward and backward pass"
    if len({(gpu.name, gpu.total_memory // MIB) for gpu in gpus}) > 1:
        reason += f"; the GPUs differ: the smallest memory is used, {gib(least_memory / MIB)}"
    return DeviceCapabilities(
        kind=kind,
        name=_joined(gpu.name for gpu in gpus),
        count=len(gpus),
        memory_total_mb=least_memory // MIB,
        memory_free_mb=0 if failure else min(memory_bytes(getattr(torch, kind), device)[0], least_memory) // MIB,
        native_dtypes=dtypes,
        usable=failure is None,
        reason=reason,
        supports_mixed_precision=_is_mixed(dtypes),
        supports_distributed=_supports_distributed(kind, torch),
        **facts,
    )


def _own_index(count: int) -> int:
    """The GPU of this process: torchrun numbers its processes; if each process sees only one GPU, it is that one."""
    index = int(os.environ.get("LOCAL_RANK", "0"))
    return index if index < count else 0


def _is_mixed(dtypes: Sequence[str]) -> bool:
    return any(name in dtypes for name in _REDUCED)


def _supports_distributed(kind: DeviceKind, torch: Any) -> bool:
    distributed = torch.distributed
    is_there = getattr(distributed, f"is_{_COLLECTIVES[kind]}_available", None)  # of XCCL since torch 2.8
    return distributed.is_available() and is_there is not None and is_there()


def _joined(names: Iterable[str]) -> str:
    """Each name once, in order."""
    return " + ".join(dict.fromkeys(names))


# Kind, name if the detector fails, and detector of each platform, the best first.
DETECTORS: tuple[tuple[DeviceKind, str, Callable[[], DeviceCapabilities | None]], ...] = (
    ("tpu", "TPU", tpu.detect_tpu),
    ("cuda", "CUDA GPU", detect_cuda),
    ("mps", "Apple GPU", detect_mps),
    ("xpu", "Intel GPU", detect_xpu),
    ("cpu", "CPU", detect_cpu),
)
