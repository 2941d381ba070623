"""The implementations of a comparison, each in a separate process with its own settings, run alternately."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from core.errors import first_line

Work = Callable[[], object]

_OFF = {"LANDFALL_TUNE": "0"}


class Implementation:
    """A process that runs one workload on request and reports its duration. maker: `module:function` that builds the
    workload, a callable without arguments, from `settings`. tuned: whether the process uses `tune_process`, as
    Landfall's commands do and users of other libraries do not. limit_s: seconds until it must be ready.
    Raises RuntimeError with the error of the process if it ends early.
    """

    def __init__(self, maker: str, *, tuned: bool, limit_s: float | None = None, **settings: Any):
        command = [sys.executable, "-m", "benchmarks.implementations", maker, json.dumps(settings)]
        environment = {**os.environ, **({} if tuned else _OFF)}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._maker = maker
        limit = threading.Timer(limit_s, self._process.kill) if limit_s else None
        if limit:
            limit.start()
        try:
            self._reply()
        finally:
            if limit:
                limit.cancel()

    def seconds(self, *, idle_s: float = 0.0) -> float:
        """Runs the workload twice, and times the second run, which starts after `idle_s` seconds of sleep."""
        return float(self._request(f"run {idle_s}")["seconds"])

    def facts(self) -> dict[str, Any]:
        """The peak memory of the process in MiB, and the attribute `facts` of the workload, which may replace it."""
        return self._request("facts")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Implementation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _request(self, word: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        reply = dict(json.loads(line)) if line else {"error": "see its output above"}
        if "error" in reply:
            raise RuntimeError(f"{self._maker} ended with status {self._process.wait()}: {reply['error']}")
        return reply


def serve(maker: str, settings: dict[str, Any], requests: TextIO, replies: TextIO) -> None:
    """Builds the workload, warms it up twice, and serves requests until the input ends."""
    import torch

    from core import process_memory
    from core.config.compose import environment_settings
    from core.host import thread_limit, usable_cores
    from core.process_memory import tune_process

    if environment_settings()[0].tune:
        tune_process()
    torch.manual_seed(0)
    cores = usable_cores()
    torch.set_num_threads(thread_limit(cores, max_threads=cores)[0])
    module, name = maker.split(":")
    work: Work = getattr(importlib.import_module(module), name)(**settings)
    for _ in range(2):
        work()

    def reply(**values: Any) -> None:
        replies.write(json.dumps(values) + "\n")
        replies.flush()

    reply(ready=True)
    for request in requests:
        word, *idle_s = request.split()
        if word == "run":
            work()  # warm up: caches and threads were idle while the other implementation ran
            time.sleep(float(idle_s[0]))
            started = time.perf_counter()
            work()
            reply(seconds=time.perf_counter() - started)
        else:
            reply(**{"peak_mb": process_memory.peak_meter().peak_mb(), **getattr(work, "facts", {})})


if __name__ == "__main__":
    # Text that libraries print must not be mixed with the responses.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        try:
            serve(sys.argv[1], json.loads(sys.argv[2]), sys.stdin, replies)
        except Exception as error:
            replies.write(json.dumps({"error": f"{type(error).__name__}: {first_line(error)}"}) + "\n")
            raise
