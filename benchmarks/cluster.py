"""Past one machine: what a step would take on several, from what it takes on one and what gradients weigh. Simulated.

Ring all-reduce: Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MACHINES = (1, 2, 4, 8, 16)
LATENCY_S = 50e-6  # of a message between two machines of a site's network


@dataclass(frozen=True)
class Network:
    name: str
    bytes_per_second: float


NETWORKS = (Network("1 Gbit/s", 0.9 * 1e9 / 8), Network("10 Gbit/s", 0.9 * 1e10 / 8))


def exchange_seconds(num_bytes: float, machines: int, network: Network) -> float:
    """Time in which all machines have the sum of their gradients of `num_bytes` each."""
    turns = 2 * (machines - 1)
    return turns * (num_bytes / machines / network.bytes_per_second + LATENCY_S)


def efficiency(step_seconds: float, num_bytes: float, machines: int, network: Network) -> float:
    """Share of a machine's speed that is left when each computes `step_seconds` and nothing of the exchange is hidden
    behind the backward pass: the least to expect."""
    return step_seconds / (step_seconds + exchange_seconds(num_bytes, machines, network))


def table(step_seconds: float, parameters: int) -> Iterator[str]:
    """Lines of Markdown: windows a second in multiples of one machine's, by network and number of machines."""
    yield f"| | {' | '.join(f'{count} machines' if count > 1 else '1 machine' for count in MACHINES)} |"
    yield f"|---|{'---|' * len(MACHINES)}"
    for network in NETWORKS:
        cells = (f"{count * efficiency(step_seconds, 4 * parameters, count, network):.1f}" for count in MACHINES)
        yield f"| {network.name} | {' | '.join(cells)} |"
