"""`landfall fleet`: runs one command on every machine of a plant, each in its own workspace, on workers of Dask.

    landfall fleet score

Machines, their data and their settings are in `configs/fleet.yaml`. A machine that fails does not stop the others. A
second start does only what has changed or was interrupted.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence

from core.cli import add_root_argument, print_json, root_of, run_command
from core.config.compose import load_config, local_config_file
from core.config.overrides import FLEET_FILE
from core.errors import EXIT_OK, EXIT_RESUMABLE, LandfallError, UsageError
from core.page import STATE
from core.progress import Progress, span
from core.reproducibility import prepare_process
from core.workspace import new_run_id
from pipelines.dashboard.fleet_documents import FILE
from pipelines.dashboard.publish import write_document
from pipelines.export_training_dashboard_state import export_state
from pipelines.fleet.attention import fleet_state, table_text
from pipelines.fleet.jobs import COMMANDS, Job, Outcome, read_outcome
from pipelines.fleet.machines import Fleet, Machine, read_fleet, workspace_of

log = logging.getLogger(__name__)

REPORT = "report"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="landfall fleet", description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "action", choices=(*COMMANDS, REPORT), metavar="COMMAND",
        help=f"{', '.join(COMMANDS)}: this command for every machine; {REPORT}: which ones need attention",
    )  # fmt: skip
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides for every machine")
    parser.add_argument("--fleet", default=FLEET_FILE, metavar="FILE", help="default: %(default)s")
    parser.add_argument(
        "--machine", action="append", default=[], metavar="ID",
        help="these machines (* matches any characters); may be repeated",
    )  # fmt: skip
    parser.add_argument("--tag", action="append", default=[], help="machines with this tag; may be repeated")
    parser.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True,
        help="skip what has not changed, and resume training that was interrupted (default); --no-resume: do all again",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="ADDRESS", help="workers of this Dask scheduler, such as tcp://host:8786")
    where.add_argument(
        "--workers", type=int, metavar="N",
        help="workers on this machine (default: one per GPU, or per core as the measured memory allows)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help=f"{REPORT}: print the document instead of the table")
    add_root_argument(parser)
    return run_command(_run, parser, argv)


def _run(arguments: argparse.Namespace) -> int:
    root = root_of(arguments)
    fleet = read_fleet(arguments.fleet, root)
    machines = fleet.chosen(arguments.machine, arguments.tag)
    if arguments.action == REPORT:
        return _report(arguments, fleet, machines)
    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError("--workers is below 1", hint="leave it out, or pass 1 or more")
    first = load_config(local_config_file(machines[0].stream), machines[0].overrides, root=root).config
    if arguments.owns_process:  # workers inherit the environment of this process
        prepare_process(first)
    try:
        from pipelines.fleet.cluster import gpus_here, run_jobs
    except ModuleNotFoundError as error:
        hint = "python -m pip install 'distributed>=2025.1' cryptography (the extra `fleet`)"
        raise UsageError(f"landfall fleet needs Dask: {error}", hint=hint) from error
    needs_gpu = arguments.action != "quality" and arguments.scheduler is None and first.device.prefer != "cpu"
    gpus, run_id, started = gpus_here() if needs_gpu else (), new_run_id(), time.monotonic()
    jobs = [
        Job(machine, arguments.action, root, run_id, tuple(arguments.overrides), arguments.resume, gpus)
        for machine in machines
    ]
    known = [outcome.peak_mb for job in jobs if (outcome := read_outcome(workspace_of(job.machine, root), job.command))]
    outcomes: list[Outcome] = []
    with Progress(len(jobs), f"fleet {arguments.action}", unit="machines") as progress:
        for outcome in run_jobs(
            jobs, scheduler=arguments.scheduler, workers=arguments.workers, peak_mb=max(known, default=0.0) or None
        ):
            outcomes.append(outcome)
            if outcome.ending in ("failed", "stopped"):
                log.error("%s %s: %s", outcome.machine, outcome.ending, outcome.reason)
            progress.advance(note=outcome.machine)
    return _summarise(outcomes, seconds=time.monotonic() - started)


def _summarise(outcomes: Sequence[Outcome], *, seconds: float) -> int:
    """Prints the count of each ending and the reasons of failures; returns the exit code."""
    counts = Counter(outcome.ending for outcome in outcomes)
    failed = {each.machine: each.reason for each in outcomes if each.ending in ("failed", "stopped")}
    log.info("%s in %s", ", ".join(f"{count} {ending}" for ending, count in counts.items()), span(seconds))
    print_json({**counts, "seconds": round(seconds, 1), "reasons": failed})
    if not failed:
        return EXIT_OK
    if not counts["failed"]:
        return EXIT_RESUMABLE
    raise LandfallError(
        f"{counts['failed']} of {len(outcomes)} machines failed",
        hint="`landfall fleet report` lists them; logs are in machines/ID/artifacts/fleet",
    )


def _report(arguments: argparse.Namespace, fleet: Fleet, machines: Sequence[Machine]) -> int:
    root = root_of(arguments)
    state = fleet_state(fleet, root, machines)
    out = root / STATE
    if len(machines) == len(fleet.machines):
        write_document(out.with_name(FILE), state)
        export_state(root)
    text = state.model_dump_json(indent=2) if arguments.json else table_text(state)
    sys.stdout.write(text + "\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
