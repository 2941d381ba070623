"""What a benchmark leaves: one JSON, one table to read, one picture."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core.workspace import atomic_file, utc_now, write_json, write_text
from inference.benchmark.detectors import LANDFALL
from inference.benchmark.sets import SETS

Results = Mapping[str, Mapping[str, list[dict[str, Any]]]]
"""By set and detector, the figures of each seed."""

_COLUMNS = {
    "vus_pr": "VUS-PR",
    "auroc": "AUROC",
    "auc_pr": "AUC-PR",
    "f1": "F1",
    "far": "FAR",
    "far_other_sessions": "FAR in other sessions",
    "mar": "MAR",
    "oracle_f1": "F1 of an oracle's threshold",
    "delay_s": "delay, s",
    "false_alarms_per_day": "false alarms a day",
    "train_seconds": "training, s",
    "score_seconds": "scoring, s",
}
_TITLES = {each.name: each.title for each in SETS}


def write(out: Path, results: Results, units: Mapping[str, Any], *, seeds: int, quick: bool, seconds: float) -> None:
    """`benchmark.json`, `benchmark.md` and `benchmark.png` in `out`."""
    import torch

    document = {
        "written_at": utc_now(),
        "machine": {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()},
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "seeds": seeds,
        "quick": quick,
        "seconds": seconds,
        "sets": results,
        "units": units,
    }
    write_json(out / "benchmark.json", document)
    write_text(out / "benchmark.md", markdown(results, seeds=seeds, quick=quick, seconds=seconds))
    _picture(out / "benchmark.png", results)


def markdown(results: Results, *, seeds: int, quick: bool, seconds: float) -> str:
    """Every set with every detector; ± is the standard deviation over seeds."""
    lines = [
        "# Detection benchmark",
        "",
        f"{seeds} seed{'s' * (seeds > 1)}{', quick form' * quick}, {seconds / 60:.0f} minutes. F1, FAR (alarms among "
        "normal decisions) and MAR (misses) at a threshold set on normal data alone; no point adjustment. The oracle's "
        "F1 uses the labels to choose a threshold and is no result.",
    ]
    for name, detectors in results.items():
        lines += ["", f"## {_TITLES[name]}", "", f"| detector | {' | '.join(_COLUMNS.values())} |"]
        lines += [f"|---|{'---|' * len(_COLUMNS)}"]
        for detector, found in detectors.items():
            cells = [_cell(column, [each.get(column) for each in found]) for column in _COLUMNS]
            lines.append(f"| {detector} | {' | '.join(cells)} |")
        achieved = detectors[LANDFALL][0]["achieved"]
        told = ", ".join(
            f"{float(rate):.1%} → {found['rate']:.2%} ({found['low']:.2%} to {found['high']:.2%})"
            for rate, found in achieved.items()
            if found is not None
        )
        lines += ["", f"False alarms on normal test data, asked → achieved by Landfall: {told or 'no such data'}."]
    return "\n".join(lines) + "\n"


def _cell(column: str, values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean, spread = float(np.mean(known)), float(np.std(known))
    if column in ("far", "far_other_sessions", "mar"):
        return f"{mean:.1%}" + (f" ± {spread:.1%}" if len(known) > 1 else "")
    digits = 0 if column in ("delay_s", "train_seconds", "score_seconds") else 1 if "per_day" in column else 3
    return f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if len(known) > 1 else "")


def _picture(path: Path, results: Results) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.2 + 2.6 * ((len(results) + 2) // 3)), layout="constrained")
    all_axes = np.atleast_1d(figure.subplots((len(results) + 2) // 3, 3, squeeze=False)).ravel()
    for axes, (name, detectors) in zip(all_axes, results.items(), strict=False):
        figure_name = "vus_pr" if detectors[LANDFALL][0].get("vus_pr") is not None else "auroc"
        known = {
            detector: float(np.mean([each[figure_name] for each in found]))
            for detector, found in detectors.items()
            if all(each.get(figure_name) is not None for each in found)
        }
        order = sorted(known, key=known.__getitem__)
        colours = ["#0b6e99" if detector == LANDFALL else "#b8c4cc" for detector in order]
        axes.barh(order, [known[detector] for detector in order], color=colours)
        axes.set_title(f"{name}: {_COLUMNS[figure_name]}", fontsize=9, loc="left")
        axes.set_xlim(0, 1)
        axes.tick_params(labelsize=8)
    for axes in all_axes[len(results) :]:
        axes.set_axis_off()
    with atomic_file(path) as part:
        figure.savefig(part, format="png", dpi=110)
