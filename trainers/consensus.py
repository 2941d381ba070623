"""How the processes of a run decide together to stop or to save."""

from __future__ import annotations

from typing import NamedTuple

import torch

from core.stopping import StopRequest
from trainers.distributed import World

# Time between two votes, where several processes train together.
_VOTE_INTERVAL_S = 5.0


class Decision(NamedTuple):
    """What all processes do before their next step."""

    stop: bool
    save: bool


class StopConsensus:
    """The processes of a run vote before a step whether to stop or to save; all do it, or none.

    Each vote waits for the device, so a few seconds pass between two votes; all processes count the same steps.
    """

    def __init__(self, stop: StopRequest, world: World, device: torch.device):
        self.stop, self.world, self.device = stop, world, device
        self._interval, self._steps_left = 1, 0

    def decide(self, *, step_seconds: float, validation_seconds: float, steps_left: int, save_is_due: bool) -> Decision:
        """step_seconds, validation_seconds: expected; steps_left: before the next validation."""
        if self.world.is_single:
            return Decision(self.stop.is_due(step_seconds + validation_seconds * (steps_left == 1)), save_is_due)
        if self._steps_left > 0:
            self._steps_left -= 1
            return Decision(stop=False, save=False)
        until_next = step_seconds * self._interval + validation_seconds * (steps_left <= self._interval)
        votes = torch.tensor([float(self.stop.is_due(until_next)), step_seconds, save_is_due], device=self.device)
        stopping, seconds, saving = self.world.all_reduce_sum(votes).tolist()
        is_known = seconds > 0  # the duration of a step is unknown before the first
        self._interval = max(1, int(_VOTE_INTERVAL_S * self.world.size / max(seconds, 1e-3))) if is_known else 1
        self._steps_left = self._interval - 1
        if stopping and self.stop.reason is None:
            self.stop.reason = "another process requested a stop"
        return Decision(stopping > 0, saving > 0)
