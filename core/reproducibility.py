"""Equal results of equal commands: seeds of the process, and separate random generators, one per purpose, so that draws
for one purpose do not affect another. Imports torch only in functions."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

from core.config.execution import Profile
from core.devices.kernels import choose_kernels
from core.stopping import start_clock

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_HASH_SEED = "PYTHONHASHSEED"
# The hash seed that the process was restarted for. Not a LANDFALL_ name: those are configuration.
_STARTED_FOR = "_LANDFALL_STARTED_FOR"


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for a purpose such as `("masks", epoch)`; independent of the order in which purposes are used."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(seed, *purpose))


# ---------------------------------------------------------------------------------------------------------- the process
def wrong_hash_seed(profile: Profile) -> str | None:
    """The problem that only a restart can fix, as text: Python reads PYTHONHASHSEED once."""
    wanted, found = profile.pythonhashseed, os.environ.get(_HASH_SEED)
    if wanted is None or found == str(wanted):
        return None
    return f"{_HASH_SEED} is {found or 'not set'}, the profile requires {wanted}"


def prepare_process(profile: Profile) -> None:
    """Prepares the process of a command; call it before torch is imported. Stores the start time of the command, and
    restarts it if its hash seed is wrong: only once, in case the environment is lost."""
    start_clock()
    reason = wrong_hash_seed(profile)
    if reason is None:
        return
    seed = str(profile.pythonhashseed)
    if os.environ.get(_STARTED_FOR) == seed:
        log.warning("was restarted with %s=%s, which is still not set", _HASH_SEED, seed)
        return
    log.info("restarting: %s", reason)
    command = [sys.executable, *sys.orig_argv[1:]]
    environment = {**os.environ, _HASH_SEED: seed, _STARTED_FOR: seed}
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # on Windows, the shell does not wait for the process that exec starts
        raise SystemExit(subprocess.call(command, env=environment))
    os.execve(sys.executable, command, environment)


def make_reproducible(profile: Profile) -> None:
    """Seeds Python, NumPy and torch, and sets how torch chooses its kernels.

    Call it before the model is built. A wrong PYTHONHASHSEED cannot be fixed here: commands have restarted before
    (`prepare_process`); in a notebook it is only logged.
    """
    import numpy as np
    import torch

    if (reason := wrong_hash_seed(profile)) is not None:
        log.warning("%s; set it before Python starts; it is too late for this process", reason)
    random.seed(derive_seed(profile.seed, "python"))
    numpy_seed = profile.numpy_seed
    np.random.seed(derive_seed(profile.seed, "numpy") % 2**32 if numpy_seed is None else numpy_seed)
    torch.manual_seed(derive_seed(profile.seed, "torch"))
    choose_kernels(profile)
