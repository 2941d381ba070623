"""The validation checklist: `python -m pipelines.validate_training_outputs` checks that a run's outputs are complete.

It checks the environment, then code, notebooks and configurations, then the outputs of the run. The exit code is 4 if a
check fails, otherwise 0. Warnings do not change it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from core.cli import add_root_argument, root_of, run_command
from core.documents import explain
from core.errors import EXIT_OK, OutputError
from core.lock import Lock
from core.numbers import counted
from core.progress import Progress
from core.reading import read_json
from core.switching import finish
from core.workspace import write_json
from pipelines.checklist import GROUP_TITLES, REPORT, Checklist, Item, Status
from pipelines.checks import environment, runtime, static
from pipelines.checks.base import Context
from pipelines.colour import with_colour
from pipelines.stream_configs import add_stream_config_arguments, config_files, configs_in_use

log = logging.getLogger(__name__)

_MARKS: dict[Status, str] = {"FAIL": "✗", "WARN": "!", "SKIP": "–", "PASS": "✓"}
_NAMED = 2  # number of failed checks that the error lists


def validate(context: Context, *, skip_smoke: bool = False) -> Checklist:
    """Runs every check and writes the report to `artifacts/validation_report.json`."""
    checks = [*environment.CHECKS, *static.CHECKS, *runtime.CHECKS]
    checks = [check for check in checks if not (skip_smoke and check.is_smoke)]
    items: list[Item] = []
    with Progress(len(checks), "validating", unit="checks") as progress:
        for check in checks:
            items += check.items(context, earlier=items)
            progress.advance(note=check.title)
    report = Checklist.of(items)
    write_json(context.root / REPORT, report.to_json())
    return report


def read_report(root: Path) -> Checklist:
    """The report of the last checklist. Raises OutputError if it is missing or damaged."""
    try:
        return Checklist.model_validate(read_json(root / REPORT))
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{REPORT} is missing or damaged: {explain(error)}", hint="run `landfall validate`"
        ) from error


def as_text(report: Checklist, *, verbose: bool = False) -> str:
    """The checklist as text: checks that did not pass, then a line per group; or, if verbose, every check."""
    items = sorted(report.items, key=lambda item: list(_MARKS).index(item.status))
    counts = {status: sum(item.status == status for item in items) for status in _MARKS}
    lines = [
        f"Checklist: {counts['PASS']} passed, {counts['FAIL']} failed, {counted(counts['WARN'], 'warning')}, "
        f"{counts['SKIP']} skipped"
    ]
    for item in items:
        if verbose or item.status != "PASS":
            lines.append(f"  {_MARKS[item.status]} {item.status}  {item.title}: {item.detail}")
            lines += [f"          → {item.hint}"] if item.hint else []
    for group, title in GROUP_TITLES.items():
        of_group = [item.status for item in items if item.group == group]
        if of_group and not verbose:
            passed = of_group.count("PASS")
            lines.append(f"  {_MARKS['PASS'] if passed else ' '} {title}: {passed} of {len(of_group)} passed")
    return "\n".join(lines)


def failure_of(report: Checklist) -> OutputError:
    """The failed checks in one line."""
    failed = [item for item in report.items if item.status == "FAIL"]
    named = "; ".join(f"{item.title}: {item.detail}" for item in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return OutputError(
        f"{len(failed)} of {len(report.items)} checks failed: {named}{more}", hint=failed[0].hint or f"see {REPORT}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall validate", description="Checks that the outputs of a run are complete and valid."
    )
    add_stream_config_arguments(parser)
    add_root_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of text")
    parser.add_argument("--verbose", action="store_true", help="print every check, including those that passed")
    parser.add_argument("--skip-smoke", action="store_true", help="leave out the checks that score")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides of both streams, as for the run")

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        context = Context(root, *configs_in_use(config_files(arguments), arguments.overrides, root))
        with Lock(command="landfall validate") as lock:
            lock.take(root / REPORT, key="--repo-root")
            finish(root)
            report = validate(context, skip_smoke=arguments.skip_smoke)
        text = with_colour(as_text(report, verbose=arguments.verbose), sys.stdout)
        sys.stdout.write((json.dumps(report.to_json(), indent=2) if arguments.json else text) + "\n")
        if not report.passed:
            sys.stdout.flush()
            raise failure_of(report)
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
