"""Constants chosen with labels, and evaluated on sets whose labels were not used: leave one set out. For each set, a
coordinate search finds the best constants on the *other* sets of its stream; sets of the same machines are left out
together. It starts from neutral values, not from the defaults. The model is trained once per unit, because none of the
constants changes it. Evaluations are stored in a file, so that an interrupted search can resume.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.detection.detectors import Trained, table_of
from benchmarks.detection.metrics import headline
from benchmarks.detection.sets import SETS, BenchmarkSet
from benchmarks.detection.unit import Unit
from core.config.compose import with_values
from core.config.schema import Stream
from core.data.dataset import StreamData, load_stream_data
from core.data.splits import SPLIT_NAMES, SplitName
from core.workspace import write_json
from inference.detector.fitting import fit_with_scores
from inference.entries import SplitErrors
from inference.groups import reference_of
from inference.model_errors import model_errors, reference_errors

log = logging.getLogger(__name__)

Constants = Mapping[str, float]
"""Values by configuration key."""

# Values to choose from, the neutral one first: textbook values, equal shares, equal spans.
GRID: Mapping[Stream, Mapping[str, tuple[float, ...]]] = {
    "patchtst": {
        "scoring.model_weight": (0.5, 0.0, 0.15, 0.3),
        "scoring.smoothing_span": (10, 5, 20, 30),
        "scoring.charts.process.components_share": (1 / 3, 0.0, 0.6, 0.8),
        "scoring.charts.process.components_spans": (1.0, 3.0, 6.0),
        "scoring.charts.process.cusum_share": (0.5, 0.0, 0.25, 0.4, 0.75),
        "scoring.charts.process.cusum_spans": (1.0, 1.5, 3.0),
        "scoring.charts.process.tolerated_drift": (1.5, 1.0, 1.25, 3.0),
        "scoring.charts.process.lags": (3, 1, 6, 12),
        "scoring.charts.process.residual_floor": (0.1, 0.03, 0.3),
        "scoring.charts.process.cross_channel_limit": (10.0, 3.0, 6.0, 30.0),
        "scoring.charts.process.shared_weight": (1.0, 0.0, 3.0),
    },
    "swinmae": {
        "scoring.model_weight": (0.5, 0.0, 0.1, 0.3),
        "scoring.smoothing_span": (8, 4, 16),
        "scoring.charts.vibration.level_weight": (1.0, 0.0, 0.5, 0.7, 2.0),
        "scoring.charts.vibration.excess_weight": (1.0, 0.0, 0.5, 2.0),
        "scoring.charts.vibration.shrinkage": (0.05, 0.01, 0.2),
        "scoring.charts.vibration.deviation_floor": (0.02, 0.005, 0.1),
        "scoring.charts.vibration.bands": (64, 32, 128),
        "scoring.charts.vibration.carriers": (8, 4, 16),
    },
}
# Number of units per set that are used to choose constants, evenly spaced: the others are similar.
_UNITS = {"smd": 2, "asd": 3, "smd_400": 0, "asd_400": 0}
_UNITS_OF_OTHERS = 4
# Rounds of the search over all constants, and the smallest gain that counts. At 0.0005 the choices without one set
# differed in seven of ten constants, and one of them lost 0.25 on the set that was left out.
_ROUNDS, _SMALLEST_GAIN = 2, 5e-3


@dataclass(frozen=True)
class UnitCase:
    """The input to evaluate constants on a unit: its data and the model's errors."""

    unit: Unit
    benchmark: BenchmarkSet
    model: Trained
    root: Path

    @cached_property
    def data(self) -> StreamData:
        return load_stream_data(self.model.config, root=self.root, splits=SPLIT_NAMES, scaler=self.model.scoring.scaler)

    @cached_property
    def errors(self) -> dict[SplitName, SplitErrors]:
        config, scoring = self.model.config, self.model.scoring
        normal = reference_errors(config, scoring, reference_of(self.data.splits))
        return {**normal, "test": model_errors(config, scoring, self.data.splits["test"], "test")}

    def headline(self, constants: Constants) -> float | None:
        """The main metric of the set; None if the unit's labels leave it undefined."""
        any_number = {"scoring.threshold.min_calibration": 1}
        config = with_values(self.model.config, constants | any_number, source="constants to choose from")
        normal = {name: each for name, each in self.errors.items() if name != "test"}
        detector, _ = fit_with_scores(
            config,
            self.model.scoring.sha256,
            reference_of(self.data.splits),
            normal,
            model_weight=config.scoring.model_weight,
        )
        windows = self.data.splits["test"]
        table = table_of(detector.score(self.errors["test"], windows), windows.segments.rows_k2, self.data)
        return headline(table, self.unit, self.benchmark)


class Choosing:
    """Constants of a stream, chosen on all of its sets but one family at a time.

    cases: one per unit, evaluated in order. memo: the file of stored evaluations.
    """

    def __init__(self, stream: Stream, cases: Sequence[UnitCase], memo: Path):
        self.grid, self.cases, self._memo_file = GRID[stream], cases, memo
        self._memo: dict[str, float | None] = json.loads(memo.read_text()) if memo.is_file() else {}

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(case.benchmark.family for case in self.cases))

    def neutral(self) -> dict[str, float]:
        return {key: values[0] for key, values in self.grid.items()}

    def chosen_without(self, family: str | None) -> dict[str, float]:
        """The best constants over the other families; None leaves no family out."""
        point = self.neutral()
        for _ in range(_ROUNDS):
            before = dict(point)
            for key, values in self.grid.items():
                best = self.mean(point, family)
                for value in values:
                    found = self.mean({**point, key: value}, family)
                    if found > best + _SMALLEST_GAIN:
                        best, point = found, {**point, key: value}
            if point == before:
                break
        log.warning(
            "without %s: mean %.4f of the other sets with %s", family, self.mean(point, family),
            _changes(point, self.grid),
        )  # fmt: skip
        return point

    def mean(self, constants: Constants, without: str | None) -> float:
        """The mean over families of the mean main metric of their units."""
        of_family: dict[str, list[float]] = {}
        for case in self.cases:
            if case.benchmark.family != without and (found := self._headline(case, constants)) is not None:
                of_family.setdefault(case.benchmark.family, []).append(found)
        return float(np.mean([np.mean(found) for found in of_family.values()]))

    def effect(self, point: Constants) -> Iterator[tuple[str, float, float]]:
        """For each constant, its value and the range of the mean main metric over its grid, with the other constants
        fixed."""
        for key, values in self.grid.items():
            found = [self.mean({**point, key: value}, None) for value in values]
            yield key, point[key], max(found) - min(found)

    def _headline(self, case: UnitCase, constants: Constants) -> float | None:
        key = f"{case.unit.name} {case.model.scoring.sha256[:12]} {json.dumps(dict(constants), sort_keys=True)}"
        if key not in self._memo:
            self._memo[key] = case.headline(constants)
            write_json(self._memo_file, self._memo)
        return self._memo[key]


def choose(
    stream: Stream, wanted: Sequence[str], train: Callable[[BenchmarkSet, Unit], Trained], *, pack: Path, work: Path,
    root: Path,
) -> dict[str, Any]:  # fmt: skip
    """The constants for each set, chosen without its labels, those of all sets, and the effect of each constant."""
    sets = [each for each in SETS if each.stream == stream and each.judged_by == "alarms" and each.name in wanted]
    cases = [
        UnitCase(unit, benchmark, train(benchmark, unit), root)
        for benchmark in sets
        for unit in _evenly_spaced(list(benchmark.units(pack, work)), _UNITS.get(benchmark.name, _UNITS_OF_OTHERS))
    ]
    choosing = Choosing(stream, cases, work / f"chosen_{stream}.json")
    of_family = {family: choosing.chosen_without(family) for family in choosing.families}
    everywhere = choosing.chosen_without(None)
    return {
        "units": [case.unit.name for case in cases],
        "neutral": choosing.neutral(),
        "of_all": everywhere,
        "effects": [
            {"key": key, "value": value, "range": effect} for key, value, effect in choosing.effect(everywhere)
        ],
        "sets": {each.name: of_family[each.family] for each in sets if each.family in of_family},
    }


def _evenly_spaced(units: Sequence[Unit], count: int) -> list[Unit]:
    """At most `count` items, evenly spaced."""
    places = np.linspace(0, len(units) - 1, min(count, len(units))).round().astype(int)
    return [units[place] for place in places]


def _changes(point: Constants, grid: Mapping[str, tuple[float, ...]]) -> str:
    changed = [f"{key.rpartition('.')[2]} = {point[key]:g}" for key in grid if point[key] != grid[key][0]]
    return ", ".join(changed) or "neutral constants"
