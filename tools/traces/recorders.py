"""Replacements for external systems while a notebook runs: each call is logged and has no effect. Processes, the
network, packages outside the standard library, log-ins and Colab's modules become recorders. Files are real, in the
sandbox. An effect is a list `[kind, text]`; kinds are the keys of `compare.KINDS`.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import io
import os
import shutil
import subprocess
import sys
import time
import types
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_REAL = frozenset({"IPython", "landfall_runtime", "google", "traitlets", "ipykernel", "pygments", "prompt_toolkit"})
_QUIET = ("/usr", "/etc", "/proc", "/dev", "/lib", sys.prefix, sys.base_prefix)
_DEEP = 4
Effect = tuple[int, str, str]  # the position of the cell, the kind, the text


class Log:
    """The effects of one run; `cell` is the position of the running cell."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.cell = -1
        self.paused = False

    def add(self, kind: str, text: str) -> None:
        if not self.paused and len(self.effects) < 2_000:
            self.effects.append((self.cell, kind, text[:2_000]))


def described(value: Any, depth: int = 0) -> str:
    """An argument as text for the log, without memory addresses."""
    match value:
        case Stub():
            return str(value)
        case str() | bytes() | int() | float() | bool() | None:
            return repr(value)
        case os.PathLike():
            return repr(os.fspath(value))
        case list() | tuple() | set() if depth < _DEEP:
            return f"[{', '.join(described(part, depth + 1) for part in value)}]"
        case dict() if depth < _DEEP:
            return (
                "{" + ", ".join(f"{described(k, depth + 1)}: {described(v, depth + 1)}" for k, v in value.items()) + "}"
            )
    return type(value).__name__


class _Base:
    """Base of classes that inherit from a stub."""

    def __init__(self, *arguments: Any, **options: Any):
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(self._log_of_stubs, f"{type(self).__name__}.{name}")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return Stub(self._log_of_stubs, f"{type(self).__name__}()")

    _log_of_stubs: Log


class Stub:
    """An object of a missing package: allows every operation, and logs calls."""

    def __init__(self, log: Log, name: str):
        self.__dict__.update(_log=log, _name=name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub(self._log, f"{self._name}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        texts = [described(value) for value in arguments] + [f"{key}={described(v)}" for key, v in options.items()]
        self._log.add("call", f"{self._name}({', '.join(texts)})")
        return Stub(self._log, f"{self._name}()")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type("Base", (_Base,), {"_log_of_stubs": self._log}),)

    def __getitem__(self, key: Any) -> Any:
        return Stub(self._log, f"{self._name}[{described(key)}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    __delitem__ = __delattr__ = lambda self, key: None

    def __iter__(self) -> Iterator[Any]:
        return iter((Stub(self._log, f"{self._name}[0]"), Stub(self._log, f"{self._name}[1]")))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: Any) -> bool:
        return False

    def __str__(self) -> str:
        return f"<{self._name}>"

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return str(self)

    def __fspath__(self) -> str:
        return "stub"

    def _combined(self, *others: Any) -> Any:
        return Stub(self._log, f"{self._name}~")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _combined
    __floordiv__ = __mod__ = __pow__ = __rpow__ = __matmul__ = __neg__ = __abs__ = __and__ = __or__ = _combined
    __invert__ = __xor__ = __rshift__ = __lshift__ = __rfloordiv__ = __rmod__ = __round__ = _combined
    __len__ = __int__ = __index__ = __hash__ = lambda self: 1
    __float__ = lambda self: 1.0  # noqa: E731 one line a protocol
    __bool__ = lambda self: True  # noqa: E731
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda self, other: False


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides a stub for each package that is neither in the standard library nor a file of the notebook."""

    def __init__(self, log: Log):
        self.log = log

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in _REAL or top.startswith("_"):
            return None
        if any(
            Path(folder or ".", top).exists() or Path(folder or ".", f"{top}.py").exists() for folder in sys.path[:3]
        ):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        log, name = self.log, spec.name

        class Module(types.ModuleType):
            def __getattr__(self, part: str) -> Any:
                if part.startswith("__"):
                    raise AttributeError(part)
                return Stub(log, f"{name}.{part}")

            def __call__(self, *arguments: Any, **options: Any) -> Any:
                return Stub(log, name)(*arguments, **options)

        return Module(name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__all__ = []  # type: ignore[attr-defined]


def record(log: Log) -> None:
    """Installs the recorders in this process."""
    sys.meta_path.insert(0, _Finder(log))
    _record_processes(log)
    _record_network(log)
    _record_files(log)
    _record_environment(log)
    _record_people(log)


def _record_processes(log: Log) -> None:
    def ran(command: Any, *arguments: Any, **options: Any) -> str:
        words = command if isinstance(command, str) else " ".join(map(str, command))
        log.add("process", words)
        return words

    class Process:
        """A process that has ended successfully without output."""

        returncode = pid = 0
        stdin = stdout = stderr = None

        def __init__(self, command: Any, *arguments: Any, **options: Any):
            ran(command)
            is_text = any(options.get(name) for name in ("text", "universal_newlines", "encoding"))
            self.stdout, self.stderr = (io.StringIO() if is_text else io.BytesIO() for _ in range(2))
            self.args, self._empty = command, "" if is_text else b""

        def communicate(self, *arguments: Any, **options: Any) -> tuple[Any, Any]:
            return self._empty, self._empty

        def wait(self, *arguments: Any, **options: Any) -> int:
            return 0

        poll = kill = terminate = wait
        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *details: None  # noqa: E731

    def completed(command: Any, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
        empty = Process(command, **options)._empty
        return subprocess.CompletedProcess(command, 0, empty, empty)

    def zero(command: Any, *arguments: Any, **options: Any) -> int:
        ran(command)
        return 0

    subprocess.Popen = Process  # type: ignore[assignment, misc]
    subprocess.run = completed  # type: ignore[assignment]
    subprocess.call = subprocess.check_call = os.system = zero  # type: ignore[assignment]
    subprocess.check_output = lambda command, **options: completed(command, **options).stdout  # type: ignore[assignment]
    subprocess.getoutput = lambda command: ran(command) and ""  # type: ignore[assignment]
    subprocess.getstatusoutput = lambda command: (zero(command), "")  # type: ignore[assignment]
    os.popen = lambda command, *rest: io.StringIO(ran(command)[:0])  # type: ignore[assignment]
    os.kill = os._exit = os.killpg = lambda *arguments: None  # type: ignore[assignment]


def _record_network(log: Log) -> None:
    def retrieved(url: Any, filename: Any = None, *rest: Any, **options: Any) -> tuple[str, None]:
        log.add("fetch", f"{described(url)} {described(filename)}")
        return str(filename or "fetched"), None

    def opened(url: Any, *rest: Any, **options: Any) -> io.BytesIO:
        log.add("fetch", described(getattr(url, "full_url", url)))
        return io.BytesIO()

    urllib.request.urlretrieve, urllib.request.urlopen = retrieved, opened  # type: ignore[assignment]


def _record_files(log: Log) -> None:
    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if log.paused or log.cell < 0 or event not in _EVENTS:
            return
        path = arguments[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        text = str(Path(os.fsdecode(path)).resolve())
        if text.startswith(_QUIET) or Path(text).name in ("", ".env"):
            return
        if event != "open":
            log.add("write", f"{event} {text}")
        elif isinstance(mode := arguments[1], str):
            log.add("write" if set(mode) & set("wax+") else "read", text)

    _EVENTS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "shutil.rmtree"})
    sys.addaudithook(heard)
    change = os.chdir

    def chdir(path: Any) -> None:
        """Changes the folder, and creates it if a process would have created it."""
        log.paused = True
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError:
            pass
        finally:
            log.paused = False
        change(path)
        log.add("folder", str(Path.cwd()))

    os.chdir = chdir
    for name in ("copy", "copy2", "copyfile", "copytree", "move", "unpack_archive", "make_archive"):
        setattr(shutil, name, _logged(log, f"shutil.{name}"))


def _logged(log: Log, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        log.add("write", f"{name} {' '.join(described(value) for value in arguments)}")
        return arguments[-1] if arguments else None

    return call


def _record_environment(log: Log) -> None:
    """Logs environment variables that a notebook reads, because they may be secrets."""
    kind = type(os.environ)
    get_item = kind.__getitem__

    def read(self: Any, key: str) -> str:
        if log.cell >= 0 and not log.paused and not key.startswith("COLAB_"):
            log.add("secret", str(key))
        return get_item(self, key)

    def got(self: Any, key: str, default: Any = None) -> Any:
        if log.cell >= 0 and not log.paused and not key.startswith("COLAB_"):
            log.add("secret", str(key))
        try:
            return get_item(self, key)
        except KeyError:
            return default

    kind.__getitem__, kind.get = read, got  # type: ignore[method-assign, assignment]
    os.getenv = os.environ.get


def _record_people(log: Log) -> None:
    def answered(prompt: Any = "", *rest: Any) -> str:
        log.add("question", str(prompt))
        return "1"

    import getpass

    builtins.input = answered
    getpass.getpass = answered
    clock = iter(range(1_000_000, 10**9))
    time.sleep = lambda seconds: None
    time.time = time.perf_counter = time.monotonic = lambda: float(next(clock))


def colab_parts(log: Log) -> dict[str, Any]:
    """The common functions of `google.colab` and `landfall_runtime`, by dotted names; all others do nothing."""

    def uploaded(*arguments: Any, **options: Any) -> dict[str, bytes]:
        log.add("upload", "files")
        return {"uploaded.txt": b"1"}

    def downloaded(path: Any) -> None:
        log.add("download", str(Path(path).resolve()))

    def secret(key: str) -> str:
        log.add("secret", key)
        return f"secret-{key}"

    def signed_in(*arguments: Any, **options: Any) -> None:
        log.add("sign-in", "google")

    return {
        "files.upload": uploaded,
        "files.upload_file": uploaded,
        "files.download": downloaded,
        "userdata.get": secret,
        "auth.authenticate_user": signed_in,
    }
