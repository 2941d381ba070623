"""Whether the process that wrote a file has ended."""

from __future__ import annotations

from datetime import datetime, timedelta

from core.owner import Owner

SILENCE = timedelta(minutes=2)


def has_ended(owner: str, updated_at: datetime | None, now: datetime) -> bool:
    """owner: token of the process (`core.owner`). If it cannot be looked up, as from another host of a shared folder or
    in a record of an older version, a process that has not written for `SILENCE` counts as ended."""
    process = Owner.named_in(owner)
    if process is not None and process.is_of_here:
        return process.is_dead()
    return updated_at is None or now - updated_at > SILENCE
