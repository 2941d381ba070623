"""Events at other thresholds: their number in the scored data, and the false events per day in normal operation.

Suffix: n score.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from core.config.schema import Scoring
from inference.events.documents import WhatIf
from inference.events.finding import event_lines
from inference.false_alarms import CalibrationSample

# Number of thresholds, and the quantile of the calibration scores at which they begin.
STEPS, LOWEST_QUANTILE = 30, 0.9


def what_if(sample: CalibrationSample, table: pd.DataFrame, threshold: float, settings: Scoring) -> list[WhatIf]:
    """One entry per threshold, ascending; the current threshold is one of them. Without the time between scores, the
    events per day are None."""
    score_n = table["score"].to_numpy()
    known_n = score_n[~np.isnan(score_n)]
    if not len(known_n):
        return []
    lowest = min(threshold, max(float(np.quantile(sample.sorted_n, LOWEST_QUANTILE)), np.finfo(np.float32).tiny))
    highest = max(threshold, float(known_n.max()), float(sample.sorted_n[-1]))
    values = np.unique(np.append(np.geomspace(lowest, highest, STEPS), threshold))
    found = []
    for value in values.tolist():
        normal = sample.false_alarms(value, settings)
        first_e, _ = event_lines(table.assign(threshold=value), settings)
        found.append(
            WhatIf(
                threshold=value,
                events=len(first_e),
                per_day=normal.events_per_day,
                per_day_high=normal.events_per_day_high,
            )
        )
    return found
