"""Sections that pass, are skipped, fail, crash or do not end: `test_prove_cuda` runs them in place of the real ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from tools.prove_cuda.rows import Row, Where
from tools.prove_cuda.sections import DETECTION, Section, main


def no_device(where: Where) -> Iterator[Row]:
    yield Row("versions", "measured", {"python": "3"})
    if not (where.out / "repaired").exists():
        yield Row(DETECTION, "failed", reason="torch finds no cuda device")


def passes(where: Where) -> Iterator[Row]:
    with (where.out / "passed").open("a") as file:
        file.write("once\n")
    yield Row("a", "passed", {"seconds": 1.5})
    yield Row("b", "skipped", reason="no peer")


def skips(where: Where) -> Iterator[Row]:
    yield Row("a", "skipped", reason="the package x | y is not installed")


def fails(where: Where) -> Iterator[Row]:
    yield Row("a", "passed")
    yield Row("b", "failed", reason="1 is not 2")
    if not (where.out / "repaired").exists():
        raise ValueError("no such number\nsecond line")


def crashes(where: Where) -> Iterator[Row]:
    yield Row("a", "measured", {"figure": 2.0})
    sys.stderr.write("the last words\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(where: Where) -> Iterator[Row]:
    """With a child that would outlive it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    (where.out / "child").write_text(str(child.pid))
    yield Row("a", "measured")
    time.sleep(300)


def repaired(where: Where) -> Iterator[Row]:
    """Fails until a file exists."""
    yield Row("a", "passed" if (where.out / "repaired").exists() else "failed", reason="not repaired")


def finds_nothing(where: Where) -> Iterator[Row]:
    yield from ()


SECTIONS = tuple(
    Section(work.__name__, work.__name__, 2.0 if work is hangs else 60.0, work, "tests.tools.cuda_sections")
    for work in (passes, skips, fails, crashes, hangs, repaired, finds_nothing, no_device)
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SECTIONS))
