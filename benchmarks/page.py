"""`docs/performance.md`, made from `benchmarks/results/`: `python -m benchmarks.page --write`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.busy import GOALS, HEADINGS, IDLE_CORES
from benchmarks.growth import PICTURE, Curve
from benchmarks.paired import rate
from benchmarks.run import RESULTS
from core.cli import run_page_command

FILE = "docs/performance.md"
RATIOS = Path("docs/images/speed-ratios.png")

_INTRODUCTION = """\
# Performance

Generated from `benchmarks/results/` by `python -m benchmarks.page --write`. `make bench` measures what says most in a
few minutes and prints it; `make bench-full` measures everything, in nine rounds, and writes the results.

Two implementations do the same work in turn, each in its own process. *Ratio* is the peer's time over ours, round by
round: the median, and in brackets the range. *Floor* is the share of a training step that its matrix products take by
themselves, each shape measured at its best rate on this machine: at 100 % a step consists of them alone. *Memory* is
our peak over the peer's. "Out of the box" is what users of either have: Landfall tunes its process (`tune`), others
do not, and the peers train with their recipes' dropout of .2. Where it says so, both run in a tuned process
without dropout.

A goal that was missed says so. Goals were set on a faster machine, whose matrix products leave less of a step to them:
where we are near the floor, a larger ratio is not to be had from the same work.
The [log of experiments](../dev/LOG.md) has what was tried for each part, and what did not help.

![Every ratio with its range and its goal](images/speed-ratios.png)
"""

_TITLES = {
    "patchtst": "PatchTST-SSL, a training step",
    "swinmae": "Swin-MAE, a training step",
    "scalogram": "Scalograms",
    "data": "From files to batches",
    "convergence": "Wall time to the same validation error",
    "growth": "How it grows",
    "busy": "Next to other processes",
}


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *map(_section, _documents(folder))])


def plot_ratios(path: Path = RATIOS, folder: Path = RESULTS) -> None:
    """Every ratio with its range, and the goal where there is one."""
    from matplotlib.figure import Figure

    rows = [
        (f"{_TITLES[document['question']].partition(',')[0]}: {_name(found)}", found)
        for document in _documents(folder)
        for found in document.get("comparisons", [])
    ]
    figure = Figure(figsize=(12, 1.2 + 0.28 * len(rows)), layout="constrained")
    axis = figure.subplots()
    for height, (_, found) in enumerate(rows):
        missed = found["goal"] > found["ratio"]
        colour = "tab:orange" if missed else "tab:green" if found["goal"] else "tab:blue"
        axis.plot(found["ratio_range"], [height, height], color=colour, linewidth=2)
        axis.plot(found["ratio"], height, "o", color=colour)
        if found["goal"]:
            axis.plot(found["goal"], height, "|", color="black", markersize=11)
    axis.axvline(1.0, color="grey", linestyle=":")
    axis.set(xscale="log", xlabel="the peer's time over ours:\nmedian and range; a stroke is the goal")
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7)
    axis.invert_yaxis()
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _name(found: dict[str, Any]) -> str:
    visible = " (visible)" if "visible" in found["ours"] and "visible" not in found["title"] else ""
    return f"{found['title']}{visible} — {found['peer']}"


def _documents(folder: Path) -> Iterable[dict[str, Any]]:
    return (json.loads(path.read_text(encoding="utf-8")) for path in _files(folder))


def _files(folder: Path) -> Iterable[Path]:
    return (path for question in _TITLES if (path := folder / f"{question}.json").exists())


def _section(document: dict[str, Any]) -> str:
    machine, versions = document["machine"], document["versions"]
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    head = [
        f"## {_TITLES[document['question']]}",
        "",
        f"{document['date']}, {machine['cpu']}, {machine['cores']} cores ({machine['capability']}); {told}.",
        "",
    ]
    if "curves" in document:
        curves = [Curve(**curve) for curve in document["curves"]]
        return "\n".join([*head, *_growth(curves)]) + "\n"
    if "works" in document:
        return "\n".join([*head, *_next_to_others(document["works"])]) + "\n"
    table = ["| | ours | peer | ratio | goal | floor | memory |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *table, *map(_row, document["comparisons"])]) + "\n"


def _growth(curves: Sequence[Curve]) -> Iterable[str]:
    yield "Exponents of straight lines through the logarithms: at 1, twice the size takes twice the time. Memory is the"
    yield "peak of the whole process; the libraries alone hold some hundred MiB of it at any size."
    yield ""
    yield f"![Time and memory over size, in multiples of the smallest]({PICTURE.relative_to('docs').as_posix()})"
    yield ""
    yield "| | by | from | to | time | memory | exponent of time | of memory |"
    yield "|---|---|---|---|---|---|---|---|"
    for curve in curves:
        cells = (
            curve.title,
            curve.size,
            f"{curve.sizes[0]:,.0f}",
            f"{curve.sizes[-1]:,.0f}",
            f"{curve.seconds[0] * 1e3:,.1f} → {curve.seconds[-1] * 1e3:,.1f} ms",
            f"{curve.peak_mb[0]:,.0f} → {curve.peak_mb[-1]:,.0f} MiB",
            f"**{curve.time_exponent:.2f}**",
            f"{curve.memory_exponent:.2f}",
        )
        yield f"| {' | '.join(cells)} |"


def _next_to_others(works: Sequence[dict[str, Any]]) -> Iterable[str]:
    """A row for each work, a column for each condition with its goal."""
    yield "Speed as a share of that alone, next to processes that compute all the time: the median, and in brackets the"
    yield "least and the largest of the rounds. Two at once: the sum of two processes, as a share of one after the"
    yield "other. How the number of threads follows the load: [devices.md](devices.md#threads-on-a-busy-machine)."
    yield ""
    yield f"| 32 bit, reduced models, steps of 8 windows | alone | {' | '.join(HEADINGS.values())} |"
    yield f"|---|---|{'---|' * len(HEADINGS)}"
    yield f"| goal | | {' | '.join(f'{GOALS[name]:.0%}' if name in GOALS else '' for name in HEADINGS)} |"
    for work in works:
        shares = [work["shares"].get(name) for name in HEADINGS]
        cells = [f"**{each[0]:.0%}** ({each[1]:.0%} to {each[2]:.0%})" if each else "" for each in shares]
        yield f"| {work['title']} | {rate(work['alone_per_second'])} windows/s | {' | '.join(cells)} |"
    if (most := max(work["others"] for work in works)) > IDLE_CORES:
        yield ""
        yield f"The machine was not idle: before a round, other processes used up to {most:.1f} cores."


def _row(found: dict[str, Any]) -> str:
    low, high = found["ratio_range"]
    goal = "" if not found["goal"] else f"{found['goal']:g}" + (" (missed)" if found["ratio"] < found["goal"] else "")
    cells = (
        found["title"],
        f"{found['ours']}: {rate(found['ours_per_second'])} {found['unit']}/s",
        f"{found['peer']}: {rate(found['peers_per_second'])}",
        f"**{found['ratio']:.1f}** ({low:.1f} to {high:.1f})",
        goal,
        f"{found['ours_per_second'] / found['floor']:.0%}" if found["floor"] else "",
        f"{found['memory_ratio']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    if "--write" in (sys.argv[1:] if argv is None else argv):
        plot_ratios()
    return run_page_command(FILE, page, description="Prints the page of measured speeds.", argv=argv)


if __name__ == "__main__":
    sys.exit(main())
