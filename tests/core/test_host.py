import os
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from core import host

MIB = 2**20
V2 = {
    "proc/self/cgroup": "0::/jobs/train",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate",
}
V1 = {
    "proc/self/cgroup": "4:memory:/jobs/train\n2:cpu,cpuacct:/jobs/train\n1:name=systemd:/",
    "proc/self/mountinfo": "\n".join(
        [
            "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct",
            "36 31 0:33 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory",
            "40 23 0:41 / /tmp rw - tmpfs tmpfs rw",
        ]
    ),
}


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    """Eight logical cores, 8 GiB of memory, 4 GiB of it free."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    memory = SimpleNamespace(total=8192 * MIB, available=4096 * MIB)
    monkeypatch.setattr(host.psutil, "virtual_memory", lambda: memory)


@pytest.fixture
def tree(tmp_path):
    def write(*parts: dict[str, object]) -> Path:
        for name, text in (item for part in parts for item in part.items()):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return tmp_path

    return write


# -------------------------------------------------------------------------------------------------------------- cores
def test_without_a_quota_the_affinity_counts(tree):
    assert host.usable_cores(tree()) == 8
    assert host.usable_cores(tree(V2, {"sys/fs/cgroup/jobs/train/cpu.max": "max 100000"})) == 8


@pytest.mark.parametrize("quota, cores", [(350_000, 4), (50_000, 1), (200_000, 2), (9_900_000, 8)])
def test_a_cpu_quota_is_rounded_up(tree, quota, cores):
    assert host.usable_cores(tree(V2, {"sys/fs/cgroup/jobs/train/cpu.max": f"{quota} 100000"})) == cores


def test_version_one_has_its_own_files(tree):
    folder = "sys/fs/cgroup/cpu/jobs/train"
    unlimited = {f"{folder}/cpu.cfs_quota_us": -1, f"{folder}/cpu.cfs_period_us": 100_000}
    assert host.usable_cores(tree(V1, unlimited)) == 8
    assert host.usable_cores(tree({f"{folder}/cpu.cfs_quota_us": 250_000})) == 3


def test_the_quota_of_a_parent_counts(tree):
    root = tree(
        V2, {"sys/fs/cgroup/jobs/train/cpu.max": "600000 100000", "sys/fs/cgroup/jobs/cpu.max": "200000 100000"}
    )
    assert host.usable_cores(root) == 2


def test_cores_that_share_a_physical_one_count_once(tree):
    pairs = {f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": f"{i % 4},{i % 4 + 4}" for i in range(8)}
    assert host.physical_cores(tree(pairs)) == 4
    assert host.physical_cores(tree(V2, {"sys/fs/cgroup/jobs/train/cpu.max": "200000 100000"})) == 2


def test_only_the_cores_of_the_affinity_mask_count(tree, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 4, 5})
    pairs = {f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": f"{i % 4},{i % 4 + 4}" for i in range(8)}
    assert (host.usable_cores(tree(pairs)), host.physical_cores(tree(pairs))) == (3, 2)


def test_without_a_topology_psutil_counts_physical_cores(tree, monkeypatch):
    monkeypatch.setattr(host.psutil, "cpu_count", lambda logical: 6)
    assert host.physical_cores(tree()) == 6
    monkeypatch.setattr(host.psutil, "cpu_count", lambda logical: None)
    assert host.physical_cores(tree()) == 1


# ------------------------------------------------------------------------------------------------------------- memory
def test_without_a_limit_the_machine_counts(tree):
    assert host.memory_mb(tree()) == host.HostMemory(8192, 4096, "the machine")
    unlimited = {"sys/fs/cgroup/jobs/train/memory.max": "max", "sys/fs/cgroup/jobs/train/memory.current": 100 * MIB}
    assert host.memory_mb(tree(V2, unlimited)) == host.HostMemory(8192, 4096, "the machine")


@pytest.mark.parametrize(
    "version, mounted, limit, usage, prefix",
    [
        (V2, "sys/fs/cgroup", "memory.max", "memory.current", ""),
        (V1, "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ],
    ids=["v2", "v1"],
)
def test_a_memory_limit_is_the_total_and_file_cache_is_free(tree, version, mounted, limit, usage, prefix):
    folder = f"{mounted}/jobs/train"
    statistics = f"anon 1\n{prefix}inactive_file {30 * MIB}\n{prefix}active_file {70 * MIB}\nbroken line here"
    root = tree(
        version,
        {f"{folder}/{limit}": 512 * MIB, f"{folder}/{usage}": 300 * MIB, f"{folder}/memory.stat": statistics},
    )
    found = host.memory_mb(root)
    assert (found.total_mb, found.free_mb) == (512, 512 - (300 - 100))
    assert found.source == ("cgroup v2" if version is V2 else "cgroup v1")


def test_a_limit_above_the_memory_of_the_machine_is_ignored(tree):
    root = tree(V1, {"sys/fs/cgroup/memory/jobs/train/memory.limit_in_bytes": 2**63 - 4096})
    assert host.memory_mb(root).source == "the machine"


def test_the_machine_may_have_less_free_than_the_limit_allows(tree):
    root = tree(V2, {"sys/fs/cgroup/jobs/train/memory.max": 6000 * MIB})
    assert host.memory_mb(root) == host.HostMemory(6000, 4096, "cgroup v2")


def test_the_limit_and_the_usage_of_a_parent_count(tree):
    root = tree(
        V2,
        {
            "sys/fs/cgroup/jobs/train/memory.max": 2048 * MIB,
            "sys/fs/cgroup/jobs/memory.max": 1024 * MIB,
            "sys/fs/cgroup/jobs/memory.current": 1000 * MIB,
        },
    )
    assert host.memory_mb(root) == host.HostMemory(1024, 24, "cgroup v2")


def test_free_memory_is_zero_if_the_limit_is_exceeded(tree):
    folder = "sys/fs/cgroup/jobs/train"
    root = tree(V2, {f"{folder}/memory.max": 512 * MIB, f"{folder}/memory.current": 600 * MIB})
    assert host.memory_mb(root).free_mb == 0


@pytest.mark.parametrize(
    "group, mounted",
    [("/docker/abc", "/docker/abc"), ("/../../outside", "/"), ("/elsewhere", "/docker/abc")],
    ids=["own part mounted", "outside the namespace", "another part"],
)
def test_a_container_sees_its_limit_at_the_mount_point(tree, group, mounted):
    root = tree(
        {
            "proc/self/cgroup": f"0::{group}",
            "proc/self/mountinfo": f"31 23 0:28 {mounted} /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "sys/fs/cgroup/memory.max": 256 * MIB,
        }
    )
    assert host.memory_mb(root).total_mb == 256


@pytest.mark.parametrize(
    ("version", "file"),
    [(V2, "sys/fs/cgroup/jobs/train/memory.events"), (V1, "sys/fs/cgroup/memory/jobs/train/memory.oom_control")],
)
def test_processes_killed_for_low_memory_are_counted(tree, version, file):
    assert host.oom_kills(tree(version)) == 0
    assert host.oom_kills(tree(version, {file: "low 0\noom 3\noom_kill 2\noom_group_kill 0"})) == 2


def test_invalid_files_set_no_limit(tree):
    broken = {
        "proc/self/cgroup": "nonsense\n0::/jobs/train",
        "sys/fs/cgroup/jobs/train/cpu.max": "many",
        "sys/fs/cgroup/jobs/train/memory.max": "much",
    }
    root = tree(V2, broken)
    assert (host.usable_cores(root), host.memory_mb(root).total_mb) == (8, 8192)


# ---------------------------------------------------------------------------------------------------------- processor
def test_model_and_flags_are_those_of_the_first_processor(tree):
    first = "processor\t: 0\nmodel name\t: Xeon Platinum 8480+\nflags\t\t: fpu avx512_bf16 amx_bf16"
    root = tree({"proc/cpuinfo": f"{first}\n\nprocessor\t: 1\nmodel name\t: other\nflags\t\t: fpu"})
    assert host.cpu_model(root) == "Xeon Platinum 8480+"
    assert host.cpu_flags(root) == {"fpu", "avx512_bf16", "amx_bf16"}


def test_arm_flags_are_called_features(tree):
    root = tree({"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd40"})
    assert host.cpu_flags(root) & host.BFLOAT16_FLAGS == {"bf16"}
    assert host.cpu_model(root) == (platform.processor() or platform.machine())


def test_the_name_of_an_apple_chip_is_read_from_the_system(tree, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "sysctl"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$*" = "-n machdep.cpu.brand_string" ] && echo Apple M3 Pro\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert host.cpu_model(tree()) == "Apple M3 Pro"
    assert host.cpu_flags(tree()) == frozenset()
