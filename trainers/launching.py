"""Starts the processes that train one model with torchrun, on this machine or on several."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from core.config.execution import Distributed
from core.errors import EXIT_FAILURE, EXIT_KILLED, EXIT_OK, LandfallError
from core.host import usable_cores
from trainers import elastic

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

log = logging.getLogger(__name__)

# Seconds that a process has after a signal to finish its step or validation, and to save.
SHUTDOWN_S = 300
# Failures that a killed process causes occur within this time; torchrun kills other processes 30 s after a failure.
_SAME_FAILURE_S = 10


@dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of several machines. endpoint: host:port. address, interface: those of this machine in the network
    of the endpoint. is_here: whether the endpoint is on this machine."""

    endpoint: str
    address: str
    interface: str
    is_here: bool

    @classmethod
    def at(cls, endpoint: str) -> Rendezvous:
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
        """Whether the address is a loopback address, which other machines cannot use."""
        return ipaddress.ip_address(self.address).is_loopback


def torchrun_arguments(
    module: str,
    arguments: Sequence[str],
    count: int,
    settings: Distributed,
    rendezvous: Rendezvous | None,
    *,
    log_dir: Path,
) -> list[str]:
    """The arguments of torchrun that run `python -m module arguments` in `count` processes on this machine.

    rendezvous: None for a single machine. log_dir: for the files of torchrun; by default it leaves a new folder in the
    temporary folder of the system.
    """
    words = ["--standalone", "--nnodes=1"]
    if rendezvous is not None:
        conf = f"join_timeout={round(settings.timeout_minutes * 60)}"
        words = [
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={rendezvous.endpoint}", "--rdzv-id=landfall"),
            f"--nnodes={settings.min_nodes or settings.nodes}:{settings.nodes}",
        ]
        if not rendezvous.is_loopback:  # by default torchrun uses the host name, which the others may not know
            words.append(f"--local-addr={rendezvous.address}")
            conf += f",is_host={str(rendezvous.is_here).lower()}"
        words.append(f"--rdzv-conf={conf}")
    return [
        *words,
        f"--nproc-per-node={count}",
        f"--max-restarts={settings.max_restarts}",
        f"--shutdown-timeout={SHUTDOWN_S}",
        f"--log-dir={log_dir}",
        "-m",
        module,
        *arguments,
    ]


def launch(module: str, arguments: Sequence[str], count: int, settings: Distributed, *, notes: Path) -> int:
    """Trains in `count` processes on this machine. Processes that die are restarted as often as the settings say.

    Returns the exit code of a planned stop, `EXIT_KILLED` if a process was killed, that of the first process that
    failed, or 0. notes: the processes keep notes next to this path.
    """
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    rendezvous = _rendezvous(settings)
    if settings.max_restarts:
        # Otherwise restarted processes find the addresses of dead ones: pytorch issue 135712.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    # Otherwise torchrun sets it to 1, which would limit each process.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // count)))
    with elastic.job_notes(notes) as folder:
        words = torchrun_arguments(module, arguments, count, settings, rendezvous, log_dir=folder / "torchrun")
        log.info("starting %d processes: torchrun %s", count, " ".join(words))
        try:
            torchrun.run(torchrun.parse_args(words))
        except ChildFailedError as error:
            # After a planned stop of one process, the others fail because they lose the connection.
            planned = elastic.final_exit_code()
            return planned if planned is not None else _exit_code_of(error, count)
        except SignalException as stopped:
            if (code := elastic.final_exit_code()) is None:
                log.error("stopped by %s before a checkpoint was written", signal.Signals(stopped.sigval).name)
                return EXIT_FAILURE
            return code
        return elastic.final_exit_code() or EXIT_OK


def _exit_code_of(error: ChildFailedError, count: int) -> int:
    """The exit code of a failed job: `EXIT_KILLED` if a process was killed, else that of the first failure. A process
    that loses the connection to a killed one fails too, and torchrun may report it first."""
    rank, first = error.get_first_failure()
    for other, failure in error.failures.items():
        if failure.exitcode == -signal.SIGKILL and failure.timestamp - first.timestamp < _SAME_FAILURE_S:
            log.error("process %d of %d was killed by SIGKILL", other + 1, count)
            return EXIT_KILLED
    log.error("process %d of %d ended with exit code %d", rank + 1, count, first.exitcode)
    return first.exitcode if first.exitcode > 0 else EXIT_FAILURE


def _rendezvous(settings: Distributed) -> Rendezvous | None:
    if settings.nodes == 1:
        return None
    if not settings.rendezvous:
        raise LandfallError(
            f"distributed.nodes = {settings.nodes} without a rendezvous",
            hint="set distributed.rendezvous to host:port of the first machine",
        )
    rendezvous = Rendezvous.at(settings.rendezvous)
    if not rendezvous.is_loopback:  # gloo uses the host name too
        os.environ.setdefault("GLOO_SOCKET_IFNAME", rendezvous.interface)
    return rendezvous
