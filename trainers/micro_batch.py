"""Measures the best micro-batch size: runs real steps of growing size and compares their peak memory and speed.

An out-of-memory error cannot be used as a measurement: Windows and WSL page instead, and Linux kills the process.
Memory is linear in the batch size, so a few small steps predict the peak of a large one before it runs.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import distributed

from core.devices.backend import Backend
from core.devices.memory import is_out_of_memory
from core.reading import read_json_object
from core.workspace import json_digest, utc_now, write_json

log = logging.getLogger(__name__)

# Share of the limit that stays free: other runs of the same step have slightly higher peaks, and memory fragments.
HEADROOM = 0.10
# The first size after a single window, if it fits: sizes in between are not useful.
FIRST = 8
# Throughputs closer than this count as equal; the smaller batch is chosen because it needs less memory.
EQUAL = 0.03
# Doublings without growth of the throughput after which larger batches are not tried.
PATIENCE = 2
# Number of sizes for the fit of the line: at small sizes, weights and workspaces hide the memory of a window.
FITTED = 3
# Timed steps of a size: three, or up to ten within MAX_TIMED_S seconds; fewer if they take SLOW_SHARE of the budget.
DEFAULT_STEPS, MAX_STEPS, MAX_TIMED_S, SLOW_SHARE = 3, 10, 0.25, 0.2


@dataclass(frozen=True)
class Trial:
    """One size that ran.

    predicted_mb: peak memory in MiB, predicted from the smaller sizes; None for the first size. peak_mb (measured) and
    seconds (median of a train step) are None after an out-of-memory error.
    """

    size: int
    predicted_mb: float | None
    peak_mb: float | None
    seconds: float | None
    fits: bool

    @property
    def windows_per_second(self) -> float:
        return self.size / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Line:
    """Peak memory as a straight line in the number of windows, in MiB."""

    fixed_mb: float
    mb_per_window: float

    def at(self, size: int) -> float:
        return self.fixed_mb + self.mb_per_window * size

    def largest_under(self, mb: float) -> float:
        """Windows that fit; infinity if they need no memory."""
        return (mb - self.fixed_mb) / self.mb_per_window if self.mb_per_window > 0 else math.inf


@dataclass(frozen=True)
class ProbeResult:
    """The chosen micro-batch size.

    micro: the chosen size. largest: the largest size within the limit, possibly predicted by the line. peak_mb:
    expected peak memory at `micro` in MiB, of the whole process on a CPU. seconds_per_step: one train step of `micro`
    windows with its optimizer step; None if that size did not run. needs_checkpointing: not even one window fits;
    `largest` is 0 then.
    """

    micro: int
    largest: int
    peak_mb: float | None
    seconds_per_step: float | None
    line: Line | None
    trials: tuple[Trial, ...]
    reason: str
    needs_checkpointing: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Raises TypeError or KeyError for anything `to_json` did not write."""
        line = values["line"] and Line(**values["line"])
        return cls(**{**values, "line": line, "trials": tuple(Trial(**trial) for trial in values["trials"])})


# -------------------------------------------------------------------------------------------------------------- probing
@dataclass(frozen=True)
class Probe:
    """Finds the fastest batch size that fits: runs train and validation steps of 1, 8, 16, 32, … windows, and of 2 and
    4 if 8 do not fit. No size runs whose predicted peak is over the limit. An out-of-memory error counts as too large.

    train_step(n): forward, backward and optimizer step of n windows. validation_step(n): a forward pass, after the
        train steps of the same size.
    meter: measures the peak memory of the device.
    limit_mb: MiB that the process may use, of which `HEADROOM` stays free; None: no limit.
    largest: the largest useful size: the windows of an optimizer step, or of the data set.
    group: windows that batch normalisation computes together; multiples of it are preferred.
    budget_s: seconds of the search; after the first two sizes, none starts that would end later.
    """

    train_step: Callable[[int], None]
    validation_step: Callable[[int], None]
    meter: Backend
    limit_mb: float | None
    largest: int
    group: int = 1
    budget_s: float = 5.0
    clock: Callable[[], float] = time.perf_counter

    @property
    def allowed_mb(self) -> float:
        return math.inf if self.limit_mb is None else self.limit_mb * (1 - HEADROOM)

    @property
    def first(self) -> int:
        """Complete groups, at least `FIRST` windows."""
        return self.group * math.ceil(FIRST / self.group)

    def run(self) -> ProbeResult:
        """Tries growing sizes until there is a reason to stop."""
        started, trials, line, size, stop = self.clock(), [], None, 1, None
        while stop is None:
            trials.append(self._try(size, line))
            if not trials[-1].fits:
                break
            line = _fit(trials, rest_mb=self._rest_mb() if size == 1 else 0.0)
            size = self._next(size, line)
            stop = self._reason_to_stop(size, trials, line, self.clock() - started)
        return self._choose(trials, line, stop)

    def _next(self, size: int, line: Line) -> int:
        """Twice the size; after a single window, `FIRST` if it fits."""
        leap = size < self.first <= self.largest and line.at(self.first) <= self.allowed_mb
        return self.first if leap else 2 * size

    def _try(self, size: int, line: Line | None) -> Trial:
        predicted_mb = line.at(size) if line else None
        self.meter.reset_peak_memory()
        try:
            seconds = self._median_seconds(size)
            self.validation_step(size)
            self.meter.synchronize()
            peak_mb = self.meter.peak_memory_mb()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return Trial(size, predicted_mb, None, None, fits=False)
        return Trial(size, predicted_mb, peak_mb, seconds, fits=peak_mb <= self.allowed_mb)

    def _median_seconds(self, size: int) -> float:
        self.train_step(size)  # the first one allocates, and picks or compiles kernels
        seconds: list[float] = []
        while not self._is_enough(seconds):
            self.meter.synchronize()
            started = self.clock()
            self.train_step(size)
            self.meter.synchronize()
            seconds.append(self.clock() - started)
        return statistics.median(seconds)

    def _is_enough(self, seconds: Sequence[float]) -> bool:
        if len(seconds) < DEFAULT_STEPS:
            return bool(seconds) and sum(seconds) >= SLOW_SHARE * self.budget_s
        return len(seconds) >= MAX_STEPS or sum(seconds) >= MAX_TIMED_S

    def _rest_mb(self) -> float:
        """Memory in use between steps: weights and optimizer states; on a CPU, the complete process."""
        self.meter.reset_peak_memory()
        return self.meter.peak_memory_mb()

    def _reason_to_stop(self, size: int, trials: Sequence[Trial], line: Line, elapsed_s: float) -> str | None:
        """Why the next size is not tried; None if it is."""
        step_s = trials[-1].seconds * size / trials[-1].size
        timed_s = min(DEFAULT_STEPS * step_s, SLOW_SHARE * self.budget_s + step_s)
        seconds = step_s + timed_s + step_s / 3  # a validation step has no backward pass, two thirds of the work
        if size > self.largest:
            return f"more than {self.largest} are not useful"
        if line.at(size) > self.allowed_mb:
            return f"{size} would need {line.at(size):,.0f} MiB"
        if size > self.first and _has_stalled(trials):
            return "throughput no longer grew"
        if size > self.first and elapsed_s + seconds > self.budget_s:
            return f"{size} would exceed the {self.budget_s:g} s of the probe"
        return None

    def _choose(self, trials: Sequence[Trial], line: Line | None, stop: str | None) -> ProbeResult:
        limit = "no limit known" if self.limit_mb is None else f"limit {self.limit_mb:,.0f} MiB less {HEADROOM:.0%}"
        last, fitting = trials[-1], [trial for trial in trials if trial.fits]
        if not last.fits:
            stop = f"{last.size} " + ("ran out of memory" if last.peak_mb is None else f"used {last.peak_mb:,.0f} MiB")
        blank = ProbeResult(1, 0, last.peak_mb, None, line, tuple(trials), f"{stop} ({limit})")
        if not fitting:
            return replace(blank, needs_checkpointing=True)
        candidates = [trial for trial in fitting if trial.size % self.group == 0] or fitting
        best = max(trial.windows_per_second for trial in candidates)
        chosen = next(trial for trial in candidates if trial.windows_per_second >= best * (1 - EQUAL))
        # Sizes that ran fit, those that failed do not; the line predicts other sizes.
        at_most = self.largest if last.fits else last.size - 1
        largest = max(fitting[-1].size, math.floor(min(line.largest_under(self.allowed_mb), at_most)))
        reason = (
            f"the smallest batch within {EQUAL:.0%} of the best throughput, {best:,.0f} windows/s; "
            f"{largest} fit ({limit}); measured up to {fitting[-1].size}: {stop}"
        )
        return _with_micro(replace(blank, largest=largest, reason=reason), chosen.size)


def _fit(trials: Sequence[Trial], *, rest_mb: float) -> Line:
    """The line through the largest sizes. From a single size it assumes that all memory above `rest_mb` grows with the
    batch, which overestimates."""
    if len(trials) == 1:
        rest_mb = min(rest_mb, trials[0].peak_mb)
        return Line(rest_mb, (trials[0].peak_mb - rest_mb) / trials[0].size)
    last = trials[-FITTED:]
    slope, intercept = statistics.linear_regression([t.size for t in last], [t.peak_mb for t in last])
    return Line(intercept, slope) if slope > 0 else Line(max(t.peak_mb for t in last), 0.0)


def _has_stalled(trials: Sequence[Trial]) -> bool:
    if len(trials) <= PATIENCE:
        return False
    before = max(trial.windows_per_second for trial in trials[:-PATIENCE])
    return max(trial.windows_per_second for trial in trials[-PATIENCE:]) < before * (1 + EQUAL)


def _with_micro(result: ProbeResult, micro: int) -> ProbeResult:
    """The result with another size; figures come from its trial, or from the line if it did not run."""
    trial = next((trial for trial in result.trials if trial.size == micro), None)
    return replace(
        result,
        micro=micro,
        peak_mb=trial.peak_mb if trial else result.line.at(micro),
        seconds_per_step=trial.seconds if trial else None,
    )


def agree(result: ProbeResult, device: torch.device | str = "cpu") -> ProbeResult:
    """The smallest result of all processes that train together; a single process returns its own.

    device: of the tensors of the process group. All processes must call it.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return result
    answer = torch.tensor([result.micro, result.largest, not result.needs_checkpointing], device=device)
    distributed.all_reduce(answer, op=distributed.ReduceOp.MIN)
    micro, largest, fits = answer.tolist()
    result = replace(result, largest=largest, needs_checkpointing=not fits)
    if micro == result.micro:
        return result
    return _with_micro(replace(result, reason=f"{result.reason}; another process takes {micro}"), micro)


# ---------------------------------------------------------------------------------------------------------- remembering
class ProbeCache:
    """Results of earlier probes in a JSON file, by everything that affects them."""

    def __init__(self, path: Path):
        self.path = path

    def get(self, facts: Mapping[str, Any]) -> ProbeResult | None:
        entry = self._read().get(json_digest(facts))
        if entry is None:
            return None
        try:
            return ProbeResult.from_json(entry["result"])
        except (KeyError, TypeError) as error:
            log.warning("%s: an entry cannot be read (%r); measuring again", self.path, error)
            return None

    def put(self, facts: Mapping[str, Any], result: ProbeResult) -> None:
        """Stores the result; if two processes write concurrently, the complete file of the last one remains."""
        entry = {"time": utc_now(), "facts": dict(facts), "result": result.to_json()}
        write_json(self.path, {**self._read(), json_digest(facts): entry})

    def _read(self) -> dict[str, Any]:
        try:
            return read_json_object(self.path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read (%s); measuring again", self.path, error)
            return {}
