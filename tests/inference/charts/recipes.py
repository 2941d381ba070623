"""Process data whose channels depend on each other."""

from __future__ import annotations

import numpy as np

CYCLE = 100


def recipe(rows: int, seed: int, num_channels: int = 6, noise: float = 0.01) -> np.ndarray:
    """A recipe of four steps of random levels, repeated; channels follow it with lags, and have larger errors after a
    change."""
    levels_sc = np.random.default_rng(99).uniform(-1, 1, (4, num_channels))
    rng = np.random.default_rng(seed)
    second_n = np.arange(CYCLE, rows + CYCLE) % CYCLE
    target_nc = levels_sc[second_n // (CYCLE // 4)]
    values_nc = np.empty((rows, num_channels))
    state_c = levels_sc[-1]
    for row in range(rows):
        state_c = state_c + 0.5 * (target_nc[row] - state_c)
        values_nc[row] = state_c
    shared_n1 = rng.normal(size=(rows, 1))
    restless_n1 = 1 + 10 * (second_n % (CYCLE // 4) < 4)[:, np.newaxis]
    values_nc += noise * (3 * shared_n1 + restless_n1 * rng.normal(size=values_nc.shape))
    return values_nc.astype(np.float32)
