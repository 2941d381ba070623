"""Settings of this process: the kernels of torch, and the memory allocator. Imports torch only in functions."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from core.config.execution import Profile
from core.errors import LandfallError

log = logging.getLogger(__name__)

# cuBLAS is deterministic only with one of these workspaces; torch reads the variable when it first uses a GPU.
# https://docs.nvidia.com/cuda/cublas/#results-reproducibility
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")


def prepare_cublas(profile: Profile, environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets the workspace of cuBLAS, before the first work on a GPU, if the profile is deterministic. A workspace that
    the user set is kept, with a warning if it is not deterministic, because torch will then refuse matrix products.
    """
    if not profile.deterministic:
        return
    if environ.setdefault(_WORKSPACE, _DETERMINISTIC_WORKSPACES[0]) not in _DETERMINISTIC_WORKSPACES:
        log.warning(
            "%s = %s is not deterministic; use one of %s",
            _WORKSPACE, environ[_WORKSPACE], ", ".join(_DETERMINISTIC_WORKSPACES),
        )  # fmt: skip


def choose_kernels(profile: Profile) -> None:
    """Sets how torch chooses its kernels; the only place for it."""
    import torch

    prepare_cublas(profile)
    # Like `use_deterministic_algorithms`, which also imports the compiler: two seconds that most runs do not need.
    torch.set_deterministic_debug_mode("error" if profile.deterministic else "default")
    torch.backends.cudnn.benchmark = profile.cudnn_benchmark and not profile.deterministic
    # torch rounds the input of convolutions, but not that of matrix products, to 10 bits (TF32) by default.
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def same_torch() -> Iterator[None]:
    """Restores the settings of torch."""
    import torch  # now, because the first job of a process may change the defaults

    num_threads, debug_mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    benchmark, allow_tf32 = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    dtype, random_state = torch.get_default_dtype(), torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        torch.set_deterministic_debug_mode(debug_mode)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = benchmark, allow_tf32
        torch.set_default_dtype(dtype)
        torch.set_rng_state(random_state)


def answer_of(
    command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The output of a program, and its exit code. Raises LandfallError if it does not start or takes longer."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise LandfallError(f"{Path(command[0]).name} gave no answer in {timeout_s:g} s") from error
    except OSError as error:
        raise LandfallError(f"{Path(command[0]).name} does not start: {error}") from error


def ask_python(program: str, timeout_s: float, environment: Mapping[str, str] | None = None) -> Any:
    """Runs a Python program with the same modules as this process, and returns its last line of output, parsed as JSON.

    environment: additional variables. Raises LandfallError if it fails or takes longer.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
    answer = answer_of([sys.executable, "-c", program], timeout_s, variables)
    if answer.returncode:
        said = (answer.stderr.strip() or "nothing").splitlines()[-1]
        raise LandfallError(f"it failed (exit code {answer.returncode}): {said}")
    try:
        return json.loads(answer.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise LandfallError("its answer is not JSON") from error


# --------------------------------------------------------------------------------------------------------------- memory
# Constants of <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_KEPT_BYTES = 2**31 - 1  # the largest value mallopt takes
_GROWTH_BYTES = 64 * 2**20


@cache
def tune_process() -> None:
    """Lets the process keep the memory that it frees, once in a process, and logs it; off by `tune: false`
    (LANDFALL_TUNE=0).

    Every training step allocates tensors of tens of megabytes and frees them again. glibc maps each one and returns it
    immediately, so the kernel clears its pages before every use. With mallopt(3), the process keeps freed memory until
    it ends or `process_memory.release` is called. Results do not change by a bit. docs/performance.md has measurements,
    also of rejected alternatives.
    """
    if platform.libc_ver()[0] != "glibc":
        log.info("freed memory is returned to the system: the allocator of this platform has no mallopt")
        return
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_TOP_PAD, _GROWTH_BYTES))
    if all(mallopt(name, value) for name, value in settings):
        log.info("freed memory is kept for later steps (tune=false turns this off)")
    else:
        log.warning("freed memory is returned to the system: mallopt rejected its settings")
