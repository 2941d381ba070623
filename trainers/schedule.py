"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math


def learning_rate(step: int, *, total_steps: int, warmup_steps: int, peak: float, final: float) -> float:
    """Linear warm-up to `peak` over `warmup_steps`, then half a cosine down to `final` at the last step.

    `step` counts optimizer steps from 0. The first step already moves: its rate is peak / warmup_steps.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    decay_steps = max(1, total_steps - 1 - warmup_steps)
    progress = min(1.0, (step - warmup_steps) / decay_steps)
    return final + 0.5 * (peak - final) * (1.0 + math.cos(math.pi * progress))
