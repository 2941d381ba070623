"""Times two implementations of the same work alternately, so that changes of the machine affect both equally."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.implementations import Implementation


@dataclass(frozen=True)
class Task:
    """One implementation in a comparison: its name, the function that builds its workload, whether its process is
    tuned, and how long it sleeps before each measurement."""

    name: str
    maker: str
    settings: dict[str, Any]
    tuned: bool = True
    idle_s: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """Medians over paired rounds. `ratio` is the peer's time divided by ours, in each round: above 1 we are faster.

    `goal` is the target ratio, 0 without one. `memory_ratio` is our peak memory divided by the peer's. `floor` is the
    speed if a step consisted of its matrix products alone, in `unit` per second; 0 if not measured.
    """

    KIND: ClassVar = "comparisons"

    title: str
    ours: str
    peer: str
    unit: str
    ours_per_second: float
    peers_per_second: float
    ratio: float
    ratio_range: tuple[float, float]
    memory_ratio: float
    goal: float = 0.0
    floor: float = 0.0
    rounds: int = 1

    def __str__(self) -> str:
        low, high = self.ratio_range
        goal = f", goal {self.goal:g}" if self.goal else ""
        floor = f"; {self.ours_per_second / self.floor:.0%} of the floor" if self.floor else ""
        return (
            f"{self.title}\n  {self.ours} {rate(self.ours_per_second)} {self.unit}/s, {self.peer} "
            f"{rate(self.peers_per_second)}: ratio {self.ratio:.2f} ({low:.2f} to {high:.2f}{goal}); "
            f"memory × {self.memory_ratio:.2f}{floor}"
        )


def rate(per_second: float) -> str:
    """A speed as text: `1,234.5`, `0.036`."""
    return f"{per_second:,.1f}" if per_second >= 1 else f"{per_second:.2g}"


def compare(
    title: str, ours: Task, theirs: Task, *, unit: str, count: int, rounds: int, goal: float = 0.0
) -> Comparison:
    """Starts both implementations, then runs them alternately, `rounds` times. `count` units are processed in each
    run."""
    tasks = (ours, theirs)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(Implementation(task.maker, tuned=task.tuned, **task.settings)) for task in tasks
        ]
        pairs = [
            tuple(process.seconds(idle_s=task.idle_s) for process, task in zip(processes, tasks, strict=True))
            for _ in range(rounds)
        ]
        facts = [process.facts() for process in processes]
    ratios = sorted(their_seconds / our_seconds for our_seconds, their_seconds in pairs)
    floor_seconds = facts[0].get("floor_seconds", 0.0)
    return Comparison(
        title=title,
        ours=ours.name,
        peer=theirs.name,
        unit=unit,
        ours_per_second=count / statistics.median(our_seconds for our_seconds, _ in pairs),
        peers_per_second=count / statistics.median(their_seconds for _, their_seconds in pairs),
        ratio=statistics.median(ratios),
        ratio_range=(ratios[0], ratios[-1]),
        memory_ratio=facts[0]["peak_mb"] / facts[1]["peak_mb"],
        goal=goal,
        floor=count / floor_seconds if floor_seconds else 0.0,
        rounds=rounds,
    )
