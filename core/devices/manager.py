"""Chooses device, precision and memory limit of a computation, with a reason for each."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from core import process_memory
from core.config.compose import environment_settings
from core.config.execution import Device, DeviceKind, Execution, Precision
from core.config.faults import origin_of
from core.config.overrides import PROFILE_DIR
from core.devices import kernels, memory
from core.devices.capabilities import GPU_KINDS, Detector, DeviceCapabilities
from core.devices.plan import AUTOCAST_DTYPES, DevicePlan, misfits, torch_device
from core.errors import ConfigError, ConfigFault, UsageError
from core.host import thread_limit
from core.numbers import gib, in_percent

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

# Values of `device.prefer`, with the kinds of devices that satisfy them.
PREFERENCES: dict[str, tuple[DeviceKind, ...]] = {
    "cpu": ("cpu",),
    "gpu": GPU_KINDS,
    "tpu": ("tpu",),
    "mps": ("mps",),
    "xpu": ("xpu",),
}


class DeviceManager:
    """Chooses from the devices that a detector finds and the configuration allows.

    config: a complete configuration, an `Execution`, its `device` section alone, or None for the environment's
    COMPUTE_* and LANDFALL_* variables over the defaults. detector: any object with `detect_capabilities()`. origins:
    origin of each key (`LoadedConfig.origins`), for messages.
    """

    def __init__(
        self,
        config: Execution | Device | None = None,
        detector: Detector | None = None,
        *,
        origins: Mapping[str, str] = MappingProxyType({}),
    ):
        if config is None:
            config, origins = environment_settings()
        self.config = Execution(device=config) if isinstance(config, Device) else config
        self.origins = origins
        self._warned: set[str] = set()
        # Allocators and cuBLAS read their environment once, when the detector first uses them.
        memory.prepare_environment(self.config.device)
        kernels.prepare_cublas(self.config)
        if detector is None:
            from core.devices.detect import SystemDetector

            detector = SystemDetector()
        found = detector.detect_capabilities()
        self.found = [found] if isinstance(found, DeviceCapabilities) else list(found)
        self._chosen, self._reason, self._fallback = self._choose_device()
        if self.config.tune:
            process_memory.tune_process()

    # ------------------------------------------------------------------------------------------------------ hardware
    @property
    def capabilities(self) -> DeviceCapabilities:
        """Capabilities of the platform in use."""
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

    def unusable_devices(self) -> list[DeviceCapabilities]:
        """Devices that were found but do not work, except on platforms that the configuration excludes."""
        return [found for found in self.found if not found.usable and self._is_wanted(found.kind)]

    def _usable(self) -> list[DeviceCapabilities]:
        return [found for found in self.found if found.usable]

    @property
    def num_processes(self) -> int:
        """Processes a run may start: on a CPU as many as requested, on other platforms one per device."""
        return self._processes()[0]

    def _processes(self) -> tuple[int, str | None]:
        """The number of processes, and the reason if there are fewer than `devices` requests."""
        wanted, chosen, devices = self.config.devices, self._chosen, self.device_count
        if chosen.kind == "cpu" and wanted != "auto" and not self._fallback:
            devices = wanted  # processes share a CPU
        limits: list[tuple[int, str | None]] = [(devices if wanted == "auto" else wanted, None)]
        if self.config.distributed.strategy == "none":
            limits.append((1, None if wanted == "auto" else "distributed.strategy = none"))
        if self._fallback:
            limits.append((devices, f"{chosen.name} replaces the requested device"))
        limits.append((devices, f"this machine has {devices} × {chosen.name}"))
        if chosen.kind != "cpu" and not chosen.supports_distributed:
            limits.append((1, f"{chosen.name} cannot train in several processes"))
        return min(limits, key=lambda limit: limit[0])

    # ------------------------------------------------------------------------------------------------------ decisions
    def plan(self, *, index: int = 0, processes: int | None = None, num_parameters: int | None = None) -> DevicePlan:
        """Device, precision, threads and memory of a run.

        index: the device of this process. processes: how many actually share this machine; default: as many as the
        configuration requests and the hardware has. num_parameters: of the model, for `device.memory.strategy: auto`.
        Raises UsageError if `device.strict` is set and the preferred device or the profile's hardware is missing.
        """
        chosen, settings = self._chosen, self.config.device
        precision, precision_reason = self._choose_precision()
        count = processes or self.num_processes
        mismatches = tuple(self._misfits())
        cores = next((found.count for found in self.found if found.kind == "cpu"), 1)
        num_threads, threads_reason = thread_limit(cores, processes=count, max_threads=self.config.max_threads)
        requested_memory = settings.memory
        if requested_memory.strategy == "auto" and num_parameters is not None:
            requested_memory = requested_memory.for_model(num_parameters)
            strategy = f"auto: {requested_memory.strategy} for {num_parameters:,} parameters"
        else:
            strategy = requested_memory.strategy
        limit = memory.memory_limit_mb(chosen, requested_memory.share, processes=count if chosen.kind == "cpu" else 1)
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
            memory_share=requested_memory.share,
            memory_limit_mb=limit,
            memory_reason=f"{strategy}: {in_percent(requested_memory.share)} of {gib(chosen.memory_total_mb)}, "
            f"{gib(chosen.memory_free_mb)} free",
            compiled=settings.enable_jit,
            x64=settings.enable_x64,
            fallback=self._fallback,
            misfits=mismatches,
            native_dtypes=chosen.native_dtypes,
            platform_facts=chosen.platform_facts,
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
        wanted, preference = PREFERENCES[settings.prefer], self._setting("device.prefer", settings.prefer)
        if (match := next((found for found in candidates if found.kind in wanted), None)) is not None:
            return match, preference, False
        self._refuse_conflict(preference, wanted)
        seen = "; ".join(found.reason for found in self.found if found.kind in wanted) or "none was found"
        problem = f"{preference}, but this machine has no usable one: {seen}"
        if settings.strict:
            raise UsageError(problem, hint="use local/devices=auto, or install a torch build for this hardware")
        substitute = candidates[0]
        self._warn(f"{problem}; {substitute.name} is used instead (device.strict=true makes this an error)")
        return substitute, f"{problem}; {substitute.kind} instead", True

    def _refuse_conflict(self, preference: str, wanted: Sequence[DeviceKind]) -> None:
        """Raises UsageError if a device was requested that another key excludes."""
        excluded = self._excluded()
        excluded_kind = next((kind for kind in wanted if kind in excluded), None)
        if excluded_kind is not None:
            name = next(
                (found.name for found in self.found if found.kind == excluded_kind), f"every {excluded_kind} device"
            )
            raise UsageError(
                f"{preference}, but {excluded[excluded_kind]} excludes {name}", hint="change one of the two"
            )

    def _setting(self, key: str, value: Any) -> str:
        """`key = value`, with its origin if known."""
        origin = origin_of(key, self.origins)
        return f"{key} = {value}" + (f" ({origin})" if origin else "")

    def _warn(self, text: str) -> None:
        """Logs each text once, because a run requests its plan several times."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)

    def _candidates(self) -> list[DeviceCapabilities]:
        """Usable platforms in order of priority, without those the configuration excludes; the CPU is always
        included."""
        excluded = self._excluded()
        by_kind = {found.kind: found for found in self._usable()}
        return [by_kind[kind] for kind in self._order() if kind in by_kind and kind not in excluded]

    def _order(self) -> Sequence[DeviceKind]:
        return [*self.config.device.order, "cpu"]

    def _excluded(self) -> dict[DeviceKind, str]:
        settings = self.config.device
        excluded: dict[DeviceKind, str] = {}
        if not settings.prefer_cuda:
            excluded["cuda"] = self._setting("device.prefer_cuda", "false")
        if not settings.may_use_tpu:
            excluded["tpu"] = self._setting("device.allow_tpu", "false")
        return excluded

    def _is_wanted(self, kind: DeviceKind) -> bool:
        prefer = self.config.device.prefer
        return kind not in self._excluded() and (prefer == "auto" or kind in PREFERENCES[prefer])

    def _reason_for_auto(self, candidates: Sequence[DeviceCapabilities]) -> str:
        found = {found.kind for found in self.found}
        reasons = [f"first usable of {', '.join(kind for kind in dict.fromkeys(self._order()) if kind in found)}"]
        reasons += [reason for kind, reason in self._excluded().items() if kind in found]
        reasons += [broken.reason for broken in self.found if not broken.usable]
        return "; ".join(reasons)

    def _choose_precision(self) -> tuple[Precision, str]:
        chosen, settings, wanted = self._chosen, self.config.device, self.config.precision
        if settings.enable_x64:
            if chosen.kind == "mps":
                raise UsageError("device.enable_x64: Apple's GPU has no float64", hint="use local/devices=cpu with it")
            return "32", "device.enable_x64: everything in float64, nothing mixed"
        if not settings.amp:
            return "32", "device.amp = false"
        if wanted == "auto":
            return _auto_precision(chosen)
        dtype = AUTOCAST_DTYPES[wanted]
        if self._fallback and dtype is not None and dtype not in chosen.native_dtypes:
            self._warn(f"precision {wanted} was meant for another device; {chosen.name} computes in float32")
            return "32", f"{wanted} was requested for a device that is missing; {chosen.name} has no native {dtype}"
        return wanted, f"precision = {wanted}"  # emulated on a requested device: reported as a mismatch

    def _misfits(self) -> Iterator[str]:
        """Requests that the hardware cannot satisfy, each reported once.

        A precision set by the user, not by the profile, is reported and allowed. Raises ConfigError for the others if
        `device.strict` is set.
        """
        found, origin = misfits(self.config, self.found, self._chosen), origin_of("precision", self.origins)
        is_of_profile = origin is None or origin.startswith(PROFILE_DIR)
        by_hand = [misfit for misfit in found if misfit.key == "precision" and not is_of_profile]
        for misfit in by_hand:
            self._warn(f"{self._setting('precision', self.config.precision)}: {misfit.problem}")
        mismatches = [misfit for misfit in found if misfit not in by_hand]
        if self.config.device.strict and mismatches:
            raise ConfigError("device profile", [ConfigFault(each.key, str(each)) for each in mismatches])
        for misfit in mismatches:
            self._warn(f"the device profile does not fit this machine: {misfit}")
            yield str(misfit)
        if (missing := self._missing_devices()) is not None:
            if self.config.device.strict:
                raise ConfigError("device profile", [ConfigFault("devices", missing)])
            self._warn(missing)
            yield missing

    def _missing_devices(self) -> str | None:
        """Why fewer processes train than `devices` requests, and their number; None if all of them do."""
        number, reason = self._processes()
        if reason is None:
            return None
        runs = "1 process trains" if number == 1 else f"{number} processes train"
        return f"{self._setting('devices', self.config.devices)}: {reason}; {runs}"


def torch_devices(found: DeviceCapabilities) -> list[torch.device]:
    """Every device of a platform; a CPU is one."""
    return [torch_device(found.kind, index) for index in range(1 if found.kind == "cpu" else found.count)]


def _auto_precision(found: DeviceCapabilities) -> tuple[Precision, str]:
    if found.kind == "mps":
        return "32", f"mixed precision on {found.kind} is not chosen by default; set precision to try it"
    if "bfloat16" in found.native_dtypes:
        return "bf16-mixed", f"{found.name} computes bfloat16 natively"
    if found.kind == "cpu":
        return "32", f"{found.name} does not compute bfloat16 natively"
    if "float16" in found.native_dtypes:
        return "16-mixed", f"{found.name} has no native bfloat16; float16 with loss scaling"
    return "32", f"{found.name} computes neither bfloat16 nor float16"
