"""Which machine-learning frameworks are installed, without importing any: two of them would seize the GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from core.errors import LandfallError


@dataclass(frozen=True)
class Framework:
    """packages: the names it is distributed under. devices: a program that prints its devices, as JSON."""

    name: str
    packages: tuple[str, ...]
    devices: str | None = None


FRAMEWORKS = (
    Framework("PyTorch", ("torch",)),
    Framework(
        "TensorFlow",
        ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tensorflow-intel", "tf-nightly"),
        "import json, tensorflow; print(json.dumps([d.name for d in tensorflow.config.list_physical_devices()]))",
    ),
    Framework("JAX", ("jax",), "import json, jax; print(json.dumps([str(d) for d in jax.devices()]))"),
)
# Without these, TensorFlow and JAX take most of a GPU's memory as soon as they see it.
_MODEST = {
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


def installed_frameworks() -> dict[str, str | None]:
    """Version of each framework as its package metadata tells, None where it is not installed."""
    return {framework.name: _version(framework) for framework in FRAMEWORKS}


def framework_devices(timeout_s: float = 20.0) -> dict[str, list[str] | str]:
    """Devices that TensorFlow and JAX see, where installed, or in words why they do not answer.

    Each is asked in a process of its own, which ends within `timeout_s` and frees what it took.
    """
    found: dict[str, list[str] | str] = {}
    for framework in FRAMEWORKS:
        if framework.devices is not None and _version(framework) is not None:
            try:
                found[framework.name] = ask_python(framework.devices, timeout_s, _MODEST)
            except LandfallError as error:
                found[framework.name] = error.message
    return found


def _version(framework: Framework) -> str | None:
    for package in framework.packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None


def ask_python(program: str, timeout_s: float, environment: Mapping[str, str] | None = None) -> Any:
    """What a Python program prints last, read as JSON; it sees the modules that this process sees.

    environment: variables on top of this process's. Raises LandfallError where it fails or takes longer.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
    command = [sys.executable, "-c", program]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=variables,
        )
    except subprocess.TimeoutExpired as error:
        raise LandfallError(f"no answer in {timeout_s:g} s") from error
    except OSError as error:
        raise LandfallError(f"Python does not start: {error}") from error
    if answer.returncode:
        said = (answer.stderr.strip() or "nothing").splitlines()[-1]
        raise LandfallError(f"it failed (exit code {answer.returncode}): {said}")
    try:
        return json.loads(answer.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise LandfallError("its answer is not JSON") from error
