"""The device and mode of a workload, and the cost of one step: operations, bytes, memory, time to submit it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from core.devices.backend import backend

# Modes of torch.compile. On a CPU the graph is captured and not translated: that takes seconds instead of minutes.
MODES = {"compiled": None, "graphs": "reduce-overhead"}


@dataclass(frozen=True)
class Place:
    """device: `cpu` or `cuda`. mode: `eager`, `compiled`, or `graphs` (compiled, replayed as CUDA graphs). steps:
    number of steps before the device is synchronised. deterministic: as in a run with `deterministic=true`."""

    device: str = "cpu"
    mode: str = "eager"
    steps: int = 1
    deterministic: bool = False

    def work(self, step: Callable[[], object], model: nn.Module | None = None) -> Callable[[], object]:
        """The workload of a comparison: `steps` times `step`, which runs `model`."""
        if self == Place():
            return step
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first product
            torch.use_deterministic_algorithms(True)
        cost = cost_of(step)
        if self.mode != "eager" and model is not None:
            options = {"backend": "eager"} if self.device == "cpu" else {"mode": MODES[self.mode]}
            model.compile(**options)
        return Repeated(step, self, cost)


class Repeated:
    """A workload on a device; `facts` describes one of its steps."""

    def __init__(self, step: Callable[[], object], place: Place, cost: dict[str, Any]):
        self._step, self._place, self._cost = step, place, cost
        self._device = backend(place.device)
        self._device.reset_peak_memory()

    def __call__(self) -> None:
        for _ in range(self._place.steps):
            self._step()
        self._device.synchronize()

    @property
    def facts(self) -> dict[str, Any]:
        peak_mb = self._device.peak_memory_mb()
        return {**self._cost, "peak_mb": peak_mb, "submit_share": self._submit_share()}

    def _submit_share(self) -> float:
        """Time until a step is submitted, as a share of the time until it is done: near 1 the device waits for the
        host (a step bound by launches), and always on a CPU."""
        self._device.synchronize()
        started = time.perf_counter()
        self._step()
        submitted = time.perf_counter()
        self._device.synchronize()
        return (submitted - started) / (time.perf_counter() - started)


def cost_of(step: Callable[[], object]) -> dict[str, Any]:
    """Floating-point operations of the matrix products and convolutions of an eager step, `flops`, and the bytes that
    its operations read and write, `bytes`. A compiled step moves fewer bytes."""
    step()  # the optimizer's state exists from here on
    with FlopCounterMode(display=False) as operations, Traffic() as traffic:
        step()
    return {"flops": operations.get_total_flops(), "bytes": traffic.num_bytes}


class Traffic(TorchDispatchMode):
    """Adds up the bytes of the inputs and outputs of every operation that is not a view. A tensor that is read in part,
    such as the table of a gather, counts completely."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(
        self, operator: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = operator(*args, **(kwargs or {}))
        if not operator.is_view:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, found)) if isinstance(leaf, torch.Tensor)]
            self.num_bytes += sum(tensor.nbytes for tensor in tensors)
        return found


# ------------------------------------------------------------------------------------------------------------- ceilings
def ceilings(device: str, size: int, megabytes: int, *, rounds: int = 5) -> dict[str, float]:
    """The measured limits of this device: operations per second of a product of square matrices of `size` in each type
    (random values), and bytes per second, read and written, of copying `megabytes`. The best of the rounds."""
    found: dict[str, float] = {}
    left, right = (torch.randn(size, size, device=device) for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for name, dtype in ARITHMETIC.items():
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            a, b = left.to(dtype), right.to(dtype)
            found[name] = 2 * size**3 / _least_seconds(lambda a=a, b=b: a @ b, device, rounds)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    source = torch.randn(megabytes * 2**18, device=device)
    target = torch.empty_like(source)
    found["bytes"] = 2 * source.nbytes / _least_seconds(lambda: target.copy_(source), device, rounds)
    return found


ARITHMETIC = {"32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def _least_seconds(work: Callable[[], object], device: str, rounds: int) -> float:
    work()
    least = float("inf")
    for _ in range(rounds):
        backend(device).synchronize()  # type: ignore[arg-type]
        started = time.perf_counter()
        work()
        backend(device).synchronize()  # type: ignore[arg-type]
        least = min(least, time.perf_counter() - started)
    return least
