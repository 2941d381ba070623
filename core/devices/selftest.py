"""Real operations with known results: a device may be reported as available but fail to run kernels or give wrong
results."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch

from core.errors import first_line

log = logging.getLogger(__name__)

_SIZE = 32


def tested(device: torch.device, claimed: Iterable[str], torch: Any) -> tuple[str | None, tuple[str, ...]]:
    """Why the device fails, None if it passes; and the types it computes in natively, none if it fails."""
    failure = failure_on(device, torch)
    return failure, () if failure else native_dtypes(device, claimed, torch)


def failure_on(device: torch.device, torch: Any = torch) -> str | None:
    """Why a small forward and backward pass fails on the device; None if the results are correct."""
    host = _integers(torch)
    try:
        # The caller may be in inference_mode or no_grad; this ends either.
        with torch.inference_mode(False):
            inputs, weight = host.to(device, copy=True), host.to(device, copy=True).requires_grad_()
            product = torch.matmul(inputs, weight)
            product.sum().backward()
            gradient = host.sum(0)[:, None].expand(_SIZE, _SIZE)
            right = torch.equal(product.detach().cpu(), host @ host) and torch.equal(weight.grad.cpu(), gradient)
    except Exception as error:  # a broken driver raises anything
        return f"{device} is present but failed a small operation: {first_line(error)}"
    return None if right else f"{device} is present but computed wrong numbers"


def native_dtypes(device: torch.device, names: Iterable[str], torch: Any = torch) -> tuple[str, ...]:
    """float32, and those of `names` in which a matrix product on the device agrees with float32 on the CPU."""
    return ("float32", *(name for name in names if _computes_in(name, device, torch)))


def _computes_in(name: str, device: torch.device, torch: Any) -> bool:
    host = _integers(torch)
    try:
        factor = host.to(device, getattr(torch, name))
        right = torch.equal(torch.matmul(factor, factor).float().cpu(), host @ host)
    except Exception as error:  # a broken driver may raise any error
        log.warning("%s fails in %s: %s", device, name, first_line(error))
        return False
    if not right:
        log.warning("%s computes wrong numbers in %s", device, name)
    return right


def _integers(torch: Any) -> torch.Tensor:
    """A float32 matrix of -2 to 2 on the CPU, shape (32, 32).

    No sum in a product of two exceeds 4 · 32 = 128, so it is exact in every type down to bfloat16, which holds integers
    up to 256: the comparison needs no tolerance.
    """
    values = torch.arange(_SIZE * _SIZE, device="cpu") % 5 - 2
    return values.reshape(_SIZE, _SIZE).to(torch.float32)
