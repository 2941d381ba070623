"""Kernels that use sockets in files: several test processes find the same TCP ports free at the same time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from jupyter_client import BlockingKernelClient
    from traitlets.config import Config


@contextmanager
def own_sockets() -> Iterator[Config]:
    """The configuration of a kernel manager."""
    from traitlets.config import Config

    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:  # a socket's path has at most 107 characters
        yield Config({"KernelManager": {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}})


@contextmanager
def running_kernel(folder: Path, *arguments: str) -> Iterator[BlockingKernelClient]:
    """A kernel that works in a folder."""
    from jupyter_client import KernelManager

    with own_sockets() as config:
        manager = KernelManager(kernel_name="python3", config=config)
        manager.start_kernel(cwd=str(folder), extra_arguments=list(arguments))
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=PATIENCE_S)
            yield client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
