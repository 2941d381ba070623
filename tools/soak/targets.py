"""Kill targets of the soak: each kind of process, and the conditions that must hold after a kill. A process is forked
after all imports, so that it is killed during its work, not during imports.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import shutil
import signal
import time
import traceback
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import psutil

from core import checkpoint
from core.config.compose import LoadedConfig, load_config
from core.config.schema import Stream
from core.errors import EXIT_FAILURE, EXIT_OK, EXIT_RESUMABLE, LandfallError
from core.page import STATE
from core.runlog import EpochRecord, loss_csv_path
from inference.run_scoring_example import ScoringPaths, score_stream
from pipelines.dashboard.state_documents import DashboardState
from pipelines.execute_notebook import NotebookRun
from pipelines.export_training_dashboard_state import export_state
from pipelines.serve_dashboard import make_server
from tests.support.artifact_checks import faults, is_same, leftovers, trained
from tests.support.small_workspace import CONFIGS
from trainers.run import train

# Maximum time that a process may run after it, or its parent, was killed.
END_S = 20.0
# In the environment of every process that the soak starts, to find kernels whose parent has died.
MARK = "_SOAK"
EPOCHS: dict[Stream, int] = {"patchtst": 6, "swinmae": 4}
_QUIETLY = ("logging.tensorboard=false", "logging.progress=off", "deterministic=true", "cudnn_benchmark=false")

Report = Callable[[str], object]


class Process:
    """A fork that runs `work`. Its output is written to `log`; `received` has its reports, one per line."""

    def __init__(self, work: Callable[[Report], object], log: Path):
        self.log = log
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(work, log, lambda line: os.write(write, f"{line}\n".encode()))
        os.close(write)
        self.received = os.fdopen(read, encoding="utf-8")
        self.code: int | None = None

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        until = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                return False
            else:
                time.sleep(0.002)
        return True

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def last_line(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "no output"


def _run(work: Callable[[Report], object], log: Path, report: Report) -> NoReturn:
    """The main function of a fork."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = EXIT_OK
    try:
        work(report)
    except LandfallError as error:
        code = error.exit_code
        os.write(2, f"{error}\n".encode())
    except BaseException:
        code = EXIT_FAILURE
        os.write(2, traceback.format_exc().encode())
    os._exit(code)


class Kind(ABC):
    """One kind of process in the workspace `root`. usual_s: its duration without a kill. reach: the share of that time
    within which it is killed.
    """

    name: str
    usual_s = 0.0
    reach = 1.0

    def __init__(self, root: Path, log: Path):
        self.root, self.log = root, log
        self.completed = 0
        self._first: Any = None

    def start(self) -> Process:
        return Process(self._work, self.log)

    def kill(self, process: Process, rng: random.Random) -> None:
        process.kill()

    def check(self, process: Process) -> list[str]:
        """The faults found after the process has ended, by itself or by a kill."""
        found = faults(self.root)
        if self._was_killed(process):
            found += self._after_kill(process)
        elif process.code == EXIT_OK:
            self.completed += 1
            found += self._after_success()
        else:
            found.append(f"exit code {process.code}: {process.last_line()}")
        return [f"{self.name}: {fault}" for fault in found]

    @abstractmethod
    def _work(self, report: Report) -> object: ...

    def _as_before(self, result: Any) -> list[str]:
        """Compares a result with the first one, which is that of an uninterrupted run."""
        self._first = self._first if self._first is not None else result
        return [] if is_same(result, self._first) else ["the result differs from that of the uninterrupted run"]

    def _was_killed(self, process: Process) -> bool:
        return process.code == -signal.SIGKILL

    def _after_kill(self, process: Process) -> list[str]:
        return []

    def _after_success(self) -> list[str]:
        return []


class Training(Kind):
    """Training that is killed and resumed until it is complete; it must then equal the uninterrupted run."""

    reach = 0.9  # a resumed run has less work left

    def __init__(self, root: Path, log: Path, stream: Stream):
        super().__init__(root, log)
        self.stream, self.name = stream, f"training {stream}"
        settings = loaded(root, stream).config.logging
        self._best, self._log_dir = root / settings.checkpoint_path, root / settings.log_dir
        self._loss_csv = loss_csv_path(root, loaded(root, stream).config)
        self._finished = 0

    def kill(self, process: Process, rng: random.Random) -> None:
        """Sometimes sends SIGTERM like a batch system: then the process saves and ends by itself."""
        process.kill(signal.SIGTERM if rng.random() < 0.2 else signal.SIGKILL)

    def _work(self, report: Report) -> object:
        config = loaded(self.root, self.stream, "training.resume=auto")
        return train(config, root=self.root, run_id="soak", watcher=_Reporter(report))

    def _was_killed(self, process: Process) -> bool:
        """Before training starts there is no handler for SIGTERM."""
        return process.code in (-signal.SIGKILL, -signal.SIGTERM, EXIT_RESUMABLE)

    def _after_kill(self, process: Process) -> list[str]:
        self._finished = max([self._finished, *map(int, process.received.read().split())])
        last = checkpoint.last_path(self._best)
        kept = checkpoint.load(last)["position"]["epoch"] if self._finished or last.exists() else 0
        return [f"{self._finished} epochs were complete, {kept} are in the checkpoint"] if kept < self._finished else []

    def _after_success(self) -> list[str]:
        found = [f"{name} is left" for name in leftovers(self.root) if self.stream in name]
        found += self._as_before(trained(self._best, self._loss_csv))
        self._reset()
        return found

    def _reset(self) -> None:
        """Deletes the outputs, and after every third run also the store, so that data is read again."""
        self._finished = 0
        for path in self._best.parent.glob(f"{self._best.stem}*"):
            path.unlink()
        shutil.rmtree(self._log_dir)
        if self.completed % 3 == 0:
            shutil.rmtree(self.root / "cache", ignore_errors=True)


class _Reporter:
    """Reports each epoch after its checkpoints are written."""

    def __init__(self, report: Report):
        self._report = report

    def steps(self, epochs_done: float, loss: float) -> None: ...

    def epoch(self, history: Sequence[EpochRecord]) -> None:
        self._report(str(len(history)))


class Scoring(Kind):
    """Scores with a trained model; every other time the detector is deleted and must be fitted again."""

    def __init__(self, root: Path, log: Path, stream: Stream):
        super().__init__(root, log)
        self.stream, self.name = stream, f"scoring {stream}"
        config = loaded(root, stream).config
        self._table = ScoringPaths.of(config, root=root).scores
        self._detector = checkpoint.detector_path(root / config.logging.checkpoint_path)
        self._started = 0

    def start(self) -> Process:
        self._started += 1
        if self._started % 2:
            self._detector.unlink(missing_ok=True)
        return super().start()

    def _work(self, report: Report) -> object:
        return score_stream(loaded(self.root, self.stream), root=self.root)

    def _after_success(self) -> list[str]:
        return self._as_before(pd.read_parquet(self._table))


class Export(Kind):
    name = "export"

    def _work(self, report: Report) -> object:
        return export_state(self.root)

    def _after_success(self) -> list[str]:
        state = DashboardState.model_validate_json((self.root / STATE).read_bytes())
        return [f"{problem.path}: {problem.message}" for problem in state.problems]


class Server(Kind):
    """The server gets requests until it is killed; the next one uses its port immediately."""

    name = "dashboard server"
    usual_s = 0.3

    def __init__(self, root: Path, log: Path):
        super().__init__(root, log)
        self._port = 0

    def start(self) -> Process:
        process = super().start()
        self._port = int(process.received.readline() or 0)
        return process

    def kill(self, process: Process, rng: random.Random) -> None:
        """Kills it after a response, or during one."""
        url = f"http://127.0.0.1:{self._port}/data/dashboard-state.json"
        with urllib.request.urlopen(url, timeout=END_S) as response:
            if rng.random() < 0.5:
                json.load(response)
            process.kill()

    def _work(self, report: Report) -> object:
        with make_server(self.root / "training_dashboard", self._port) as server:
            report(str(server.server_port))
            server.serve_forever()


class Notebook(Kind):
    """Training and scoring in a notebook: sometimes papermill is killed, sometimes the kernel."""

    name = "notebook"

    def __init__(self, root: Path, log: Path):
        super().__init__(root, log)
        self._executed = root / "artifacts/notebooks/soak/local_patchtst_ssl.ipynb"
        config = loaded(root, "patchtst").config
        self._made = root / config.logging.checkpoint_path, loss_csv_path(root, config)

    def kill(self, process: Process, rng: random.Random) -> None:
        kernels = psutil.Process(process.pid).children() if rng.random() < 0.5 else []
        for kernel in kernels:
            kernel.kill()
        if not kernels:
            process.kill()

    def _work(self, report: Report) -> object:
        given = {"config": CONFIGS["patchtst"], "overrides": list(_QUIETLY), "epochs": EPOCHS["patchtst"]}
        run = NotebookRun(self.root / "notebooks" / self._executed.name, self._executed, root=self.root, report=report)
        return run.execute(given | {"run_id": "soak"})

    def _was_killed(self, process: Process) -> bool:
        return super()._was_killed(process) or "its kernel died: killed" in process.last_line()

    def _after_kill(self, process: Process) -> list[str]:
        return [f"process {pid} does not end" for pid in _orphans()]

    def _after_success(self) -> list[str]:
        return self._as_before(trained(*self._made))


def _orphans() -> list[int]:
    """Processes of the soak whose parent has died; they are killed."""
    until = time.monotonic() + END_S
    while (found := list(_marked())) and time.monotonic() < until:
        time.sleep(0.05)
    for process in found:
        process.kill()
    return [process.pid for process in found]


def _marked() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == os.environ[MARK] and process.status() != psutil.STATUS_ZOMBIE:
                yield process


# ------------------------------------------------------------------------------------------------------------ settings
@functools.cache
def loaded(root: Path, stream: Stream, *overrides: str) -> LoadedConfig:
    epochs = f"training.epochs={EPOCHS[stream]}"
    return load_config(CONFIGS[stream], [epochs, *_QUIETLY, *overrides], root=root, environment={})
