"""Two machines that execute notebooks: one with a simulated google.colab and a folder /content, one without."""

from __future__ import annotations

import ast
import base64
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from tests.support import REPO_ROOT

HERE = Path(__file__).parent
CELL_SECONDS = 180
COLAB_CONTENT = Path("/content")


@dataclass
class CellRun:
    """The effects of one cell: stdout, results and images in order, the error's name, and all variables after it.

    `died`: the kernel ended; Colab restarts it, and so does `Machine.run`.
    """

    stdout: str = ""
    results: list[str] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    error: str | None = None
    traceback: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    died: bool = False


class Machine:
    """Starts kernels by a server process; `enter` is the command in front of the server's."""

    def __init__(
        self, log: Path, *, enter: Sequence[str] = (), imports: Sequence[str] = (), options: Sequence[str] = ()
    ):
        self._sockets = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # a socket's path has at most 107 characters
        self._imports, self._options = list(imports), list(options)
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._log = log.open("w")
        self._server = subprocess.Popen(
            [*enter, sys.executable, str(HERE / "kernel_server.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def run(self, cells: Sequence[str], folder: Path, environment: dict[str, str]) -> list[CellRun]:
        """Runs the cells in order in one kernel; continues after an error, and in a new kernel if it ends."""
        runs, kernel = [], None
        try:
            for cell in cells:
                kernel = kernel or _Kernel(self._start(folder, environment))
                runs.append(kernel.execute(cell))
                if runs[-1].died:
                    kernel.close()
                    kernel = None
        finally:
            if kernel:
                kernel.close()
        return runs

    def close(self) -> None:
        self._server.kill()
        self._server.wait()
        self._log.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _start(self, folder: Path, environment: dict[str, str]) -> tuple[str, int]:
        name = self._sockets / str(next(self._numbers))
        connection, _ = write_connection_file(f"{name}.json", transport="ipc", ip=str(name), key=b"")
        order = {
            "connection": connection, "folder": str(folder), "environment": environment,
            "imports": self._imports, "options": self._options,
        }  # fmt: skip
        assert self._server.stdin
        assert self._server.stdout
        with self._lock:  # both sides of a case may run on this machine
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            answer = self._server.stdout.readline()
        assert answer, Path(self._log.name).read_text()
        return connection, int(answer)


class _Kernel:
    def __init__(self, started: tuple[str, int]):
        connection, self._process = started
        self._client = BlockingKernelClient(connection_file=connection)
        self._client.load_connection_file()
        self._client.start_channels()
        self._wait_until_ready()
        self._client.execute("import probe as _probe", silent=True)
        self._client.get_shell_msg(timeout=CELL_SECONDS)

    def _wait_until_ready(self) -> None:
        """The client takes a kernel for dead that misses a heartbeat, as it may on a busy machine."""
        deadline = time.monotonic() + CELL_SECONDS
        while True:
            try:
                return self._client.wait_for_ready(timeout=CELL_SECONDS)
            except RuntimeError:
                if not self._alive() or time.monotonic() > deadline:
                    raise

    def execute(self, code: str) -> CellRun:
        run = CellRun()
        asked = self._client.execute(
            code, allow_stdin=False, user_expressions={"variables": "_probe.variables(globals())"}
        )
        deadline = time.monotonic() + CELL_SECONDS
        idle = False
        while not idle:
            assert time.monotonic() < deadline, f"a cell ran for more than {CELL_SECONDS} s:\n{code}"
            message = self._next(self._client.get_iopub_msg)
            if message is None:
                if self._alive():
                    continue
                run.died = True
                return run
            if message["parent_header"].get("msg_id") == asked:
                idle = _record(run, message)
        while (reply := self._next(self._client.get_shell_msg)) or (self._alive() and time.monotonic() < deadline):
            if reply and reply["parent_header"].get("msg_id") == asked:
                answer = reply["content"].get("user_expressions", {}).get("variables", {})
                if answer.get("status") == "ok":
                    run.variables = json.loads(ast.literal_eval(answer["data"]["text/plain"]))
                break
        run.died = self._ends(within=60 if "do_shutdown" in code else 0.01)
        return run

    def _ends(self, within: float) -> bool:
        deadline = time.monotonic() + within
        while self._alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self._alive()

    def close(self) -> None:
        self._client.stop_channels()
        if self._alive():
            os.kill(self._process, 9)

    def _alive(self) -> bool:
        return Path(f"/proc/{self._process}").exists()

    def _next(self, get: Any) -> dict[str, Any] | None:
        try:
            return get(timeout=0.2)
        except queue.Empty:
            return None


def _record(run: CellRun, message: dict[str, Any]) -> bool:
    """Adds a message to the record; True if it says that the cell is done."""
    content = message["content"]
    match message["msg_type"]:
        case "stream" if content["name"] == "stdout":
            run.stdout += content["text"]
        case "execute_result":
            run.results.append(content["data"].get("text/plain", ""))
        case "display_data" if "image/png" in content["data"]:
            run.images.append(base64.b64decode(content["data"]["image/png"]))
        case "error":
            run.error = content["ename"]
            run.traceback = "\n".join(content["traceback"])
        case "clear_output":
            run.stdout = ""
        case "status":
            return content["execution_state"] == "idle"
    return False


def has_private_roots(folder: Path) -> bool:
    """Whether this system gives a process its own root folder without privileges."""
    if not shutil.which("unshare"):
        return False
    (folder / "tried").mkdir()
    tried = [*_private_root(folder / "tried root", folder / "tried"), "test", "-d", "/content"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def _private_root(root: Path, content: Path | None = None) -> list[str]:
    root.mkdir()
    script = ["sh", str(HERE / "private_root.sh"), str(root), str(content or "")]
    return ["unshare", "--user", "--map-root-user", "--mount", *script]


@contextmanager
def colab_machine(folder: Path, *, private: bool) -> Iterator[tuple[Machine, Path]]:
    """A machine with the stand-in and /content, and the folder that is its /content.

    Without a private root the folder is made for real, and goes again; that it is there keeps two test runs apart.
    Raises OSError if it cannot be made.
    """
    content = folder / "content" if private else COLAB_CONTENT
    content.mkdir()
    enter = _private_root(folder / "colab root", content) if private else []
    options = ["--IPKernelApp.kernel_class=google.colab._kernel.Kernel"]
    machine = Machine(folder / "colab.log", enter=enter, imports=["google.colab"], options=options)
    try:
        yield machine, content
    finally:
        machine.close()
        shutil.rmtree(content)


@contextmanager
def local_machine(folder: Path, *, private: bool) -> Iterator[Machine]:
    """A machine without Colab."""
    machine = Machine(folder / "local.log", enter=_private_root(folder / "local root") if private else [])
    try:
        yield machine
    finally:
        machine.close()


def environment(
    folder: Path, *, programs: Path, modules: Path, shell: str, more: dict[str, str] | None = None
) -> dict[str, str]:
    """The complete environment of a kernel: only language and interpreter are those of this process."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    path = [str(programs), str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    return {
        "PATH": os.pathsep.join(path), "HOME": str(home), "PYTHONPATH": str(modules), "SHELL": shell,
        "LANG": "C.UTF-8", "TERM": "dumb", "OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
        "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1",
        "PIP_NO_WARN_CONFLICTS": "0",  # pip reads an option that begins with "no" so
        **(more or {}),
    }  # fmt: skip


def copy_modules(target: Path) -> Path:
    """A folder with the imports of the migrated notebook, and nothing else of this repository."""
    target.mkdir()
    for module in (REPO_ROOT / "landfall_runtime.py", HERE / "probe.py"):
        shutil.copy(module, target)
    return target
