"""Separate random generators: one per purpose, so that draws for one purpose do not affect another.

The global generators are seeded in `core.devices.process.make_reproducible`.
"""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for a purpose such as `("masks", epoch)`; independent of the order in which purposes are used."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device=device).manual_seed(derive_seed(seed, *purpose))
