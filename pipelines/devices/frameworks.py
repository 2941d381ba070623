"""Installed machine-learning frameworks, without importing them: two of them would allocate the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import LandfallError
from core.packages import version_of
from core.programs import ask_python


@dataclass(frozen=True)
class Framework:
    """packages: the names of its distributions. devices: a program that prints its devices, as JSON."""

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
_TIMEOUT_S = 20.0
# Without these, TensorFlow and JAX allocate most of a GPU's memory when they initialise it.
_NO_PREALLOCATION = {
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


def installed_frameworks() -> dict[str, str | None]:
    """Version of each framework from its package metadata, None if it is not installed."""
    return {framework.name: _version(framework) for framework in FRAMEWORKS}


def framework_devices() -> dict[str, list[str] | str]:
    """Devices that TensorFlow and JAX find, if they are installed, or why they fail. Each runs in a separate process,
    which ends within `_TIMEOUT_S` and releases its memory.
    """
    found: dict[str, list[str] | str] = {}
    for framework in FRAMEWORKS:
        if framework.devices is not None and _version(framework) is not None:
            try:
                found[framework.name] = ask_python(framework.devices, _TIMEOUT_S, _NO_PREALLOCATION)
            except LandfallError as error:
                found[framework.name] = error.message
    return found


def _version(framework: Framework) -> str | None:
    return next(filter(None, map(version_of, framework.packages)), None)
