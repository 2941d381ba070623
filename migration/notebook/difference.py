"""The difference between a notebook and its local form, as a unified diff of each cell's source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import unified_diff

from core.secrets.finding import masked
from core.secrets.redaction import printable, printable_lines

_CONTEXT = 3


def source_diff(name: str, before: Sequence[str], after: Sequence[str], origins: Sequence[int | None]) -> str:
    """The diff of the cells' sources, with a file header per cell such as `nb.ipynb:cell 3` (its original position,
    from 0); empty if no source differs. `origins` are the positions in `before` of the cells of `after`, None for added
    cells. Secrets are masked, control characters escaped.
    """
    name, lines = printable(name), []
    place = 0
    for old, new in _pairs(len(before), origins):
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
    return printable_lines("".join(lines))


def _pairs(count: int, origins: Sequence[int | None]) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of original and new cells, in the order of the original, each added cell before the following one."""
    places = {old: new for new, old in enumerate(origins) if old is not None}
    added: dict[int, list[int]] = {}
    following = count
    for new in reversed(range(len(origins))):
        old = origins[new]
        if old is None:
            added.setdefault(following, []).insert(0, new)
        else:
            following = old
    for old in range(count + 1):
        yield from ((None, new) for new in added.get(old, ()))
        if old < count:
            yield old, places.get(old)


def _lines(text: str) -> list[str]:
    return [f"{line}\n" for line in masked(text).split("\n")] if text else []
