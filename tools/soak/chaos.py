"""Runs random commands on random workspaces with random faults, and checks conditions after each.

    python -m tools.soak.chaos --minutes 60 [--seed 0] > chaos.json
    python -m tools.soak.chaos --seed 0 --case 17          # one case again

A case has its own workspace and up to six commands, each with at most one fault: a kill, SIGTERM, Ctrl-C, a closed
terminal, a full or read-only disk, a folder without permission, files from the past and the future. Seed and case
determine everything except the position at which a signal interrupts a command. Disks are mounted in memory, which
needs root on Linux; without it these faults are skipped, and the result lists them. Nine of ten commands are forks of a
process that has imported everything, which is several times faster; the others are started like those of a user.

After each command: every artifact can be read, a valid model is still valid, files of the user are unchanged, nothing
is written outside the workspace, the exit code is documented, the message is one line with a remedy, and the memory is
bounded. After each case the workspace still works.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import checkpoint
from core.cli import run_command
from core.errors import (
    EXIT_DATA,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_KILLED,
    EXIT_OK,
    EXIT_OUTPUT,
    EXIT_RESUMABLE,
    EXIT_USAGE,
    LandfallError,
)
from core.workspace import temporary_folder
from tests.support.artifact_checks import faults, leftovers
from tests.support.small_workspace import CONFIGS, REPOSITORY, build_small_workspace, install_page
from tools.soak.forking import Fork, ForkServer

DOCUMENTED = {
    EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_DATA, EXIT_OUTPUT, EXIT_RESUMABLE, EXIT_INTERRUPTED, EXIT_KILLED,
}  # fmt: skip
MAX_S, MAX_MB, DISK_MB = 240.0, 3000, 64
FORKED = 0.9  # share of the commands
# Signals are sent at a random time within these seconds after the command has installed its handlers.
STARTED_S, FORKED_S = 8.0, 3.0
SIGNALS = {
    "kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT, "hangup": signal.SIGHUP,
}  # fmt: skip
DISKS = ("full disk", "read-only disk")
# Faults and their relative frequencies.
FAULTS = {
    "none": 25, "kill": 20, "terminate": 10, "interrupt": 10, "hangup": 5, "full disk": 12,
    "read-only disk": 8, "permission": 8, "clock": 7,
}  # fmt: skip
USER_FILES = ("data", "configs", "notebooks", "pyproject.toml")
_STREAM = {stream: ("--stream", stream, "--config", config) for stream, config in CONFIGS.items()}
_WITHOUT_ROOT = ("devices", "init", "migrate")
_BOTH = ("--patch-config", CONFIGS["patchtst"], "--swin-config", CONFIGS["swinmae"])
# The cache of torch's compiler in the temporary folder: torch creates it in deterministic mode.
_TORCH_PREFIX = "torchinductor_"
_NO_PERMISSION = "-dac_override,-dac_read_search"


def draw_command(rng: random.Random, trained: Path) -> list[str]:
    """The arguments of a random command; one in eight has a mistake."""
    stream = rng.choice(list(CONFIGS))
    train = ["train", stream, "--config", CONFIGS[stream], f"training.epochs={rng.randint(1, 3)}"]
    words = rng.choice([
        train, [*train, "--resume", "auto"], [*train, "--run-id", "first"],
        ["score", *_STREAM[stream]], ["score", *_STREAM[stream], "--detector", "charts"],
        ["check", *_STREAM[stream], "--no-time"], ["quality", "--config", CONFIGS[stream]],
        ["runs", *_STREAM[stream], "--json"], ["promote", *_STREAM[stream], "first"],
        ["tag", *_STREAM[stream], "first", "a", "--note", "x"], ["calibrate", *_STREAM[stream]],
        ["validate", *_BOTH, "--skip-smoke"], ["export", *_BOTH], ["devices", "--json"],
        ["import-artifacts", str(trained), "--replace", *_BOTH],
        ["pipeline", *_BOTH, "--only", rng.choice(["quality*", "score*", "validate", "export"])],
        ["pipeline", *_BOTH, "--dry-run"], ["slurm", stream, "--config", CONFIGS[stream]],
        ["watch", "patchtst", "--config", CONFIGS["patchtst"], "--once", "--detector", rng.choice(["model", "charts"])],
        ["migrate", f"notebooks/colab_{stream}_ssl.ipynb", "-o", "artifacts/notebooks/migrated.ipynb", "--force"],
        ["pool", "data/fdc/train_*.csv", "--out", "artifacts/pool", "--force"], ["init", "samples/other"],
    ])  # fmt: skip
    if rng.random() < 0.125:
        words = [*words, rng.choice(["training.epoch=3", "training.epochs=-1", "--no-such-option", "seed="])]
    return words


@dataclass
class Result:
    """Counts and violations of all cases. left_out: faults that this machine cannot have. violations: each begins with
    the command that repeats its case."""

    seed: int
    cases: int = 0
    commands: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    peak_mb: float = 0.0


class Case:
    """One workspace below `folder`, copied from a template."""

    def __init__(
        self, seed: int, number: int, folder: Path, templates: Path, result: Result, server: ForkServer | None = None
    ):
        self.rng = random.Random(f"{seed} {number}")
        self.again = f"python -m tools.soak.chaos --seed {seed} --case {number}"
        self.folder, self.templates, self.result, self.server = folder, templates, result, server
        self.root, self.outside = folder / "workspace", folder / "outside"
        self.was_killed = False
        self.read: set[tuple[Path, int, int, int]] = set()  # artifacts that were read
        self.history: list[str] = []  # earlier commands of this case, with fault and exit code

    def run(self) -> None:
        template = self.rng.choice(["fresh", "trained", "trained"])
        shutil.copytree(self.templates / template, self.root, symlinks=True)
        for name in ("home", "tmp"):
            (self.outside / name).mkdir(parents=True)
        for _ in range(self.rng.randint(1, 6)):
            allowed = [fault for fault in FAULTS if fault not in self.result.left_out]
            (fault,) = self.rng.choices(allowed, [FAULTS[fault] for fault in allowed])
            self._command(draw_command(self.rng, self.templates / "trained"), fault)
        for words in (["export", *_BOTH], ["runs", *_STREAM["patchtst"]]):
            code, stderr_text = self._start(words, "none")
            if code != EXIT_OK:
                self._violated(words, "none", f"the workspace no longer works: {code}, {stderr_text[-300:]}")

    def _command(self, words: Sequence[str], fault: str) -> None:
        self.result.commands += 1
        self.result.faults[fault] += 1
        users, models = _digests(self.root), _valid_models(self.root)
        with self._with_fault(fault):
            code, stderr_text = self._start(words, fault)
        self.result.codes[str(code)] += 1
        self.was_killed |= fault == "kill"
        for found in (*self._file_violations(users, models, fault), *_message_violations(code, stderr_text, fault)):
            self._violated(words, fault, found)
        self.history.append(f"{words[0]}, {fault}, {code}")

    # ----------------------------------------------------------------------------------------------------------- faults
    @contextlib.contextmanager
    def _with_fault(self, fault: str) -> Iterator[None]:
        filler, chosen = self.folder / "filler", self.rng.choice(["checkpoints", "artifacts", "runs"])
        leave = self.rng.choice([0, 8_192, 60_000, 400_000])
        if fault == "full disk":
            facts = os.statvfs(self.folder)
            filler.write_bytes(bytes(max(0, facts.f_bavail * facts.f_frsize - leave)))
        elif fault == "read-only disk":
            _remount(self.folder, "ro")
        elif fault == "permission":
            (self.root / chosen).mkdir(exist_ok=True)
            (self.root / chosen).chmod(0o555)
        elif fault == "clock":
            for path in sorted(self.root.rglob("*")):
                when = time.time() + self.rng.choice([-1, 1]) * self.rng.uniform(0, 3e8)
                os.utime(path, (when, when), follow_symlinks=False)
        try:
            yield
        finally:
            if fault == "read-only disk":
                _remount(self.folder, "rw")
            elif fault == "permission":
                (self.root / chosen).chmod(0o755)
            filler.unlink(missing_ok=True)

    def _start(self, words: Sequence[str], fault: str) -> tuple[int, str]:
        """Runs a command. Returns its exit code, or the negative number of a signal, and its stderr."""
        words = [*words, *([] if words[0] in _WITHOUT_ROOT else ["--repo-root", "."])]
        variables = environment(self.outside, self.templates)
        is_forked = self.rng.random() < FORKED and self.server is not None
        as_user = fault == "permission" and os.geteuid() == 0
        process: subprocess.Popen[bytes] | Fork
        with tempfile.NamedTemporaryFile() as stderr:
            if is_forked and self.server is not None:
                process = self.server.start(
                    words, cwd=self.root, environment=variables, stderr=Path(stderr.name), as_user=as_user
                )
            else:
                command = [sys.executable, "-m", "landfall", *words]
                if as_user:
                    command = ["setpriv", f"--inh-caps={_NO_PERMISSION}", f"--bounding-set={_NO_PERMISSION}", *command]
                process = subprocess.Popen(
                    command, cwd=self.root, env=variables, stdin=-3, stdout=-3, stderr=stderr, process_group=0
                )
            # Squared, because half of the commands end within three seconds.
            within_s = self.rng.uniform(0.0, 1.0) ** 2 * (FORKED_S if is_forked else STARTED_S)
            wait_s = within_s if fault in SIGNALS else MAX_S
            try:
                if fault in SIGNALS:
                    _wait_for_handlers(process)
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                process.send_signal(SIGNALS.get(fault, signal.SIGKILL))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(MAX_S)
                if fault not in SIGNALS or process.poll() is None:
                    self._violated(words, fault, f"does not end within {MAX_S:.0f} s")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            stderr_text = Path(stderr.name).read_text(errors="replace")
        of_all = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        self._check_memory(words, fault, process.peak_mb if isinstance(process, Fork) else of_all)
        return code, stderr_text

    # ------------------------------------------------------------------------------------------------------- conditions
    def _file_violations(self, users: dict[str, str], models: Sequence[Path], fault: str) -> Iterator[str]:
        yield from faults(self.root, self.read)
        now = _digests(self.root)
        yield from (f"{name} of the user was changed" for name, digest in users.items() if now.get(name) != digest)
        for path in models:
            try:
                checkpoint.verify(path)
            except (LandfallError, OSError) as error:
                yield f"{path.name} was valid: {error}"
        outside = [path for path in self.outside.glob("*/*") if not path.name.startswith(_TORCH_PREFIX)]
        if not self.was_killed and outside:  # a process that is killed leaves its temporary files
            yield f"written outside the workspace: {', '.join(map(str, outside[:5]))}"
        if not self.was_killed and fault in ("none", "clock") and (left := leftovers(self.root)):
            yield f"left: {', '.join(left[:5])}"

    def _check_memory(self, words: Sequence[str], fault: str, peak_mb: float) -> None:
        if peak_mb > max(self.result.peak_mb, MAX_MB):
            self._violated(words, fault, f"took {peak_mb:,.0f} MiB")
        self.result.peak_mb = max(self.result.peak_mb, peak_mb)

    def _violated(self, words: Sequence[str], fault: str, found: str) -> None:
        after = f" (after {'; '.join(self.history)})" if self.history else ""
        line = f"{self.again}: landfall {' '.join(words)}, {fault}: {found}{after}"
        self.result.violations.append(line)
        sys.stderr.write(line + "\n")


def _wait_for_handlers(process: subprocess.Popen[bytes] | Fork) -> None:
    """Returns as soon as a command handles SIGTERM, as Linux reports it, or has ended."""
    while sys.platform == "linux" and process.poll() is None:
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            handled = next(line for line in lines if line.startswith("SigCgt:")).split()[1]
            if int(handled, 16) >> (signal.SIGTERM - 1) & 1:
                return
        time.sleep(0.01)


def _message_violations(code: int, stderr_text: str, fault: str) -> Iterator[str]:
    """The errors in exit code and last line."""
    if code not in DOCUMENTED and not (fault in SIGNALS and code == -SIGNALS[fault]):
        yield f"exit code {code}: {stderr_text[-300:]}"
    if "Traceback (most recent call last)" in stderr_text:
        yield f"a traceback: {stderr_text[-600:]}"
    lines = [line for line in stderr_text.splitlines() if line.strip()]
    if code in (EXIT_FAILURE, EXIT_USAGE, EXIT_DATA, EXIT_OUTPUT):
        last = lines[-1] if lines else ""
        if not last.startswith("landfall") or "unexpected " in last:
            yield f"exit code {code} with the last line {last[:300]!r}"


def environment(outside: Path, templates: Path) -> dict[str, str]:
    """The environment of a command. outside: the folder of its home and temporary files, where none may remain."""
    places = {"HOME": outside / "home", "TMPDIR": outside / "tmp", "MPLCONFIGDIR": templates / "mpl"}
    variables = {**os.environ, **{name: str(path) for name, path in places.items()}}
    return variables | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def _digests(root: Path) -> dict[str, str]:
    """The SHA-256 of each of the user's files."""
    paths = [path for name in USER_FILES for path in [root / name, *(root / name).rglob("*")] if path.is_file()]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _valid_models(root: Path) -> list[Path]:
    found = []
    for path in (root / "checkpoints").glob("*_ssl.pt"):
        with contextlib.suppress(LandfallError, OSError):
            checkpoint.verify(path)
            found.append(path)
    return found


def _remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


@contextlib.contextmanager
def _disk(folder: Path, *, is_mounted: bool) -> Iterator[Path]:
    """A new folder, which is a disk in memory if `is_mounted`."""
    folder.mkdir()
    if is_mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def left_out_here() -> list[str]:
    """Faults that this machine cannot have."""
    is_root = sys.platform == "linux" and os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        mounted = is_root and subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True)
        if mounted and not mounted.returncode:
            subprocess.run(["umount", folder], check=True)
            disks: list[str] = []
        else:
            disks = list(DISKS)
    return [*disks, *(["permission"] if is_root and shutil.which("setpriv") is None else [])]


def make_templates(folder: Path) -> None:
    """Creates two workspaces: one that has only data, and one whose streams are trained and scored."""
    folder.mkdir()
    for name in ("fresh", "trained"):
        install_page(build_small_workspace(folder / name))
    for name in ("mpl", "outside/home", "outside/tmp"):
        (folder / name).mkdir(parents=True)
    case = Case(0, 0, folder, folder, Result(0))
    case.root = folder / "trained"
    for stream, config in CONFIGS.items():
        for words in (["train", stream, "--config", config, "--run-id", "first"], ["score", *_STREAM[stream]]):
            code, stderr_text = case._start(words, "none")
            if code != EXIT_OK:
                raise LandfallError(f"landfall {' '.join(words)} fails without a fault: {stderr_text[-500:]}")


def chaos(
    seed: int, *, seconds: float, commands: int, only: int | None = None, templates: Path | None = None
) -> Result:
    """Runs cases until the time or the number of commands is reached, or only the case `only`. templates: of an earlier
    run, or where to keep those of this one."""
    result, until = Result(seed, left_out=left_out_here()), time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="chaos") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        templates = templates or folder / "templates"
        if not templates.exists():
            with temporary_folder(templates) as made:
                make_templates(made / "all")
                (made / "all").rename(templates)
        number = only or 0
        server = stack.enter_context(ForkServer(environment(templates / "outside", templates)))
        with contextlib.suppress(KeyboardInterrupt):  # also SIGTERM: what was found so far is the result
            while only is not None or (time.monotonic() < until and result.commands < commands):
                with _disk(folder / "case", is_mounted=DISKS[0] not in result.left_out) as place:
                    Case(seed, number, place, templates, result, server).run()
                result.cases, number = result.cases + 1, number + 1
                if only is not None:
                    break
                if result.cases % 20 == 0:
                    sys.stderr.write(f"{result.commands} commands, {len(result.violations)} violations\n")
    return result


def _heed_all_signals() -> None:
    """A background job of a shell ignores SIGINT, one of `nohup` SIGHUP; the commands would inherit that."""
    for number in {*SIGNALS.values()} - {signal.SIGKILL}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chaos", description="Random commands with random faults.")
    _heed_all_signals()
    parser.add_argument("--minutes", type=float, default=60.0, help="time for new cases (default: %(default)s)")
    parser.add_argument("--commands", type=int, default=10**9, help="maximum number (default: no limit)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, metavar="N", help="run this case only")
    parser.add_argument(
        "--templates",
        type=Path,
        metavar="DIR",
        help="keep the trained workspaces here for further runs",
    )

    def command(arguments: argparse.Namespace) -> int:
        result = chaos(
            arguments.seed, seconds=60 * arguments.minutes, commands=arguments.commands, only=arguments.case,
            templates=arguments.templates and arguments.templates.absolute(),
        )  # fmt: skip
        document: dict[str, Any] = {**vars(result), "peak_mb": round(result.peak_mb)}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return EXIT_FAILURE if result.violations else EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
