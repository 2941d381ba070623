"""Google's TPUs: what torch_xla or JAX sees of them, else what the environment of the machine says.

Both libraries keep the TPU for their process and may end it when the driver is broken, so that they are asked in a
process of its own, once.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from core.devices.capabilities import DeviceCapabilities
from core.devices.process import ask_python
from core.errors import LandfallError

log = logging.getLogger(__name__)

_MEBIBYTE = 2**20
# Starting the driver and compiling the first operation takes most of it.
_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Platform:
    """A generation of TPUs. markers: what its names contain, without case and punctuation.

    memory_gb: of one chip, in 10⁹ bytes. cores: how many a chip counts for in names such as `v4-8`.
    """

    name: str
    memory_gb: int
    cores: int
    markers: tuple[str, ...]


# Memory after the tables of https://cloud.google.com/tpu/docs/v4, /v5e, /v5p and /v6e. Google publishes no chip with
# 64 GB; the v5p, which has 95, is what JAX calls plainly `TPU v5`. The first row with a marker in the name is meant.
PLATFORMS = (
    Platform("v6e", 32, 1, ("v6", "trillium")),
    Platform("v5e", 16, 1, ("v5e", "v5lite")),
    Platform("v5p", 95, 2, ("v5",)),
    Platform("v4", 32, 2, ("v4",)),
)


def platform_of(text: str) -> Platform | None:
    """The generation that is meant by `v5litepod-8`, `TPU v5 lite`, `tpu-v5-lite-podslice` and the like."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    return next((row for row in PLATFORMS if any(marker in plain for marker in row.markers)), None)


def detect_tpu() -> DeviceCapabilities | None:
    """What the first of `_SOURCES` that knows of a TPU says."""
    return next((found for ask in _SOURCES if (found := ask()) is not None), None)


# ---------------------------------------------------------------------------------------------------------- torch_xla
def _by_torch_xla() -> DeviceCapabilities | None:
    if find_spec("torch_xla") is None:
        return None
    seen = _asked_once("from core.devices import tpu; import json; print(json.dumps(tpu.seen_by_torch_xla()))")
    if seen is None:
        return _by_environment("torch_xla runs on something else")
    if isinstance(seen, str):
        return _by_environment(f"torch_xla does not reach it: {seen}")
    return _capabilities(
        seen["kind"] or _announced(),
        seen["count"],
        reason=seen["failure"] or f"{seen['count']} passed a forward and backward pass through torch_xla",
        memory=(seen["total"], seen["free"]),
        native_dtypes=tuple(seen["native_dtypes"]),
        usable=seen["failure"] is None,
    )


def seen_by_torch_xla() -> dict[str, Any] | None:
    """What torch_xla knows of this machine's TPU, None where it runs on something else. For a process of its own.

    total, free: memory of one device in bytes, None where unknown.
    """
    import torch_xla
    from torch_xla import runtime
    from torch_xla.core import xla_model

    if runtime.device_type() != "TPU":
        return None
    from core.devices.selftest import failure_on, native_dtypes

    device = torch_xla.device()
    failure = failure_on(device)
    memory = xla_model.get_memory_info(device)
    total, used = memory.get("bytes_limit"), memory.get("bytes_used", 0)
    name_of_kind = getattr(xla_model, "xla_device_kind", None)  # since torch_xla 2.8
    return {
        "kind": name_of_kind(device) if name_of_kind else None,
        "count": runtime.addressable_runtime_device_count(),
        "failure": failure,
        "native_dtypes": () if failure else native_dtypes(device, ["bfloat16"]),
        "total": total,
        "free": None if total is None else total - used,
    }


# ---------------------------------------------------------------------------------------------------------------- JAX
def _by_jax() -> DeviceCapabilities | None:
    """JAX cannot train our models, but it knows what is there. Without libtpu it drives no TPU: it is not asked."""
    if find_spec("jax") is None or find_spec("libtpu") is None:
        return None
    seen = _asked_once("import jax, json; print(json.dumps([d.device_kind for d in jax.devices('tpu')]))")
    if isinstance(seen, str):
        return _by_environment(f"JAX does not reach it, and training needs torch_xla: {seen}")
    return _capabilities(seen[0], len(seen), reason="JAX sees it, but training needs torch_xla: pip install torch_xla")


@functools.cache
def _asked_once(program: str) -> Any:
    """The answer of a program, or in words why there is none; later this process may hold the TPU itself."""
    try:
        return ask_python(program, _TIMEOUT_S)
    except LandfallError as error:
        log.info("no TPU: %s", error.message)
        return error.message


# -------------------------------------------------------------------------------------------------------- environment
def _by_environment(problem: str = "training needs torch_xla: pip install torch_xla") -> DeviceCapabilities | None:
    """A TPU that only the environment announces cannot be used; `problem` says why."""
    announced = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    if not announced:
        return None
    kind = _announced()
    platform, size = platform_of(kind), re.search(r"-(\d+)$", kind)
    count = max(1, int(size[1]) // (platform.cores if platform else 1)) if size else 1
    said = ", ".join(f"{name}={value}" for name, value in announced.items())
    return _capabilities(kind, count, reason=f"{said} announces a TPU, but {problem}")


_VARIABLES = ("TPU_NAME", "TPU_ZONE", "TPU_ACCELERATOR_TYPE")


def _announced() -> str:
    return os.environ.get("TPU_ACCELERATOR_TYPE", "")


_SOURCES: tuple[Callable[[], DeviceCapabilities | None], ...] = (_by_torch_xla, _by_jax, _by_environment)


def _capabilities(
    kind: str,
    count: int,
    *,
    reason: str,
    memory: tuple[int | None, int | None] = (None, None),
    native_dtypes: tuple[str, ...] = (),
    usable: bool = False,
) -> DeviceCapabilities:
    """kind: any name of the generation; its published memory replaces what the driver does not report, in bytes."""
    platform = platform_of(kind)
    total = memory[0] or (platform.memory_gb * 10**9 if platform else 0)
    free = memory[1] if memory[1] is not None else total
    return DeviceCapabilities(
        kind="tpu",
        name=f"TPU {platform.name}" if platform else f"TPU {kind}".strip(),
        count=count,
        memory_total_mb=total // _MEBIBYTE,
        memory_free_mb=free // _MEBIBYTE if usable else 0,
        native_dtypes=native_dtypes,
        usable=usable,
        reason=reason,
        supports_mixed_precision="bfloat16" in native_dtypes,
        platform=platform.name if platform else None,
    )
