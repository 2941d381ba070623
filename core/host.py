"""Resources that the operating system grants this process: cores and threads, memory, instruction sets.

A container or a batch system limits both through Linux control groups (cgroups). Version 1 keeps one hierarchy for
each resource, version 2 one for all, and a limit on any parent counts too. `root` is the parent of /proc and /sys, a
parameter for tests.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.errors import LandfallError
from core.numbers import counted
from core.process_memory import MIB
from core.programs import answer_of

_ROOT = Path("/")
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class HostMemory:
    """Memory of the machine, or of the control group where that is smaller, in MiB; `source` names which.

    free_mb: available without swapping; file cache counts as free.
    """

    total_mb: int
    free_mb: int
    source: str


@dataclass(frozen=True)
class _MemoryFiles:
    """Files with the memory of a control group, in bytes; cache: keys of `memory.stat` for droppable file pages."""

    version: str
    limit: str
    usage: str
    cache: tuple[str, str]


_MEMORY_FILES = (
    _MemoryFiles("cgroup v2", "memory.max", "memory.current", ("inactive_file", "active_file")),
    _MemoryFiles(
        "cgroup v1", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
    ),
)


# -------------------------------------------------------------------------------------------------------------- cores
def usable_cores(root: Path = _ROOT) -> int:
    """Logical cores this process may use: those of its affinity, within the CPU quota rounded up; at least one."""
    allowed = len(affinity())
    return min(allowed, math.ceil(min(_cpu_quotas(root), default=allowed)))


def physical_cores(root: Path = _ROOT) -> int:
    """Physical cores among them: two logical cores that share one count once."""
    topologies = (root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list" for core in affinity())
    siblings = {_text(path) for path in topologies} - {None}
    physical = len(siblings) or psutil.cpu_count(logical=False) or 1
    return min(physical, usable_cores(root))


def affinity() -> set[int]:
    """The logical cores the system may put this process on, all of them if the system has no affinity."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cpu_quotas(root: Path) -> Iterator[float]:
    """The CPU quota of each control group in cores: its quota divided by its period."""
    for folder in _control_groups(root, "cpu"):
        v1 = [_text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        v2 = (_text(folder / "cpu.max") or "").split()
        numbers = [_integer(text) for text in v2 or v1]
        # No limit is `max` in version 2, -1 in version 1.
        if len(numbers) == 2 and all(number is not None and number > 0 for number in numbers):
            yield numbers[0] / numbers[1]


# ------------------------------------------------------------------------------------------------------------ threads
def thread_limit(cores: int, *, processes: int = 1, max_threads: int) -> tuple[int, str]:
    """The number of threads of one of `processes`, and the reason: the smallest of its share of the usable `cores`,
    `max_threads` of the configuration (0: no limit) and OMP_NUM_THREADS.

    The number is constant, because it decides the order of sums. The threads of one operation wait for each other: if
    another process uses the core of one of them, the operation takes longer than with a single thread
    (docs/performance.md has measurements). Therefore a single process leaves one core to others if the user set no
    limit.
    """
    limits = []
    if (own := _threads_of_environment()) is not None:
        limits.append((own, f"{_THREADS} = {own}"))
    if max_threads:
        limits.append((max_threads, f"max_threads = {max_threads}"))
    share, reason = max(1, cores // processes), counted(cores, "usable core")
    if processes > 1:
        reason += f" for {processes} processes"
    elif not limits and share > 1:
        share, reason = share - 1, f"{reason}, one left to other processes"
    return min([(share, reason), *limits], key=lambda limit: limit[0])


def _threads_of_environment() -> int | None:
    """The first number of OMP_NUM_THREADS, which may be a list with one for each level; None if there is none."""
    first = os.environ.get(_THREADS, "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


# ------------------------------------------------------------------------------------------------------------- memory
def memory_mb(root: Path = _ROOT) -> HostMemory:
    """Total and free memory: for each, the smaller value of the machine and of the control groups."""
    machine = psutil.virtual_memory()
    total, free, source = machine.total, machine.available, "the machine"
    for folder in _control_groups(root, "memory"):
        for files in _MEMORY_FILES:
            limit, usage = _integer(_text(folder / files.limit)), _integer(_text(folder / files.usage))
            if limit is None or limit >= machine.total:
                continue
            counters = _counters(folder / "memory.stat")
            cached = sum(counters.get(key, 0) for key in files.cache)
            free = min(free, max(0, limit - max(0, (usage or 0) - cached)))
            if limit < total:
                total, source = limit, files.version
    return HostMemory(total // MIB, free // MIB, source)


def oom_kills(root: Path = _ROOT) -> int:
    """How often the system has killed a process in the control groups of this process because memory ran out; 0 if
    unknown."""
    files = ("memory.events", "memory.oom_control")  # of version 2, of version 1
    counters = (_counters(folder / file) for folder in _control_groups(root, "memory") for file in files)
    return max((each.get("oom_kill", 0) for each in counters), default=0)


# ---------------------------------------------------------------------------------------------------------- processor
# The flags of an instruction set that multiplies bfloat16: AVX-512, AMX, Arm's.
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def cpu_model(root: Path = _ROOT) -> str:
    """Name of the processor, or of its architecture if the system does not report it."""
    name = _cpuinfo(root).get("model name") or _name_by_sysctl() or platform.processor() or platform.machine()
    return name or "unknown processor"


def cpu_flags(root: Path = _ROOT) -> frozenset[str]:
    """Instruction sets under their Linux names; unknown on other systems."""
    fields = _cpuinfo(root)
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor of /proc/cpuinfo; the others are the same."""
    first = (_text(root / "proc/cpuinfo") or "").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _name_by_sysctl() -> str | None:
    """The name of an Apple chip."""
    program = shutil.which("sysctl") if sys.platform == "darwin" else None
    if program is None:
        return None
    try:
        return answer_of([program, "-n", "machdep.cpu.brand_string"], timeout_s=5).stdout.strip()
    except LandfallError:
        return None


# ------------------------------------------------------------------------------------------------------ control groups
def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control group and of its parents, of every hierarchy that may limit the resource."""
    lines = (line.split(":", 2) for line in (_text(root / "proc/self/cgroup") or "").splitlines())
    # Version 2 names no controllers: its path is that of "".
    paths = {name: line[2] for line in lines if len(line) == 3 for name in line[1].split(",")}
    for line in (_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        mount, filesystem = before.split(), after.split()
        if filesystem[:1] == ["cgroup2"]:
            path = paths.get("")
        elif filesystem[:1] == ["cgroup"] and controller in filesystem[-1].split(","):
            path = paths.get(controller)
        else:
            continue
        if path is not None:
            group = _inside(path, mount[3])
            yield from (root / mount[4].lstrip("/") / folder for folder in (group, *group.parents))


def _inside(path: str, mounted: str) -> Path:
    """The group's folder below the mount point. A container may see only its own part of the hierarchy mounted."""
    group = Path(path)
    return group.relative_to(mounted) if group.is_relative_to(mounted) else Path()


def _counters(path: Path) -> dict[str, int]:
    """The values of a file with a name and a number in each line."""
    lines = (line.split() for line in (_text(path) or "").splitlines())
    return {line[0]: _integer(line[1]) or 0 for line in lines if len(line) == 2}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
