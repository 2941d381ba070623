"""The state of every global random generator that a run uses, as plain values for a checkpoint.

Masks, order and everything else with its own generator (`core.reproducibility`) need no state: they are functions of
seed and position.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from core.devices.backend import Backend


def random_state(backend: Backend) -> dict[str, Any]:
    """States of torch (CPU, and the device of the backend), NumPy and Python."""
    kind, keys, position, has_gauss, cached = np.random.get_state()
    version, words, gauss = random.getstate()
    return {
        "kind": backend.kind,
        "torch": backend.rng_state(),
        "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached],
        "python": [version, torch.tensor(words), gauss],
    }


def set_random_state(backend: Backend, state: Mapping[str, Any]) -> None:
    """Restores the result of `random_state`; a device of another kind keeps its own state."""
    states = state["torch"] if state["kind"] == backend.kind else state["torch"][:1]
    backend.set_rng_state(states)
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
