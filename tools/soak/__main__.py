"""Kills every kind of process at random moments, repeatedly, and checks the remaining files each time.

    python -m tools.soak --kills 1000 [--seed 0] [--minutes 60] > soak.json

It starts with a minute of concurrent writing and reading. Training is killed and resumed until it has finished; its
weights, optimizer state and losses must then be bit-identical to those of an uninterrupted run.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.run import environment
from core.cli import run_command
from core.errors import EXIT_FAILURE, EXIT_OK, LandfallError
from core.loss_curve import loss_figure
from core.runlog import EpochRecord
from pipelines.export_training_dashboard_state import export_state
from tests.support.artifact_checks import leftovers
from tests.support.small_workspace import CONFIGS, build_small_workspace, install_page
from tools.soak.rewriting import read_while_written
from tools.soak.targets import END_S, MARK, Export, Kind, Notebook, Process, Report, Scoring, Server, Training, loaded
from trainers.run import train

# Kills of each kind per hundred. A notebook takes as long as twenty training runs.
SHARES = {
    "training patchtst": 36, "training swinmae": 26, "scoring patchtst": 7, "scoring swinmae": 3, "export": 14,
    "dashboard server": 10, "notebook": 4,
}  # fmt: skip
_SECONDS_BETWEEN_LINES = 15.0
_MEMORY = "/dev/shm"


@dataclass
class Result:
    """Kills of each kind, completions of each kind, and every fault."""

    kills: Counter[str] = field(default_factory=Counter)
    completed: dict[str, int] = field(default_factory=dict)
    readings: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "kills": self.kills.total(), "of": dict(self.kills), "completed": self.completed,
            "artifacts_read_while_written": self.readings, "faults": self.faults, "seconds": round(self.seconds),
        }  # fmt: skip


class Soak:
    """One soak run, in separate workspaces below `folder`."""

    def __init__(self, folder: Path, rng: random.Random, only: Sequence[str] = tuple(SHARES)):
        self._folder, self._rng, self._began = folder, rng, time.monotonic()
        loss_figure([EpochRecord(1, 1.0, 1.0, 0.1, 1.0, 1.0)], title="").savefig(
            io.BytesIO()
        )  # initialises the font cache
        self._roots = {name: _workspace(folder / name) for name in ("training", "finished", "notebook")}
        self.kinds = [kind for kind in self._make_kinds(folder) if kind.name in only]
        self.result = Result()

    def _make_kinds(self, folder: Path) -> list[Kind]:
        training, finished, notebook = self._roots.values()
        kinds: list[Kind] = [Training(training, folder / "log", stream) for stream in ("patchtst", "swinmae")]
        kinds += [Scoring(finished, folder / "log", stream) for stream in ("patchtst", "swinmae")]
        return [*kinds, Export(training, folder / "log"), Server(finished, folder / "log"),
                Notebook(notebook, folder / "log")]  # fmt: skip

    def run(self, kills: int, until: float, reading_s: float) -> Result:
        self._prepare()
        self.result.readings, found = read_while_written(self._roots["finished"], reading_s)
        self.result.faults += found
        reported = time.monotonic()
        while self.result.kills.total() < kills and time.monotonic() < until:
            (kind,) = self._rng.choices(self.kinds, [SHARES[kind.name] for kind in self.kinds])
            self._kill_one(kind)
            if time.monotonic() - reported > _SECONDS_BETWEEN_LINES:
                reported = time.monotonic()
                self._report_progress(kills)
        self._finish()
        return self.result

    def _prepare(self) -> None:
        """Runs everything once without kills: the expected results and durations."""
        self._fill(self._roots["finished"])
        for kind in self.kinds:
            if not isinstance(kind, Server):
                began = time.monotonic()
                self._undisturbed(kind)
                kind.usual_s = time.monotonic() - began

    def _kill_one(self, kind: Kind) -> None:
        """Starts a process, kills it after a random time if it has not ended before, and checks the files."""
        process = kind.start()
        if not process.has_ended(self._rng.uniform(0.0, kind.reach * kind.usual_s)):
            kind.kill(process, self._rng)
            self.result.kills[kind.name] += 1
        if not process.has_ended(END_S):
            self.result.faults.append(f"{kind.name}: does not end: {process.last_line()}")
            process.kill()
            process.has_ended(END_S)
        found = kind.check(process)
        self.result.faults += found
        sys.stderr.writelines(f"{fault}\n" for fault in found)

    def _fill(self, root: Path) -> None:
        """Creates the inputs of scoring and of the server: trained models, and a dashboard."""

        def work(report: Report) -> None:
            for stream in CONFIGS:
                train(loaded(root, stream), root=root, run_id="soak")
            export_state(root)

        process = Process(work, self._folder / "log")
        if not process.has_ended(10 * END_S) or process.code != EXIT_OK:
            raise LandfallError(f"a process fails even without kills: {process.last_line()}")

    def _undisturbed(self, kind: Kind) -> None:
        process = kind.start()
        process.has_ended(10 * END_S)
        self.result.faults += kind.check(process)

    def _finish(self) -> None:
        """Runs each kind once more without kills; then no temporary file may be left."""
        self._fill(self._roots["finished"])
        for kind in self.kinds:
            if not isinstance(kind, Server):
                self._undisturbed(kind)
        self.result.faults += [f"{left} is left" for left in leftovers(self._folder)]
        self.result.completed = {kind.name: kind.completed for kind in self.kinds}
        self.result.seconds = time.monotonic() - self._began

    def _report_progress(self, kills: int) -> None:
        done = self.result.kills.total()
        trained = sum(kind.completed for kind in self.kinds if isinstance(kind, Training))
        minutes, faults = (time.monotonic() - self._began) / 60, len(self.result.faults)
        sys.stderr.write(
            f"{done} of {kills} kills, {trained} completed training runs, {faults} faults, {minutes:.1f} min\n"
        )


def _workspace(root: Path) -> Path:
    root.parent.mkdir(parents=True, exist_ok=True)
    build_small_workspace(root)
    install_page(root)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description="Kills all kinds of work at random moments.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=120.0, help="maximum duration (default: %(default)s)")
    parser.add_argument(
        "--reading", type=float, default=60.0, metavar="SECONDS", help="duration of concurrent writing and reading"
    )
    parser.add_argument("--only", action="append", choices=SHARES, metavar="KIND", help=f"of {', '.join(SHARES)}")

    def command(arguments: argparse.Namespace) -> int:
        logging.getLogger().setLevel(logging.WARNING)
        os.environ |= {MARK: str(os.getpid()), "OMP_NUM_THREADS": "1"}
        until = time.monotonic() + 60 * arguments.minutes
        # In memory if possible: data that a killed process has written is not lost, flushed or not.
        with tempfile.TemporaryDirectory(prefix="soak", dir=_MEMORY if Path(_MEMORY).is_dir() else None) as folder:
            tempfile.tempdir = os.environ["TMPDIR"] = folder  # so that temporary files of a notebook are found, too
            soak = Soak(Path(folder), random.Random(arguments.seed), arguments.only or tuple(SHARES))
            result = soak.run(arguments.kills, until, arguments.reading)
        document = {**environment(), "seed": arguments.seed, **result.to_json()}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return EXIT_FAILURE if result.faults else EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
