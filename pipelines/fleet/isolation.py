"""One job at a time in a process of a fleet, whose settings are restored afterwards."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from core.devices.kernels import same_torch
from core.stopping import restart_clock


@contextmanager
def isolated(log_file: Path) -> Iterator[None]:
    """Inside the context the process is as at the start of a command: no log handlers, the clock of its time limit at
    0, and standard output and errors in `log_file`. Afterwards environment, current folder, logging, warnings and the
    settings of torch are restored. For one job at a time, because these settings are those of the process."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    environment, folder = dict(os.environ), Path.cwd()
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    try:
        with (
            same_torch(),
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
        gc.collect()  # models and data of the job, which refer to each other
        gc.freeze()  # what remains, such as modules, is not searched after the next job
