"""Jobs one after another in one process: what a job changes in the process is restored before the next one starts, so
that its results are those of a new process."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from core.devices.process import restart_clock


@contextmanager
def isolated(log_file: Path) -> Iterator[None]:
    """Within the context the process is as a command finds it: no log handlers, the clock of its time limit at 0, and
    standard output and errors in `log_file`. Afterwards environment, current folder, logging, warnings and the settings
    of torch are as before. For one job at a time: these belong to the process, not to a thread."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    environment, folder, settings = dict(os.environ), Path.cwd(), _torch_settings()
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    try:
        with (
            log_file.open("w", encoding="utf-8", buffering=1, errors="backslashreplace") as file,
            redirect_stdout(file),
            redirect_stderr(file),
            warnings.catch_warnings(),
        ):
            root.handlers[:] = []
            restart_clock()
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.raiseExceptions = raises
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        _restore_torch(settings)
        gc.collect()  # models and data of the job, which refer to each other
        gc.freeze()  # what remains, such as modules, is not searched after the next job


def _torch_settings() -> tuple[object, ...]:
    import torch  # now, because the first job of a process may change the defaults

    return (
        torch.get_num_threads(), torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32, torch.get_default_dtype(), torch.get_rng_state(),
    )  # fmt: skip


def _restore_torch(settings: tuple[object, ...]) -> None:
    import torch

    num_threads, debug_mode, benchmark, allow_tf32, dtype, random_state = settings
    torch.set_num_threads(num_threads)
    torch.set_deterministic_debug_mode(debug_mode)
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.allow_tf32 = allow_tf32
    torch.set_default_dtype(dtype)
    torch.set_rng_state(random_state)
