"""Google TPUs as torch_xla or JAX reports them, otherwise as environment variables of the machine name them.

Both libraries reserve the TPU for their process and may end it if the driver is broken. Therefore they are queried
once, in a separate process.
"""

from __future__ import annotations

import functools
import logging
import os
from importlib.util import find_spec
from typing import Any

from core.devices.capabilities import DeviceCapabilities
from core.errors import LandfallError
from core.process_memory import MIB
from core.programs import ask_python

log = logging.getLogger(__name__)

# Starting the driver and compiling the first operation takes most of it.
_TIMEOUT_S = 90.0
_BY_TORCH_XLA = "from core.devices import tpu; import json; print(json.dumps(tpu.seen_by_torch_xla()))"
_BY_JAX = "import jax, json; print(json.dumps([d.device_kind for d in jax.devices('tpu')]))"
_VARIABLES = ("TPU_NAME", "TPU_ZONE", "TPU_ACCELERATOR_TYPE")


def detect_tpu() -> DeviceCapabilities | None:
    """A TPU as torch_xla reports it; one that only JAX or the environment reports is listed as unusable with the
    reason."""
    problem = "training needs torch_xla: pip install torch_xla"
    if find_spec("torch_xla") is not None:
        seen = _asked_once(_BY_TORCH_XLA)
        if isinstance(seen, dict):
            return DeviceCapabilities(**{**seen, "native_dtypes": tuple(seen["native_dtypes"])})
        problem = "torch_xla runs on something else" if seen is None else f"torch_xla does not reach it: {seen}"
    elif find_spec("jax") is not None and find_spec("libtpu") is not None:  # without libtpu JAX drives no TPU
        seen = _asked_once(_BY_JAX)
        if isinstance(seen, list):
            return _unusable(seen[0], len(seen), f"JAX sees it, but {problem}")
        problem = f"JAX does not reach it, and {problem}; {seen}"
    announced = [f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name)]
    return _unusable(_announced(), 1, f"{', '.join(announced)} announces a TPU, but {problem}") if announced else None


def _announced() -> str:
    return f"TPU {os.environ.get('TPU_ACCELERATOR_TYPE', '')}".strip()


def _unusable(name: str, count: int, reason: str) -> DeviceCapabilities:
    """The memory of a TPU is known only to a library that can use it."""
    return DeviceCapabilities("tpu", name, count, 0, 0, (), usable=False, reason=reason)


def seen_by_torch_xla() -> dict[str, Any] | None:
    """The capabilities of this machine's TPU as JSON, None if torch_xla runs on another device. Runs in a separate
    process."""
    import torch
    import torch_xla
    from torch_xla import runtime
    from torch_xla.core import xla_model

    if runtime.device_type() != "TPU":
        return None
    from core.devices.selftest import tested

    device = torch_xla.device()
    failure, dtypes = tested(device, ["bfloat16"], torch)
    memory, count = xla_model.get_memory_info(device), runtime.addressable_runtime_device_count()
    name_of_kind = getattr(xla_model, "xla_device_kind", None)  # since torch_xla 2.8
    return DeviceCapabilities(
        kind="tpu",
        name=name_of_kind(device) if name_of_kind else _announced(),
        count=count,
        memory_total_mb=memory["bytes_limit"] // MIB,
        memory_free_mb=0 if failure else (memory["bytes_limit"] - memory["bytes_used"]) // MIB,
        native_dtypes=dtypes,
        usable=failure is None,
        reason=failure or f"{count} passed a forward and backward pass through torch_xla",
        supports_mixed_precision="bfloat16" in dtypes,
    ).to_json()


@functools.cache
def _asked_once(program: str) -> Any:
    """The answer of a program, or the reason why there is none. Cached, because this process may use the TPU later."""
    try:
        return ask_python(program, _TIMEOUT_S)
    except LandfallError as error:
        log.info("no TPU: %s", error.message)
        return error.message
