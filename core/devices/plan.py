"""The decisions for a run (device, precision and memory) with reasons, and the requirements of a profile that the
hardware does not satisfy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from core.config.execution import DeviceKind, Execution, Precision
from core.devices.capabilities import DeviceCapabilities
from core.numbers import gib

if TYPE_CHECKING:
    import torch

# For each precision, the lowest first, the type of matrix products under autocast.
AUTOCAST_DTYPES: dict[Precision, str | None] = {"16-mixed": "float16", "bf16-mixed": "bfloat16", "32": None}


@dataclass(frozen=True)
class DevicePlan:
    """The device, precision and memory of a run, each with the reason it was chosen.

    count: devices that take part, one process each; index: the one of this process. threads: number of CPU threads.
    memory_limit_mb: limit of this process on the device memory (on a CPU, the memory of the machine). compiled:
    torch.compile is on. x64: float64 is the default type. fallback: the requested device was missing. misfits: what
    the profile requires and the hardware does not have. native_dtypes: types it computes in without emulation.
    platform_facts: versions of its driver and platform.
    """

    kind: DeviceKind
    name: str
    precision: Precision
    threads: int
    device_reason: str
    precision_reason: str
    count: int = 1
    index: int = 0
    memory_share: float = 0.75
    memory_limit_mb: int | None = None
    memory_reason: str = ""
    threads_reason: str = ""
    compiled: bool = False
    x64: bool = False
    fallback: bool = False
    misfits: tuple[str, ...] = ()
    native_dtypes: tuple[str, ...] = ()
    platform_facts: tuple[str, ...] = ()

    @property
    def device(self) -> torch.device:
        if self.kind == "tpu":
            import torch_xla  # noqa: F401  torch knows the device only after this
        return torch_device(self.kind, self.index)

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and inputs."""
        import torch

        return torch.float64 if self.x64 else torch.float32

    @property
    def has_fused_optimizer(self) -> bool:
        """Whether one kernel can update all weights."""
        return self.kind in ("cpu", "cuda")

    @property
    def needs_loss_scaling(self) -> bool:
        """float16 gradients underflow without it; bfloat16 has the range of float32."""
        return self.precision == "16-mixed"

    def decisions(self) -> Iterator[tuple[str, str, str]]:
        """For users: what was decided, the result, and the reason."""
        times = f" × {self.count}" if self.count > 1 else ""
        yield "device", f"{self.name}{times}", self.device_reason
        yield "precision", "64" if self.x64 else self.precision, self.precision_reason
        if self.memory_limit_mb is not None:
            yield "memory", f"up to {gib(self.memory_limit_mb)}", self.memory_reason
        yield "threads", str(self.threads), self.threads_reason

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        import torch

        dtype = AUTOCAST_DTYPES[self.precision]
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, dtype))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def torch_device(kind: DeviceKind, index: int) -> torch.device:
    import torch

    return torch.device(kind) if kind in ("cpu", "mps") else torch.device("xla" if kind == "tpu" else kind, index)


def kind_of(device: torch.device) -> DeviceKind:
    return "tpu" if device.type == "xla" else device.type


# -------------------------------------------------------------------------------------------------------------- misfits
@dataclass(frozen=True)
class Misfit:
    """A key that the hardware does not satisfy, the problem, and the replacement."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem} ({self.remedy})"


def misfits(profile: Execution, found: Sequence[DeviceCapabilities], chosen: DeviceCapabilities) -> list[Misfit]:
    """The requirements of the profile that the chosen device does not satisfy. On another platform, its requirements on
    memory, compute capability and precision are not checked."""
    if profile.hardware.kind not in (None, chosen.kind):
        return [_other_platform(profile.hardware.kind, found, chosen), *_session(profile)]
    return [*_session(profile), *_hardware(profile, chosen)]


def _session(profile: Execution) -> Iterator[Misfit]:
    longest, wanted = profile.hardware.session_hours, profile.timeout_hours
    if longest is not None and (wanted is None or wanted > longest):
        problem = f"{'no limit' if wanted is None else f'{wanted:g} h'}, but a session ends after {longest:g} h"
        yield Misfit("timeout_hours", problem, f"set timeout_hours={longest - 0.5:g}")


def _other_platform(wanted: DeviceKind, found: Sequence[DeviceCapabilities], chosen: DeviceCapabilities) -> Misfit:
    reasons = [entry.reason for entry in found if entry.kind == wanted and not entry.usable]
    seen = "; ".join(reasons) or ("was not chosen" if any(entry.kind == wanted for entry in found) else "there is none")
    problem = f"the profile was made for {wanted}, {chosen.name} is {chosen.kind}; {wanted}: {seen}"
    return Misfit("hardware.kind", problem, "use local/devices=auto")


def _hardware(profile: Execution, chosen: DeviceCapabilities) -> Iterator[Misfit]:
    wanted, settings = profile.hardware, profile.device
    if chosen.nominal_gb < wanted.memory_gb:
        problem = f"{chosen.name} has {chosen.nominal_gb} GB, the profile was made for {wanted.memory_gb:g}"
        remedy = "leave training.batch_size=auto, or use a profile for this device"
        yield Misfit("hardware.memory_gb", problem, remedy)
    capability = None if chosen.hip_version else chosen.compute_capability  # AMD's devices have none
    if capability is not None and float(capability) < wanted.compute_capability:
        problem = f"{chosen.name} has {capability}, the profile was made for {wanted.compute_capability:.1f} and later"
        remedy = "use a profile for this device, or local/devices=auto"
        yield Misfit("hardware.compute_capability", problem, remedy)
    mixes = settings.amp and not settings.enable_x64
    dtype = AUTOCAST_DTYPES.get(profile.precision) if mixes else None
    if dtype is not None and dtype not in chosen.native_dtypes:
        instead = "16-mixed" if "float16" in chosen.native_dtypes else "32"
        yield Misfit("precision", f"{dtype} is not native on {chosen.name}: slow", f"set precision={instead}")
    if settings.enable_x64 and chosen.kind == "mps":
        yield Misfit("device.enable_x64", "Apple's GPU has no float64", "use local/devices=cpu with it")
