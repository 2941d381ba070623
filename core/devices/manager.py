"""Decides where and in which arithmetic to compute and how much memory to take, and says why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.config.compose import execution_from_environment
from core.config.execution import Device, DeviceKind, Execution
from core.config.schema import Stream
from core.devices import memory, process, threads, tuning
from core.devices.batching import BatchConfig, get_batch_config
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

    config: a whole configuration, an `Execution`, its `device` section alone, or None for the environment's
    COMPUTE_* and LANDFALL_* variables over the defaults. detector: any object with `detect_capabilities()`.
    """

    def __init__(self, config: Execution | Device | None = None, detector: Detector | None = None):
        if config is None:
            config = execution_from_environment()
        self.config = Execution(device=config) if isinstance(config, Device) else config
        # Allocators and cuBLAS read their environment once, when the detector wakes them.
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

    # ------------------------------------------------------------------------------------------------- what there is
    @property
    def capabilities(self) -> DeviceCapabilities:
        """Of the platform in use."""
        return self._chosen

    @property
    def has_gpu(self) -> bool:
        return self.gpu_count > 0

    @property
    def gpu_count(self) -> int:
        return len(self.gpu_devices)

    @property
    def device_count(self) -> int:
        """Devices of the platform in use; a CPU is one."""
        return 1 if self._chosen.kind == "cpu" else self._chosen.count

    @property
    def devices(self) -> list[torch.device]:
        """Every usable device, those of the platform in use first."""
        ordered = sorted(self._usable(), key=lambda found: found is not self._chosen)
        return [device for found in ordered for device in _torch_devices(found)]

    @property
    def gpu_devices(self) -> list[torch.device]:
        return [device for found in self._usable() if found.kind in GPU_KINDS for device in _torch_devices(found)]

    @property
    def cpu_devices(self) -> list[torch.device]:
        return [device for found in self._usable() if found.kind == "cpu" for device in _torch_devices(found)]

    @property
    def default_device(self) -> torch.device:
        return _torch_devices(self._chosen)[0]

    def _usable(self) -> list[DeviceCapabilities]:
        return [found for found in self.found if found.usable]

    @property
    def num_processes(self) -> int:
        """Processes a run may start: a CPU runs as many as are asked for, other platforms one a device."""
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
        """What a run computes with.

        index: the device of this process. processes: how many really share this machine; default: as many as the
        configuration asks for and the hardware has.
        Raises UsageError where `device.strict` is set and the preferred device or the profile's hardware is missing.
        """
        chosen, settings = self._chosen, self.config.device
        precision, precision_reason = self._choose_precision()
        unfit = tuple(str(misfit) for misfit in misfits(self.config, self.found, chosen))
        self._tell_misfits(unfit)
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
        """The device, the reason, and whether it only stands in for the one asked for."""
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
        stand_in = candidates[0]
        log.warning("%s; %s is used instead (device.strict=true makes this an error)", problem, stand_in.name)
        return stand_in, f"{problem}; {stand_in.kind} instead", True

    def _candidates(self) -> list[DeviceCapabilities]:
        """Usable platforms in order of priority, without those the configuration declines; the CPU is always one."""
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
            log.warning("precision %s was meant for another device; %s computes in 32 bit", wanted, chosen.name)
            return "32", f"{wanted} was asked for a device that is missing; {chosen.name} has no native {dtype}"
        return wanted, f"precision = {wanted}"  # emulated on a device that was asked for: a misfit, and told as one

    def _threads(self, processes: int) -> tuple[int, str]:
        """The most of one of these processes, and the reason."""
        cores = next((found.count for found in self.found if found.kind == "cpu"), 1)
        return threads.thread_limit(cores, processes=processes, max_threads=self.config.max_threads)

    def _tell_misfits(self, unfit: Sequence[str]) -> None:
        if unfit and self.config.device.strict:
            raise ConfigError("device profile", [ConfigFault("hardware", text) for text in unfit])
        for text in unfit:
            log.warning("the device profile does not fit this machine: %s", text)

    # ------------------------------------------------------------------------------------- tensors, batches, memory
    def create_tensor(
        self, data: Any, *, dtype: torch.dtype | None = None, device_id: int | None = None
    ) -> torch.Tensor:
        """A tensor on the device in use; floating numbers take the default type, float64 under `device.enable_x64`."""
        import torch

        from core.devices import placement

        if dtype is None and self.config.device.enable_x64 and torch.as_tensor(data).is_floating_point():
            dtype = torch.float64
        return placement.create_tensor(data, self._device(device_id), dtype=dtype)

    def move_to_device(self, value: Any, device_id: int | None = None) -> Any:
        """Tensors in nested dicts, lists, tuples and dataclasses moved; what lies there already is not copied."""
        from core.devices import placement

        return placement.move_to_device(value, self._device(device_id))

    def distribute_data(self, batch: Any, devices: Sequence[torch.device] | None = None) -> list[Any]:
        """The batch in consecutive shares, one a device; sizes differ by one at most."""
        from core.devices import placement

        return placement.distribute_data(batch, devices or _torch_devices(self._chosen))

    def get_batch_config(self, base_batch_size: int, *, mb_per_sample: float | None = None) -> BatchConfig:
        settings = self.config.device
        return get_batch_config(
            self._chosen,
            base_batch_size,
            tpu_batch_factor=settings.tpu_batch_factor,
            memory_share=settings.memory.share,
            mb_per_sample=mb_per_sample,
        )

    def optimize_for_model_size(self, num_parameters: int) -> None:
        """Takes the memory strategy that suits a model of this size for the plans to come."""
        strategy = memory.optimize_for_model_size(num_parameters)
        self._adopt(self.config.device.model_copy(update={"memory": strategy}))

    def use_mixed_precision(self, stream: Stream) -> None:
        """Takes the preset for mixed-precision training of the stream's model for the plans to come."""
        values = {**self.config.device.model_dump(), **memory.MIXED_PRECISION_PRESETS[stream]}
        self._adopt(Device.model_validate(values))

    def _adopt(self, device: Device) -> None:
        self.config = self.config.model_copy(update={"device": device})
        memory.prepare_environment(device)

    def _device(self, index: int | None) -> torch.device:
        devices = _torch_devices(self._chosen)
        if index is not None and not 0 <= index < len(devices):
            raise UsageError(f"device {index} does not exist: there are {len(devices)} of {self._chosen.kind}")
        return devices[index or 0]

    def get_device_info(self) -> Mapping[str, Any]:
        """Everything `landfall devices --json` tells."""
        from core.devices.report import device_report

        return device_report(self)


def _torch_devices(found: DeviceCapabilities) -> list[torch.device]:
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
    return "32", f"mixed precision on {found.kind} is not chosen unasked; set precision to try it"


_AUTO_PRECISION: dict[DeviceKind, Callable[[DeviceCapabilities], tuple[Precision, str]]] = {
    "cuda": _auto_on_accelerator,
    "xpu": _auto_on_accelerator,
    "tpu": _auto_on_accelerator,
    "mps": _auto_on_mps,
    "cpu": _auto_on_cpu,
}


# --------------------------------------------------------------------------------------------------- one for a process
_manager: DeviceManager | None = None


def get_device_manager(
    config: Execution | Device | None = None,
    force_reinit: bool = False,
    prefer: str | None = None,
    allow_tpu: bool | None = None,
) -> DeviceManager:
    """The manager of this process, made at the first call; arguments other than None make a new one.

    `prefer` and `allow_tpu` change `config`, by default the settings of the manager there is.
    """
    global _manager
    overrides = {key: value for key, value in (("prefer", prefer), ("allow_tpu", allow_tpu)) if value is not None}
    if _manager is None or force_reinit or config is not None or overrides:
        if config is None:
            config = execution_from_environment() if _manager is None or force_reinit else _manager.config
        execution = Execution(device=config) if isinstance(config, Device) else config
        device = Device.model_validate({**execution.device.model_dump(), **overrides})
        _manager = DeviceManager(execution.model_copy(update={"device": device}))
    return _manager


def get_default_device() -> torch.device:
    return get_device_manager().default_device


def has_gpu() -> bool:
    return get_device_manager().has_gpu


def get_device_info() -> Mapping[str, Any]:
    return get_device_manager().get_device_info()


def print_device_info() -> None:
    """The report of `landfall devices` on stdout, for notebooks."""
    import sys

    from core.devices.report import as_text

    sys.stdout.write(as_text(get_device_info()) + "\n")
