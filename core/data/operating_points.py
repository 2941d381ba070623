"""The operating point of a recording of vibration, such as its shaft speed and load, from its sidecar."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.data.recording import Recording
from core.data.sidecars import facts_of
from core.errors import DataError

_QUANTITY = re.compile(r"rpm|speed|load|torque|power", re.IGNORECASE)


def with_operating_points(
    recordings: Sequence[Recording], path: Path, channels: Sequence[str]
) -> tuple[Recording, ...]:
    """The recordings of a file with the values of some keys of its sidecar: a number for all of them, or a list with
    one number for each record of a set. Raises DataError for a key that is missing or has other values."""
    if not channels:
        return tuple(recordings)
    facts = facts_of(path)
    columns = [_numbers(facts, name, path, len(recordings)) for name in channels]
    points = zip(*columns, strict=True)
    return tuple(replace(recording, operating_point=point) for recording, point in zip(recordings, points, strict=True))


def stated_points(paths: Iterable[Path]) -> dict[str, tuple[float, float]]:
    """The smallest and the largest value of each key of the sidecars that may be a part of an operating point: its name
    is that of a speed or a load, all files have a number, and the numbers differ."""
    values: dict[str, list[Any]] = {}
    paths = list(paths)
    for path in paths:
        for name, value in facts_of(path).items():
            if _QUANTITY.search(name):
                values.setdefault(name, []).append(value)
    found = {}
    for name, each in values.items():
        numbers = [number for value in each for number in (value if isinstance(value, list) else [value])]
        if len(each) == len(paths) and all(map(_is_number, numbers)) and len(set(numbers)) > 1:
            found[name] = (min(numbers), max(numbers))
    return found


def _numbers(facts: dict[str, Any], name: str, path: Path, count: int) -> list[float]:
    value = facts.get(name)
    if value is None:
        hint = f'write {{"{name}": …}} into its sidecar, or remove {name} from data.context_channels'
        raise DataError(f"its sidecar has no {name}, which data.context_channels names", path=path, hint=hint)
    numbers = value if isinstance(value, list) else [value] * count
    if len(numbers) != count or not all(map(_is_number, numbers)):
        expected = "a number" if count == 1 else f"a number, or a list of {count} numbers, one for each record"
        raise DataError(f"{name} = {str(value)[:80]} in its sidecar is not {expected}", path=path, hint="correct it")
    return [float(number) for number in numbers]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
