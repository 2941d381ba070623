"""`docs/performance.md`, generated from `benchmarks/results/`: `python -m benchmarks.page --write`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.busy import HEADINGS, IDLE_CORES
from benchmarks.paired import rate
from benchmarks.run import RESULTS
from core.cli import run_page_command

FILE = "docs/performance.md"
RATIOS = Path("docs/images/speed-ratios.png")
_BLUE = "#0072B2"  # of the palette by Okabe and Ito, for all kinds of colour vision

_INTRODUCTION = """\
# Performance

Speed and memory of Landfall, compared with public implementations of the same work. Generated from
`benchmarks/results/` by `python -m benchmarks.page --write`. `make bench` measures the most important comparisons in a
few minutes and prints them; `make bench-full` measures all of them and writes the results.

Both implementations of a comparison run alternately, each in its own process, on the machine that is named above the
table.

- *Ratio*: time of the peer divided by our time; above 1 we are faster. Median of the rounds; in brackets the range,
  where it differs in the first decimal.
- *Floor*: share of a training step that its matrix products need alone, each measured at its best rate on this machine.
  At 100 % nothing else is left to optimise.
- *Memory*: our peak memory divided by that of the peer.

"Out of the box" is what users get: Landfall configures the memory allocation of its process (`tune`), and the peers
train with the dropout of .2 of their recipes. "Same dropout and process" means: no dropout, and the same configuration.
The [log of experiments](../dev/LOG.md) describes what was tried, including what did not help.

![Ratio of every comparison, with its range](images/speed-ratios.png)
"""

_TITLES = {
    "patchtst": "PatchTST-SSL, a training step",
    "swinmae": "Swin-MAE, a training step",
    "scalogram": "Scalograms",
    "data": "From files to batches",
    "busy": "Next to other processes",
}


def page(folder: Path = RESULTS) -> str:
    """The complete page."""
    return "\n".join([_INTRODUCTION, *map(_section, _documents(folder))])


def plot_ratios(path: Path = RATIOS, folder: Path = RESULTS) -> None:
    """The ratio of every comparison, with its range."""
    from matplotlib.figure import Figure

    rows = [
        (f"{_TITLES[document['question']].partition(',')[0]}: {_name(found)}", found)
        for document in _documents(folder)
        for found in document.get("comparisons", [])
    ]
    figure = Figure(figsize=(12, 1.2 + 0.28 * len(rows)), layout="constrained")
    axis = figure.subplots()
    for height, (_, found) in enumerate(rows):
        axis.plot(found["ratio_range"], [height, height], color=_BLUE, linewidth=2)
        axis.plot(found["ratio"], height, "o", color=_BLUE)
    axis.axvline(1.0, color="grey", linestyle=":")
    axis.set(xscale="log", xlabel="time of the peer / our time\n(median and range)")
    axis.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
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
    software = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    head = [
        f"## {_TITLES[document['question']]}",
        "",
        f"{document['date']}, {machine['cpu']}, {machine['cores']} cores ({machine['capability']}); {software}.",
        "",
    ]
    if "works" in document:
        return "\n".join([*head, *_next_to_others(document["works"])]) + "\n"
    table = ["| | ours | peer | ratio | floor | memory |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *table, *map(_row, document["comparisons"])]) + "\n"


def _next_to_others(works: Sequence[dict[str, Any]]) -> Iterable[str]:
    """A row per workload, a column per condition."""
    yield "Speed next to processes that compute all the time, as a share of the speed without load: the median, and in"
    yield "brackets the range of the rounds. Two at once: the sum of two processes, as a share of one after the other."
    yield "[Devices](devices.md#threads-on-a-busy-machine) explains how the number of threads is chosen: by default all"
    yield "cores but one."
    yield ""
    yield f"| fp32, reduced models, batches of 8 windows | no load | {' | '.join(HEADINGS.values())} |"
    yield f"|---|---|{'---|' * len(HEADINGS)}"
    for work in works:
        shares = [work["shares"].get(name) for name in HEADINGS]
        cells = [f"**{each[0]:.0%}** ({each[1]:.0%} to {each[2]:.0%})" if each else "" for each in shares]
        yield f"| {work['title']} | {rate(work['alone_per_second'])} windows/s | {' | '.join(cells)} |"
    if (most := max(work["others"] for work in works)) > IDLE_CORES:
        yield ""
        yield f"The machine was not idle: before a round, other processes used up to {most:.1f} cores."


def _row(found: dict[str, Any]) -> str:
    low, high = found["ratio_range"]
    spread = f" ({low:.1f} to {high:.1f})" if f"{low:.1f}" != f"{high:.1f}" else ""
    cells = (
        found["title"],
        f"{found['ours']}: {rate(found['ours_per_second'])} {found['unit']}/s",
        f"{found['peer']}: {rate(found['peers_per_second'])}",
        f"**{found['ratio']:.1f}**{spread}",
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
