"""Recovery from a loss or a gradient that is not finite: the step is rolled back, and training continues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.config.execution import Precision
from core.data.inputs import Inputs
from core.data.windows import WindowSet
from core.devices.plan import AUTOCAST_DTYPES, DevicePlan
from core.errors import LandfallError
from core.numbers import finite
from core.runlog import RunLog
from core.workspace import atomic_file, relative, write_json
from trainers.context import RunContext
from trainers.objective import Objective

log = logging.getLogger(__name__)

# Factor of the learning rate after a recovery, if the hardware supports no higher precision.
RATE_FACTOR = 0.5
# With loss scaling an overflow of the gradient is normal: it skips the step and halves the scale. This many in a row
# are not.
PATIENCE = 10
# Windows of a skipped step are saved up to this size.
MAX_SAVED_BYTES = 16 * 2**20
HINT = (
    "restart with a lower training.learning_rate or precision=32, or fix the data of these rows; "
    "training.recoveries is the number of recoveries allowed in a run"
)

_PRECISIONS = tuple(AUTOCAST_DTYPES)


@dataclass(frozen=True)
class TakenStep:
    """An optimizer step whose values have not been read yet: scalars on the device.

    index: within its epoch. skipped: 1 if this step or an earlier pending one was not finite, so that it changed no
    weight; else 0. loss_sum: of the epoch before this step. undo: restores what computing the gradient has changed.
    """

    index: int
    rate: float
    loss: torch.Tensor
    norm: torch.Tensor
    skipped: torch.Tensor
    loss_sum: torch.Tensor
    undo: Callable[[], None]


class NonFiniteGuard:
    """Lets a step change the weights only if its loss and its gradient are finite, without waiting for the device.

    After a skipped step all following ones are skipped too: whenever the host reads the values, weights and moments
    are those before the skipped step.

    reads_every_step: the host reads the values of every step. On a CPU that costs nothing, and only the CUDA optimizer
    can skip an update by a flag on the device.
    """

    def __init__(self, plan: DevicePlan):
        self.reads_every_step = plan.kind != "cuda"
        self._tolerates_overflow = plan.needs_loss_scaling
        self._skipped, self._streak = torch.zeros(2, device=plan.device).unbind()

    def step(self, optimizer: torch.optim.Optimizer, loss: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        """Returns whether the step is skipped, 1 or 0. norm: of the complete gradient, without the loss scale."""
        skip = self._must_skip(loss, norm)
        if not self.reads_every_step:
            optimizer.found_inf = skip
            optimizer.step()
        elif not skip:
            optimizer.step()
        return self._skipped

    def _must_skip(self, loss: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        """1 if the weights must not change, else 0."""
        if not self._tolerates_overflow:
            self._skipped = torch.maximum(self._skipped, _not_finite(loss + norm))
            return self._skipped
        overflow = _not_finite(norm)
        self._streak = (self._streak + overflow) * overflow
        beyond_scaling = torch.maximum(_not_finite(loss), (self._streak >= PATIENCE).float())
        self._skipped = torch.maximum(self._skipped, beyond_scaling)
        return torch.maximum(self._skipped, overflow)


def _not_finite(value: torch.Tensor) -> torch.Tensor:
    """1 for NaN and infinity, else 0: float32, by two kernels where `isfinite` takes five."""
    return (value * 0).nan_to_num(nan=1.0).float()


@dataclass(frozen=True)
class NonFinite:
    """Figures that are not finite, and what they were computed with.

    epoch, step: counted from 1, the steps over the whole run. grad_norm, lr: None for a validation loss.
    """

    epoch: int
    step: int
    loss: float
    precision: Precision
    grad_norm: float | None = None
    lr: float | None = None

    def __str__(self) -> str:
        what = f"validation loss {self.loss:g} after"
        if self.grad_norm is not None:
            what = f"loss {self.loss:g}, gradient norm {self.grad_norm:g} in"
        return f"{what} step {self.step} (epoch {self.epoch}, precision {self.precision})"

    def to_json(self) -> dict[str, Any]:
        """A figure that is not finite is null, as JSON has no NaN."""
        return {name: finite(value) for name, value in asdict(self).items()}


# ------------------------------------------------------------------------------------------------------------- remedies
class Recovery:
    """Remedies for values that are not finite, at most `training.recoveries` in a run.

    If the hardware supports a higher precision, training continues in it and repeats the step. Otherwise the step is
    left out, because the same weights would fail again, and the learning rate is reduced. Processes that train together
    decide the same, because loss and gradient are the same in all of them.

    used: recoveries so far. rate_factor: factor of the scheduled learning rate.
    """

    def __init__(self, context: RunContext, objective: Objective, inputs: Inputs):
        self.objective, self.inputs = objective, inputs
        self.root, self.is_main, self.limit = context.root, context.world.is_main, context.config.training.recoveries
        self.used, self.rate_factor = 0, 1.0
        self._raised: Precision | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"used": self.used, "rate_factor": self.rate_factor, "precision": self._raised}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues in the precision of the state, or in the current one if that is higher."""
        self.used, self.rate_factor, self._raised = state["used"], state["rate_factor"], state["precision"]
        precision = self.objective.plan.precision
        if self._raised is not None and _PRECISIONS.index(self._raised) > _PRECISIONS.index(precision):
            self.objective.compute_in(self._raised, "raised earlier in this run")

    def from_step(self, run: RunLog, non_finite: NonFinite, index_b: torch.Tensor, *purpose: str | int) -> bool:
        """Applies a remedy after a skipped step that is rolled back; returns whether to repeat the step.

        purpose: the seed of its masks, as in `Objective.backward`. Writes the origin of the windows next to the run's
        log. Raises LandfallError if no remedy is left.
        """
        # In all processes, because each may hold only a shard of every weight.
        losses = self.objective.loss_of_each(self.inputs, index_b, *purpose)
        origins = locate_windows(self.inputs.windows, index_b, losses, self.root)
        path = run.folder / f"skipped-step-{self.used + 1}.json"
        if self.is_main:
            save_skipped_step(path, {**non_finite.to_json(), "windows": origins}, self.inputs.windows, index_b)
        return self._apply_remedy(run, non_finite, f"{describe_origins(origins)}; see {relative(path, self.root)}")

    def from_validation(self, run: RunLog, non_finite: NonFinite) -> None:
        """Raises the precision, to repeat the validation. Raises LandfallError if no remedy is left."""
        if higher_precision(self.objective.plan) is None:
            raise LandfallError(str(non_finite), hint=HINT)
        self._apply_remedy(run, non_finite, "the validation split")

    def _apply_remedy(self, run: RunLog, non_finite: NonFinite, origin: str) -> bool:
        """Raises the precision, or reduces the learning rate; returns whether to repeat the computation."""
        if self.used >= self.limit:
            raise LandfallError(f"{non_finite}, after {self.used} recoveries: {origin}", hint=HINT)
        self.used += 1
        precision = higher_precision(self.objective.plan)
        if precision is not None:
            self._raised = precision
            self.objective.compute_in(precision, f"raised after {non_finite}")
            remedy = f"computing in {precision} from here on"
        else:
            self.rate_factor *= RATE_FACTOR
            remedy = f"left out, and the learning rate x {self.rate_factor:g} from here on"
        log.warning(
            "%s: rolled back, %s (recovery %d of %d); origin: %s", non_finite, remedy, self.used, self.limit, origin
        )
        run.recovery({**non_finite.to_json(), "remedy": remedy, "origin": origin})
        return precision is not None


def higher_precision(plan: DevicePlan) -> Precision | None:
    """The next precision above the plan's that its hardware supports without emulation."""
    for precision in _PRECISIONS[_PRECISIONS.index(plan.precision) + 1 :]:
        dtype = AUTOCAST_DTYPES[precision]
        if dtype is None or dtype in plan.native_dtypes:
            return precision
    return None


# --------------------------------------------------------------------------------------------------------------- origin
def locate_windows(
    windows: WindowSet, index_b: torch.Tensor, losses: Sequence[float], root: Path
) -> list[dict[str, Any]]:
    """The origin of each window of a step; first those whose own loss is not finite.

    rows: first and last row of the recording, counted from 0. window: its index among all. loss: of this window; None
    if it is not finite.
    """
    chosen, series = windows.subset(index_b.numpy()), windows.series
    origins = []
    places = zip(index_b.tolist(), chosen.local_starts().tolist(), chosen.recording_of().tolist(), losses, strict=True)
    for index, first, number, loss in places:
        recording = series.recordings[number]
        origins.append(
            {
                "file": relative(recording.path, root),
                "recording": recording.file_id,
                "rows": [first, first + windows.window - 1],
                "window": index,
                "loss": finite(loss),
            }
        )
    return sorted(origins, key=lambda origin: origin["loss"] is not None)


def save_skipped_step(path: Path, facts: Mapping[str, Any], windows: WindowSet, index_b: torch.Tensor) -> None:
    """Writes the facts about a skipped step as JSON and, if they are small, its scaled windows (B, T, C) as npz."""
    write_json(path, facts)
    num_bytes = len(index_b) * windows.window * windows.series.rows_nc[:1].nbytes
    if num_bytes <= MAX_SAVED_BYTES:  # larger ones may not fit into the device's memory together
        x_btc = windows.batch(index_b)
        with atomic_file(path.with_suffix(".npz")) as part, part.open("wb") as file:
            np.savez_compressed(file, x_btc=x_btc.cpu().numpy(), window=index_b.numpy())


def describe_origins(origins: Sequence[Mapping[str, Any]]) -> str:
    """The first window and the number of others, only of those whose own loss is not finite, if there are any."""
    affected = [origin for origin in origins if origin["loss"] is None]
    listed = affected or origins
    first, last = listed[0]["rows"]
    more = f" and {len(listed) - 1} more windows" if len(listed) > 1 else ""
    which = "loss not finite" if affected else "the loss of each is finite"
    return f"rows {first} to {last} of {listed[0]['recording']}{more}, {which}"
