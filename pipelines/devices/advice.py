"""Recommendations for runs on this machine: each rule is a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.devices.capabilities import GPU_KINDS, DeviceCapabilities
from core.devices.nvidia import OLDEST_DRIVERS
from core.devices.record import DeviceRecord, Host
from core.numbers import counted, gib
from pipelines.devices.document import Recommendation

Advice = Iterator[Recommendation]


def advice_for(record: DeviceRecord) -> list[Recommendation]:
    """The advice of every rule that applies, most urgent first."""
    return [advice for rule in RULES for advice in rule(record)]


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
def missing_preference(record: DeviceRecord) -> Advice:
    if record.plan.fallback:
        finding = f"device.prefer = {record.routing.prefer} cannot be satisfied: {record.chosen.name} is used instead"
        yield _advice(finding, "repair that device, or set device.prefer=auto (unset COMPUTE_PREFER)")


def misfits(record: DeviceRecord) -> Advice:
    for text in record.plan.misfits:
        yield _advice(text, "choose another local/devices profile; auto fits every machine")


def unusable_gpus(record: DeviceRecord) -> Advice:
    for gpu in record.devices:
        if gpu.kind in GPU_KINDS and not gpu.usable:
            yield _advice(f"{gpu.name} cannot be used", _remedy(gpu, record.host))


def _remedy(gpu: DeviceCapabilities, host: Host) -> str:
    if gpu.kind != "cuda" or gpu.hip_version:
        return "update its driver, or install a torch build for it: make setup TORCH_INDEX=…"
    if host.cuda_visible_devices is not None and host.cuda_visible_devices.strip() in ("", "-1"):
        return "unset CUDA_VISIBLE_DEVICES"
    if gpu.count == 0:  # it was found, but its driver does not respond
        return "reinstall its driver; nvidia-smi must list the GPU"
    return torch_for(gpu, host.torch_cuda)


def unused_tpu(record: DeviceRecord) -> Advice:
    tpu = record.found("tpu")
    if tpu is None or record.plan.kind == "tpu":
        return
    if not tpu.usable:
        yield _advice(f"{tpu.name} cannot be used", "install a torch_xla that supports it, then COMPUTE_ALLOW_TPU=true")
    elif not record.routing.allow_tpu:
        yield _advice(f"{tpu.name} is not used: it is not allowed", "COMPUTE_ALLOW_TPU=true (device.allow_tpu=true)")


def idle_devices(record: DeviceRecord) -> Advice:
    chosen = record.chosen
    if chosen.kind != "cpu" and chosen.count > record.plan.count:
        idle = chosen.count - record.plan.count
        yield _advice(f"{idle} of {chosen.count} × {chosen.name} stay idle", f"devices={chosen.count}")


def little_free_memory(record: DeviceRecord) -> Advice:
    """Less than 10 % of the memory is free: another process uses it."""
    chosen = record.chosen
    if chosen.memory_free_mb < 0.1 * chosen.memory_total_mb:
        where = "nvidia-smi lists the processes" if chosen.kind == "cuda" else "see the system's process list"
        free = f"{gib(chosen.memory_free_mb)} of {gib(chosen.memory_total_mb)}"
        yield _advice(f"only {free} of {chosen.name} are free", f"end the processes that use its memory ({where})")


def no_native_bfloat16(record: DeviceRecord) -> Advice:
    chosen = record.chosen
    if chosen.kind in ("cuda", "xpu") and "bfloat16" not in chosen.native_dtypes:
        action = "precision=auto uses float16 with loss scaling; set precision=32 if the loss becomes NaN"
        yield _advice(f"{chosen.name} has no native bfloat16", action)


def container_limit(record: DeviceRecord) -> Advice:
    """A difference of 2 % is the kernel's own memory, not a limit."""
    cpu, ram_mb = record.found("cpu"), record.host.ram_mb
    if cpu is not None and cpu.memory_total_mb < 0.98 * ram_mb:
        sizes = f"{gib(cpu.memory_total_mb)} of {gib(ram_mb)}"
        yield _advice(f"a cgroup limits this process to {sizes} of RAM", "raise the container's or job's memory limit")


def too_many_threads(record: DeviceRecord) -> Advice:
    cpu, plan = record.found("cpu"), record.plan
    physical = cpu.physical_cores if cpu is not None else None
    if physical is not None and plan.threads * plan.count > physical:
        finding = f"{plan.count * plan.threads} threads on {counted(physical, 'physical core')} slow each other down"
        yield _advice(finding, f"max_threads={max(1, physical // plan.count)}")


def _advice(finding: str, action: str) -> Recommendation:
    return Recommendation(finding=finding, action=action)


RULES: tuple[Callable[[DeviceRecord], Advice], ...] = (
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
