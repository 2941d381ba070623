"""Recommendations for runs on this machine: each rule is a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from core.devices.capabilities import GPU_KINDS, DeviceCapabilities
from core.devices.nvidia import OLDEST_DRIVERS
from core.devices.plan import DevicePlan
from pipelines.devices.document import DeviceRecord


@dataclass(frozen=True)
class Advice:
    """A finding, and what to do about it."""

    finding: str
    action: str


@dataclass(frozen=True)
class Situation:
    """The input of the rules, from the record of a run."""

    plan: DevicePlan
    prefer: str
    allow_tpu: bool
    found: Sequence[DeviceCapabilities]
    chosen: DeviceCapabilities
    cuda_visible_devices: str | None
    torch_cuda: str | None
    ram_mb: int

    @classmethod
    def of(cls, record: DeviceRecord) -> Self:
        """record: must contain `host`."""
        routing, host = record.routing, record.host
        return cls(
            record.plan, routing.prefer, routing.allow_tpu, record.devices, record.chosen,
            host.cuda_visible_devices, host.torch_cuda, host.ram_mb,
        )  # fmt: skip

    @property
    def cpu(self) -> DeviceCapabilities | None:
        return next((found for found in self.found if found.kind == "cpu"), None)


def advice_for(record: DeviceRecord) -> list[Advice]:
    """The advice of every rule that applies, most urgent first; none for a record without its host."""
    if record.host is None:
        return []
    situation = Situation.of(record)
    return [advice for rule in RULES for advice in rule(situation)]


# -------------------------------------------------------------------------------------------------- builds of PyTorch
@dataclass(frozen=True)
class TorchBuild:
    """A build of PyTorch for a CUDA major version, and the compute capabilities it has kernels for; `newest` is
    exclusive."""

    tag: str
    cuda: int
    oldest: tuple[int, int]
    newest: tuple[int, int]


# For PyTorch 2.12 to 2.14, newest first, from the CUDA support matrix in its RELEASE.md.
TORCH_BUILDS = (
    TorchBuild("cu130", cuda=13, oldest=(7, 5), newest=(99, 0)),
    TorchBuild("cu126", cuda=12, oldest=(5, 0), newest=(10, 0)),
)


def torch_for(gpu: DeviceCapabilities, torch_cuda: str | None) -> str:
    """How to make an NVIDIA GPU usable: another build of PyTorch, or another driver. torch_cuda: CUDA of this build."""
    capability = tuple(int(part) for part in gpu.compute_capability.split(".")) if gpu.compute_capability else None
    builds = [build for build in TORCH_BUILDS if capability is None or build.oldest <= capability < build.newest]
    if not builds:
        return f"no current PyTorch supports compute capability {gpu.compute_capability}: runs use the CPU"
    driver = int(gpu.driver_version.split(".")[0]) if gpu.driver_version else None
    build = next((build for build in builds if driver is None or driver >= OLDEST_DRIVERS[build.cuda]), None)
    if build is None:
        return f"update the NVIDIA driver to {OLDEST_DRIVERS[builds[-1].cuda]} or newer"
    if torch_cuda is not None and int(torch_cuda.split(".")[0]) == build.cuda:
        return "this torch build fits the GPU: restart the machine, or reinstall the NVIDIA driver"
    return f"make setup TORCH_INDEX=https://download.pytorch.org/whl/{build.tag}"


# --------------------------------------------------------------------------------------------------------------- rules
def missing_preference(s: Situation) -> list[Advice]:
    if not s.plan.fallback:
        return []
    finding = f"device.prefer = {s.prefer} cannot be satisfied: {s.chosen.name} is used instead"
    return [Advice(finding, "repair that device, or set device.prefer=auto (unset COMPUTE_PREFER)")]


def misfits(s: Situation) -> list[Advice]:
    return [Advice(text, "choose another local/devices profile; auto fits every machine") for text in s.plan.misfits]


def unusable_gpus(s: Situation) -> list[Advice]:
    broken = [found for found in s.found if found.kind in GPU_KINDS and not found.usable]
    return [Advice(f"{gpu.name} cannot be used", _remedy(gpu, s)) for gpu in broken]


def _remedy(gpu: DeviceCapabilities, s: Situation) -> str:
    if gpu.kind != "cuda" or gpu.hip_version:
        return "update its driver, or install a torch build for it: make setup TORCH_INDEX=…"
    if s.cuda_visible_devices is not None and s.cuda_visible_devices.strip() in ("", "-1"):
        return "unset CUDA_VISIBLE_DEVICES"
    if gpu.count == 0:  # it was found, but its driver does not respond
        return "reinstall its driver; nvidia-smi must list the GPU"
    return torch_for(gpu, s.torch_cuda)


def unused_tpu(s: Situation) -> list[Advice]:
    tpu = next((found for found in s.found if found.kind == "tpu"), None)
    if tpu is None or s.plan.kind == "tpu":
        return []
    if not tpu.usable:
        return [
            Advice(f"{tpu.name} cannot be used", "install a torch_xla that supports it, then COMPUTE_ALLOW_TPU=true")
        ]
    if s.allow_tpu:
        return []
    return [Advice(f"{tpu.name} is not used: it is not allowed", "COMPUTE_ALLOW_TPU=true (device.allow_tpu=true)")]


def idle_devices(s: Situation) -> list[Advice]:
    if s.chosen.kind == "cpu" or s.chosen.count <= s.plan.count:
        return []
    idle = s.chosen.count - s.plan.count
    return [Advice(f"{idle} of {s.chosen.count} × {s.chosen.name} stay idle", f"devices={s.chosen.count}")]


def little_free_memory(s: Situation) -> list[Advice]:
    """Less than 10 % of the memory is free: another process uses it."""
    if s.chosen.memory_free_mb >= 0.1 * s.chosen.memory_total_mb:
        return []
    where = "nvidia-smi lists the processes" if s.chosen.kind == "cuda" else "see the system's process list"
    free = f"{s.chosen.memory_free_mb / 1024:.1f} of {s.chosen.memory_total_mb / 1024:.1f} GiB"
    return [Advice(f"only {free} of {s.chosen.name} are free", f"end the processes that use its memory ({where})")]


def no_native_bfloat16(s: Situation) -> list[Advice]:
    if s.chosen.kind not in ("cuda", "xpu") or "bfloat16" in s.chosen.native_dtypes:
        return []
    return [
        Advice(
            f"{s.chosen.name} has no native bfloat16",
            "precision=auto uses float16 with loss scaling; set precision=32 if the loss becomes NaN",
        )
    ]


def container_limit(s: Situation) -> list[Advice]:
    """A difference of 2 % is the kernel's own memory, not a limit."""
    if s.cpu is None or s.cpu.memory_total_mb >= 0.98 * s.ram_mb:
        return []
    sizes = f"{s.cpu.memory_total_mb / 1024:.1f} of {s.ram_mb / 1024:.1f} GiB"
    return [Advice(f"a cgroup limits this process to {sizes} of RAM", "raise the container's or job's memory limit")]


def too_many_threads(s: Situation) -> list[Advice]:
    physical = s.cpu.physical_cores if s.cpu is not None else None
    if physical is None or s.plan.threads * s.plan.count <= physical:
        return []
    share = max(1, physical // s.plan.count)
    return [
        Advice(
            f"{s.plan.count * s.plan.threads} threads on {physical} physical cores slow each other down",
            f"max_threads={share}",
        )
    ]


RULES: tuple[Callable[[Situation], list[Advice]], ...] = (
    missing_preference,
    misfits,
    unusable_gpus,
    unused_tpu,
    idle_devices,
    little_free_memory,
    container_limit,
    too_many_threads,
    no_native_bfloat16,
)
