"""Device profiles: what they ask of the hardware, and how a process follows them.

A profile is a file of `configs/local/devices/`; its README explains the fields.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core.config.execution import Execution, Profile
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import AUTOCAST_DTYPES
from core.devices.process import adopt, wrong_environment

log = logging.getLogger(__name__)


# ------------------------------------------------------------------------------------------------------------ following
def seed_and_fix(profile: Profile) -> None:
    """Seeds Python, NumPy and torch, and sets how torch picks its kernels; the one place for both.

    Call it before the model is built. A wrong PYTHONHASHSEED cannot be fixed here: commands have restarted by now
    (`process.start_right`), elsewhere, such as in a notebook, it is only logged.
    """
    import numpy as np
    import torch

    from core.reproducibility import derive_seed

    for reason in wrong_environment(profile):
        log.warning("%s; set it before Python starts, for this process it is too late", reason)
    random.seed(derive_seed(profile.seed, "python"))
    numpy_seed = profile.numpy_seed
    np.random.seed(derive_seed(profile.seed, "numpy") % 2**32 if numpy_seed is None else numpy_seed)
    torch.manual_seed(derive_seed(profile.seed, "torch"))
    adopt(profile)
    # Like `use_deterministic_algorithms`, which also imports the compiler: two seconds that most runs do not need.
    torch.set_deterministic_debug_mode("error" if profile.deterministic else "default")
    torch.backends.cudnn.benchmark = profile.cudnn_benchmark and not profile.deterministic


# -------------------------------------------------------------------------------------------------------------- fitting
@dataclass(frozen=True)
class Misfit:
    """A key that the hardware does not satisfy, what is wrong, and what to write instead."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem} ({self.remedy})"


def misfits(profile: Execution, found: Sequence[DeviceCapabilities], chosen: DeviceCapabilities) -> list[Misfit]:
    """What the profile requires and the chosen device does not have. On another platform the profile's figures about
    hardware do not apply."""
    session, platform = list(_session(profile)), list(_platform(profile, found, chosen))
    if platform:
        return [*platform, *session]
    return [*session, *(misfit for rule in _RULES for misfit in rule(profile, chosen))]


def _session(profile: Execution) -> Iterator[Misfit]:
    longest, wanted = profile.hardware.session_hours, profile.timeout_hours
    if longest is not None and (wanted is None or wanted > longest):
        problem = f"{'no limit' if wanted is None else f'{wanted:g} h'}, but a session ends after {longest:g} h"
        yield Misfit("timeout_hours", problem, f"set timeout_hours={longest - 0.5:g}")


def _platform(profile: Execution, found: Sequence[DeviceCapabilities], chosen: DeviceCapabilities) -> Iterator[Misfit]:
    wanted = profile.hardware.kind
    if wanted in (None, chosen.kind):
        return
    reasons = [entry.reason for entry in found if entry.kind == wanted and not entry.usable]
    seen = "; ".join(reasons) or ("was not chosen" if any(entry.kind == wanted for entry in found) else "there is none")
    yield Misfit(
        "hardware.kind",
        f"the profile was made for {wanted}, {chosen.name} is {chosen.kind}; {wanted}: {seen}",
        "take local/devices=auto",
    )


def _memory(profile: Execution, chosen: DeviceCapabilities) -> Iterator[Misfit]:
    wanted = profile.hardware.memory_gb
    if chosen.nominal_gb < wanted:
        yield Misfit(
            "hardware.memory_gb",
            f"{chosen.name} has {chosen.nominal_gb} GB, the profile was made for {wanted:g}",
            "leave training.batch_size=auto, or take a profile for this device",
        )


def _compute_capability(profile: Execution, chosen: DeviceCapabilities) -> Iterator[Misfit]:
    """AMD's devices have none."""
    wanted, has = profile.hardware.compute_capability, chosen.compute_capability
    if has is not None and chosen.hip_version is None and float(has) < wanted:
        yield Misfit(
            "hardware.compute_capability",
            f"{chosen.name} has {has}, the profile was made for {wanted:.1f} and later",
            "take a profile for this device, or local/devices=auto",
        )


def _precision(profile: Execution, chosen: DeviceCapabilities) -> Iterator[Misfit]:
    settings = profile.device
    mixes = settings.amp and settings.enable_mixed_precision and not settings.enable_x64
    dtype = AUTOCAST_DTYPES.get(profile.precision) if mixes else None
    if dtype is not None and dtype not in chosen.native_dtypes:
        instead = "16-mixed" if "float16" in chosen.native_dtypes else "32"
        yield Misfit("precision", f"{dtype} is not native on {chosen.name}: slow", f"set precision={instead}")


def _double_precision(profile: Execution, chosen: DeviceCapabilities) -> Iterator[Misfit]:
    if profile.device.enable_x64 and chosen.kind == "mps":
        yield Misfit("device.enable_x64", "Apple's GPU has no float64", "take local/devices=cpu with it")


_RULES: tuple[Callable[[Execution, DeviceCapabilities], Iterator[Misfit]], ...] = (
    _memory,
    _compute_capability,
    _precision,
    _double_precision,
)
