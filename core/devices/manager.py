"""Decides where and in which arithmetic to compute, and says why."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from core.config.schema import Device
from core.devices.detect import Detector, DeviceCapabilities, SystemDetector
from core.errors import UsageError

log = logging.getLogger(__name__)

Precision = Literal["32", "16-mixed", "bf16-mixed"]
_AUTOCAST_DTYPES: dict[Precision, torch.dtype | None] = {
    "32": None,
    "16-mixed": torch.float16,
    "bf16-mixed": torch.bfloat16,
}
_DTYPE_NAMES: dict[Precision, str] = {"32": "float32", "16-mixed": "float16", "bf16-mixed": "bfloat16"}


@dataclass(frozen=True)
class DevicePlan:
    """The device and precision of a run, each with the reason it was chosen."""

    kind: str
    name: str
    precision: Precision
    threads: int
    device_reason: str
    precision_reason: str

    @property
    def device(self) -> torch.device:
        return torch.device(self.kind)

    @property
    def needs_loss_scaling(self) -> bool:
        """float16 gradients underflow without it; bfloat16 has the range of float32."""
        return self.precision == "16-mixed"

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        dtype = _AUTOCAST_DTYPES[self.precision]
        return contextlib.nullcontext() if dtype is None else torch.autocast(self.kind, dtype=dtype)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class DeviceManager:
    """Chooses from what a detector finds, within what the configuration allows."""

    def __init__(self, config: Device | None = None, detector: Detector | None = None):
        self.config = config or Device()
        self.capabilities = (detector or SystemDetector()).detect_capabilities()

    def plan(self) -> DevicePlan:
        """Raises UsageError where the configuration insists on what the machine lacks."""
        chosen, device_reason = self._choose_device()
        precision, precision_reason = self._choose_precision(chosen)
        cores = next((found.count for found in self.capabilities if found.kind == "cpu"), 1)
        threads = self.config.threads or cores
        return DevicePlan(chosen.kind, chosen.name, precision, threads, device_reason, precision_reason)

    def _choose_device(self) -> tuple[DeviceCapabilities, str]:
        wanted = self.config.kind
        usable = [found for found in self.capabilities if found.usable]
        if wanted != "auto":
            match = next((found for found in usable if found.kind == wanted), None)
            if match is None:
                seen = next((found.reason for found in self.capabilities if found.kind == wanted), "none was found")
                raise UsageError(
                    f"device.kind = {wanted}, but this machine has no usable one: {seen}",
                    hint="use local/devices=auto, or install a torch build for this hardware",
                )
            return match, f"device.kind = {wanted}"
        reasons = [f"first usable of {', '.join(found.kind for found in self.capabilities)}"]
        if not self.config.prefer_cuda:
            usable = [found for found in usable if found.kind != "cuda"]
            reasons.append("device.prefer_cuda = false")
        for broken in (found for found in self.capabilities if not found.usable):
            log.warning("%s cannot be used: %s", broken.name, broken.reason)
            reasons.append(broken.reason)
        return usable[0], "; ".join(reasons)

    def _choose_precision(self, chosen: DeviceCapabilities) -> tuple[Precision, str]:
        wanted = self.config.precision
        if not self.config.amp:
            return "32", "device.amp = false"
        if wanted == "auto":
            return _AUTO_PRECISION[chosen.kind](chosen)
        if _DTYPE_NAMES[wanted] not in chosen.native_dtypes:
            log.warning("%s has no native %s; it will be emulated and slow", chosen.name, _DTYPE_NAMES[wanted])
        return wanted, f"device.precision = {wanted}"


def _auto_on_cuda(found: DeviceCapabilities) -> tuple[Precision, str]:
    if "bfloat16" in found.native_dtypes:
        return "bf16-mixed", f"{found.name} computes bfloat16 natively"
    return "16-mixed", f"{found.name} has no native bfloat16; float16 with loss scaling"


def _auto_elsewhere(found: DeviceCapabilities) -> tuple[Precision, str]:
    return "32", f"mixed precision on {found.kind} is not chosen unasked; set device.precision to try it"


_AUTO_PRECISION: dict[str, Callable[[DeviceCapabilities], tuple[Precision, str]]] = {
    "cuda": _auto_on_cuda,
    "mps": _auto_elsewhere,
    "cpu": _auto_elsewhere,
}
