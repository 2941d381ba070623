"""Starts commands as forks of one process that has imported everything, which saves most of the CPU time of a command.

A fork behaves like a started process, except that it does not start Python and does not import.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

_PACKAGES = ("core", "trainers", "inference", "migration", "pipelines")
# Libraries that are imported in functions only.
_LIBRARIES = (
    "torch", "torch.utils.tensorboard", "pandas", "pyarrow.parquet", "scipy.signal", "matplotlib.backends.backend_agg",
    "matplotlib.pyplot", "nbformat", "PIL.Image",
)  # fmt: skip

_PR_CAPBSET_DROP = 24
_OVERRIDES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class Fork:
    """A running command, with the methods of `subprocess.Popen` that are used here."""

    def __init__(self, server: ForkServer, pid: int):
        self._server, self.pid = server, pid
        self.returncode: int | None = None
        self.peak_mb = 0.0

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            answer = self._server._answer(timeout)
            self.returncode, self.peak_mb = answer["code"], answer["peak_mb"]
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """Runs one command at a time. A context manager; needs `os.fork`.

    environment: that of the server while it imports; each command gets a separate one.
    """

    def __init__(self, environment: Mapping[str, str]):
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the end of its input ends it

    def start(
        self, words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], stderr: Path, as_user: bool = False
    ) -> Fork:
        """Runs `landfall WORDS` in a separate process group; stdin and stdout are /dev/null."""
        request = {
            "words": list(words), "cwd": str(cwd), "environment": dict(environment), "stderr": str(stderr),
            "as_user": as_user,
        }  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return Fork(self, self._answer(None)["pid"])

    def _answer(self, timeout: float | None) -> dict[str, Any]:
        output = self._process.stdout
        assert output is not None
        if not select.select([output], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("landfall", timeout or 0.0)
        return json.loads(output.readline())


def _serve() -> None:
    """Forks for each line of stdin. Returns only in the child, which is set up to run the command of that line."""
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if (pid := os.fork()) == 0:
            return _become(request)
        _reply({"pid": pid})
        _, status, usage = os.wait4(pid, 0)
        _reply({"code": os.waitstatus_to_exitcode(status), "peak_mb": usage.ru_maxrss / 1024})
    raise SystemExit(0)


def _reply(answer: Mapping[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _become(request: Mapping[str, Any]) -> None:
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    stderr = os.open(request["stderr"], os.O_WRONLY | os.O_APPEND)
    for source, target in ((nothing, 0), (nothing, 1), (stderr, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(stderr)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    os.chdir(request["cwd"])
    if request["as_user"]:
        _heed_permissions()
    sys.argv = ["landfall", *request["words"]]
    sys.orig_argv = [sys.executable, "-m", "landfall", *request["words"]]


def _heed_permissions() -> None:
    """Gives up the capabilities with which root ignores permissions, also for child processes."""
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    sets = (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    for capability in _OVERRIDES:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        for kind in range(3):
            sets[kind] &= ~(1 << capability)
    libc.capset(header, sets)


def _import_everything() -> None:
    for name in _LIBRARIES:
        import_module(name)
    for package in _PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # of a library that is not installed
                    import_module(module.name)


def _run() -> None:
    """Runs the command of `sys.argv`. Ends the process without deleting its modules, which would copy their memory."""
    from landfall import main

    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _import_everything()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy their memory
    _serve()
    _run()
