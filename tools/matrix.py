"""Runs the pipeline and the fast tests over processors, thread counts, precisions, seeds and Python versions.

    python -m tools.matrix                      # every row that this machine can run, about three minutes each
    python -m tools.matrix --only seed          # the rows whose name starts with `seed`; may be repeated
    python -m tools.matrix --list

Each row runs in a fresh copy of the tracked files, so that no row sees the outputs of another. A row that was run
before is kept unless `--again` is given, so an interrupted matrix continues. The results are written to
`artifacts/matrix/results.json` and, as a table, to `artifacts/matrix/results.md` after each row. The exit status is 1
if a row fails.

A processor without AVX-512 or bfloat16 is simulated: `ATEN_CPU_CAPABILITY` limits PyTorch's own kernels,
`ONEDNN_MAX_CPU_ISA` those of oneDNN.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.config.schema import STREAMS
from core.host import cpu_flags, cpu_model
from core.numbers import counted
from core.workspace import CODE_ROOT, write_json, write_text

RESULTS = Path("artifacts/matrix/results.json")
FAST_TESTS = ("-m", "pytest", "-q", "-x", "-m", "not slow and not browser", "-p", "no:cacheprovider")
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


@dataclass(frozen=True)
class Goal:
    """What a stream of the sample data must reach: the least skill and share of faults that are found, and the most
    false events per hour."""

    skill: float
    recall: float
    false_events_per_hour: float


GOALS = {"patchtst": Goal(0.6, 10 / 12, 1.0), "swinmae": Goal(0.25, 1.0, 0.0)}


@dataclass(frozen=True)
class Row:
    """One run. job: `validate` trains, scores and checks both streams; `tests` runs the fast tests.

    environment: variables that are set. overrides: of both streams' configurations. python: the interpreter; another
    than this one gets its own virtual environment through the Makefile.
    """

    name: str
    job: str = "validate"
    environment: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    data_seed: int = 7
    python: str = ""


@dataclass
class Result:
    """The result of a row. failed: the failed checks and missed goals, or the last line of the output. streams: metrics
    by stream."""

    row: str
    passed: bool
    seconds: float
    failed: list[str]
    streams: dict[str, dict[str, Any]]


def rows() -> Iterator[Row]:
    """Every row, whether or not this machine can run it."""
    for capability in ("default", "avx2", "avx512"):
        yield Row(f"aten-{capability}", environment={"ATEN_CPU_CAPABILITY": capability}, overrides=("precision=32",))
    for isa in ("SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16"):
        yield Row(f"onednn-{isa.lower()}", environment={"ONEDNN_MAX_CPU_ISA": isa}, overrides=("precision=32",))
    for precision in ("32", "bf16-mixed"):
        for threads in (1, 2):
            yield Row(
                f"{precision}-threads-{threads}",
                environment={"OMP_NUM_THREADS": str(threads)},
                overrides=(f"precision={precision}",),
            )
    for seed in range(1, 11):
        yield Row(f"seed-{seed}", overrides=("precision=32", f"seed={seed}"), environment=AVX2)
        yield Row(f"bf16-seed-{seed}", overrides=("precision=bf16-mixed", f"seed={seed}"))
    for seed in range(201, 211):
        yield Row(f"data-seed-{seed}", overrides=("precision=32",), data_seed=seed, environment=AVX2)
    yield Row("avx2-tests", job="tests", environment=AVX2)
    yield Row("default-tests", job="tests", environment={"ATEN_CPU_CAPABILITY": "default"})
    yield Row("one-thread-tests", job="tests", environment={"OMP_NUM_THREADS": "1"})
    for version in ("3.12", "3.13"):
        yield Row(f"python{version}", python=f"python{version}")
        yield Row(f"python{version}-tests", job="tests", python=f"python{version}")


def unavailable(row: Row) -> str | None:
    """Why this machine cannot run a row; None if it can."""
    flags = cpu_flags()
    wanted = " ".join(row.environment.values()).lower()
    if "avx512" in wanted and "avx512f" not in flags:
        return "the processor has no AVX-512"
    if "bf16" in wanted and "avx512_bf16" not in flags:
        return "the processor has no bfloat16"
    if row.python and shutil.which(row.python) is None:
        return f"{row.python} is not installed"
    return None


def run(row: Row, folder: Path) -> Result:
    """Runs a row in an empty folder."""
    for name in _tracked_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CODE_ROOT / name, folder / name, follow_symlinks=False)
    environment = {**_outside_make(), **row.environment, "PYTHONPATH": str(folder)}
    python = sys.executable
    started = time.monotonic()
    log = folder / "matrix.log"
    if row.python:
        target = "setup-dev" if row.job == "tests" else "setup"
        _call(("make", target, f"PYTHON={row.python}"), folder, environment, log)
        python = str(folder / ".venv/bin/python")
    if row.job == "tests":
        code = _call((python, *FAST_TESTS), folder, environment, log)
        streams, failed = {}, [] if code == 0 else [_last_line(log)]
    else:
        seed = ("--seed", str(row.data_seed))
        _call((python, "-m", "pipelines.sample_data", *seed), folder, environment, log)
        pipeline = (python, "-m", "pipelines.run_local_training_pipeline", *row.overrides)
        code = _call(pipeline, folder, environment, log)
        streams = metrics_of_streams(folder)
        failed = (failed_checks(folder) or [_last_line(log)]) if code else missed_goals(streams)
    return Result(row.name, not failed, round(time.monotonic() - started, 1), failed, streams)


def _call(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
    with log.open("ab") as output:
        return subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT).returncode


def _outside_make() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}


def _tracked_files() -> list[str]:
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=CODE_ROOT, capture_output=True, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name]


def _last_line(log: Path) -> str:
    """The last failed test, or else the last line."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    tests = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return (tests or lines or ["no output"])[-1][:200]


def failed_checks(folder: Path) -> list[str]:
    report = _read(folder / "artifacts/validation_report.json")
    return [item["id"] for item in report.get("items", []) if item["status"] == "FAIL"]


def missed_goals(streams: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The metrics of each stream that are worse than their goal."""
    missed = []
    for stream, goal in GOALS.items():
        of = streams[stream]
        recall = of["faults_found"] / of["faults_total"]
        if of["skill"] < goal.skill:
            missed.append(f"{stream}: skill {of['skill']:.3f} of {goal.skill:g}")
        if recall < goal.recall:
            missed.append(f"{stream}: {of['faults_found']} of {of['faults_total']} faults")
        if of["false_events_per_hour"] > goal.false_events_per_hour:
            missed.append(f"{stream}: {counted(of['false_events'], 'false event')}")
    return missed


def metrics_of_streams(folder: Path) -> dict[str, dict[str, Any]]:
    """Skill and detection metrics of each stream, as far as they exist."""
    found = {}
    for stream in STREAMS:
        metrics = _read(folder / f"checkpoints/{stream}_ssl.json").get("metrics", {})
        detection = _read(folder / f"artifacts/scores/{stream}_summary.json").get("detection") or {}
        found[stream] = {"skill": (metrics.get("skill") or {}).get("total"), **detection}
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


# --------------------------------------------------------------------------------------------------------------- table
COLUMNS = (
    "skill",
    "auroc",
    "faults_found",
    "faults_total",
    "event_recall_by_chance",
    "false_events",
    "false_events_per_hour",
    "f1",
)


def as_markdown(results: Sequence[Result], skipped: Mapping[str, str]) -> str:
    """The results as a table, one line per row of the matrix."""
    head = ["row", "result", "seconds", *(f"{stream} {name}" for stream in STREAMS for name in COLUMNS)]
    lines = [f"Processor: {cpu_model()}.", "", _line(head), _line(["---"] * len(head))]
    for result in results:
        outcome = "pass" if result.passed else f"FAIL: {', '.join(result.failed)}"
        cells = [_text(result.streams.get(stream, {}).get(name)) for stream in STREAMS for name in COLUMNS]
        lines.append(_line([result.row, outcome, f"{result.seconds:.0f}", *cells]))
    lines += [_line([name, f"not run: {why}", *[""] * (len(head) - 2)]) for name, why in skipped.items()]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


# -------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="rows whose name starts with NAME")
    parser.add_argument("--again", action="store_true", help="run rows again that have a result")
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    arguments = parser.parse_args(argv)
    chosen = [row for row in rows() if not arguments.only or row.name.startswith(tuple(arguments.only))]
    skipped = {row.name: why for row in chosen if (why := unavailable(row))}
    if arguments.list:
        for row in chosen:
            sys.stdout.write(f"{row.name} {skipped.get(row.name, '')}\n")
        return 0
    known = {name: Result(**values) for name, values in _read(CODE_ROOT / RESULTS).get("results", {}).items()}
    for row in chosen:
        if row.name in skipped or (row.name in known and not arguments.again):
            continue
        sys.stderr.write(f"{row.name} …\n")
        with tempfile.TemporaryDirectory(prefix="landfall-matrix-") as folder:
            known[row.name] = run(row, Path(folder))
        sys.stderr.write(f"  {'pass' if known[row.name].passed else 'FAIL'}\n")
        write_json(CODE_ROOT / RESULTS, {"results": {name: asdict(result) for name, result in known.items()}})
        write_text((CODE_ROOT / RESULTS).with_suffix(".md"), as_markdown(list(known.values()), skipped))
    sys.stdout.write(as_markdown(list(known.values()), skipped))
    return 0 if all(known[row.name].passed for row in chosen if row.name not in skipped) else 1


if __name__ == "__main__":
    sys.exit(main())
