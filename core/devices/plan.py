"""The decisions for a run: device, precision and memory, with reasons."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from core.config.execution import DeviceKind

if TYPE_CHECKING:
    import torch

Precision = Literal["32", "16-mixed", "bf16-mixed"]
# For each precision, the type of matrix products under autocast.
AUTOCAST_DTYPES: dict[Precision, str | None] = {"32": None, "16-mixed": "float16", "bf16-mixed": "bfloat16"}


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
        import torch

        name = self.kind
        if self.kind == "tpu":
            import torch_xla  # noqa: F401  torch knows the device only after this

            name = "xla"
        return torch.device(name) if self.kind in ("cpu", "mps") else torch.device(name, self.index)

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and inputs."""
        import torch

        return torch.float64 if self.x64 else torch.float32

    @property
    def has_fused_optimizer(self) -> bool:
        """One kernel updates all weights."""
        return self.kind in ("cpu", "cuda")

    @property
    def needs_loss_scaling(self) -> bool:
        """float16 gradients underflow without it; bfloat16 has the range of float32."""
        return self.precision == "16-mixed"

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        import torch

        dtype = AUTOCAST_DTYPES[self.precision]
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, dtype))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
