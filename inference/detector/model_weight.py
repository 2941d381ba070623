"""The weight of the model in a score, chosen by the share of injected faults that the scores find.

Suffixes: s score entry, f fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.numbers import in_percent
from inference.detector.injected_faults import NORMAL

BOTH = 0.5
# Charts alone, both components, the model alone.
WEIGHTS = (0.0, BOTH, 1.0)
# With fewer faults the result is mostly chance.
FEWEST_FAULTS = 12
# Charts that find less than this share of what the model finds are uninformative. Smaller differences do not count,
# because injected faults are simpler than real ones.
_INFORMATIVE = 0.5
# A model costs something where both together find fewer faults than the charts alone, by more than this share of all.
# It can only raise scores, so it is not enough that it finds few of them itself (dev/LOG.md, 2026-11-29: A model that
# finds few injected faults).
_COST = 0.05
# The largest false-alarm rate at which a fault counts as found.
_FALSE_ALARM_RATE = 0.1
# If the best weight finds less, normal scores vary too much for a comparison by injected faults.
_ENOUGH = 0.5


@dataclass(frozen=True)
class WeightChoice:
    """The weight and its reason.

    found: by weight, the mean over injected faults of the share that is found: 1 for a fault above all normal scores,
    0 for a fault that a tenth of them exceeds; .05 by chance. Empty if no faults could be injected.
    """

    weight: float
    num_faults: int
    found: Mapping[float, float]
    reason: str

    def to_json(self) -> dict[str, Any]:
        found = {f"{weight:g}": round(share, 4) for weight, share in self.found.items()}
        return {"weight": self.weight, "num_faults": self.num_faults, "found": found, "reason": self.reason}


def not_compared(reason: str) -> WeightChoice:
    """The weight `BOTH`, because there is no evidence that a component is uninformative."""
    return WeightChoice(BOTH, 0, {}, reason)


def charts_only(reason: str) -> WeightChoice:
    """The weight of the charts alone, without a comparison by injected faults."""
    return WeightChoice(0.0, 0, {}, reason)


def choose_weight(score_of: Callable[[float], np.ndarray], fault_s: np.ndarray) -> WeightChoice:
    """The weight `BOTH`, unless the charts find less than half of what the model finds, then the model alone; or both
    together find clearly less than the charts, then the charts alone.

    score_of: from a weight to scores (S,), NaN where unscored. fault_s: int64 (S,), as in `InjectedFaults`.
    """
    number_f = np.unique(fault_s[fault_s >= 0])
    if len(number_f) < FEWEST_FAULTS:
        return not_compared(
            f"calibration data has room for {len(number_f)} injected faults, {FEWEST_FAULTS} are needed"
        )
    share = {weight: float(found(score_of(weight), fault_s).mean()) for weight in WEIGHTS}
    charts, both, model = share.values()
    if max(share.values()) < _ENOUGH:
        return not_compared(
            f"the best weight finds {in_percent(max(share.values()))} of {len(number_f)} faults injected into "
            f"calibration data; a comparison needs {in_percent(_ENOUGH)}"
        )
    weight = 1.0 if charts < _INFORMATIVE * model else 0.0 if both < charts - _COST else BOTH
    reason = (
        f"of {len(number_f)} faults injected into calibration data, both together find {in_percent(both)}, the charts "
        f"alone {in_percent(charts)}, the model alone {in_percent(model)}"
    )
    return WeightChoice(weight, len(number_f), share, reason)


def found(score_s: np.ndarray, fault_s: np.ndarray) -> np.ndarray:
    """The share of each fault that is found, float64 (F,): the mean over its entries of max(0, 1 - p / 0.1), where p is
    the share of normal scores that are at least as high. It is the normalised partial area under the ROC curve up to a
    false-alarm rate of 0.1."""
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
