"""Mutation testing of the code whose slips show in no error: every small change to it must break a test.

    python -m benchmarks.mutation                       all subjects
    python -m benchmarks.mutation scaling               one of them
    python -m benchmarks.mutation scaling --lines 92    its mutants in this line

Writes the mutants that lived, a line each, and a table. The tests of a subject are loaded once. A first fork runs them
all on the code as it is, which they must pass, also quickest first, and notes which lines each test reaches; then each
mutant has a fork of its own, with the tests that reach its statement, quickest first, up to the first failure. A mutant
that cannot be imported is killed; so is one whose tests take longer than four times what they did, and it is told.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple, NoReturn

import pytest
from hypothesis import Phase
from hypothesis import settings as trials

from benchmarks.mutants import Mutant, mutants_of, put_in_place

REPOSITORY = Path(__file__).resolve().parents[1]
# Module, and the test files that are to hold it.
SUBJECTS = {
    "masking": ("core.models.masking", ["tests/core/models/test_masking.py"]),
    "scaling": ("core.data.scaling", ["tests/core/data/test_scaling.py"]),
    "thresholds": ("inference.thresholds", ["tests/inference/test_thresholds.py"]),
    "checkpoint": ("core.checkpoint", ["tests/core/test_checkpoint.py"]),
    "resuming": ("trainers.resuming", ["tests/trainers/test_what_to_resume.py"]),
}
_WITHOUT = [f"-pno:{plugin}" for plugin in ("cacheprovider", "terminalreporter", "xdist", "timeout")]
_TIMES_AS_LONG, _SPARE_S = 4, 3.0
_PASSED, _FAILED, _NOT_IN_PLACE = 0, 1, 2


class Reach(NamedTuple):
    """What a test did with the code as it is."""

    item: pytest.Item
    seconds: float
    lines: frozenset[int]


class Judge:
    """Holds the mutants of a subject against its tests, in the place of pytest's own loop."""

    def __init__(self, name: str, lines: Sequence[int]):
        self.name, self.lines = name, lines
        self.module: ModuleType = importlib.import_module(SUBJECTS[name][0])
        self.fates: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        file = self.module.__file__
        source = Path(file).read_text(encoding="utf-8")
        unchanged = compile(source, file, "exec")
        reaches = reaches_of(session, self.module, unchanged)
        if fate_of(Mutant(0, None, "", "", unchanged), session, self.module, reaches) != "lived":
            give_up(f"the tests of {self.name} fail without a change, quickest first")
        for mutant in mutants_of(source, file):
            if not self.lines or mutant.line in self.lines:
                fate = fate_of(mutant, session, self.module, reaches)
                self.fates[fate] += 1
                if fate != "killed":
                    where = f"{Path(file).relative_to(REPOSITORY)}:{mutant.line}"
                    say(f"{where} {fate}: {mutant.before} → {mutant.after}")
        return True


def reaches_of(session: pytest.Session, module: ModuleType, unchanged: CodeType) -> list[Reach]:
    """Of every test, quickest first. `unchanged` is put in place as mutants are; gives up where a test then fails."""
    found, told = os.pipe()

    def run_all() -> int:
        put_in_place(module, unchanged)
        with os.fdopen(told, "w") as file:
            for place in range(len(session.items)):
                began = time.monotonic()
                with lines_run(module) as lines:
                    if not passes(session, [session.items[place]]):
                        return _FAILED
                file.write(json.dumps([place, time.monotonic() - began, sorted(lines)]) + "\n")
        return _PASSED

    pid = fork(run_all)
    os.close(told)
    with os.fdopen(found) as file:
        notes = [json.loads(line) for line in file]
    if not session.items or ended(pid) != _PASSED:
        give_up(f"the tests of {module.__name__} fail without a change, {len(notes)} passed before")
    reaches = [Reach(session.items[place], seconds, frozenset(lines)) for place, seconds, lines in notes]
    return sorted(reaches, key=lambda reach: reach.seconds)


@contextmanager
def lines_run(module: ModuleType) -> Iterator[set[int]]:
    """The lines of a module that are run inside, by any thread."""
    lines: set[int] = set()

    def call(frame: FrameType, event: str, argument: Any) -> Callable | None:
        return line if frame.f_code.co_filename == module.__file__ else None

    def line(frame: FrameType, event: str, argument: Any) -> Callable:
        lines.add(frame.f_lineno)
        return line

    threading.settrace(call), sys.settrace(call)
    try:
        yield lines
    finally:
        threading.settrace(None), sys.settrace(None)


def fate_of(mutant: Mutant, session: pytest.Session, module: ModuleType, reaches: Sequence[Reach]) -> str:
    """`killed`, `timed out` or `lived`."""
    reaching = [reach for reach in reaches if mutant.reach is None or not reach.lines.isdisjoint(mutant.reach)]
    limit_s = _SPARE_S + _TIMES_AS_LONG * sum(reach.seconds for reach in reaching)

    def run_reaching() -> int:
        signal.setitimer(signal.ITIMER_REAL, limit_s)  # kills it: an endless loop is a difference, too
        try:
            put_in_place(module, mutant.code)
        except ValueError as error:
            return _NOT_IN_PLACE if "free vars" in str(error) else _FAILED
        return _PASSED if passes(session, [reach.item for reach in reaching]) else _FAILED

    status = ended(fork(run_reaching))
    if status == _NOT_IN_PLACE:
        give_up(f"{mutant.before} → {mutant.after} cannot be put in place")
    return {_PASSED: "lived", -signal.SIGALRM: "timed out"}.get(status, "killed")


def passes(session: pytest.Session, items: Sequence[pytest.Item]) -> bool:
    """Whether these tests pass, in this process; ends at the first that does not."""
    for item, following in zip_longest(items, items[1:]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return False
    return True


def fork(work: Callable[[], int]) -> int:
    """Its process: silent, ends with what `work` returns, or as failed with what it raises."""
    pid = os.fork()
    if not pid:
        status = _FAILED
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1), os.dup2(nowhere, 2)
            status = work()
        finally:
            os._exit(status)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ---------------------------------------------------------------------------------------------------------- the command
def table(rows: Sequence[tuple[str, Counter[str], float]]) -> Iterator[str]:
    yield "| module | mutants | killed | of these by the time limit | lived | seconds |"
    yield "|---|---|---|---|---|---|"
    for name, fates, seconds in rows:
        killed, late, lived = fates["killed"] + fates["timed out"], fates["timed out"], fates["lived"]
        yield f"| {name} | {killed + lived} | {killed} | {late} | {lived} | {seconds:.0f} |"


def judged(name: str, lines: Sequence[int]) -> Counter[str]:
    """In a fork, as each subject needs a pytest of its own."""
    found, told = os.pipe()
    pid = os.fork()
    if not pid:
        os.chdir(REPOSITORY)
        trials.register_profile("mutants", phases=[Phase.explicit, Phase.generate], derandomize=True, database=None)
        trials.load_profile("mutants")
        judge = Judge(name, lines)
        with tempfile.TemporaryDirectory() as folder:
            options = [*_WITHOUT, "--capture=no", f"--basetemp={folder}/tests", "-Wignore", "-mnot slow"]
            status = pytest.main([*options, *SUBJECTS[name][1]], plugins=[judge])
        os.write(told, json.dumps(judge.fates).encode())
        os._exit(status if isinstance(status, int) else 1)
    os.close(told)
    with os.fdopen(found) as file:
        fates = file.read()
    if ended(pid) != 0:
        raise SystemExit(1)
    return Counter(json.loads(fates))


def give_up(why: str) -> NoReturn:
    say(why)
    pytest.exit(why, returncode=1)


def say(line: str) -> None:
    sys.__stdout__.write(line + "\n")
    sys.__stdout__.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("subjects", nargs="*", choices=[*SUBJECTS, []], metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--lines", nargs="+", type=int, default=[], help="only mutants in these lines")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.subjects or SUBJECTS:
        began = time.monotonic()
        fates = judged(name, arguments.lines)
        rows.append((name, fates, time.monotonic() - began))
    say("\n".join(table(rows)))


if __name__ == "__main__":
    main()
