"""The sidecar of a sensor file, a JSON file of the same name, and the `dataset.json` of its folder: facts about the
file, such as its sampling rate and its label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.data.files import data_stem, is_present
from core.errors import DataError, first_line
from core.reading import read_json_object

# One sample in four months, and one per nanosecond, the resolution of times.
_SLOWEST_HZ, _FASTEST_HZ = 1e-7, 1e9
_HEALTH = {"healthy": True, "normal": True, "faulty": False, "fault": False, "anomal": False}


def facts_of(path: Path) -> dict[str, Any]:
    """Facts about a file: from the `dataset.json` of its folder, the entry for the file there, and `<stem>.json`; later
    ones have priority. Raises DataError for a file that is not a JSON object.
    """
    stem, shared = data_stem(path), path.with_name("dataset.json")
    dataset = _json(shared)
    entries = dataset.pop("files", None) or {}
    entry = (entries.get(stem) or {}) if isinstance(entries, dict) else None
    if not isinstance(entry, dict):
        raise DataError(
            "files is not a JSON object of objects", path=shared, hint=f'write {{"files": {{"{stem}": {{…}}}}}}'
        )
    facts = {**dataset, **entry, **_json(path.with_name(f"{stem}.json"))}
    axes = facts.get("axes")
    if axes is not None and not (isinstance(axes, list) and all(isinstance(name, str) for name in axes)):
        raise DataError(
            f"axes = {axes!r} in its sidecar is not a list of names", path=path, hint='write ["x", "y", "z"]'
        )
    return facts


def declared_rate(path: Path, facts: dict[str, Any]) -> float | None:
    """Samples per second that the sidecar declares, or None. Raises DataError for an invalid rate."""
    rate = facts.get("sampling_rate_hz", facts.get("fs"))
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not _SLOWEST_HZ <= rate <= _FASTEST_HZ:
        raise DataError(
            f"sampling_rate_hz = {rate!r} in its sidecar is not a sampling rate",
            path=path,
            hint="write samples per second",
        )
    return float(rate)


def is_healthy(facts: dict[str, Any]) -> bool | None:
    """The label of the whole file, from its first word; None if there is none."""
    label = str(facts.get("label") or "").strip().lower()
    return next((healthy for word, healthy in _HEALTH.items() if label.startswith(word)), None)


def _json(path: Path) -> dict[str, Any]:
    if not is_present(path):
        return {}
    try:
        return read_json_object(path)
    except (OSError, ValueError) as error:
        hint = 'correct or remove the sidecar, such as {"sampling_rate_hz": 1000}'
        raise DataError(f"cannot be read: {first_line(error)}", path=path, hint=hint) from error
