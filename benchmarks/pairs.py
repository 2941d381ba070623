"""Timing two ways to do the same work, in turn, so that a drifting machine slows both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Comparison:
    """Medians over paired rounds. `ratio` is peer seconds over our seconds, round by round: above 1 we are faster."""

    title: str
    peer: str
    unit: str
    ours_per_second: float
    peers_per_second: float
    ratio: float
    ratio_range: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.ratio_range
        return (
            f"{self.title:<44} {self.ours_per_second:9.1f} {self.unit}/s   {self.peer} {self.peers_per_second:9.1f}   "
            f"ratio {self.ratio:.2f} ({low:.2f} to {high:.2f})"
        )


def compare(title: str, ours: Work, theirs: Work, *, peer: str, unit: str, count: int, rounds: int) -> Comparison:
    """Runs both once to warm up, then `rounds` times in turn. `count` units are done in each run."""
    ours()
    theirs()
    pairs = [(_seconds(ours), _seconds(theirs)) for _ in range(rounds)]
    ratios = sorted(their_seconds / our_seconds for our_seconds, their_seconds in pairs)
    return Comparison(
        title=title,
        peer=peer,
        unit=unit,
        ours_per_second=count / statistics.median(our_seconds for our_seconds, _ in pairs),
        peers_per_second=count / statistics.median(their_seconds for _, their_seconds in pairs),
        ratio=statistics.median(ratios),
        ratio_range=(ratios[0], ratios[-1]),
    )


def _seconds(work: Work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
