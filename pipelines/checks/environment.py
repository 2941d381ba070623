"""Checks of the environment: the interpreter, the packages and the device."""

from __future__ import annotations

import re
import sys

from core.packages import version_of
from pipelines.checks.base import Check, CheckFailed, CheckSkipped, CheckWarned, Context

MINIMUM_PYTHON = (3, 11)
_NAMED = 5  # packages that differ
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;#]+)")


def python_version(context: Context) -> str:
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < MINIMUM_PYTHON:
        raise CheckFailed(f"Python {found} is too old", "install Python 3.11 or newer and run `make setup PYTHON=…`")
    return f"Python {found}"


def locked_packages(context: Context) -> str:
    """Compares the runtime packages with `requirements.lock`; development tools are not compared. Local builds of a
    pinned version (`2.13.0+cpu`) count as that version."""
    lock = context.root / "requirements.lock"
    if not lock.is_file():
        is_clone = (context.root / "pyproject.toml").is_file()
        hint = "restore it: git checkout requirements.lock" if is_clone else "only a clone of the repository has one"
        raise CheckSkipped("there is no requirements.lock", hint)
    pins = [match.groups() for line in lock.read_text(encoding="utf-8").splitlines() if (match := _PINNED.match(line))]
    differing = [
        f"{name} {found} instead of {pin}" if found else f"{name} is not installed"
        for name, pin in pins
        if (found := (version_of(name) or "").partition("+")[0]) != pin
    ]
    if differing:
        more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        raise CheckWarned(
            f"{len(differing)} of {len(pins)} differ from requirements.lock: {', '.join(differing[:_NAMED])}{more}",
            "`make -B setup` installs the tested versions again",
        )
    return f"{len(pins)} packages have the versions of requirements.lock"


def device(context: Context) -> str:
    """The device of each stream. Warns if a requested device is missing or an allowed device does not work; with
    `device.strict` a missing device fails."""
    from core.devices.manager import DeviceManager

    used, problems = {}, {}
    for loaded in context.configs.values():
        manager = DeviceManager(loaded.config, origins=loaded.origins)
        plan = manager.plan(processes=1)
        cuda = "CUDA is used" if plan.kind == "cuda" else "no CUDA device is used"
        used[f"{plan.name}, {plan.precision}; {cuda} ({plan.device_reason})"] = None
        if plan.fallback:
            problems[plan.device_reason] = None
        problems |= dict.fromkeys(
            f"{found.name} is present and cannot be used: {found.reason}" for found in manager.unusable_devices()
        )
    if problems:
        raise CheckWarned("; ".join(problems), "`landfall devices --doctor` tests each device and names a remedy")
    return "; ".join(used)


CHECKS = (
    Check("python", "V-01", "Python version", python_version),
    Check("packages", "V-01", "Installed packages", locked_packages),
    Check("device", "V-01", "Device", device),
)
