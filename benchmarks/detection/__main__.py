"""Trains, scores and evaluates both models on the sets of a pack, compared with simple methods.

`python -m benchmarks.detection PACK [--set skab,smd] [--seeds 3] [--device cpu] [--out DIR] [--quick] [--peers]`
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cli import add_root_argument, root_of, run_command
from core.errors import EXIT_OK, LandfallError, StoppedError, UsageError

if TYPE_CHECKING:
    from benchmarks.detection.detectors import Trained
    from benchmarks.detection.report import Findings
    from benchmarks.detection.sets import BenchmarkSet
    from benchmarks.detection.unit import Unit
    from core.config.compose import LoadedConfig

log = logging.getLogger(__name__)
_QUICK_UNITS = 2


def main(argv: Sequence[str] | None = None) -> int:
    from benchmarks.detection.sets import SETS

    names = [each.name for each in SETS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__.split("\n")[0])
    parser.add_argument("pack", type=Path, metavar="PACK", help="folder with fdc/ and vibration/")
    parser.add_argument("--set", metavar="NAMES", help=f"comma-separated: {', '.join(names)} (default: all)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each unit (default: 1)")
    devices = ("auto", "cpu", "gpu", "cuda", "mps", "xpu", "tpu")
    parser.add_argument("--device", choices=devices, default="auto", help="default: the best available")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: artifacts/benchmark")
    parser.add_argument("--quick", action="store_true", help="short trainings, at most two units per set")
    peers = "also train transformers' PatchTST on process sensors: slow, needs transformers"
    parser.add_argument("--peers", action="store_true", help=peers)
    pretrained = "also start from a model of the sensors of the pack's other sets: takes minutes more per set"
    parser.add_argument("--pretrained", action="store_true", help=pretrained)
    parser.add_argument(
        "--reuse", action="store_true", help="reuse models that an earlier run trained with the same configuration"
    )
    chosen = "choose constants for each set with the labels of the other sets (leave-one-out)"
    parser.add_argument("--leave-one-out", action="store_true", help=chosen)
    add_root_argument(parser)
    return run_command(_run, parser, argv)


def _run(arguments: argparse.Namespace) -> int:
    from benchmarks.detection.peers import refuse_if_absent
    from benchmarks.detection.report import Findings
    from benchmarks.detection.sets import SETS

    root = root_of(arguments)
    pack = arguments.pack.resolve()
    out = (arguments.out or root / "artifacts/benchmark").resolve()
    wanted = arguments.set.split(",") if arguments.set else [each.name for each in SETS]
    if unknown := set(wanted) - {each.name for each in SETS}:
        raise UsageError(f"there is no set {', '.join(sorted(unknown))}", hint="see --help")
    if not pack.is_dir():
        raise UsageError(f"{pack} is not a folder", hint="pass the folder that contains fdc/ and vibration/")
    if arguments.peers:
        refuse_if_absent()
    findings = Findings(seeds=arguments.seeds, quick=arguments.quick)
    if arguments.leave_one_out:
        findings.constants = _constants(arguments, wanted, root=root, pack=pack, out=out)
    for benchmark in SETS:
        if benchmark.name in wanted:
            _one_set(benchmark, arguments, root=root, pack=pack, out=out, findings=findings)
    if not findings.sets and findings.left_out:
        raise UsageError(f"{pack} contains no unit that could be evaluated", hint="see above why each was skipped")
    if not findings.sets:
        raise UsageError(
            f"{pack} contains none of the sets {', '.join(wanted)}", hint="pass the folder that contains fdc/"
        )
    sys.stdout.write(findings.markdown())
    return EXIT_OK


def _one_set(
    benchmark: BenchmarkSet, arguments: argparse.Namespace, *, root: Path, pack: Path, out: Path, findings: Findings
) -> None:
    """Every seed trains every unit again; simple methods have no seed and run once."""
    from benchmarks.detection.detectors import LANDFALL, load
    from benchmarks.detection.judging import JUDGES

    work = out / "work"
    constants = findings.constants_of(benchmark)
    for seed in range(1, arguments.seeds + 1):
        common = (
            *_common_overrides(benchmark, arguments, pack, seed),
            *(f"{key}={each}" for key, each in constants.items()),
        )
        with _left_out_if_it_fails(benchmark.name, findings):
            start_from = _pretrained(benchmark, arguments, root=root, pack=pack, work=work, seed=seed)
            for unit in islice(benchmark.units(pack, work), _QUICK_UNITS if arguments.quick else None):
                with _left_out_if_it_fails(unit.name, findings):
                    start = time.perf_counter()
                    configure = partial(load, benchmark.stream, (*common, *unit.overrides), root=root, work=work)
                    models = _models(benchmark, configure, unit.name, arguments, root=root, start_from=start_from)
                    judged = JUDGES[benchmark.judged_by](models, unit, benchmark, root=root, with_simple=seed == 1)
                    findings.add(benchmark.name, unit.name, seed, judged)
                    _log_result(unit, seed, judged[LANDFALL], time.perf_counter() - start)
        if findings.sets:
            findings.write(out)  # after each seed: an interrupted run keeps its results


def _common_overrides(benchmark: BenchmarkSet, arguments: argparse.Namespace, pack: Path, seed: int) -> tuple[str, ...]:
    """The overrides for every unit of a set."""
    from benchmarks.detection.unit import place

    device = () if arguments.device == "auto" else (f"device.prefer={arguments.device.replace('cuda', 'gpu')}",)
    return (place("data.root", pack), f"seed={seed}", *benchmark.overrides(quick=arguments.quick), *device)


def _constants(
    arguments: argparse.Namespace, wanted: Sequence[str], *, root: Path, pack: Path, out: Path
) -> dict[str, Any]:
    """By stream, the constants for each set, chosen on the other sets, with the models of the first seed."""
    from benchmarks.detection.choosing import choose
    from benchmarks.detection.detectors import load, trained
    from core.config.schema import STREAMS

    def train(benchmark: BenchmarkSet, unit: Unit) -> Trained:
        overrides = (*_common_overrides(benchmark, arguments, pack, 1), *unit.overrides)
        loaded = load(benchmark.stream, overrides, root=root, work=out / "work", name=unit.name)
        return trained(loaded, root=root, reuse=True)

    from benchmarks.detection.sets import SETS

    streams = {each.stream for each in SETS if each.name in wanted and each.judged_by == "alarms"}
    return {
        stream: choose(stream, wanted, train, pack=pack, work=out / "work", root=root)
        for stream in STREAMS
        if stream in streams
    }


@contextmanager
def _left_out_if_it_fails(name: str, findings: Findings) -> Iterator[None]:
    """If a unit fails with any error, the others are still evaluated, because they take hours."""
    try:
        yield
    except StoppedError:
        raise
    except Exception as error:
        is_expected = isinstance(error, LandfallError | OSError)
        reason = str(error) if is_expected else f"{type(error).__name__}: {error}"
        findings.left_out[name] = reason
        log.error("%s is skipped: %s", name, reason, exc_info=not is_expected)


def _log_result(unit: Unit, seed: int, metrics: Mapping[str, Any], seconds: float) -> None:
    from benchmarks.detection.report import in_a_line

    log.warning("%s, seed %d, %.0f s: %s", unit.name, seed, seconds, in_a_line(metrics))
    rate = metrics.get("false_alarm_rate", unit.false_alarm_rate)
    if rate > unit.false_alarm_rate:
        log.warning(
            "%s: its threshold is for %.3g %% of false alarms instead of %.3g %%: %d calibration scores",
            unit.name, 100 * rate, 100 * unit.false_alarm_rate, metrics["normal_decisions"],
        )  # fmt: skip


def _pretrained(
    benchmark: BenchmarkSet, arguments: argparse.Namespace, *, root: Path, pack: Path, work: Path, seed: int
) -> Path | None:
    """The pre-trained model for the units of the set, if requested; it is the same for every unit."""
    from benchmarks.detection.pretraining import is_served, pretrained

    if not arguments.pretrained or not is_served(benchmark) or not any(benchmark.units(pack, work)):
        return None
    return pretrained(benchmark, pack=pack, root=root, work=work, seed=seed, quick=arguments.quick)


def _models(
    benchmark: BenchmarkSet,
    configure: Callable[..., LoadedConfig],
    name: str,
    arguments: argparse.Namespace,
    *,
    root: Path,
    start_from: Path | None,
) -> dict[str, Trained]:
    from benchmarks.detection.detectors import LANDFALL, trained
    from benchmarks.detection.peers import TRANSFORMERS, with_transformers_model
    from benchmarks.detection.pretraining import PRETRAINED

    reuse = arguments.reuse or arguments.leave_one_out
    models = {LANDFALL: trained(configure(name=name), root=root, reuse=reuse)}
    if start_from is not None:
        models[PRETRAINED] = trained(configure(name=f"{name}.pretrained", start_from=start_from), root=root)
    if arguments.peers and benchmark.stream == "patchtst":
        with with_transformers_model():
            models[TRANSFORMERS] = trained(configure(name=f"{name}.transformers"), root=root)
    return models


if __name__ == "__main__":
    sys.exit(main())
