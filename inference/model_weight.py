"""The weight of the model in a score, chosen by what scores find of injected faults.

Suffixes: s score entry, f fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.injected_faults import NORMAL

WEIGHTS = (0.0, 0.03, 0.1, 0.3, 0.7, 0.9, 1.0)
# Fewer faults show nothing.
FEWEST_FAULTS = 12
# A gain that is smaller does not justify a model: injected faults are simpler than real ones.
TOLERANCE = 0.02
# A gain that is not significant at 5 % does not justify a model either.
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


def without_faults(reason: str) -> WeightChoice:
    """Charts alone, because the model cannot be compared with them."""
    return WeightChoice(0.0, 0, {}, reason)


def choose_weight(score_of: Callable[[float], np.ndarray], fault_s: np.ndarray) -> WeightChoice:
    """The smallest weight that finds as much as the best one, within `TOLERANCE` and `_STANDARD_ERRORS` of the paired
    difference over the faults (after the one-standard-error rule of Breiman et al., Classification and Regression
    Trees, 1984).

    score_of: from a weight to scores (S,), NaN where there is none. fault_s: int64 (S,), as in `InjectedFaults`.
    """
    number_f = np.unique(fault_s[fault_s >= 0])
    if len(number_f) < FEWEST_FAULTS:
        return without_faults(
            f"calibration data has room for {len(number_f)} injected faults, {FEWEST_FAULTS} are needed"
        )
    found_wf = np.array([found(score_of(weight), fault_s) for weight in WEIGHTS])
    mean_w = found_wf.mean(axis=1)
    best = int(mean_w.argmax())
    if mean_w[best] < _ENOUGH:
        return without_faults(
            f"the best weight finds {100 * mean_w[best]:.0f} % of {len(number_f)} faults injected into calibration "
            f"data; a comparison needs {100 * _ENOUGH:.0f} %"
        )
    behind_wf = found_wf[best] - found_wf
    error_w = behind_wf.std(axis=1, ddof=1) / np.sqrt(len(number_f))
    at = int(np.flatnonzero(behind_wf.mean(axis=1) <= np.maximum(_STANDARD_ERRORS * error_w, TOLERANCE))[0])
    reason = (
        f"of {len(number_f)} faults injected into calibration data, scores with weight {WEIGHTS[at]:g} find "
        f"{100 * mean_w[at]:.0f} %, the charts alone {100 * mean_w[0]:.0f} %, the model alone {100 * mean_w[-1]:.0f} %"
    )
    return WeightChoice(WEIGHTS[at], len(number_f), dict(zip(WEIGHTS, mean_w.tolist(), strict=True)), reason)


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
