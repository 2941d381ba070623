"""The number of CPU threads: limits of configuration, environment and affinity, and fewer next to other processes."""

import os
import subprocess
import sys
from collections import namedtuple

import psutil
import pytest
import torch

from benchmarks.busy import busy
from core.devices import threads
from core.devices.host import affinity
from core.devices.threads import CoreUse, Threads, thread_limit, use
from tests.support import REPO_ROOT

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity mask")


# --------------------------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    "cores, processes, max_threads, variable, expected",
    [
        (8, 1, 0, None, (8, "8 usable cores")),
        (8, 3, 0, None, (2, "8 usable cores for 3 processes")),
        (2, 4, 0, None, (1, "2 usable cores for 4 processes")),
        (8, 1, 0, "3", (3, "OMP_NUM_THREADS = 3")),
        (8, 1, 0, "4,2", (4, "OMP_NUM_THREADS = 4")),
        (8, 1, 0, "16", (8, "8 usable cores")),
        (8, 1, 5, None, (5, "max_threads = 5")),
        (8, 1, 5, "3", (3, "OMP_NUM_THREADS = 3")),
        (8, 1, 2, "3", (2, "max_threads = 2")),
        (8, 1, 0, "many", (8, "8 usable cores")),
        (8, 1, 0, "0", (8, "8 usable cores")),
        (8, 1, 0, "", (8, "8 usable cores")),
    ],
)
def test_the_smallest_limit_applies(cores, processes, max_threads, variable, expected):
    environ = {} if variable is None else {"OMP_NUM_THREADS": variable}
    assert thread_limit(cores, processes=processes, max_threads=max_threads, environ=environ) == expected


@pytest.mark.parametrize(
    "cores, processes, max_threads, variable, expected",
    [
        (8, 1, 0, None, (7, "8 usable cores, one left to other processes")),
        (8, 2, 0, None, (4, "8 usable cores for 2 processes")),
        (2, 1, 0, None, (1, "2 usable cores, one left to other processes")),
        (1, 1, 0, None, (1, "1 usable cores")),
        (8, 1, 8, None, (8, "8 usable cores")),
        (8, 1, 0, "8", (8, "8 usable cores")),
        (8, 1, 3, None, (3, "max_threads = 3")),
    ],
)
def test_a_fixed_number_leaves_one_core_free_unless_the_user_sets_it(cores, processes, max_threads, variable, expected):
    environ = {} if variable is None else {"OMP_NUM_THREADS": variable}
    limit = thread_limit(cores, processes=processes, max_threads=max_threads, is_fixed=True, environ=environ)
    assert limit == expected


PROGRAM = """\
import os, sys
if sys.argv[1:]:
    os.sched_setaffinity(0, {int(sys.argv[1])})
from core.config.execution import Execution
from core.devices import threads
from core.devices.manager import DeviceManager
plan = DeviceManager(Execution.model_validate({"device": {"prefer": "cpu"}})).plan()
threads.use(plan.threads, is_fixed=True)
import torch
print(plan.threads, torch.get_num_threads(), plan.threads_reason, sep=";")
"""


def planned(*words: str, **environment: str) -> list[str]:
    """Threads of the plan, threads of torch, and the reason, in a new process."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=REPO_ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return result.stdout.strip().split(";")


def test_a_process_keeps_to_the_environment():
    assert planned(OMP_NUM_THREADS="1") == [
        "1",
        "1",
        "OMP_NUM_THREADS = 1" if len(affinity()) > 1 else "1 usable cores",
    ]


@needs_affinity
def test_a_process_keeps_to_its_affinity_mask():
    assert planned(str(min(affinity()))) == ["1", "1", "1 usable cores"]


def test_the_environment_is_not_changed():
    """OMP_WAIT_POLICY and GOMP_SPINCOUNT stay the user's own: docs/performance.md has what they cost."""
    program = "import os, runpy, sys; before = dict(os.environ); from core.devices.manager import DeviceManager;"
    program += (
        "DeviceManager().plan(); print(sorted(n for n in {*os.environ} - {*before} if n.startswith(('OMP', 'GOMP'))))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------------ other processes
class Load:
    """The load of other processes on four cores."""

    def __init__(self):
        self.cores = {0, 1, 2, 3}
        self.taken = 0.0

    def others(self) -> float:
        return self.taken


def adapted(most: int, *loads: float) -> list[int]:
    """The numbers of threads that were set for a sequence of loads."""
    numbers, load = [], Load()
    own = Threads(most, core_use=load, set_number=numbers.append)
    for load.taken in loads:
        own.look()
    return numbers


def test_an_idle_machine_changes_nothing():
    assert adapted(4, 0.0, 0.1, 0.39) == []


def test_cores_used_by_other_processes_are_released_and_reclaimed():
    assert adapted(4, 0.5, 1.0, 2.0, 9.0, 0.2) == [3, 2, 1, 4]


def test_there_are_never_more_threads_than_the_limit():
    assert adapted(2, 0.0, 1.9, 3.0, 0.0) == [1, 2]


def test_a_fixed_number_reports_the_load_once(caplog):
    numbers, load = [], Load()
    own = Threads(3, core_use=load, set_number=numbers.append, is_fixed=True)
    for load.taken in (1.0, 3.0, 3.0, 0.0, 3.0):
        own.look()
    assert numbers == []
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "max_threads=1" in record.message


def test_the_number_of_threads_is_constant_between_two_readings(monkeypatch):
    numbers, load = [], Load()
    own = Threads(4, core_use=load, set_number=numbers.append)
    load.taken = 4.0
    own.adapt()
    assert numbers == []
    monkeypatch.setattr(threads, "INTERVAL_S", 0.0)
    own.adapt()
    assert numbers == [1]


Times = namedtuple("Times", ["user", "nice", "system", "idle"])


@pytest.fixture
def readings(monkeypatch):
    """Clock, processor time of this process, and times of three cores, of which this process may use the first two."""
    now = {"clock": 100.0, "own": 10.0, "cores": [Times(50, 0, 5, 0), Times(50, 0, 5, 0), Times(50, 0, 5, 0)]}
    monkeypatch.setattr("core.devices.threads.affinity", lambda: {0, 1})
    monkeypatch.setattr(threads.time, "monotonic", lambda: now["clock"])
    monkeypatch.setattr(threads.time, "process_time", lambda: now["own"])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: list(now["cores"]))
    return now


def test_the_load_of_others_excludes_own_and_other_cores(readings):
    core_use = CoreUse()
    readings |= {"clock": 102.0, "own": 13.0}
    readings["cores"] = [Times(51.5, 0.4, 5.5, 0), Times(51.5, 0.0, 5.1, 0), Times(90, 0, 5, 0)]
    assert core_use.others() == pytest.approx((2.4 + 1.6 - 3.0) / 2.0)
    assert core_use.others() == 0.0, "no time has passed"


def test_a_busy_process_is_found():
    """The process and all others use the cores that they are allowed to use."""
    core_use = CoreUse()
    with busy(1):
        threads.time.sleep(1.0)
        assert core_use.others() > threads.SPARE_SHARE


# --------------------------------------------------------------------------------------------------------- this process
@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield
    use(before, is_fixed=True)


def test_a_fixed_number_stays(torch_threads, monkeypatch):
    monkeypatch.setattr(CoreUse, "others", lambda self: 9.0)
    use(2, is_fixed=True)
    threads.adapt()
    assert torch.get_num_threads() == 2


def test_a_process_starts_with_the_free_cores(torch_threads, monkeypatch):
    monkeypatch.setattr(CoreUse, "others", lambda self: float(len(self.cores)))
    use(2)
    assert torch.get_num_threads() == 1


def test_the_number_is_kept_if_the_system_hides_core_use(torch_threads, monkeypatch, caplog):
    def refuse(percpu):
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    use(2)
    threads.adapt()
    assert torch.get_num_threads() == 2
