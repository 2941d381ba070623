"""Watching a kernel takes little of a processor."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import psutil

from pipelines.kernel_watch import KernelWatch


def test_slow_looks_are_rare(tmp_path, monkeypatch):
    """On a machine with many processes a look takes long; with a pause of 0.1 s alone, these would be about eight."""
    looks = []

    def slow(pid: int) -> SimpleNamespace:
        looks.append(pid)
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return SimpleNamespace(children=lambda recursive: [], memory_info=lambda: SimpleNamespace(rss=3 * 2**20))

    monkeypatch.setattr(psutil, "Process", slow)
    with KernelWatch(tmp_path) as watch:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        watch.started(process)
        time.sleep(1.0)
    process.communicate(b"\n")
    assert 1 <= len(looks) <= 3
    assert watch._peak_mb == 3
