"""Decides on which device, in which precision and with how much memory to compute, with a reason for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from core.config.compose import execution_from_environment
from core.config.execution import Device, DeviceKind, Execution
from core.devices import memory, process, threads, tuning
from core.devices.capabilities import GPU_KINDS, Detector, DeviceCapabilities
from core.devices.plan import AUTOCAST_DTYPES, DevicePlan, Precision
from core.devices.profiles import misfits
from core.errors import ConfigError, ConfigFault, UsageError

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

# What `device.prefer` may say, as the kinds that satisfy it.
PREFERENCES: dict[str, tuple[DeviceKind, ...]] = {
    "cpu": ("cpu",),
    "gpu": GPU_KINDS,
    "tpu": ("tpu",),
    "mps": ("mps",),
    "xpu": ("xpu",),
}


class DeviceManager:
    """Chooses from what a detector finds, within what the configuration allows.

    config: a complete configuration, an `Execution`, its `device` section alone, or None for the environment's
    COMPUTE_* and LANDFALL_* variables over the defaults. detector: any object with `detect_capabilities()`.
    """

    def __init__(self, config: Execution | Device | None = None, detector: Detector | None = None):
        if config is None:
            config = execution_from_environment()
        self.config = Execution(device=config) if isinstance(config, Device) else config
        # Allocators and cuBLAS read their environment once, when the detector first uses them.
        memory.prepare_environment(self.config.device)
        process.adopt(self.config)
        if detector is None:
            from core.devices.detect import SystemDetector

            detector = SystemDetector()
        found = detector.detect_capabilities()
        self.found = [found] if isinstance(found, DeviceCapabilities) else list(found)
        self._chosen, self._reason, self._fallback = self._choose_device()
        if self.config.tune:
            tuning.tune_process()

    # ------------------------------------------------------------------------------------------------------ hardware
    @property
    def capabilities(self) -> DeviceCapabilities:
        """Of the platform in use."""
        return self._chosen

    @property
    def device_count(self) -> int:
        """Devices of the platform in use; a CPU is one."""
        return 1 if self._chosen.kind == "cpu" else self._chosen.count

    @property
    def devices(self) -> list[torch.device]:
        """Every usable device, those of the platform in use first."""
        ordered = sorted(self._usable(), key=lambda found: found is not self._chosen)
        return [device for found in ordered for device in torch_devices(found)]

    def _usable(self) -> list[DeviceCapabilities]:
        return [found for found in self.found if found.usable]

    @property
    def num_processes(self) -> int:
        """Processes a run may start: on a CPU as many as requested, on other platforms one per device."""
        wanted = self.config.devices
        if self.config.distributed.strategy == "none":
            return 1
        if self._chosen.kind == "cpu":
            return 1 if wanted == "auto" or self._fallback else wanted
        if not self._chosen.supports_distributed:
            return 1
        return self.device_count if wanted == "auto" else min(wanted, self.device_count)

    # ------------------------------------------------------------------------------------------------------ decisions
    def plan(self, *, index: int = 0, processes: int | None = None) -> DevicePlan:
        """Device, precision, threads and memory of a run.

        index: the device of this process. processes: how many actually share this machine; default: as many as the
        configuration requests and the hardware has.
        Raises UsageError where `device.strict` is set and the preferred device or the profile's hardware is missing.
        """
        chosen, settings = self._chosen, self.config.device
        precision, precision_reason = self._choose_precision()
        unfit = tuple(str(misfit) for misfit in misfits(self.config, self.found, chosen))
        self._report_misfits(unfit)
        count = processes or self.num_processes
        num_threads, threads_reason = self._threads(count)
        limit = memory.memory_limit_mb(chosen, settings.memory.share, processes=count if chosen.kind == "cpu" else 1)
        return DevicePlan(
            kind=chosen.kind,
            name=chosen.name,
            precision=precision,
            threads=num_threads,
            threads_reason=threads_reason,
            device_reason=self._reason,
            precision_reason=precision_reason,
            count=count,
            index=index,
            memory_share=settings.memory.share,
            memory_limit_mb=limit,
            memory_reason=f"{settings.memory.strategy}: {settings.memory.share:.0%} of {chosen.memory_total_mb} MiB, "
            f"{chosen.memory_free_mb} MiB free",
            compiled=settings.enable_jit,
            x64=settings.enable_x64,
            fallback=self._fallback,
            misfits=unfit,
            native_dtypes=chosen.native_dtypes,
        )

    def _choose_device(self) -> tuple[DeviceCapabilities, str, bool]:
        """The device, the reason, and whether it replaces the requested one."""
        settings = self.config.device
        for broken in (found for found in self.found if not found.usable):
            level = logging.WARNING if self._is_wanted(broken.kind) else logging.INFO
            log.log(level, "%s cannot be used: %s", broken.name, broken.reason)
        candidates = self._candidates()
        if settings.prefer == "auto":
            return candidates[0], self._reason_for_auto(candidates), False
        wanted = PREFERENCES[settings.prefer]
        match = next(
            (found for kind in self._order() for found in self._usable() if found.kind == kind in wanted), None
        )
        if match is not None:
            return match, f"device.prefer = {settings.prefer}", False
        seen = "; ".join(found.reason for found in self.found if found.kind in wanted) or "none was found"
        problem = f"device.prefer = {settings.prefer}, but this machine has no usable one: {seen}"
        if settings.strict:
            raise UsageError(problem, hint="use local/devices=auto, or install a torch build for this hardware")
        substitute = candidates[0]
        log.warning("%s; %s is used instead (device.strict=true makes this an error)", problem, substitute.name)
        return substitute, f"{problem}; {substitute.kind} instead", True

    def _candidates(self) -> list[DeviceCapabilities]:
        """Usable platforms in order of priority, without those the configuration excludes; the CPU is always one."""
        declined = self._declined()
        by_kind = {found.kind: found for found in self._usable()}
        return [by_kind[kind] for kind in self._order() if kind in by_kind and kind not in declined]

    def _order(self) -> Sequence[DeviceKind]:
        return [*self.config.device.order, "cpu"]

    def _declined(self) -> dict[DeviceKind, str]:
        settings = self.config.device
        declined: dict[DeviceKind, str] = {}
        if not settings.prefer_cuda:
            declined["cuda"] = "device.prefer_cuda = false"
        if not settings.allow_tpu:
            declined["tpu"] = "device.allow_tpu = false"
        return declined

    def _is_wanted(self, kind: DeviceKind) -> bool:
        prefer = self.config.device.prefer
        return kind in PREFERENCES[prefer] if prefer != "auto" else kind not in self._declined()

    def _reason_for_auto(self, candidates: Sequence[DeviceCapabilities]) -> str:
        found = {found.kind for found in self.found}
        reasons = [f"first usable of {', '.join(kind for kind in dict.fromkeys(self._order()) if kind in found)}"]
        reasons += [reason for kind, reason in self._declined().items() if kind in found]
        reasons += [broken.reason for broken in self.found if not broken.usable]
        return "; ".join(reasons)

    def _choose_precision(self) -> tuple[Precision, str]:
        chosen, settings, wanted = self._chosen, self.config.device, self.config.precision
        if settings.enable_x64:
            if chosen.kind == "mps":
                raise UsageError("device.enable_x64: Apple's GPU has no float64", hint="use local/devices=cpu with it")
            return "32", "device.enable_x64: everything in float64, nothing mixed"
        for key in ("amp", "enable_mixed_precision"):
            if not getattr(settings, key):
                return "32", f"device.{key} = false"
        if wanted == "auto":
            return _AUTO_PRECISION[chosen.kind](chosen)
        dtype = AUTOCAST_DTYPES[wanted]
        if self._fallback and dtype is not None and dtype not in chosen.native_dtypes:
            log.warning("precision %s was meant for another device; %s computes in float32", wanted, chosen.name)
            return "32", f"{wanted} was requested for a device that is missing; {chosen.name} has no native {dtype}"
        return wanted, f"precision = {wanted}"  # emulated on a requested device: reported as a misfit

    def _threads(self, processes: int) -> tuple[int, str]:
        """The limit of one of these processes, and the reason."""
        cores = next((found.count for found in self.found if found.kind == "cpu"), 1)
        return threads.thread_limit(cores, processes=processes, max_threads=self.config.max_threads)

    def _report_misfits(self, unfit: Sequence[str]) -> None:
        if unfit and self.config.device.strict:
            raise ConfigError("device profile", [ConfigFault("hardware", text) for text in unfit])
        for text in unfit:
            log.warning("the device profile does not fit this machine: %s", text)


def torch_devices(found: DeviceCapabilities) -> list[torch.device]:
    """Every device of a platform."""
    import torch

    if found.kind in ("cpu", "mps"):
        return [torch.device(found.kind)]
    name = "xla" if found.kind == "tpu" else found.kind
    return [torch.device(name, index) for index in range(found.count)]


def _auto_on_accelerator(found: DeviceCapabilities) -> tuple[Precision, str]:
    if "bfloat16" in found.native_dtypes:
        return "bf16-mixed", f"{found.name} computes bfloat16 natively"
    if "float16" in found.native_dtypes:
        return "16-mixed", f"{found.name} has no native bfloat16; float16 with loss scaling"
    return "32", f"{found.name} computes neither bfloat16 nor float16"


def _auto_on_cpu(found: DeviceCapabilities) -> tuple[Precision, str]:
    if "bfloat16" in found.native_dtypes:
        return "bf16-mixed", f"{found.name} computes bfloat16 natively"
    return "32", f"{found.name} does not compute bfloat16 natively"


def _auto_on_mps(found: DeviceCapabilities) -> tuple[Precision, str]:
    return "32", f"mixed precision on {found.kind} is not chosen by default; set precision to try it"


_AUTO_PRECISION: dict[DeviceKind, Callable[[DeviceCapabilities], tuple[Precision, str]]] = {
    "cuda": _auto_on_accelerator,
    "xpu": _auto_on_accelerator,
    "tpu": _auto_on_accelerator,
    "mps": _auto_on_mps,
    "cpu": _auto_on_cpu,
}
