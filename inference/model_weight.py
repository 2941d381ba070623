"""The weight of the model in a score, chosen by what scores find of injected faults.

Suffixes: s score entry, f fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.injected_faults import NORMAL

BOTH = 0.5
# Charts alone, both components, the model alone.
WEIGHTS = (0.0, BOTH, 1.0)
# Fewer faults show nothing.
FEWEST_FAULTS = 12
# One component counts alone only where it finds clearly more, because injected faults are simpler than real ones: by
# at least this share of the faults, and significantly at 5 %.
TOLERANCE = 0.02
_STANDARD_ERRORS = 2.0
# The largest false-alarm rate at which a fault counts as found.
_FALSE_ALARM_RATE = 0.1
# Where the best weight finds less, normal scores differ too much for the injected faults to compare anything.
_ENOUGH = 0.5


@dataclass(frozen=True)
class WeightChoice:
    """The weight, and why.

    found: by weight, the mean over injected faults of the share that is found: 1 for a fault above all normal scores,
    0 for one that a tenth of them exceeds; .05 by chance. Empty if no faults could be injected. reason: in words.
    """

    weight: float
    num_faults: int
    found: Mapping[float, float]
    reason: str

    def to_json(self) -> dict[str, Any]:
        found = {f"{weight:g}": round(share, 4) for weight, share in self.found.items()}
        return {"weight": self.weight, "num_faults": self.num_faults, "found": found, "reason": self.reason}


def not_compared(reason: str) -> WeightChoice:
    """Equal weights, because nothing shows that a component is worth less."""
    return WeightChoice(BOTH, 0, {}, reason)


def choose_weight(score_of: Callable[[float], np.ndarray], fault_s: np.ndarray) -> WeightChoice:
    """Equal weights, unless one component alone finds clearly more: by `TOLERANCE`, and by `_STANDARD_ERRORS` of the
    paired difference over the faults.

    score_of: from a weight to scores (S,), NaN where there is none. fault_s: int64 (S,), as in `InjectedFaults`.
    """
    number_f = np.unique(fault_s[fault_s >= 0])
    if len(number_f) < FEWEST_FAULTS:
        return not_compared(
            f"calibration data has room for {len(number_f)} injected faults, {FEWEST_FAULTS} are needed"
        )
    found_wf = np.array([found(score_of(weight), fault_s) for weight in WEIGHTS])
    mean_w = found_wf.mean(axis=1)
    best = int(mean_w.argmax())
    if mean_w[best] < _ENOUGH:
        return not_compared(
            f"the best weight finds {100 * mean_w[best]:.0f} % of {len(number_f)} faults injected into calibration "
            f"data; a comparison needs {100 * _ENOUGH:.0f} %"
        )
    gain_f = found_wf[best] - found_wf[WEIGHTS.index(BOTH)]
    needed = max(_STANDARD_ERRORS * gain_f.std(ddof=1) / np.sqrt(len(number_f)), TOLERANCE)
    weight = WEIGHTS[best] if gain_f.mean() > needed else BOTH
    reason = (
        f"of {len(number_f)} faults injected into calibration data, both together find {100 * mean_w[1]:.0f} %, the "
        f"charts alone {100 * mean_w[0]:.0f} %, the model alone {100 * mean_w[2]:.0f} %"
    )
    return WeightChoice(weight, len(number_f), dict(zip(WEIGHTS, mean_w.tolist(), strict=True)), reason)


def found(score_s: np.ndarray, fault_s: np.ndarray) -> np.ndarray:
    """How much of each fault is found, (F,): the mean over its entries of 1 - p / 0.1, at least 0, where p is the share
    of normal scores that are as high. It is the partial area under the ROC curve up to that false-alarm rate."""
    known_s = ~np.isnan(score_s)
    normal_n = np.sort(score_s[known_s & (fault_s == NORMAL)])
    faulty_s = known_s & (fault_s >= 0)
    higher_m = len(normal_n) - np.searchsorted(normal_n, score_s[faulty_s], side="left")
    found_m = np.maximum(1 - higher_m / max(_FALSE_ALARM_RATE * len(normal_n), 1e-9), 0.0)
    _, at_m = np.unique(fault_s[fault_s >= 0], return_inverse=True)
    at_m = at_m[known_s[fault_s >= 0]]
    num_faults = len(np.unique(fault_s[fault_s >= 0]))
    count_f = np.bincount(at_m, minlength=num_faults)
    return np.bincount(at_m, weights=found_m, minlength=num_faults) / np.maximum(count_f, 1)
