"""Executes notebooks in a sandbox: one job per line on stdin, one trace per line on stdout.

python runner.py colab|local FOLDER-OF-LANDFALL_RUNTIME
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Set
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell
from IPython.utils.text import SList
from traitlets.config import Application

sys.path[0] = str(Path(__file__).parents[2])
from tools.traces import recorders  # noqa: E402 a sandbox has no other path to it
from tools.traces.stubs import MAX_TEXT, Effect, Log, Stub  # noqa: E402

del sys.path[0]  # notebooks import nothing of this repository but the runtime

SECONDS = 6  # CPU time per notebook
_END = os.killpg  # a recorder replaces it
_COLAB_MAGICS = ("tensorflow_version", "shell")
# sandbox.sh creates this file; without it no folder is emptied.
SANDBOX_MARKER = Path("/landfall-traces-sandbox")
HOME = Path("/home", "user")
FOLDERS = (Path("/"), HOME, Path("/tmp"), Path("/content"))  # which notebooks may write to
_ABOVE_MAGIC = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)+(?=[ \t]*%%\S)")
_COLAB_MODULES = (
    *("_message", "ai", "auth", "data_table", "drive", "errors", "files", "html", "output", "patches", "runtime"),
    *("snippets", "syntax", "userdata", "widgets", "kernel", "sheets"),
)


def main() -> int:
    if not SANDBOX_MARKER.is_file():
        sys.stderr.write("runner.py empties folders and therefore runs only in the sandbox of sandbox.sh\n")
        return 2
    kind, runtime = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    start = Path("/content" if kind == "colab" else "/started")
    # Read-only folders that the sandbox binds there.
    bound = frozenset(path for folder in (start, *FOLDERS) if folder.is_dir() for path in folder.iterdir())
    _reset(kind, start, bound)
    log = Log()
    shell = _shell(log, is_colab=kind == "colab")
    if kind == "colab":
        _colab(log)
    else:
        sys.path.append(runtime)
        _local(log)
    recorders.record(log)
    if kind == "colab":
        importlib.import_module("google.auth")  # as google.colab does
    for line in sys.stdin:
        job = json.loads(line)
        answer = os.memfd_create("answer")
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            _reset(kind, start, bound)
            os.environ.update(job["environment"])
            effects = _run(shell, log, job["cells"])
            with os.fdopen(answer, "w") as file:
                file.write(json.dumps({"effects": effects, "ended": False}))
            os.execv("/bin/true", ["true"])  # ends the process immediately: `os._exit` is a recorder here
        # A notebook may turn its alarm off and wait for ever, or leave processes behind.
        ended = os.pidfd_open(child)
        select.select([ended], [], [], 6 * SECONDS)
        os.close(ended)
        _END(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.lseek(answer, 0, os.SEEK_SET)
        with os.fdopen(answer) as file:
            text = file.read()
        answers.write((text or json.dumps({"effects": [], "ended": True})) + "\n")
        answers.flush()
    return 0


def _reset(kind: str, start: Path, bound: Set[Path]) -> None:
    """Creates empty folders and the environment of the simulated machine; keeps the paths `bound`."""
    os.chdir("/")
    for folder in (start, *FOLDERS):
        folder.mkdir(parents=True, exist_ok=True)  # a notebook may have deleted it
        for path in set(folder.iterdir()) - bound:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", HOME=str(HOME), SHELL="/bin/bash", LANG="C.UTF-8", TERM="dumb")
    if kind == "colab":
        os.environ.update(COLAB_RELEASE_TAG="release", COLAB_GPU="1", COLAB_BACKEND_VERSION="next")
        os.environ["PYTHONPATH"] = "/env/python"
        Path(start, "drive/MyDrive").mkdir(parents=True)
        Path(start, "sample_data").mkdir()
    os.chdir(start)


def _run(shell: InteractiveShell, log: Log, cells: list[str]) -> list[Effect]:
    """The effects of a notebook's cells; after a failed cell the next ones still run."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
    signal.alarm(5 * SECONDS)
    sys.dont_write_bytecode = True
    random.seed(0)
    tempfile.tempdir = "/tmp"
    tempfile._name_sequence = iter(f"name{number}" for number in range(10**6))  # type: ignore[attr-defined]
    sys.path[:] = ["", *[path for path in sys.path if path]]
    sys.argv[:] = ["ipykernel_launcher.py", "-f", "kernel.json"]
    for index, cell in enumerate(cells):
        if not cell.strip():
            continue
        before, path = dict(os.environ), list(sys.path)
        log.cell = index
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            error = _execute(shell, cell)
        log.cell = -1
        log.effects += [(index, "print", line[:MAX_TEXT]) for line in out.getvalue().splitlines()[:200] if line.strip()]
        log.effects += [(index, "error", error)] if error else []
        names = [name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)]
        log.effects += [(index, "environment", f"{name}={os.environ.get(name)}") for name in sorted(names)]
        added = [folder for folder in sys.path if folder and folder not in path]
        log.effects += [(index, "module path", str(Path(folder).resolve())) for folder in added]
    return log.effects


def _execute(shell: InteractiveShell, cell: str) -> str:
    """The name of the error that a cell raises and the lines of cells in its traceback, or an empty text."""
    if above := _ABOVE_MAGIC.match(cell):
        cell = cell[above.end() :] if shell.is_colab else cell  # type: ignore[attr-defined]
    shell.raised = None  # type: ignore[attr-defined]
    try:
        result = shell.run_cell(cell, store_history=False)
    except SystemExit:
        return "SystemExit"
    error = result.error_before_exec or result.error_in_exec or shell.raised  # type: ignore[attr-defined]
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = ", ".join(str(frame.lineno) for frame in frames if frame.filename.startswith("<ipython-input"))
    return f"{type(error).__name__} in line {lines}" if lines else type(error).__name__


def _shell(log: Log, *, is_colab: bool) -> InteractiveShell:
    class Shell(InteractiveShell):
        def system(self, command: str) -> None:
            if command.rstrip().endswith("&") and not is_colab:
                raise OSError("Background processes not supported.")
            log.add("process", self.var_expand(command, depth=1))
            self.user_ns["_exit_code"] = 0

        def system_raw(self, command: str) -> None:
            log.add("process", self.var_expand(command, depth=1))

        def getoutput(self, command: str, split: bool = True, depth: int = 0) -> Any:
            log.add("process", self.var_expand(command, depth=depth + 1))
            return SList([]) if split else ""

        def run_line_magic(self, name: str, line: str, _stack_depth: int = 1) -> Any:
            if not name and is_colab:  # its older versions accept `% name`
                name, _, line = line.partition(" ")
            if self.find_line_magic(name) is None and self.find_cell_magic(name) is None and name not in _COLAB_MAGICS:
                return log.add("process", f"%{name}")  # a magic of an extension that is not installed
            return super().run_line_magic(name, line, _stack_depth + 1)

        def showtraceback(self, *arguments: Any, **options: Any) -> None:
            self.raised = sys.exc_info()[1]  # the only trace of an error in a cell of `%%capture`

    Shell.system_piped = Shell.system
    if is_colab:
        Shell.__module__ = "google.colab._shell"
    shell = Shell.instance()
    shell.is_colab = is_colab  # type: ignore[attr-defined]
    shell.history_manager.enabled = False
    # A restart of the kernel, which ends nothing here, like `os.kill`.
    shell.kernel = Application.kernel = types.SimpleNamespace(do_shutdown=lambda *restart, **options: None)  # type: ignore[attr-defined]
    ExecutionInfo.__repr__ = lambda self: "<ExecutionInfo>"  # type: ignore[method-assign]  # it contains the cell's text

    def script(line: str, cell: str = "") -> None:
        for command in filter(str.strip, cell.replace("\\\n", " ").splitlines()):
            log.add("process", command.strip())

    def install(name: str) -> Any:
        return lambda line: log.add("process", f"{name} {shell.var_expand(line, depth=1)}")

    for name in ("bash", "sh", "script", "system", "sx", *["shell"] * is_colab):
        shell.register_magic_function(script, "cell", name)
    for name in ("pip", "conda", "mamba", "uv"):
        shell.register_magic_function(install(name), "line", name)
    shell.register_magic_function(lambda line: os.chdir(Path(_unquoted(line)).expanduser()), "line", "cd")
    for name in ("tensorboard", "matplotlib", *[_COLAB_MAGICS[0]] * is_colab):
        shell.register_magic_function(lambda line: None, "line", name)
    if is_colab:
        shell.register_magic_function(lambda line: shell.system(line), "line", "shell")
        shell.input_transformers_cleanup.insert(1, _without_first_indentation)  # below that for empty lines
    import builtins

    builtins.get_ipython = shell.user_ns["get_ipython"] = lambda: shell  # type: ignore[attr-defined]
    for name in ("exit", "quit"):  # ends a kernel after the cell
        shell.user_ns[name] = lambda *keep_kernel: None
    return shell


def _without_first_indentation(lines: list[str]) -> list[str]:
    """The lines of a cell as Colab's IPython 7 reads them."""
    first = "".join(lines[:1])
    return [line.removeprefix(first[: len(first) - len(first.lstrip(" \t"))]) for line in lines]


def _unquoted(line: str) -> str:
    line = line.strip().rstrip(";").strip()
    return line[1:-1] if len(line) > 1 and line[0] == line[-1] and line[0] in "\"'" else line or "~"


def _colab(log: Log) -> None:
    """Installs the package google.colab, which is preinstalled on Colab."""
    quiet = Log()
    quiet.paused = True
    parts = recorders.colab_parts(log)
    root = types.ModuleType("google.colab")
    google = types.ModuleType("google")
    google.colab, google.__path__ = root, []  # type: ignore[attr-defined]
    root.__path__ = []
    sys.modules.update({"google": google, "google.colab": root})
    for name in _COLAB_MODULES:
        module = _quiet_module(f"google.colab.{name}", quiet)
        for path, part in parts.items():
            if path.startswith(f"{name}."):
                setattr(module, path.rpartition(".")[2], part)
        setattr(root, name, module)
        sys.modules[module.__name__] = module
    for module in (google, root):
        module.__spec__ = ModuleSpec(module.__name__, None, is_package=True)  # for `find_spec`
    for name in ("SecretNotFoundError", "NotebookAccessError", "TimeoutException"):
        setattr(root.userdata, name, type(name, (Exception,), {}))
    root.errors.AuthorizationError = root._message.MessageError = type("MessageError", (Exception,), {})


def _quiet_module(name: str, quiet: Log) -> types.ModuleType:
    class Module(types.ModuleType):
        def __getattr__(self, part: str) -> Any:
            if part.startswith("__"):
                raise AttributeError(part)
            return Stub(quiet, f"{name}.{part}")

    module = Module(name)
    module.__path__ = []
    return module


def _local(log: Log) -> None:
    """Replaces functions of landfall_runtime: those with external effects by the recorders that Colab's have, those
    that display something by stubs."""
    import landfall_runtime

    quiet = Log()
    quiet.paused = True
    mount = log.quietly(landfall_runtime.drive.mount)
    for path, part in recorders.colab_parts(log).items():
        module, _, name = path.partition(".")
        setattr(getattr(landfall_runtime, module), name, part)
    for name in ("output", "data_table", "widgets", "patches", "runtime", "snippets"):
        for part in list(vars(getattr(landfall_runtime, name))):
            if not part.startswith("__") and part != "eval_js":
                setattr(getattr(landfall_runtime, name), part, Stub(quiet, f"google.colab.{name}.{part}"))
    landfall_runtime.files.view = Stub(quiet, "google.colab.files.view")
    landfall_runtime.cv2_imshow = Stub(quiet, "cv2_imshow")
    landfall_runtime.drive.mount = mount


if __name__ == "__main__":
    sys.exit(main())
