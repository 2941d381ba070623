"""Device profiles: their requirements on the hardware, and how a process applies them.

A profile is a file of `configs/local/devices/`; its README explains the fields.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.config.execution import DeviceKind, Execution, Profile
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import AUTOCAST_DTYPES
from core.devices.process import adopt, wrong_hash_seed

log = logging.getLogger(__name__)


# ------------------------------------------------------------------------------------------------------------ following
def seed_and_fix(profile: Profile) -> None:
    """Seeds Python, NumPy and torch, and sets how torch chooses its kernels; the only place for both.

    Call it before the model is built. A wrong PYTHONHASHSEED cannot be fixed here: commands have restarted before
    (`process.start_right`); in a notebook it is only logged.
    """
    import numpy as np
    import torch

    from core.reproducibility import derive_seed

    if (reason := wrong_hash_seed(profile)) is not None:
        log.warning("%s; set it before Python starts; it is too late for this process", reason)
    random.seed(derive_seed(profile.seed, "python"))
    numpy_seed = profile.numpy_seed
    np.random.seed(derive_seed(profile.seed, "numpy") % 2**32 if numpy_seed is None else numpy_seed)
    torch.manual_seed(derive_seed(profile.seed, "torch"))
    adopt(profile)
    # Like `use_deterministic_algorithms`, which also imports the compiler: two seconds that most runs do not need.
    torch.set_deterministic_debug_mode("error" if profile.deterministic else "default")
    torch.backends.cudnn.benchmark = profile.cudnn_benchmark and not profile.deterministic
    # torch rounds the input of convolutions, but not that of matrix products, to 10 bits (TF32) by default.
    torch.backends.cudnn.allow_tf32 = False


# -------------------------------------------------------------------------------------------------------------- fitting
@dataclass(frozen=True)
class Misfit:
    """A key that the hardware does not satisfy, the problem, and the replacement."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem} ({self.remedy})"


def misfits(profile: Execution, found: Sequence[DeviceCapabilities], chosen: DeviceCapabilities) -> list[Misfit]:
    """What the profile requires and the chosen device does not have. On another platform the profile's figures about
    hardware do not apply."""
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
    mixes = settings.amp and settings.enable_mixed_precision and not settings.enable_x64
    dtype = AUTOCAST_DTYPES.get(profile.precision) if mixes else None
    if dtype is not None and dtype not in chosen.native_dtypes:
        instead = "16-mixed" if "float16" in chosen.native_dtypes else "32"
        yield Misfit("precision", f"{dtype} is not native on {chosen.name}: slow", f"set precision={instead}")
    if settings.enable_x64 and chosen.kind == "mps":
        yield Misfit("device.enable_x64", "Apple's GPU has no float64", "use local/devices=cpu with it")
