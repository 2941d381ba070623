"""The steps to run: those selected, except those whose results are up to date."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from core.errors import UsageError
from core.fingerprints import changes, file_digests
from pipelines.steps.fingerprints import fingerprint
from pipelines.steps.records import read_step
from pipelines.steps.table import Order, Step


@dataclass(frozen=True)
class Selection:
    """Names of steps; `*` and `?` are wildcards. Without names, all steps are selected. start: these steps and all
    steps that depend on them.
    """

    only: Sequence[str] = ()
    start: Sequence[str] = ()
    skip: Sequence[str] = ()

    def of(self, steps: Sequence[Step], absent: Sequence[str] = ()) -> tuple[Step, ...]:
        """The selected steps, in order. absent: names of steps of streams that are not in use; a pattern that matches
        only these is not an error. Raises UsageError for an unknown name, or if no step is left."""
        only, start, skip = (_named(patterns, steps, absent) for patterns in (self.only, self.start, self.skip))
        is_restricted = self.only or self.start
        chosen = only | _with_followers(start, steps) if is_restricted else {step.name for step in steps}
        selected = tuple(step for step in steps if step.name in chosen - skip)
        if not selected:
            raise UsageError("no step is selected", hint="see --dry-run without --only, --from and --skip")
        return selected


def _named(patterns: Sequence[str], steps: Sequence[Step], absent: Sequence[str]) -> set[str]:
    names = [step.name for step in steps]
    found = set()
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching and not any(fnmatchcase(name, pattern) for name in absent):
            close = difflib.get_close_matches(pattern, names, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"there is no step {pattern!r}", hint=f"{hint}the steps are {', '.join(names)}")
        found.update(matching)
    return found


def _with_followers(names: set[str], steps: Sequence[Step]) -> set[str]:
    """Adds all steps that depend on one of them, directly or indirectly; steps come after those they need."""
    found = set(names)
    for step in steps:
        if found & set(step.needs):
            found.add(step.name)
    return found


def reason_to_run(step: Step, order: Order, root: Path) -> str | None:
    """Why the step must run; None if its results are up to date. Raises DataError if a pattern of the configuration
    matches no file.
    """
    if step.always:
        return "always runs"
    record = read_step(root, step.name)
    if record is None:
        return "has never completed"
    found = file_digests(step.outputs, root)
    missing = [name for name in step.outputs if name not in found]
    if missing:
        return f"{missing[0]} is missing"
    changed = [name for name in step.outputs if record.outputs.get(name) != found[name]]
    if changed:
        return f"{changed[0]} has changed since the step wrote it"
    differing = changes(record.inputs, fingerprint(step, order, root))
    return "; ".join(differing) or None
