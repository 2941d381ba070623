"""The difference between a notebook and its local form, as a unified diff of each cell's source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, unified_diff

from core.secrets import masked

_ADDED_TAGS = frozenset({"parameters", "landfall-setup"})
_CONTEXT = 3


def source_diff(name: str, before: Sequence[str], after: Sequence[str], tags: Sequence[Sequence[str]]) -> str:
    """The diff of the cells' sources, a file header a cell such as `nb.ipynb:cell 3` (its original position, from 0);
    empty where no source differs. `tags` are those of the cells of `after`. Secrets are masked.
    """
    lines: list[str] = []
    place = 0
    for old, new in _pairs(before, after, tags):
        place = old if old is not None else place
        from_name = f"{name}:cell {old}" if old is not None else "/dev/null"
        to_name = f"{name}:cell {place}" if old is not None else f"{name}:new cell before cell {place}"
        lines += unified_diff(
            _lines(before[old]) if old is not None else [],
            _lines(after[new]) if new is not None else [],
            from_name,
            to_name if new is not None else "/dev/null",
            n=_CONTEXT,
        )
        place += old is not None
    return "".join(lines)


def _pairs(
    before: Sequence[str], after: Sequence[str], tags: Sequence[Sequence[str]]
) -> Iterator[tuple[int | None, int | None]]:
    """Which cell became which: cells that changed stand in the same order, cells that were added carry our tags."""
    for kind, low, high, new_low, new_high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from zip(range(low, high), range(new_low, new_high), strict=True)
            continue
        surplus = (new_high - new_low) - (high - low)
        old = low
        for new in range(new_low, new_high):
            if old == high or (surplus > 0 and _ADDED_TAGS.intersection(tags[new])):
                surplus -= 1
                yield None, new
            else:
                yield old, new
                old += 1
        yield from ((gone, None) for gone in range(old, high))


def _lines(text: str) -> list[str]:
    return [f"{line}\n" for line in masked(text).split("\n")] if text else []
