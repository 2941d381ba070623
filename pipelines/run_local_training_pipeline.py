"""The main job, end to end: quality check, both notebooks, scores, checklist, dashboard.

    python -m pipelines.run_local_training_pipeline

Each step persists what it made, and the dashboard is exported whatever happens, so that a failure is seen there too.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from core import checkpoint
from core.cli import add_root_argument, root_of, run_command
from core.config.compose import LoadedConfig, load_config
from core.config.schema import Stream
from core.data.dataset import check_quality
from core.devices.process import start_right
from core.errors import EXIT_OK, EXIT_OUTPUT, LandfallError, NotebookError
from core.workspace import new_run_id, relative
from pipelines.checks.base import Context
from pipelines.export_training_dashboard_state import DEFAULT_OUT, export_state
from pipelines.validate_training_outputs import (
    REPORT,
    ValidationReport,
    add_stream_config_arguments,
    as_text,
    validate,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PipelineOptions:
    """The configuration file of each stream, and overrides that both take."""

    config_files: Mapping[Stream, str]
    overrides: Sequence[str] = ()


def run_pipeline(root: Path, options: PipelineOptions, *, run_id: str | None = None) -> ValidationReport:
    """Runs every step under one run id. Raises what a step raises, after exporting the dashboard."""
    run_id = run_id or new_run_id()
    configs = {s: load_config(file, options.overrides, root=root) for s, file in options.config_files.items()}
    try:
        with _step("1/5 data quality"):
            for loaded in configs.values():
                _tell_quality(loaded, root, run_id)
        for stream, loaded in configs.items():
            with _step(f"2/5 notebook local_{stream}_ssl"):
                execute_notebook(loaded, options.overrides, root=root, run_id=run_id)
        for stream, loaded in configs.items():
            with _step(f"3/5 scores of {stream}"):
                _score_unless_current(loaded, root)
        with _step("4/5 validation checklist"):
            export_state(root, run_id=run_id)  # the checklist looks at this run's state, not at the one before
            report = validate(Context(root, configs))
    finally:
        with _step("5/5 dashboard"):
            state = export_state(root, run_id=run_id)
            log.info("%s: %s", DEFAULT_OUT, state.verdict.title)
    return report


def execute_notebook(loaded: LoadedConfig, overrides: Sequence[str], *, root: Path, run_id: str) -> Path:
    """Runs a notebook by papermill; the executed copy is written after each cell, so a failure leaves evidence.

    Raises NotebookError with the cell and the error the notebook stopped with, LandfallError for a kernel that died.
    """
    notebook = root / "notebooks" / f"local_{loaded.config.stream}_ssl.ipynb"
    executed = root / loaded.config.logging.artifacts_dir / "notebooks" / run_id / notebook.name
    executed.parent.mkdir(parents=True, exist_ok=True)
    evidence = f"the executed copy is {relative(executed, root)}"
    logging.getLogger("papermill").setLevel(logging.WARNING)  # its cell by cell account drowns the notebook's own
    parameters = {
        "config": loaded.source,
        "overrides": ["logging.progress=lines", *overrides],
        "epochs": None,  # the configuration's own; the notebook's few are for a first look
        "run_id": run_id,
    }
    with tempfile.TemporaryDirectory(prefix="landfall-") as private:
        # The kernel talks over sockets in a folder that only this user can open, instead of TCP ports.
        kernel = {"transport": "ipc", "connection_file": f"{private}/kernel.json"}
        try:
            papermill.execute_notebook(
                notebook, executed, parameters, kernel_name="python3", cwd=notebook.parent,
                config=Config({"KernelManager": kernel}), stdout_file=sys.stderr, stderr_file=sys.stderr,
                progress_bar=False,
            )  # fmt: skip
        except papermill.PapermillExecutionError as error:
            raise NotebookError(notebook.name, error.exec_count, error.ename, error.evalue, hint=evidence) from error
        except DeadKernelError as error:
            raise LandfallError(
                f"{notebook.name}: its kernel died, often of too little memory", hint=evidence
            ) from error
    return executed


def _tell_quality(loaded: LoadedConfig, root: Path, run_id: str) -> None:
    reports = check_quality(loaded.config, root=root, run_id=run_id)
    dropped = [report.file_id for report in reports if report.decision == "drop"]
    warned = sum(bool(report.warnings) for report in reports)
    log.info(
        "%s: %d files, %d with warnings, %d dropped%s; reports in %s",
        loaded.config.stream, len(reports), warned, len(dropped),
        f" ({', '.join(dropped)})" if dropped else "", loaded.config.dqvl.report_dir,
    )  # fmt: skip


def _score_unless_current(loaded: LoadedConfig, root: Path) -> None:
    """The notebook scores too; what it wrote for the current checkpoint is not computed again."""
    from inference.run_scoring_example import read_summary, score_stream

    config = loaded.config
    current = checkpoint.describe(root / config.logging.checkpoint_path)["sha256"]
    summary = read_summary(config, root=root)
    if summary is not None and summary.get("checkpoint_sha256") == current:
        log.info("%s: scored by the notebook with this checkpoint", config.stream)
        return
    score_stream(loaded, root=root)


@contextmanager
def _step(title: str) -> Iterator[None]:
    """Names a step in the log and times it."""
    started, outcome = time.monotonic(), "failed"
    log.info("── %s", title)
    try:
        yield
        outcome = "done"
    finally:
        log.info("   %s %s in %.0f s", title, outcome, time.monotonic() - started)


def summary_text(report: ValidationReport) -> str:
    """What a person reads at the end: the checklist, and where to look."""
    where = [
        ("checkpoints", "checkpoints/"),
        ("loss curves", "artifacts/loss/"),
        ("scores, events, timelines", "artifacts/scores/"),
        ("quality reports", "artifacts/dqvl/"),
        ("executed notebooks", "artifacts/notebooks/"),
        ("checklist", REPORT),
        ("dashboard", f"{DEFAULT_OUT} — `make dashboard` opens it"),
    ]
    lines = ["", as_text(report), "", "Where to look"]
    lines += [f"  {title:<26} {place}" for title, place in where]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pipeline", description="Trains, scores, validates and exports both streams.")
    add_stream_config_arguments(parser)
    add_root_argument(parser)
    parser.add_argument("--run-id", help="name of the run (default: a new one)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for both streams, such as trainer=quick")

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        files: dict[Stream, str] = {"patchtst": arguments.patch_config, "swinmae": arguments.swin_config}
        if arguments.owns_process:  # the notebooks' kernels inherit its environment
            start_right(load_config(arguments.patch_config, arguments.overrides, root=root).config)
        started = time.monotonic()
        report = run_pipeline(root, PipelineOptions(files, arguments.overrides), run_id=arguments.run_id)
        sys.stdout.write(summary_text(report) + "\n")
        log.info("%s in %.0f s", "all is well" if report.passed else "something failed", time.monotonic() - started)
        return EXIT_OK if report.passed else EXIT_OUTPUT

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
