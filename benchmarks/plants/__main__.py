"""The faults that Landfall finds in ten simulated plants with its default settings.

    python -m benchmarks.plants [--seeds 1 2 3] [--fault "coupled step"] [--charts] [--out FILE]

The plants were designed for this evaluation. The chart of the regression on other channels was added because of them,
and its limit was chosen with the seeds 101 and 102; results of the seeds 1 and 2 were known then. Report other seeds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.plants.baseline import SHARES, pca_q_auroc
from benchmarks.plants.journey import Found, journey
from benchmarks.plants.plant import FAULTS, make_plant
from core.cli import run_command
from core.errors import EXIT_OK
from core.workspace import write_json

_HEAD = "fault | seed | detector | F1 | event F1 | events | false | onset s | end s | sensor | healthy % | AUROC"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="plants", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="seeds of the plants (default: 1)")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="this fault only; may be repeated")
    parser.add_argument("--charts", action="store_true", help="control charts alone, without training")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the metrics as JSON")
    return run_command(_run, parser, argv)


def _run(arguments: argparse.Namespace) -> int:
    found: list[Found] = []
    sys.stdout.write(f"{_HEAD}\n")
    for seed in arguments.seeds:
        for fault in arguments.fault or FAULTS:
            with tempfile.TemporaryDirectory() as folder:
                each = journey(fault, seed, Path(folder) / "plant", with_model=not arguments.charts)
            found += each
            plant = make_plant(fault, seed)
            simple = ", ".join(f"{pca_q_auroc(plant, share):.2f} keeping {share:.0%}" for share in SHARES)
            sys.stdout.writelines(_line(one) + "\n" for one in each)
            sys.stdout.write(f"{fault} | {seed} | PCA Q, AUROC {simple} of the variance\n")
            sys.stdout.flush()
    if arguments.out:
        write_json(arguments.out, {"plants": [one.to_json() for one in found]})
    return EXIT_OK


def _line(found: Found) -> str:
    def number(value: float | None, form: str = ".0f") -> str:
        return "–" if value is None else format(value, form)

    sensor = {None: "–", True: "right", False: "wrong"}[found.sensors]
    cells = (found.fault, str(found.seed), found.detector, f"{found.f1:.2f}", f"{found.event_f1:.2f}",
             str(found.events), str(found.false_events), number(found.onset_s), number(found.end_s), sensor,
             number(found.healthy), number(found.auroc, ".2f"))  # fmt: skip
    return " | ".join(cells)


if __name__ == "__main__":
    sys.exit(main())
