"""Settings of this process: the environment that it needs from its start, its seeds, its memory allocator. Imports
torch only in functions."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from core.config.execution import Profile
from core.errors import LandfallError

log = logging.getLogger(__name__)

# cuBLAS is deterministic only with one of these workspaces; torch reads the variable when it first uses a GPU.
# https://docs.nvidia.com/cuda/cublas/#results-reproducibility
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")
_HASH_SEED = "PYTHONHASHSEED"
# The hash seed that the process was restarted for. Not a LANDFALL_ name: those are configuration.
_STARTED_FOR = "_LANDFALL_STARTED_FOR"
# Start time of the command: its wall-time limit also applies to kernels and training processes that it starts.
_STARTED_AT = "_LANDFALL_STARTED_AT"


def wrong_hash_seed(profile: Profile, environ: Mapping[str, str] = os.environ) -> str | None:
    """The problem that only a restart can fix, as text: Python reads PYTHONHASHSEED once."""
    wanted, found = profile.pythonhashseed, environ.get(_HASH_SEED)
    if wanted is None or found == str(wanted):
        return None
    return f"{_HASH_SEED} is {found or 'not set'}, the profile requires {wanted}"


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


def prepare_process(profile: Profile) -> None:
    """Prepares the process of a command; call it before torch is imported. Sets the workspace of cuBLAS, stores the
    start time of the command, and restarts it if its hash seed is wrong: only once, in case the environment is lost."""
    prepare_cublas(profile)
    os.environ.setdefault(_STARTED_AT, str(time.monotonic()))
    reason = wrong_hash_seed(profile)
    if reason is None:
        return
    seed = str(profile.pythonhashseed)
    if os.environ.get(_STARTED_FOR) == seed:
        log.warning("was restarted with %s=%s, which is still not set", _HASH_SEED, seed)
        return
    log.info("restarting: %s", reason)
    command = [sys.executable, *sys.orig_argv[1:]]
    environment = {**os.environ, _HASH_SEED: seed, _STARTED_FOR: seed}
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # on Windows, the shell does not wait for the process that exec starts
        raise SystemExit(subprocess.call(command, env=environment))
    os.execve(sys.executable, command, environment)


def make_reproducible(profile: Profile) -> None:
    """Seeds Python, NumPy and torch, and sets how torch chooses its kernels; the only place for both.

    Call it before the model is built. A wrong PYTHONHASHSEED cannot be fixed here: commands have restarted before
    (`prepare_process`); in a notebook it is only logged.
    """
    import numpy as np
    import torch

    from core.reproducibility import derive_seed

    if (reason := wrong_hash_seed(profile)) is not None:
        log.warning("%s; set it before Python starts; it is too late for this process", reason)
    random.seed(derive_seed(profile.seed, "python"))
    numpy_seed = profile.numpy_seed
    np.random.seed(derive_seed(profile.seed, "numpy") % 2**32 if numpy_seed is None else numpy_seed)
    torch.manual_seed(derive_seed(profile.seed, "torch"))
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


def command_start() -> float | None:
    """Start time of the command of this process by `time.monotonic`, which all processes of a machine share and no
    clock setting changes; None if there is no command."""
    return float(os.environ[_STARTED_AT]) if _STARTED_AT in os.environ else None


def restart_clock() -> None:
    """The next command of this process starts now: its wall-time limit does not count earlier ones."""
    os.environ[_STARTED_AT] = str(time.monotonic())


def without_start(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process whose time limit counts from its own start."""
    return {name: value for name, value in environ.items() if name != _STARTED_AT}


def ask_python(program: str, timeout_s: float, environment: Mapping[str, str] | None = None) -> Any:
    """Runs a Python program with the same modules as this process, and returns its last line of output, parsed as JSON.

    environment: additional variables. Raises LandfallError if it fails or takes longer.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
    command = [sys.executable, "-c", program]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=variables,
        )
    except subprocess.TimeoutExpired as error:
        raise LandfallError(f"no answer in {timeout_s:g} s") from error
    except OSError as error:
        raise LandfallError(f"Python does not start: {error}") from error
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
