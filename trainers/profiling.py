"""A profiler trace of a few steps, for a browser's trace viewer (chrome://tracing, ui.perfetto.dev)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from core.workspace import atomic_file

log = logging.getLogger(__name__)

# One step to warm the profiler up, then as many as are recorded.
WARMUP_STEPS, RECORDED_STEPS = 1, 4


@contextlib.contextmanager
def profiled(path: Path | None) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each step; the trace of the first steps is written to `path`, if it is not
    None."""
    if path is None:
        yield lambda: None
        return
    from torch import profiler

    def write(profile: profiler.profile) -> None:
        with atomic_file(path) as part:
            profile.export_chrome_trace(str(part))
        log.info("profile of the first steps: %s", path.name)

    schedule = profiler.schedule(wait=0, warmup=WARMUP_STEPS, active=RECORDED_STEPS, repeat=1)
    with profiler.profile(schedule=schedule, on_trace_ready=write, record_shapes=True) as profile:
        yield profile.step
    if not path.exists():
        log.warning("an epoch of one step is too short to be profiled: %s was not written", path.name)
