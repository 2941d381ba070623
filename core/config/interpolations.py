"""The size of a configuration after resolving `${section.key}`. Each reference may repeat a text twice, so a few lines
can expand to gigabytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(r"\$\{\s*(\.*)([^${}:\s]*)\s*\}")
_Place = tuple[str, ...]


def expanded_size(values: Mapping[str, Any]) -> int:
    """Number of characters and values after resolving references in plain values. Missing and circular references count
    as 0: OmegaConf reports them."""
    return _Sizes(values).of((), values)


class _Sizes:
    def __init__(self, values: Mapping[str, Any]):
        self._values = values
        self._known: dict[_Place, int] = {}

    def of(self, place: _Place, value: Any) -> int:
        if isinstance(value, Mapping):
            return 1 + sum(self.of((*place, str(name)), inner) for name, inner in value.items())
        if isinstance(value, list):
            return 1 + sum(self.of((*place, str(number)), inner) for number, inner in enumerate(value))
        if not isinstance(value, str):
            return 1
        referred = (_place_of(dots, path, place) for dots, path in _REFERENCE.findall(value))
        return len(value) + sum(map(self._at, referred))

    def _at(self, place: _Place) -> int:
        if place not in self._known:
            self._known[place] = 0  # within itself
            self._known[place] = self.of(place, self._value_at(place))
        return self._known[place]

    def _value_at(self, place: _Place) -> Any:
        value: Any = self._values
        for name in place:
            if isinstance(value, Mapping):
                value = value.get(name)
            elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            else:
                return None
        return value


def _place_of(dots: str, path: str, at: _Place) -> _Place:
    names = tuple(filter(None, re.split(r"[.\[\]]", path)))
    return (*at[: len(at) - len(dots)], *names) if dots else names
