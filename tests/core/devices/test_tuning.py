"""Process settings; each test uses a new process because they last until it ends."""

import os
import subprocess
import sys

import pytest

from tests.support import REPO_ROOT

# Memory that a process has freed and still holds, in MiB, after a tensor of 256 MiB has come and gone.
PROGRAM = """\
import logging, platform, sys
logging.basicConfig(level=logging.INFO, format="%(message)s")
if sys.argv[1] == "other":
    platform.libc_ver = lambda: ("", "")
from core.devices.manager import DeviceManager
from core import process_memory
DeviceManager()
import torch
torch.ones(8).sum()
before = process_memory.resident_mb()
block = torch.ones(256 * 2**18)
del block
kept = process_memory.resident_mb() - before
process_memory.release()
print(round(kept), round(process_memory.resident_mb() - before))
"""


def kept_and_left(kind="usual", **environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], cwd=REPO_ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kept, left = map(int, done.stdout.split())
    return kept, left, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_a_tuned_process_keeps_freed_memory_until_it_is_released():
    kept, left, said = kept_and_left()
    assert kept > 200
    assert left < 50
    assert "tune=false" in said


@pytest.mark.nightly
def test_freed_memory_is_returned_without_tuning():
    kept, _, said = kept_and_left(LANDFALL_TUNE="0")
    assert kept < 50
    assert "freed memory" not in said


@pytest.mark.nightly
def test_another_c_library_is_reported_and_left_alone():
    kept, _, said = kept_and_left("other")
    assert kept < 50
    assert "no mallopt" in said
