"""Training that is killed with SIGKILL and resumed repeatedly: its results must equal those of an undisturbed run.

`Nursery` starts training in processes forked from one that has imported torch, so that a start is fast, and `Kill` sets
when such a process dies: at any instruction of a step, at any line while a checkpoint is saved, or in the middle of a
write.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from core.checkpoint import last_path
from core.config.compose import LoadedConfig
from core.config.schema import AnyConfig
from core.runlog import EpochRecord, loss_csv_path, read_loss_csv, read_status

_PRELOADED = [
    "tests.support.killing",
    "trainers.run",
    "inference.detector.stored",
    "inference.events.writing",
    "pandas",
]
_SAVING = ("core/checkpoint.py", "core/workspace.py")
# Longest time between the order to kill and the kill, about that of a step.
_STEP_S = 0.02


@dataclass(frozen=True)
class Kill:
    """When a process dies: some time after so many steps; or, if lines is given, before that line of Python in what
    saves from there on; or, if size is given, as soon as it writes beyond so many bytes of a file."""

    steps: int
    delay_s: float = 0.0
    lines: int | None = None
    size: int | None = None

    @classmethod
    def at_random(cls, chance: random.Random, *, steps: int, size: int) -> Kill:
        """steps: at most. size: about that of a training state, in bytes."""
        kinds: list[Callable[[], dict[str, Any]]] = [
            lambda: {"delay_s": chance.uniform(0.0, _STEP_S)},
            lambda: {"lines": chance.randint(1, 250)},
            lambda: {"size": chance.randint(size // 3, size)},
        ]
        return cls(steps=chance.randint(0, steps), **chance.choice(kinds)())

    def prepare(self) -> None:
        """Runs in the process that is killed."""
        from trainers.loop import Trainer

        optimize, taken = Trainer._optimize, count(1)

        def counted(*arguments: Any) -> Any:
            step = optimize(*arguments)
            if next(taken) == self.steps:
                self._arm()
            return step

        Trainer._optimize = counted
        if self.steps == 0:
            self._arm()

    def _arm(self) -> None:
        if self.lines is not None:
            _die_at_line(self.lines)
        elif self.size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))
        else:
            threading.Timer(self.delay_s, _die).start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at_line(number: int) -> None:
    from core import checkpoint

    save, left = checkpoint.save, iter(range(number))

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and next(left, None) is None:
            _die()
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename.endswith(_SAVING) else None

    def traced(*arguments: Any, **named: Any) -> None:
        sys.settrace(on_call)
        try:
            save(*arguments, **named)
        finally:
            sys.settrace(None)

    checkpoint.save = traced


class Nursery:
    """Starts processes that train, and score."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)

    def train(self, loaded: LoadedConfig, *, root: Path, kill: Kill | None = None) -> int:
        """The exit code of training, or the negative number of the signal it died of."""
        return self._run(_train, loaded, root, kill)

    def score(self, loaded: LoadedConfig, *, root: Path) -> int:
        return self._run(_score, loaded, root)

    def _run(self, work: Callable[..., None], *arguments: Any) -> int:
        process = self._context.Process(target=work, args=arguments)
        process.start()
        process.join()
        return process.exitcode


def _train(loaded: LoadedConfig, root: Path, kill: Kill | None) -> None:
    from trainers.run import train

    _quiet(root)
    if kill is not None:
        kill.prepare()
    train(loaded, root=root)


def _score(loaded: LoadedConfig, root: Path) -> None:
    from inference.run_scoring_example import score_stream

    _quiet(root)
    score_stream(loaded, root=root)


def _quiet(root: Path) -> None:
    """The output of the process goes to a file."""
    logging.basicConfig(filename=root / "said.log", level=logging.INFO)
    sys.stderr = (root / "said.log").open("a", buffering=1)


# -------------------------------------------------------------------------------------------------------------- results
@dataclass(frozen=True)
class Outcome:
    """Results that must not depend on kills: every tensor of model and optimizer as bytes, by its name; the loss
    history without times; the table of scores."""

    weights: dict[str, bytes]
    history: list[tuple[int, float, float, float]]
    scores: Any

    @classmethod
    def of(cls, config: AnyConfig, *, root: Path) -> Outcome:
        import pandas as pd

        from core import checkpoint
        from inference.run_scoring_example import ScoringPaths

        best = root / config.logging.checkpoint_path
        states = {"best": checkpoint.load(best), "last": checkpoint.load(checkpoint.last_path(best))}
        parts = (("best", "model"), ("last", "model"), ("last", "optimizer"))
        tensors = {f"{name}.{part}": states[name][part] for name, part in parts}
        return cls(
            weights=dict(_bytes_of("", tensors)),
            history=[_timeless(record) for record in read_loss_csv(loss_csv_path(root, config))],
            scores=pd.read_parquet(ScoringPaths.of(config, root=root).scores),
        )

    def differences(self, other: Outcome) -> list[str]:
        """Differences to the last bit, as text."""
        names = self.weights.keys() | other.weights.keys()
        found = [name for name in sorted(names) if self.weights.get(name) != other.weights.get(name)]
        if self.history != other.history:
            found.append(f"history: {self.history} against {other.history}")
        if not self.scores.equals(other.scores):
            found.append("scores")
        return found


def _timeless(record: EpochRecord) -> tuple[int, float, float, float]:
    return record.epoch, record.train_loss, record.val_loss, record.lr


def _bytes_of(prefix: str, tree: Any) -> Any:
    """Names and bytes of the tensors in nested dicts."""
    import torch

    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _bytes_of(f"{prefix}{name}.", value)
        elif isinstance(value, torch.Tensor):
            yield f"{prefix}{name}", value.contiguous().numpy().tobytes()


def _is_completed(runs: Path) -> bool:
    statuses = [read_status(folder) for folder in runs.iterdir()] if runs.is_dir() else []
    return any(status is not None and status["state"] == "completed" for status in statuses)


def kill_until_done(
    nursery: Nursery, load: Callable[..., LoadedConfig], *, root: Path, chance: random.Random, most: int, steps: int
) -> int:
    """Trains with random kills, at most the given number, then lets it end. Returns the number of kills.

    load: gives the configuration with further overrides. steps: the most that a process lives. Raises RuntimeError for
    a process that ended in another way.
    """
    # Some save after every step, some now and then.
    paces = [load("training.resume=auto", f"training.checkpoint_every_minutes={pace}") for pace in (1e-9, 0.001)]
    last, kills = last_path(root / paces[0].config.logging.checkpoint_path), 0
    while kills < most and not _is_completed(root / paces[0].config.logging.log_dir):
        size = last.stat().st_size if last.is_file() else 100_000
        kill = Kill.at_random(chance, steps=steps, size=size)
        code = nursery.train(chance.choice(paces), root=root, kill=kill)
        if code == 0:
            break
        if code not in (-signal.SIGKILL, -signal.SIGXFSZ):
            raise RuntimeError(f"after {kills} kills training with {kill} ended with {code}: see {root / 'said.log'}")
        kills += 1
    if _is_completed(root / paces[0].config.logging.log_dir):  # killed after its last line
        return kills
    if (code := nursery.train(paces[0], root=root)) != 0:
        raise RuntimeError(f"after {kills} kills training ended with {code}: see {root / 'said.log'}")
    return kills
