"""The pipeline: quality check, both notebooks, scores, checklist, dashboard.

    python -m pipelines.run_local_training_pipeline

Each step (`pipelines.steps.table`) is a separate process and stores its outputs. The dashboard is exported after a
failure too, so that it shows the failure.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from core.cli import add_root_argument, print_json, root_of, run_command, run_name
from core.config.compose import LoadedConfig
from core.config.schema import Stream
from core.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_RESUMABLE, UsageError
from core.host import usable_cores
from core.lock import Lock
from core.names import run_folder
from core.numbers import aligned
from core.progress import span
from core.reproducibility import prepare_process
from core.runlog import loss_csv_path, read_status
from core.switching import finish
from core.workspace import new_run_id
from inference.run_scoring_example import ScoringPaths
from pipelines import run_summary
from pipelines.checklist import REPORT
from pipelines.colour import with_colour
from pipelines.notebook_parameters import check_parameters, parameter
from pipelines.steps.planning import Selection, reason_to_run
from pipelines.steps.records import FOLDER, unfinished_run
from pipelines.steps.running import How, Outcome, Run
from pipelines.steps.table import STREAM_STEPS, Order, Step, pipeline_steps
from pipelines.stream_configs import add_stream_config_arguments, config_files, configs_in_use
from pipelines.validate_training_outputs import read_report

log = logging.getLogger(__name__)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)?")
_ENDINGS = {EXIT_OK: "done", EXIT_RESUMABLE: "stopped", EXIT_INTERRUPTED: "stopped"}
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


def plan_text(steps: Sequence[Step], order: Order, root: Path, *, resume: bool) -> str:
    """Each step, with the reason why it would run or be skipped."""
    rows, running = [], set()
    for step in steps:
        words = "run"
        if resume:
            reason = reason_to_run(step, order, root)
            waits = [name for name in step.needs if name in running]
            words = f"run: {reason}" if reason else "skip: its inputs have not changed"
            if waits and not reason:
                words = f"skip, unless {waits[0]} changes its inputs"
        if words.startswith("run"):
            running.add(step.name)
        rows.append((step.name, words))
    return "\n".join(aligned(rows))


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    return run_command(_run, _parser(), argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="landfall pipeline", description="Trains, scores, validates and exports each stream that has data."
    )
    add_stream_config_arguments(parser)
    add_root_argument(parser)
    parser.add_argument(
        "--run-id", type=run_name, metavar="NAME",
        help="name of the run (default: a new one, or with --resume the unfinished one)",
    )  # fmt: skip
    parser.add_argument(
        "--persist-run-history", action=argparse.BooleanOptionalAction, default=True,
        help="keep records of all runs for the dashboard",
    )  # fmt: skip
    which = parser.add_argument_group("selection of steps (--dry-run lists their names; * matches any characters)")
    which.add_argument("--only", action="append", default=[], metavar="STEP", help="run these steps; may be repeated")
    which.add_argument(
        "--from", action="append", default=[], dest="start", metavar="STEP", help="run these and the following steps"
    )
    which.add_argument("--skip", action="append", default=[], metavar="STEP", help="skip these steps")
    which.add_argument(
        "--resume", action="store_true", help="skip steps whose inputs have not changed; resume training"
    )
    which.add_argument("--dry-run", action="store_true", help="list the steps that would run, with the reason")
    how = parser.add_argument_group("execution")
    how.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help="steps that run at the same time (default: 2 on a CPU with several cores)",
    )
    how.add_argument(
        "--keep-going", action="store_true", help="after a failure, run the steps that do not depend on it"
    )
    how.add_argument("--timeout", type=_duration, metavar="TIME", help="time limit for the pipeline: 90s, 30m, 2h")
    how.add_argument("--cell-timeout", type=_duration, metavar="TIME", help="time limit for one cell of a notebook")
    how.add_argument("--memory-limit", type=_count, metavar="MIB", help="memory limit of a notebook")
    how.add_argument(
        "-p", "--parameter", type=parameter, action="append", default=[], metavar="NAME=JSON",
        help="set a parameter of both notebooks; may be repeated",
    )  # fmt: skip
    shown = parser.add_argument_group("output")
    shown.add_argument("--verbose", action="store_true", help="show every log line of the steps")
    shown.add_argument("--json", action="store_true", help="print the summary and the checklist as JSON")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides, such as trainer=quick")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer above 0")
    return int(text)


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 30m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def _run(arguments: argparse.Namespace) -> int:
    root, started = root_of(arguments), time.monotonic()
    order = _order(arguments, root)
    every = pipeline_steps(order, root)
    for step in every:
        if step.notebook is not None:
            check_parameters(root / step.notebook.path, step.notebook.parameters)
    absent = [f"{kind}-{stream}" for stream in order.off for kind in STREAM_STEPS]
    steps = Selection(arguments.only, arguments.start, arguments.skip).of(every, absent)
    if arguments.dry_run:
        sys.stdout.write(plan_text(steps, order, root, resume=arguments.resume) + "\n")
        return EXIT_OK
    if arguments.run_id and not arguments.resume:
        _refuse_used_name(order, steps, root)
    if arguments.owns_process:  # every step inherits the environment of this process
        prepare_process(next(iter(order.configs.values())).config)
    how = How(
        jobs=arguments.jobs or default_jobs(order.configs.values()), resume=arguments.resume,
        keep_going=arguments.keep_going, timeout_s=arguments.timeout, cell_timeout_s=arguments.cell_timeout,
        memory_limit_mb=arguments.memory_limit, verbose=arguments.verbose,
    )  # fmt: skip
    with Lock(order.run_id, command="landfall pipeline", is_shared=True) as lock:
        _lock_all(lock, order, root)
        run = Run(order, root, how)
        outcomes = run.run(steps)
        _show(outcomes, order, root, as_json=arguments.json)
    log.info("%s in %s", _ENDINGS.get(run.exit_code, "failed"), span(time.monotonic() - started))
    failed = next((outcome for outcome in outcomes if outcome.exit_code != EXIT_OK), None)
    if failed is not None:
        sys.stderr.write(f"landfall pipeline: {failed.reason}\n")
    return run.exit_code


def _refuse_used_name(order: Order, steps: Sequence[Step], root: Path) -> None:
    """Raises UsageError if a step would train under the name of an existing run."""
    for step in steps:
        if step.notebook is None or step.stream is None:
            continue
        folder = run_folder(root / order.configs[step.stream].config.logging.log_dir, order.run_id)
        if read_status(folder) is not None:
            hint = "choose another --run-id, or --resume it"
            raise UsageError(f"a run {order.run_id} of {step.stream} exists", hint=hint)


def _lock_all(lock: Lock, order: Order, root: Path) -> None:
    """Locks the outputs of the steps; the lock is shared with the steps only. Raises LockedError."""
    lock.take(root / FOLDER, key="--repo-root")
    for loaded in order.configs.values():
        lock.take(root / loaded.config.logging.checkpoint_path, key="logging.checkpoint_path")
        lock.take(loss_csv_path(root, loaded.config), key="logging.artifacts_dir")
        lock.take(ScoringPaths.of(loaded.config, root=root).summary, key="logging.artifacts_dir")
    lock.take(root / REPORT, key="--repo-root")
    finish(root)


def _order(arguments: argparse.Namespace, root: Path) -> Order:
    files = config_files(arguments)
    in_use, off = configs_in_use(files, arguments.overrides, root)
    run_id = arguments.run_id or (arguments.resume and unfinished_run(root)) or new_run_id()
    overrides = [*_same_data(in_use), *arguments.overrides]
    return Order(
        in_use, run_id, overrides, dict(arguments.parameter), arguments.persist_run_history,
        off=off, files_off={stream: files[stream] for stream in off},
    )  # fmt: skip


def _same_data(configs: Mapping[Stream, LoadedConfig]) -> list[str]:
    """The override by which every step reads the data that `data.root: auto` has found at the start: files that a user
    copies to `data/` while the pipeline runs would replace the sample data in the later steps.
    """
    origins = [loaded.origins.get("data.root", "") for loaded in configs.values()]
    if not all(origin.startswith("auto:") for origin in origins):
        return []
    return [f"data.root={next(iter(configs.values())).config.data.root}"]


def default_jobs(configs: Iterable[LoadedConfig]) -> int:
    """2, one per stream, with several cores and no GPU; 1 otherwise, because one training uses a GPU better."""
    on_cpu = all(loaded.config.device.prefer == "cpu" for loaded in configs) or shutil.which("nvidia-smi") is None
    return 2 if on_cpu and usable_cores() > 1 and hasattr(os, "sched_setaffinity") else 1


def _show(outcomes: Sequence[Outcome], order: Order, root: Path, *, as_json: bool) -> None:
    """Prints the summary of the run if it has a checklist."""
    checked = next((outcome for outcome in outcomes if outcome.step.name == "checklist"), None)
    if checked is None or checked.ending not in ("completed", "skipped", "failed"):
        return
    summaries, report = run_summary.scoring_summaries(order.configs, root), read_report(root)
    if as_json:
        print_json(run_summary.as_json(summaries, report), indent=2)
    else:
        text = run_summary.summary_text(summaries, report, root, off=order.off)
        sys.stdout.write(with_colour(text, sys.stdout) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
