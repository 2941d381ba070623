"""Tests and measures Landfall on the CUDA device of this machine, in one report.

    python -m tools.prove_cuda                    # nine minutes at most, one GPU, no network
    python -m tools.prove_cuda --device cpu       # every section, small, on the CPU
    python -m tools.prove_cuda --only speed       # the sections whose name starts with `speed`; may be repeated

Sections run one after the other, the most important first, each in its own process with its own time limit. If a
section fails, crashes or takes too long, the others still run; without a usable device, only the first one runs.
`report.json` and `report.md` are updated after each one. The same command continues: sections without a result first,
then those that did not succeed; `--again` repeats all.
Exit status: 0 if every section passed or was skipped, 1 if one did not, 75 if there was no time for one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.errors import EXIT_FAILURE, EXIT_OK, EXIT_RESUMABLE
from core.reading import read_json_object
from core.workspace import CODE_ROOT, utc_now, write_json, write_text
from tools.prove_cuda.sections import DETECTION, SECTIONS, Section

OUT = {"cuda": Path("artifacts/cuda"), "cpu": Path("artifacts/cuda-stand-in")}
DONE, BAD, SKIPPED = "passed", "failed", "skipped"
TIMED_OUT, NOT_RUN = "timed out", "not run"
LOG_LINES = 20
# A section is started only if this share of its limit is left: most need about half of it.
MIN_TIME_SHARE = 0.5


@dataclass
class Outcome:
    """The result of a section. status: passed, failed, timed out, skipped or not run. rows: its results so far, as
    dicts of `rows.Row`. log: the last lines of its output if it did not succeed."""

    section: str
    title: str
    status: str = NOT_RUN
    seconds: float = 0.0
    reason: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def has_succeeded(self) -> bool:
        return self.status in (DONE, SKIPPED)

    @property
    def has_no_device(self) -> bool:
        return any(row["name"] == DETECTION and row["status"] == BAD for row in self.rows)


class Proof:
    """A run of the sections in a folder, and its report. sections: in order of importance."""

    def __init__(self, sections: Sequence[Section], device: str, out: Path, peers: Path | None = None):
        self.device, self.out, self.peers = device, out, peers
        self.sections = {section.name: section for section in sections}
        self.outcomes = {section.name: self._earlier(section) for section in sections}

    def _earlier(self, section: Section) -> Outcome:
        """The result of an earlier command on this kind of device."""
        try:
            saved = read_json_object(self._file(section.name))
            assert saved.pop("device") == self.device
            return Outcome(**saved)
        except (OSError, ValueError, KeyError, TypeError, AssertionError):
            return Outcome(section.name, section.title)

    def order(self, only: Sequence[str] = (), *, again: bool = False) -> list[Section]:
        """The sections to run: those without a result, then those that did not succeed."""
        chosen = [s for name, s in self.sections.items() if not only or name.startswith(tuple(only))]
        if again:
            return chosen
        left = [section for section in chosen if not self.outcomes[section.name].has_succeeded]
        return sorted(left, key=lambda section: self.outcomes[section.name].status != NOT_RUN)

    def run(self, sections: Sequence[Section], seconds: float) -> int:
        """Runs the sections for which there is enough time; returns the exit status."""
        deadline, late = time.monotonic() + seconds, []
        self.report()
        for section in sections:
            left_s = deadline - time.monotonic()
            if left_s < MIN_TIME_SHARE * section.limit_s:
                late.append(section.name)
                continue
            sys.stderr.write(f"{section.name} …\n")
            outcome = self.outcomes[section.name] = self._run(section, min(section.limit_s, left_s))
            write_json(self._file(section.name), {"device": self.device, **asdict(outcome)})
            self.report()
            sys.stderr.write(f"  {outcome.status} in {outcome.seconds:.0f} s {outcome.reason}\n")
            if outcome.has_no_device:
                sys.stderr.write("the other sections need a device\n")
                return EXIT_FAILURE
        if late:
            sys.stderr.write(f"no time for {', '.join(late)}; the same command continues\n")
            return EXIT_RESUMABLE
        return EXIT_OK if all(self.outcomes[section.name].has_succeeded for section in sections) else EXIT_FAILURE

    def _run(self, section: Section, limit_s: float) -> Outcome:
        """Runs one section in a separate process group, so that its child processes are ended, too."""
        folder, started = self.out / "sections", time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        rows_file, log = folder / f"{section.name}.rows.json", folder / f"{section.name}.log"
        rows_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", section.program, section.name, self.device, str(self.out.absolute())]
        command += [str(self.peers.absolute())] if self.peers else []
        environment = {**os.environ, "PYTHONPATH": str(CODE_ROOT), "PYTHONUNBUFFERED": "1"}
        outcome = Outcome(section.name, section.title)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=CODE_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
            try:
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_group(process)
        outcome.seconds = round(time.monotonic() - started, 1)
        outcome.rows = _rows(rows_file)
        outcome.status, outcome.reason = _status_of(code, outcome.rows, limit_s)
        if not outcome.has_succeeded:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            outcome.log = [line[:300] for line in lines if line.strip()][-LOG_LINES:]
        return outcome

    def _file(self, name: str) -> Path:
        return self.out / "sections" / f"{name}.json"

    # ----------------------------------------------------------------------------------------------------------- report
    def report(self) -> None:
        """Writes report.json and report.md with all results so far."""
        outcomes = list(self.outcomes.values())
        document = {"device": self.device, "written": utc_now(), "sections": [asdict(outcome) for outcome in outcomes]}
        write_json(self.out / "report.json", document)
        write_text(self.out / "report.md", as_markdown(self.device, outcomes))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the section and its child processes: workers, notebooks, ranks."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return list(read_json_object(path)["rows"])
    except (OSError, ValueError, KeyError):
        return []


def _status_of(code: int | None, rows: Sequence[dict[str, Any]], limit_s: float) -> tuple[str, str]:
    """Status and reason of a section, from the exit status of its process (None: ended at its limit) and its rows."""
    if code is None:
        return TIMED_OUT, f"ended after {limit_s:.0f} s with {len(rows)} results"
    if code < 0:
        return BAD, f"its process was killed by {signal.Signals(-code).name}"
    bad = [row for row in rows if row["status"] == BAD]
    if bad:
        return BAD, "; ".join(f"{row['name']}: {row['reason']}"[:300] for row in bad[:3])
    if code:
        return BAD, f"its process ended with status {code}"
    if not rows:
        return BAD, "it has no result"
    skipped = [row for row in rows if row["status"] == SKIPPED]
    if len(skipped) == len(rows):
        return SKIPPED, skipped[0]["reason"]
    return DONE, f"{len(skipped)} of {len(rows)} skipped" if skipped else ""


def as_markdown(device: str, outcomes: Sequence[Outcome]) -> str:
    """The report: a table of the sections, then the results of each."""
    what = "on CUDA" if device == "cuda" else "of the small run on the CPU: no proof about CUDA"
    lines = [f"# Report {what}", "", "| section | result | seconds | |", "|---|---|---|---|"]
    lines += [f"| {o.title} | {o.status} | {o.seconds:.0f} | {_cell(o.reason)} |" for o in outcomes]
    for outcome in outcomes:
        if outcome.rows or outcome.log:
            lines += ["", f"## {outcome.title}: {outcome.status}", ""]
        if outcome.rows:
            lines += ["| | result | |", "|---|---|---|"]
            lines += [f"| {_cell(row['name'])} | {row['status']} | {_cell(_details(row))} |" for row in outcome.rows]
        if outcome.log:
            lines += ["", "```", *outcome.log, "```"]
    return "\n".join(lines) + "\n"


def _details(row: dict[str, Any]) -> str:
    facts = [f"{name} {_value(value)}" for name, value in row["facts"].items()]
    return "; ".join([*facts, *([row["reason"]] if row["reason"] else [])])


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# -------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.prove_cuda", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--device", choices=OUT, default="cuda", help="cpu: every section, small, on the CPU (default: %(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="time for all sections (default: %(default)s)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="sections whose name starts with NAME"
    )
    parser.add_argument("--again", action="store_true", help="repeat sections that succeeded")
    parser.add_argument("--list", action="store_true", help="print the sections and exit")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the report (default: by device)")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="clones of the authors' repositories, by their names")
    arguments = parser.parse_args(argv)
    if arguments.list:
        for section in SECTIONS:
            sys.stdout.write(f"{section.name:<20} at most {section.limit_s:>3.0f} s  {section.title}\n")
        return EXIT_OK
    out = arguments.out or CODE_ROOT / OUT[arguments.device]
    proof = Proof(SECTIONS, arguments.device, out, arguments.peers)
    code = proof.run(proof.order(arguments.only, again=arguments.again), arguments.minutes * 60)
    sys.stdout.write((out / "report.md").read_text(encoding="utf-8"))
    return code


if __name__ == "__main__":
    sys.exit(main())
