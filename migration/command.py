"""`landfall migrate IN…`: converts Colab notebooks to local ones, checks for Colab-only constructs, or shows the
difference.

    landfall migrate colab_train.ipynb                  writes local_train.ipynb next to it
    landfall migrate --check notebooks/                 writes nothing; exit 1 if Colab-only constructs remain

Exit codes: 0 success; 1 `--check` found something, or with `--strict` manual changes are needed; 2 wrong arguments, or
a file that could not be migrated (all others are migrated).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.cli import run_command
from core.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UsageError

if TYPE_CHECKING:
    from migration.batch import Options, Result
    from migration.planning import Plan
    from migration.report.document import Mode, NotebookReport, Report

_EPILOG = """\
A folder means every notebook below it, except hidden folders and .ipynb_checkpoints. Inputs are never changed.
docs/migration.md is the guide, docs/migration-rules.md the table of rules.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="landfall migrate",
        description="Converts Colab notebooks to local notebooks with the same behaviour.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("inputs", nargs="*", type=Path, metavar="IN", help="a notebook, or a folder of notebooks")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-o", "--output", type=Path, metavar="OUT", help="output of one notebook (default: local_NAME)")
    where.add_argument("--out-dir", type=Path, metavar="DIR", help="folder for all outputs; they keep their names")
    parser.add_argument("--force", action="store_true", help="overwrite existing outputs; never an input")
    parser.add_argument("--in-place", choices=("never",), default="never", help="inputs are never changed (default)")
    parser.add_argument(
        "--work-dir", default=".", metavar="DIR", help="replacement for /content: default of the parameter work_dir"
    )
    parser.add_argument(
        "--drive-dir",
        default="drive",
        metavar="DIR",
        help="replacement for MyDrive, relative to DIR: default of drive_dir",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if Colab-only constructs remain")
    parser.add_argument("--diff", action="store_true", help="write nothing; print the difference of the sources")
    parser.add_argument("--strict", action="store_true", help="exit 1 if manual changes are needed")
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="write the full report, and FILE.html")
    parser.add_argument("--format", choices=("text", "json", "github", "sarif"), default="text", help="output format")
    parser.add_argument("--rules", action="store_true", help="print the table of rules and exit")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of the report and exit")
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="number of processes (default: by the amount of work)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(run, build_parser(), argv)


def run(arguments: argparse.Namespace) -> int:
    """The command with parsed arguments. Raises UsageError for invalid ones."""
    if arguments.rules:
        return _print_rules(arguments)
    if arguments.schema:
        return _print_schema()
    from migration.batch import Options
    from migration.planning import make_plan
    from migration.report.document import make_report
    from migration.report.kept import keep
    from migration.rules.preamble import Folders

    _check_arguments(arguments)
    mode: Mode = "check" if arguments.check else "diff" if arguments.diff else "write"
    plan = make_plan(arguments.inputs, output=arguments.output, out_dir=arguments.out_dir, writes=mode == "write")
    _check_report_path(arguments, plan)
    if not (plan.tasks or plan.failed or plan.left_out):
        names = ", ".join(map(str, arguments.inputs))
        raise UsageError(f"{names}: no notebooks found", hint="pass a notebook, or a folder with notebooks")
    options = Options(
        mode=mode,
        strict=arguments.strict,
        diff=arguments.diff,
        folders=Folders(work=arguments.work_dir, drive=arguments.drive_dir),
        force=arguments.force,
        details=mode == "check" or arguments.format != "text" or arguments.report is not None,
    )
    results = _run_tasks(plan, options, arguments.jobs)
    if mode == "write":
        keep(_into_workspaces(plan, results))
    report = make_report([*(result.report for result in results), *plan.failed], mode)
    _report_failures(plan, report)
    _print_result(arguments, report, results)
    return _exit_code(arguments, report)


def _check_arguments(arguments: argparse.Namespace) -> None:
    if not arguments.inputs:
        raise UsageError("no notebook was passed", hint="landfall migrate NOTEBOOK; --help lists the options")
    if (arguments.check or arguments.diff) and (arguments.output or arguments.out_dir):
        raise UsageError("--check and --diff write no notebook", hint="omit -o and --out-dir")
    if arguments.out_dir is not None and arguments.out_dir.exists() and not arguments.out_dir.is_dir():
        raise UsageError(f"{arguments.out_dir} is not a folder", hint="pass the output of one notebook with -o")
    if arguments.report is not None and arguments.report.suffix != ".json":
        raise UsageError(f"{arguments.report} is not a valid name for the JSON report", hint="name it FILE.json")
    if arguments.jobs < 0:
        raise UsageError("--jobs must not be negative")
    for option in ("work_dir", "drive_dir"):
        if not getattr(arguments, option).strip() or "\n" in getattr(arguments, option):
            raise UsageError(f"--{option.replace('_', '-')} is not a valid folder name")


def _check_report_path(arguments: argparse.Namespace, plan: Plan) -> None:
    if arguments.report is not None and any(_same(arguments.report, task.input) for task in plan.tasks):
        raise UsageError(f"{arguments.report} is an input, which is never changed")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _run_tasks(plan: Plan, options: Options, jobs: int) -> list[Result]:
    from core.progress import Progress
    from migration.batch import run_tasks

    with Progress(len(plan.tasks), "migrating", unit="notebooks", mode="auto" if len(plan.tasks) > 1 else "off") as bar:
        return run_tasks(plan.tasks, options, jobs=jobs, on_done=lambda task: bar.advance(note=task.input.name))


def _into_workspaces(plan: Plan, results: Sequence[Result]) -> Iterator[tuple[Path, Path, Path, NotebookReport]]:
    """For each notebook that was written into a workspace: the workspace, the input, the output, the report."""
    from migration.batch import workspace_of

    for task, result in zip(plan.tasks, results, strict=True):
        root = workspace_of(task.output.parent) if task.output else None
        if root is not None and task.output is not None and result.report.output is not None:
            yield root, task.input, task.output, result.report


def _report_failures(plan: Plan, report: Report) -> None:
    sys.stderr.writelines(f"landfall migrate: {text}\n" for text in plan.left_out)
    sys.stderr.writelines(
        f"landfall migrate: {notebook.input}: {notebook.error}\n"
        for notebook in report.notebooks
        if notebook.status == "failed"
    )


def _print_result(arguments: argparse.Namespace, report: Report, results: Sequence[Result]) -> None:
    from migration.report.document import shown
    from migration.report.formats import FORMATS, check_text, summary_text, totals
    from migration.report.page import write_report

    if arguments.diff:
        sys.stdout.writelines(result.diff for result in results)
    elif arguments.format != "text":
        sys.stdout.write(FORMATS[arguments.format](report))
    elif arguments.check:
        sys.stdout.write(check_text(report))
    elif arguments.report is None:
        sys.stdout.write(summary_text(report))
    if arguments.report is not None:
        page = write_report(report, arguments.report, force=arguments.force)
        sys.stderr.write(f"{totals(report)}\n{shown(arguments.report)}, {shown(page)}\n")


def _exit_code(arguments: argparse.Namespace, report: Report) -> int:
    if report.summary.failed:
        return EXIT_USAGE
    if arguments.check and any(notebook.findings for notebook in report.notebooks):
        return EXIT_FAILURE
    return EXIT_FAILURE if arguments.strict and report.summary.needing_human else EXIT_OK


def _print_rules(arguments: argparse.Namespace) -> int:
    from migration.report.reference import rules_json, rules_text
    from migration.rules.table import RULES

    if arguments.format not in ("text", "json"):
        raise UsageError(f"the table of rules has no format {arguments.format}", hint="--format text or json")
    rules = sorted(RULES, key=lambda rule: rule.id)
    sys.stdout.write(rules_json(rules) if arguments.format == "json" else rules_text(rules))
    return EXIT_OK


def _print_schema() -> int:
    from core.workspace import schema_text
    from migration.report.document import Report

    sys.stdout.write(schema_text(Report))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
