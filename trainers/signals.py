"""Where the processes of a run agree on what all of them must do at once: stop, or save."""

from __future__ import annotations

from typing import NamedTuple

import torch

from core.stopping import StopRequest
from trainers.distributed import World

# Time between two questions, where several processes train together.
_MEETING_S = 5.0


class Agreed(NamedTuple):
    """What all processes do before their next step."""

    stop: bool
    save: bool


class Meeting:
    """Where the processes of a run ask each other, before a step, what is due: all of them do it or none.

    Each answer waits for the device, so a few seconds pass between two meetings; all processes count the same steps.
    """

    def __init__(self, stop: StopRequest, world: World, device: torch.device):
        self.stop, self.world, self.device = stop, world, device
        self._interval, self._left = 1, 0

    def ask(self, *, step_seconds: float, validation_seconds: float, steps_left: int, save_is_due: bool) -> Agreed:
        """step_seconds, validation_seconds: expected; steps_left: before the next validation."""
        if self.world.is_alone:
            return Agreed(self.stop.is_due(step_seconds + validation_seconds * (steps_left == 1)), save_is_due)
        if self._left > 0:
            self._left -= 1
            return Agreed(stop=False, save=False)
        until_next = step_seconds * self._interval + validation_seconds * (steps_left <= self._interval)
        votes = torch.tensor([float(self.stop.is_due(until_next)), step_seconds, save_is_due], device=self.device)
        stopping, seconds, saving = self.world.add(votes).tolist()
        known = seconds > 0  # before its first step nobody knows how long one takes
        self._interval = max(1, int(_MEETING_S * self.world.size / max(seconds, 1e-3))) if known else 1
        self._left = self._interval - 1
        if stopping and self.stop.reason is None:
            self.stop.reason = "another process was asked to stop"
        return Agreed(stopping > 0, saving > 0)
