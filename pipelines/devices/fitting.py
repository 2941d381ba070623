"""What fits this machine: the device profile, and the batch size of earlier runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from core import checkpoint
from core.config.compose import local_config_file
from core.config.execution import DeviceKind, Execution
from core.config.hardware import list_profiles, load_profile
from core.config.schema import STREAMS
from core.devices.manager import DeviceManager
from core.devices.plan import misfits
from core.errors import LandfallError
from pipelines.devices.document import FittingProfile, RunBatch

log = logging.getLogger(__name__)

_ON_KAGGLE = "KAGGLE_KERNEL_RUN_TYPE"
_GENERIC: dict[DeviceKind, str] = {"cpu": "cpu", "mps": "mps", "cuda": "single_gpu", "xpu": "single_gpu"}


def load_profiles(root: Path) -> dict[str, Execution]:
    """Every profile of the workspace by name; an invalid one is ignored with a warning."""
    profiles = {}
    for name in list_profiles(root):
        try:
            profiles[name] = load_profile(name, root)
        except LandfallError as error:
            log.warning("%s", error.message)
    return profiles


def fitting_profile(
    manager: DeviceManager, profiles: Mapping[str, Execution], environment: Mapping[str, str]
) -> FittingProfile:
    """The profile for this device, by its name and its requirements; otherwise a profile for any device of its kind."""
    chosen = manager.capabilities
    for name, profile in profiles.items():
        model, is_kaggles = name.rpartition("_")[2], name.startswith("kaggle_")
        if (
            model in chosen.name.lower()
            and is_kaggles == (_ON_KAGGLE in environment)
            and not misfits(profile, manager.found, chosen)
            and (profile.devices == "auto" or profile.devices <= manager.device_count)
        ):
            return FittingProfile(name=name, reason=f"made for {chosen.name}, and all its requirements are satisfied")
    name = "multi_gpu" if manager.device_count > 1 else _GENERIC.get(chosen.kind, "auto")
    if name not in profiles:
        name = "auto"
    return FittingProfile(name=name, reason=f"no profile is made for {chosen.name}; this one fits any {chosen.kind}")


def run_batches(root: Path) -> list[RunBatch]:
    """The batch sizes of the run of each stream's promoted model. A new run on the same machine and data uses them
    again."""
    found = []
    for stream in STREAMS:
        try:
            described = checkpoint.describe(root / f"checkpoints/{stream}_ssl.pt")
            batch = described["hardware"]["batch"]
            found.append(
                RunBatch(
                    stream=stream,
                    run_id=described["run_id"],
                    effective=batch["effective"],
                    micro=batch["micro"],
                    device=described["hardware"].get("name", ""),
                )
            )
        except (LandfallError, KeyError, TypeError, ValueError) as error:
            log.debug("%s: no batch of an earlier run: %s", local_config_file(stream), error)
    return found
