"""Starting the processes that train one model: torchrun, on this machine or on several."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from core.config.execution import Distributed
from core.devices.host import usable_cores
from core.errors import EXIT_FAILURE, EXIT_KILLED, EXIT_OK, LandfallError
from trainers import elastic

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

log = logging.getLogger(__name__)

# What a process gets after a signal to finish its step, or validation, and to save.
SHUTDOWN_S = 300
# What a process that was killed takes with it fails sooner; torchrun kills what does not end 30 s after a failure.
_AT_ONCE_S = 10


@dataclass(frozen=True)
class MeetingPoint:
    """Where machines meet. address: this machine's on the way there, which is the network `interface`; is_here: the
    others come to this machine."""

    endpoint: str
    address: str
    interface: str
    is_here: bool

    @classmethod
    def at(cls, endpoint: str) -> MeetingPoint:
        """Raises LandfallError for an endpoint that is not host:port or an unknown host."""
        host, _, port = endpoint.rpartition(":")
        try:
            family, *_, there = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(there)  # sends nothing
                address = probe.getsockname()[0]
        except (OSError, ValueError) as error:
            problem = f"distributed.rendezvous = {endpoint} cannot be reached: {error}"
            raise LandfallError(problem, hint="set it to host:port of the first machine") from error
        interfaces = psutil.net_if_addrs().items()
        interface = next(name for name, own in interfaces if any(one.address == address for one in own))
        return cls(endpoint, address, interface, is_here=address == there[0])

    @property
    def is_loopback(self) -> bool:
        """This machine knows itself by an address that means another one elsewhere."""
        return ipaddress.ip_address(self.address).is_loopback


def torchrun_arguments(
    module: str, arguments: Sequence[str], count: int, settings: Distributed, meeting: MeetingPoint | None
) -> list[str]:
    """What torchrun is called with to run `python -m module arguments` in `count` processes on this machine.

    meeting: where several machines meet; None for one.
    """
    words = ["--standalone", "--nnodes=1"]
    if meeting is not None:
        conf = f"join_timeout={round(settings.timeout_minutes * 60)}"
        words = [
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={meeting.endpoint}", "--rdzv-id=landfall"),
            f"--nnodes={settings.min_nodes or settings.nodes}:{settings.nodes}",
        ]
        if not meeting.is_loopback:  # torchrun goes by the machine's name, which the others need not know
            words.append(f"--local-addr={meeting.address}")
            conf += f",is_host={str(meeting.is_here).lower()}"
        words.append(f"--rdzv-conf={conf}")
    return [
        *words,
        f"--nproc-per-node={count}",
        f"--max-restarts={settings.max_restarts}",
        f"--shutdown-timeout={SHUTDOWN_S}",
        "-m",
        module,
        *arguments,
    ]


def launch(
    module: str,
    arguments: Sequence[str],
    count: int,
    settings: Distributed,
    *,
    notes: Path,
    run: Callable[..., Any] | None = None,
) -> int:
    """Trains in `count` processes on this machine; gives the exit code with which a planned stop ended them all, else
    `EXIT_KILLED` if one was, that of the first that failed, or 0. Processes that die are started again as often as the
    settings say.

    notes: path next to which they keep notes while they run.
    """
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    words = torchrun_arguments(module, arguments, count, settings, _meeting_point(settings))
    log.info("starting %d processes: torchrun %s", count, " ".join(words))
    if settings.max_restarts:
        # Else those that are started again find the addresses of those that died: pytorch issue 135712.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    # Else torchrun sets it to 1, which each process then takes for its limit.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // count)))
    with elastic.job_notes(notes):
        try:
            (run or torchrun.run)(torchrun.parse_args(words))
        except ChildFailedError as error:
            # One process that was asked to stop ends the others too, which then fail without it.
            planned = elastic.final_exit_code()
            return planned if planned is not None else _exit_code_of(error, count)
        except SignalException as stopped:
            if (code := elastic.final_exit_code()) is None:
                log.error("stopped by %s before a checkpoint was written", signal.Signals(stopped.sigval).name)
                return EXIT_FAILURE
            return code
        return elastic.final_exit_code() or EXIT_OK


def _exit_code_of(error: ChildFailedError, count: int) -> int:
    """Who loses touch with a process that was killed fails too, and torchrun may see both in one look."""
    rank, first = error.get_first_failure()
    for other, failure in error.failures.items():
        if failure.exitcode == -signal.SIGKILL and failure.timestamp - first.timestamp < _AT_ONCE_S:
            log.error("process %d of %d was killed by SIGKILL", other + 1, count)
            return EXIT_KILLED
    log.error("process %d of %d ended with exit code %d", rank + 1, count, first.exitcode)
    return first.exitcode if first.exitcode > 0 else EXIT_FAILURE


def _meeting_point(settings: Distributed) -> MeetingPoint | None:
    if settings.nodes == 1:
        return None
    if not settings.rendezvous:
        raise LandfallError(
            f"distributed.nodes = {settings.nodes} without a meeting point",
            hint="set distributed.rendezvous to host:port of the first machine",
        )
    meeting = MeetingPoint.at(settings.rendezvous)
    if not meeting.is_loopback:  # gloo, too, goes by the machine's name
        os.environ.setdefault("GLOO_SOCKET_IFNAME", meeting.interface)
    return meeting
