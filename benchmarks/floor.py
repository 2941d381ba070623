"""Lower bound of the time of a step on this machine: its matrix products alone, each at the best rate of its shape."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = {torch.ops.aten.mm.default: 0, torch.ops.aten.addmm.default: 1, torch.ops.aten.bmm.default: 0,
             torch.ops.aten.baddbmm.default: 1}  # fmt: skip
_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default: 2,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: 5,
}

Shape = tuple[int, int, int, int]  # batch, rows, inner, columns
Product = tuple[Shape, torch.dtype]


class Products(TorchDispatchMode):
    """Counts matrix products by shape and type, including those inside fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Product] = Counter()

    def __torch_dispatch__(
        self, operator: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if operator in _PRODUCTS:
            first, second = args[_PRODUCTS[operator] : _PRODUCTS[operator] + 2]
            batch = first.shape[0] if first.dim() == 3 else 1
            self.counts[(batch, first.shape[-2], first.shape[-1], second.shape[-1]), first.dtype] += 1
        elif operator in _ATTENTION:
            query = args[1] if _ATTENTION[operator] == 5 else args[0]
            batch, heads, length, width = query.shape
            # Logits and values; in the backward pass also both gradients of each, and the logits again.
            self.counts[(batch * heads, length, width, length), query.dtype] += _ATTENTION[operator]
        return operator(*args, **(kwargs or {}))


def floor_seconds(step: Callable[[], object], *, rounds: int = 5) -> float:
    """Time of the step's matrix products, each shape measured separately with operands in memory (minimum of the
    rounds). It excludes moving activations and optimizer state through memory.
    """
    with Products() as seen:
        step()
    return sum(count * _least_seconds(product, rounds) for product, count in seen.counts.items())


def _least_seconds(product: Product, rounds: int) -> float:
    (batch, rows, inner, columns), dtype = product
    left, right = torch.randn(batch, rows, inner, dtype=dtype), torch.randn(batch, inner, columns, dtype=dtype)
    out = torch.empty(batch, rows, columns, dtype=dtype)
    multiply, operands = torch.bmm, (left, right)
    if batch == 1:
        multiply, operands, out = torch.mm, (left[0], right[0]), out[0]
    least = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        multiply(*operands, out=out)
        least = min(least, time.perf_counter() - started)
    return least
