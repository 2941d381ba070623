"""Settings of torch in this process: how it chooses its kernels. Imports torch only in functions."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from core.config.execution import Profile

log = logging.getLogger(__name__)

# cuBLAS is deterministic only with one of these workspaces; torch reads the variable when it first uses a GPU.
# https://docs.nvidia.com/cuda/cublas/#results-reproducibility
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")


def prepare_cublas(profile: Profile) -> None:
    """Sets the workspace of cuBLAS, before the first work on a GPU, if the profile is deterministic. A workspace that
    the user set is kept, with a warning if it is not deterministic, because torch will then refuse matrix products.
    """
    if not profile.deterministic:
        return
    if os.environ.setdefault(_WORKSPACE, _DETERMINISTIC_WORKSPACES[0]) not in _DETERMINISTIC_WORKSPACES:
        log.warning(
            "%s = %s is not deterministic; use one of %s",
            _WORKSPACE, os.environ[_WORKSPACE], ", ".join(_DETERMINISTIC_WORKSPACES),
        )  # fmt: skip


def choose_kernels(profile: Profile) -> None:
    """Sets how torch chooses its kernels; the only place for it."""
    import torch

    prepare_cublas(profile)
    # Like `use_deterministic_algorithms`, which also imports the compiler: two seconds that most runs do not need.
    torch.set_deterministic_debug_mode("error" if profile.deterministic else "default")
    torch.backends.cudnn.benchmark = profile.cudnn_benchmark and not profile.deterministic
    # torch rounds the input of convolutions, but not that of matrix products, to 10 bits (TF32) by default.
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def same_torch() -> Iterator[None]:
    """Restores the settings of torch."""
    import torch  # now, because the first job of a process may change the defaults

    num_threads, debug_mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    benchmark, allow_tf32 = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    dtype, random_state = torch.get_default_dtype(), torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        torch.set_deterministic_debug_mode(debug_mode)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = benchmark, allow_tf32
        torch.set_default_dtype(dtype)
        torch.set_rng_state(random_state)
