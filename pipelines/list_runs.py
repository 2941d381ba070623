"""`landfall runs`: the training runs of the workspace, which of them have weights, and which one is promoted."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core import checkpoint, promotion
from core.cli import print_json, root_of, run_command
from core.config.schema import AnyConfig
from core.errors import EXIT_OK, CheckpointError, UsageError
from core.names import is_run_id
from core.numbers import aligned
from core.run_facts import DETECTION, RunDetection, read_notes
from core.run_status import RunStatus
from core.secrets.redaction import printable
from pipelines.folders import has_file, skipped_by_glob
from pipelines.problems import Problems, read_model
from pipelines.stream_configs import add_run_arguments, chosen_configs

log = logging.getLogger(__name__)

_COLUMNS = ("", "run", "stream", "state", "epochs", "validation loss", "skill", "weights", "started", "events",
            "faults found", "row AUROC", "tags")  # fmt: skip


def known_runs(root: Path, config: AnyConfig) -> list[dict[str, Any]]:
    """The runs of a stream, newest first, as JSON."""
    try:
        promoted = checkpoint.describe(root / config.logging.checkpoint_path)["run_id"]
    except CheckpointError:
        promoted = None
    found, log_dir = [], root / config.logging.log_dir
    now, problems = datetime.now(UTC), Problems(root)
    for path, reason in skipped_by_glob(log_dir):
        if log_dir.is_relative_to(path):
            raise UsageError(f"{path} {reason}", hint="check the link, or the owner of the folder")
        log.warning("%s %s; the run is left out", path, reason)
    for folder in log_dir.glob("*/"):
        file = folder / "status.json"
        if not has_file(file):
            continue
        if not is_run_id(folder.name):
            log.warning("%s is left out: its name is not that of a run", folder)
            continue
        status = read_model(file, RunStatus, problems)
        best = status.best if status else None
        detection = read_model(folder / DETECTION, RunDetection, problems)
        found.append(
            {
                "run_id": folder.name,
                "stream": config.stream,
                "state": "unreadable" if status is None else "stopped" if status.is_killed(now) else status.state,
                "epoch": status.epoch if status else None,
                "epochs": status.epochs if status else None,
                "val_loss": best.val_loss if best else None,
                "skill": best.skill if best else None,
                "has_weights": promotion.weights_path(root, config, folder.name).is_file(),
                "promoted": folder.name == promoted,
                "started_at": status.started_at.isoformat() if status and status.started_at else None,
                "detection": detection.model_dump(mode="json") if detection else None,
                **read_notes(folder),
            }
        )
    return sorted(found, key=lambda run: str(run["started_at"]), reverse=True)


def _table(runs: Sequence[dict[str, Any]]) -> list[str]:
    rows = [_COLUMNS]
    for run in runs:
        loss, skill = run["val_loss"], run["skill"]
        rows.append(
            (
                "*" if run["promoted"] else "",
                run["run_id"],
                run["stream"],
                str(run["state"]),
                "" if run["epoch"] is None else f"{run['epoch']} of {run['epochs']}",
                "" if loss is None else f"{loss:.5f}",
                "" if skill is None else f"{skill:.3f}",
                "yes" if run["has_weights"] else "",
                str(run["started_at"] or "")[:19].replace("T", " "),
                *_detection(run["detection"]),
                " ".join([*run["tags"], *([f"({run['note']})"] if run["note"] else [])]),
            )
        )
    return aligned(rows)


def _detection(found: dict[str, Any] | None) -> tuple[str, str, str]:
    """Events, faults found and AUROC of the latest scoring; empty if it has none, or the data has no labels."""
    if found is None:
        return "", "", ""
    events, total, auroc = found["events"], found["faults_total"], found["auroc"]
    return (
        "" if events is None else str(events),
        "" if total is None else f"{found['faults_found']} of {total}",
        "" if auroc is None else f"{auroc:.3f}",
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="landfall runs", description="Lists the training runs; * is a promoted run.")
    add_run_arguments(parser, takes_run=False)
    parser.add_argument("--json", action="store_true", help="print JSON")

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        runs = [run for config in chosen_configs(arguments, root) for run in known_runs(root, config)]
        if arguments.json:
            print_json(runs, indent=2)
        elif not runs:
            sys.stdout.write("no runs yet; `landfall train patchtst` trains the first\n")
        else:
            sys.stdout.writelines(printable(line) + "\n" for line in _table(runs))
            sys.stdout.write("* promoted: scored and exported. `landfall promote RUN` promotes another run.\n")
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
