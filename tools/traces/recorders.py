"""Replacements for external systems while a notebook runs: each call is logged and has no effect. Processes, the
network, packages outside the standard library, log-ins and Colab's modules become recorders. Files are real files in
the sandbox.
"""

from __future__ import annotations

import builtins
import datetime
import gc
import io
import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.traces.stubs import Finder, Log, described

_QUIET = ("/usr", "/etc", "/proc", "/dev", "/lib", sys.prefix, sys.base_prefix)
_SECONDS_OF_THREAD = 0.2
_MAX_SLEEPS = 3  # of a thread
_START = datetime.datetime(2026, 1, 1)


def record(log: Log) -> None:
    """Installs the recorders in this process."""
    sys.meta_path.insert(0, Finder(log))
    _record_processes(log)
    _record_network(log)
    _record_files(log)
    _record_environment(log)
    _record_user_input(log)


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
    os.getpid = lambda: 1


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
        if event in ("os.remove", "os.rmdir") and arguments[1] != -1:
            return  # below a folder that `shutil.rmtree` deletes, which is logged
        text = str(Path(os.fsdecode(path)).resolve())
        name = Path(text).name
        if text.startswith(_QUIET) or name in ("", ".env") or name.startswith("<"):  # `<string>` is no file
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


def _record_user_input(log: Log) -> None:
    def answered(prompt: Any = "", *rest: Any) -> str:
        log.add("question", str(prompt))
        return "1"

    import getpass

    builtins.input = answered
    getpass.getpass = answered
    _limit_threads()
    _fix_random_numbers()
    gc.collect = lambda *generation: 0  # type: ignore[assignment, misc]
    _simulate_clocks()


def _limit_threads() -> None:
    """Lets a new thread run for a moment before the program continues, so that its effects come in the same order in
    each run, and ends it after some calls of `sleep`, which take no time here: many threads wait for ever."""
    start, sleeps = threading.Thread.start, threading.local()

    def started(self: threading.Thread) -> None:
        start(self)
        self.join(_SECONDS_OF_THREAD)

    def slept(seconds: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            sleeps.count = getattr(sleeps, "count", 0) + 1
            if sleeps.count > _MAX_SLEEPS:
                raise SystemExit

    threading.Thread.start = started  # type: ignore[method-assign]
    time.sleep = slept


def _fix_random_numbers() -> None:
    """Replaces the operating system's random numbers by those of a generator with a fixed seed."""
    numbers, seed = random.Random(0), random.seed
    os.urandom = random._urandom = lambda size: numbers.randbytes(size)  # type: ignore[attr-defined]
    random.seed = lambda a=None, version=2: seed(0 if a is None else a, version)  # type: ignore[assignment]
    uuid.uuid1 = lambda *node_and_clock: uuid.uuid4()  # type: ignore[assignment]


def _simulate_clocks() -> None:
    """Replaces the clocks: each call advances the time by a second, from the same start in each run."""
    clock = itertools.count(int(_START.timestamp()))

    def now() -> float:
        return float(next(clock))

    class Datetime(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(now(), tz)

        today = utcnow = now

    class Date(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now())

    datetime.datetime, datetime.date = Datetime, Date  # type: ignore[misc]
    form = time.strftime
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _at(getattr(time, name), now))
    time.strftime = lambda text, *moment: form(text, *(moment or (time.localtime(),)))  # type: ignore[assignment, misc]
    time.time = time.perf_counter = time.monotonic = now


def _at(function: Callable[[float], Any], now: Callable[[], float]) -> Callable[..., Any]:
    return lambda *moment: function(*(moment or (now(),)))


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

    def mounted(mountpoint: str, *arguments: Any, **options: Any) -> None:
        log.add("mount", str(Path(mountpoint).absolute()))
        log.quietly(create)(mountpoint)

    def create(mountpoint: str) -> None:
        folder = Path(mountpoint, "MyDrive")
        folder.mkdir(parents=True, exist_ok=True)
        if not Path(mountpoint, "My Drive").exists():
            Path(mountpoint, "My Drive").symlink_to(folder.resolve())

    def signed_in(*arguments: Any, **options: Any) -> None:
        log.add("sign-in", "google")

    return {
        "drive.mount": mounted,
        "files.upload": uploaded,
        "files.upload_file": uploaded,
        "files.download": downloaded,
        "userdata.get": secret,
        "auth.authenticate_user": signed_in,
    }
