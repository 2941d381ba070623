"""The number of CPU threads: limits of configuration, environment and affinity."""

import os
import subprocess
import sys

import pytest

from core.host import affinity, thread_limit
from tests.support import REPO_ROOT

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity mask")


# --------------------------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    "cores, processes, max_threads, variable, expected",
    [
        (8, 1, 0, None, (7, "8 usable cores, one left to other processes")),
        (2, 1, 0, None, (1, "2 usable cores, one left to other processes")),
        (1, 1, 0, None, (1, "1 usable core")),
        (8, 2, 0, None, (4, "8 usable cores for 2 processes")),
        (8, 3, 0, None, (2, "8 usable cores for 3 processes")),
        (2, 4, 0, None, (1, "2 usable cores for 4 processes")),
        (8, 1, 0, "3", (3, "OMP_NUM_THREADS = 3")),
        (8, 1, 0, "4,2", (4, "OMP_NUM_THREADS = 4")),
        (8, 1, 0, "8", (8, "8 usable cores")),
        (8, 1, 0, "16", (8, "8 usable cores")),
        (8, 1, 5, None, (5, "max_threads = 5")),
        (8, 1, 8, None, (8, "8 usable cores")),
        (8, 1, 5, "3", (3, "OMP_NUM_THREADS = 3")),
        (8, 1, 2, "3", (2, "max_threads = 2")),
        (8, 1, 0, "many", (7, "8 usable cores, one left to other processes")),
        (8, 1, 0, "0", (7, "8 usable cores, one left to other processes")),
        (8, 1, 0, "", (7, "8 usable cores, one left to other processes")),
    ],
)
def test_the_smallest_limit_applies(monkeypatch, cores, processes, max_threads, variable, expected):
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert thread_limit(cores, processes=processes, max_threads=max_threads) == expected


PROGRAM = """\
import os, sys
if sys.argv[1:]:
    os.sched_setaffinity(0, {int(sys.argv[1])})
from core.config.execution import Execution
from core.devices.manager import DeviceManager
plan = DeviceManager(Execution.model_validate({"device": {"prefer": "cpu"}})).plan()
import torch
torch.set_num_threads(plan.threads)
print(plan.threads, torch.get_num_threads(), plan.threads_reason, sep=";")
"""


def planned(*words: str, **environment: str) -> list[str]:
    """Threads of the plan, threads of torch, and the reason, in a new process."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=REPO_ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return result.stdout.strip().split(";")


@pytest.mark.slow
def test_a_process_keeps_to_the_environment():
    assert planned(OMP_NUM_THREADS="1") == [
        "1",
        "1",
        "OMP_NUM_THREADS = 1" if len(affinity()) > 1 else "1 usable core",
    ]


@pytest.mark.nightly
@needs_affinity
def test_a_process_keeps_to_its_affinity_mask():
    assert planned(str(min(affinity()))) == ["1", "1", "1 usable core"]


@pytest.mark.nightly
def test_the_environment_is_not_changed():
    """OMP_WAIT_POLICY and GOMP_SPINCOUNT stay the user's own: docs/performance.md has what they cost."""
    program = "import os, runpy, sys; before = dict(os.environ); from core.devices.manager import DeviceManager;"
    program += (
        "DeviceManager().plan(); print(sorted(n for n in {*os.environ} - {*before} if n.startswith(('OMP', 'GOMP'))))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
