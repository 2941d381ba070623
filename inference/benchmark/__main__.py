"""Trains, scores and judges both models on the sets of a pack, beside simple methods.

`python -m inference.benchmark PACK [--set skab,smd] [--seeds 3] [--device cpu] [--out DIR] [--quick]`
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from core.cli import add_root_argument, root_of, run_command
from core.errors import EXIT_OK, LandfallError, UsageError

log = logging.getLogger(__name__)
_QUICK_UNITS = 2


def main(argv: Sequence[str] | None = None) -> int:
    from inference.benchmark.sets import SETS

    names = [each.name for each in SETS]
    parser = argparse.ArgumentParser(prog="python -m inference.benchmark", description=__doc__.split("\n")[0])
    parser.add_argument("pack", type=Path, metavar="PACK", help="folder with fdc/ and vibration/")
    parser.add_argument("--set", metavar="NAMES", help=f"with commas between them: {', '.join(names)} (default: all)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each unit (default: 1)")
    devices = ("auto", "cpu", "gpu", "cuda", "mps", "xpu", "tpu")
    parser.add_argument("--device", choices=devices, default="auto", help="default: the best there is")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: artifacts/benchmark")
    parser.add_argument("--quick", action="store_true", help="a first look: short trainings, at most two units a set")
    add_root_argument(parser)
    return run_command(_run, parser, argv)


def _run(arguments: argparse.Namespace) -> int:
    from inference.benchmark.report import markdown, write
    from inference.benchmark.sets import SETS

    root = root_of(arguments)
    pack = arguments.pack.resolve()
    out = (arguments.out or root / "artifacts/benchmark").resolve()
    wanted = arguments.set.split(",") if arguments.set else [each.name for each in SETS]
    if unknown := set(wanted) - {each.name for each in SETS}:
        raise UsageError(f"there is no set {', '.join(sorted(unknown))}", hint="see --help")
    if not pack.is_dir():
        raise UsageError(f"{pack} is no folder", hint="name the folder that holds fdc/ and vibration/")
    begun = time.perf_counter()
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    units: dict[str, Any] = {}
    for benchmark in SETS:
        if benchmark.name in wanted:
            _one_set(benchmark, arguments, root=root, pack=pack, work=out / "work", results=results, units=units)
            if results:
                # After each set: a run that is interrupted leaves what it has.
                write(
                    out,
                    results,
                    units,
                    seeds=arguments.seeds,
                    quick=arguments.quick,
                    seconds=time.perf_counter() - begun,
                )
    if not results:
        raise UsageError(f"{pack} holds none of the sets {', '.join(wanted)}", hint="name the folder that holds fdc/")
    sys.stdout.write(
        markdown(results, seeds=arguments.seeds, quick=arguments.quick, seconds=time.perf_counter() - begun)
    )
    return EXIT_OK


def _one_set(
    benchmark: Any, arguments: argparse.Namespace, *, root: Path, pack: Path, work: Path, results: Any, units: Any
) -> None:
    from inference.benchmark.detectors import LANDFALL, landfall, load, simple_methods, simple_vibration
    from inference.benchmark.figures import figures, over_units
    from inference.benchmark.sets import recipe

    for seed in range(1, arguments.seeds + 1):
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for unit in islice(benchmark.units(pack, work), _QUICK_UNITS if arguments.quick else None):
            common = (f"data.root={pack}", f"seed={seed}", *recipe(benchmark.stream, quick=arguments.quick))
            device = () if arguments.device == "auto" else (f"device.prefer={arguments.device.replace('cuda', 'gpu')}",)
            loaded = load(benchmark.stream, (*common, *device, *unit.overrides), root=root, work=work, name=unit.name)
            try:
                scored, data = landfall(loaded, root=root)
                if seed == 1:
                    scored += (simple_methods if benchmark.stream == "patchtst" else simple_vibration)(data)
                judged = {each.detector: figures(each, unit, benchmark) for each in scored}
            except LandfallError as error:
                log.error("%s is left out: %s", unit.name, error)
                continue
            for detector, figures_of_unit in judged.items():
                found[detector].append(figures_of_unit)
                units.setdefault(benchmark.name, {}).setdefault(unit.name, {}).setdefault(detector, []).append(
                    figures_of_unit
                )
            best = judged[LANDFALL]
            log.warning(
                "%s, seed %d: VUS-PR %s, AUROC %s, F1 %s", unit.name, seed, best["vus_pr"], best["auroc"], best["f1"]
            )
        for detector, figures_of_units in found.items():
            results.setdefault(benchmark.name, {}).setdefault(detector, []).append(over_units(figures_of_units))


if __name__ == "__main__":
    sys.exit(main())
