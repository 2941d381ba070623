"""Which files are sensor data, what they are called, and what the JSON beside them says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.errors import DataError

TABLE_SUFFIXES = (".csv", ".csv.gz", ".txt", ".txt.gz", ".parquet")
ARRAY_SUFFIXES = (".npy", ".npz")

_LABEL_FILE = re.compile(r"[._](?:run_)?labels\.", re.IGNORECASE)
_HEALTH = {"healthy": True, "normal": True, "faulty": False, "fault": False, "anomal": False}


def expand(patterns: Iterable[str], root: Path) -> list[Path]:
    """The sensor files that `patterns` (globs or plain names, relative to `root`) match: sorted, each once.

    Raises DataError for a pattern that matches no sensor file; label files and sidecars do not count.
    """
    found: set[Path] = set()
    for pattern in patterns:
        sensors = matches(pattern, root)
        if not sensors:
            folder = (root / (re.split(r"[*?\[]", pattern)[0] + "?")).parent
            problem = "matches no sensor file" if folder.is_dir() else "matches nothing: there is no folder"
            raise DataError(
                f"the pattern {pattern!r} {problem} {'in ' if folder.is_dir() else ''}{folder}",
                hint="correct data.parts.*.files, or make sample data: python -m core.data.synthetic --root .",
            )
        found.update(sensors)
    return sorted(found)


def matches(pattern: str, root: Path) -> list[Path]:
    """The sensor files of one pattern, sorted; empty where there is none."""
    return sorted(path for path in _glob(pattern, root) if path.is_file() and _is_sensor_file(path))


def _is_sensor_file(path: Path) -> bool:
    return bool(data_suffix(path)) and not path.name.startswith(".") and not _LABEL_FILE.search(path.name)


def _glob(pattern: str, root: Path) -> Iterable[Path]:
    anchor = Path(pattern).anchor
    return Path(anchor or root).glob(pattern.removeprefix(anchor)) if pattern.strip() else ()


def data_suffix(path: Path) -> str:
    """The suffix that selects a reader (`.csv.gz`, `.npy`, …), in lower case; empty where no stream reads the file."""
    name = path.name.lower()
    return next((suffix for suffix in (*TABLE_SUFFIXES, *ARRAY_SUFFIXES) if name.endswith(suffix)), "")


def data_stem(path: Path) -> str:
    """The file name without its data suffix: `valve1_0` of `valve1_0.csv.gz`."""
    return path.name[: len(path.name) - len(data_suffix(path))]


def facts_of(path: Path) -> dict[str, Any]:
    """What the publisher tells about a file: the folder's dataset.json, its entry for the file, then `<stem>.json`.

    Later ones win. Raises DataError for a file that is no JSON object.
    """
    stem = data_stem(path)
    dataset = _json(path.with_name("dataset.json"))
    entry = (dataset.pop("files", None) or {}).get(stem) or {}
    return {**dataset, **entry, **_json(path.with_name(f"{stem}.json"))}


def declared_rate(path: Path, facts: dict[str, Any]) -> float | None:
    """Samples per second that the JSON of `path` declares, or None. Raises DataError for a rate that is none."""
    rate = facts.get("sampling_rate_hz", facts.get("fs"))
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not math.isfinite(rate) or rate <= 0:
        raise DataError(
            f"sampling_rate_hz = {rate!r} in its JSON is no rate", path=path, hint="write samples per second"
        )
    return float(rate)


def is_healthy(facts: dict[str, Any]) -> bool | None:
    """The publisher's label of the whole file, by how it begins; None where there is none."""
    label = str(facts.get("label") or "").strip().lower()
    return next((healthy for word, healthy in _HEALTH.items() if label.startswith(word)), None)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"no JSON: {error}", path=path, hint="mend or remove the sidecar") from error
    if not isinstance(value, dict):
        raise DataError("no JSON object", path=path, hint='write {"sampling_rate_hz": …}')
    return value
