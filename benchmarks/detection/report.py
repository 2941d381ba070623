"""The outputs of a benchmark: JSON, a table in Markdown, and a figure."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.detection.detectors import LANDFALL
from benchmarks.detection.metrics import over_units
from benchmarks.detection.sets import SETS, BenchmarkSet
from core.workspace import atomic_file, utc_now, write_json, write_text

_COLUMNS = {
    "vus_pr": "VUS-PR",
    "auroc": "AUROC",
    "auc_pr": "AUC-PR",
    "f1": "F1",
    "far": "FAR",
    "far_other_sessions": "FAR in other sessions",
    "mar": "MAR",
    "oracle_f1": "F1 of an oracle's threshold",
    "event_recall": "faults found",
    "event_recall_by_chance": "found by chance",
    "false_events_per_day": "false events per day",
    "event_delay_seconds": "delay of the event, s",
    "test_mse": "masked MSE (lower is better)",
    "validation_mse": "masked MSE, validation months",
    "train_seconds": "training, s",
    "score_seconds": "scoring, s",
}
_IN_A_LINE = ("vus_pr", "auroc", "test_mse", "f1")
_LOOK_AHEAD = " (look-ahead)"
_PIPE = r"\|"  # within a cell
_LOWER_IS_BETTER = ("test_mse",)
_SETS = {each.name: each for each in SETS}


class Findings:
    """The results so far. constants: by stream, the choice of `benchmarks.detection.choosing`; empty if the defaults
    are used. units: by set, unit and detector, the metrics of each seed. sets: by set and detector, those of each seed,
    over the units. left_out: by the name of a unit, or of a set without units, the reason why it was skipped.
    """

    def __init__(self, *, seeds: int, quick: bool):
        self.seeds, self.quick = seeds, quick
        self.units: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {}
        self.left_out: dict[str, str] = {}
        self.constants: dict[str, Any] = {}
        self._begun = time.perf_counter()

    def add(self, benchmark: str, unit: str, seed: int, evaluated: Mapping[str, Mapping[str, Any]]) -> None:
        of_unit = self.units.setdefault(benchmark, {}).setdefault(unit, {})
        for detector, metrics in evaluated.items():
            of_unit.setdefault(detector, []).append({"seed": seed, **metrics})

    def constants_of(self, benchmark: BenchmarkSet) -> Mapping[str, float]:
        """The constants that were chosen on the other sets, by their keys."""
        return self.constants.get(benchmark.stream, {}).get("sets", {}).get(benchmark.name, {})

    @property
    def sets(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        return {name: _over_units(units) for name, units in self.units.items()}

    def write(self, out: Path) -> None:
        """Writes `benchmark.json`, `benchmark.md` and `benchmark.png` to `out`."""
        import torch

        document = {
            "written_at": utc_now(),
            "machine": {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()},
            "versions": {"torch": torch.__version__, "numpy": np.__version__},
            "seeds": self.seeds,
            "quick": self.quick,
            "seconds": time.perf_counter() - self._begun,
            "sets": self.sets,
            "units": self.units,
            "left_out": self.left_out,
            "constants": self.constants,
        }
        write_json(out / "benchmark.json", document)
        write_text(out / "benchmark.md", self.markdown())
        _picture(out / "benchmark.png", self.sets)

    def markdown(self) -> str:
        """A table of every set with every detector and every metric."""
        minutes = (time.perf_counter() - self._begun) / 60
        lines = [
            "# Detection benchmark",
            "",
            f"{self.seeds} seed{'s' * (self.seeds > 1)}{', quick form' * self.quick}, {minutes:.0f} minutes. F1, FAR "
            "(alarms among normal decisions) and MAR (misses) at a threshold set on normal data alone; no point "
            "adjustment. The oracle's F1 uses the labels to choose a threshold and is not a result. A fault is found "
            "if an event starts, or has its highest score, inside it or at most `scoring.event_gap` + 1 scores before "
            "it; other events are false. By chance: the recall of the same events at random times; the detector "
            "chance has random scores. "
            f"A row marked{_LOOK_AHEAD} uses later rows for the score of a row."
            + " ± is the standard deviation over seeds; simple methods have none."
            * (self.seeds > 1),
        ]
        if self.constants:
            lines += ["", "Constants of each set were chosen with the labels of the other sets of its stream."]
        for name, detectors in self.sets.items():
            lines += ["", f"## {_SETS[name].title}", "", *_table(detectors)]
            if achieved := detectors[LANDFALL][0].get("achieved"):
                lines += [
                    "",
                    f"False alarms on normal test data, requested → achieved by Landfall: {_alarm_rates(achieved)}.",
                ]
                lines += [_drift_text(detectors[LANDFALL][0])]
        for stream, found in self.constants.items():
            lines += ["", f"## Constants of {stream}, all sets together", "", *_constants_table(found)]
        if self.left_out:
            lines += ["", "## Left out", "", *(f"- {name}: {reason}" for name, reason in self.left_out.items())]
        return "\n".join(lines) + "\n"


def in_a_line(metrics: Mapping[str, Any]) -> str:
    return ", ".join(f"{_COLUMNS[name]} {metrics[name]:.3f}" for name in _IN_A_LINE if metrics.get(name) is not None)


def _over_units(units: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> dict[str, list[dict[str, Any]]]:
    by_detector: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for of_unit in units.values():
        for detector, found in of_unit.items():
            for metrics in found:
                by_detector.setdefault(detector, {}).setdefault(metrics["seed"], []).append(metrics)
    return {
        detector: [{**over_units(found), "seed": seed} for seed, found in by_seed.items()]
        for detector, by_seed in by_detector.items()
    }


def _table(detectors: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    every = [metrics for found in detectors.values() for metrics in found]
    columns = [name for name in _COLUMNS if any(metrics.get(name) is not None for metrics in every)]
    lines = [f"| detector | {' | '.join(_COLUMNS[name] for name in columns)} |", f"|---|{'---|' * len(columns)}"]
    for detector, found in detectors.items():
        cells = [_cell(name, [each.get(name) for each in found]) for name in columns]
        mark = _LOOK_AHEAD if found[0].get("look_ahead") else ""
        lines.append(f"| {' | '.join([detector.replace('|', _PIPE) + mark, *cells])} |")
    return lines


def _constants_table(found: Mapping[str, Any]) -> list[str]:
    """For each constant: the choice of all sets, the choices without one set, and the range of the mean main metric
    over its grid."""
    lines = ["| constant | chosen | without one set | effect on the mean figure |", "|---|---|---|---|"]
    for effect in found["effects"]:
        values = sorted({constants[effect["key"]] for constants in found["sets"].values()})
        effects = ", ".join(f"{value:.3g}" for value in values)
        lines.append(f"| `{effect['key']}` | {effect['value']:.3g} | {effects} | {effect['range']:.4f} |")
    return lines


def _cell(column: str, values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    if column in ("far", "far_other_sessions", "mar", "event_recall", "event_recall_by_chance"):
        form = ".1%"
    elif column in ("event_delay_seconds", "train_seconds", "score_seconds"):
        form = ".0f"
    else:
        form = ",.1f" if "per_day" in column else ".3f"
    return f"{np.mean(known):{form}}" + (f" ± {np.std(known, ddof=1):{form}}" if len(known) > 1 else "")


def _alarm_rates(achieved: Mapping[str, dict[str, float] | None]) -> str:
    found = [
        f"{float(rate):.1%} → {found['rate']:.2%} ({found['low']:.2%} to {found['high']:.2%})"
        for rate, found in achieved.items()
        if found is not None
    ]
    return ", ".join(found) or "no such data, or too little calibration data"


def _drift_text(metrics: Mapping[str, Any]) -> str:
    """Whether the requested rates are kept, and the drift that explains why not."""
    median, high = metrics.get("drift_median"), metrics.get("drift_90")
    if median is None or high is None:
        return ""
    known = {float(rate): found for rate, found in metrics["achieved"].items() if found is not None}
    missed = [f"{rate:.1%}" for rate, found in known.items() if not found["low"] <= rate <= found["high"]]
    kept = f"Not kept at {', '.join(missed)}" if missed else "Kept" if known else "Unknown with so few scores"
    return (
        f"{kept}: a normal score of the test is {median:.2f} times one of the calibration in the median, "
        f"{high:.2f} times at the 90 % quantile."
    )


def _picture(path: Path, sets: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 1.2 + 2.6 * ((len(sets) + 2) // 3)), layout="constrained")
    all_axes = np.atleast_1d(figure.subplots((len(sets) + 2) // 3, 3, squeeze=False)).ravel()
    for axes, (name, detectors) in zip(all_axes, sets.items(), strict=False):
        headline = _SETS[name].headline
        known = {
            detector: [each[headline] for each in found]
            for detector, found in detectors.items()
            if all(each.get(headline) is not None for each in found)
        }
        means = {detector: float(np.mean(values)) for detector, values in known.items()}
        sign = -1 if headline in _LOWER_IS_BETTER else 1
        # The best first; Landfall first if equal.
        order = sorted(means, key=lambda detector: (sign * round(means[detector], 3), detector == LANDFALL))
        axes.barh(
            order,
            [means[detector] for detector in order],
            xerr=[np.std(known[detector]) for detector in order],
            color=["#0b6e99" if detector == LANDFALL else "#b8c4cc" for detector in order],
        )
        if not means:
            axes.text(0.5, 0.5, "undefined for the labels of these units", ha="center", transform=axes.transAxes)
            axes.set_yticks([])
        axes.set_title(f"{name}: {_COLUMNS[headline]}", fontsize=8.5, loc="left")
        axes.set_xlim(0, max(1.0, 1.05 * max(means.values(), default=0.0)))
        axes.tick_params(labelsize=8)
    for axes in all_axes[len(sets) :]:
        axes.set_axis_off()
    with atomic_file(path) as part:
        figure.savefig(part, format="png", dpi=110)
