"""The channels of a table that is read block by block: which columns they are, and their cells as float32."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from core.data.blocks import Rows, blocks, gathered
from core.data.sentinels import Sentinels
from core.data.tables import Table, require
from core.data.timestamps import TIME_NAMES
from core.errors import DataError
from core.numbers import counted

LABEL_NAMES = frozenset({"anomaly", "is_anomaly", "changepoint", "label", "fault", "is_fault"})
"""Label columns; read as sensors only where the settings name them."""

_DECIMAL_COMMA = r"\s*[+-]?\d+,\d+\s*"
# A number with a unit, with thousands separators, or with another decimal sign than the rest of the file.
_DECORATED_NUMBER = (
    r"\s*[+-]?(?:\d+|\d{1,3}(?:[ ',.]\d{3})+)(?:[.,]\d+)?(?:[eE][+-]?\d+)?"
    r"\s*(?:[A-Za-z%°µμΩ][\w%°/²³^·.]{0,7})?\s*"
)


class Channels:
    """The numeric channels of a table. `add` takes its blocks in order; `whole` decides which columns are numeric.

    Raises DataError if a chosen channel is absent or not numeric, if numbers are written in an ambiguous form, or if no
    channel is left.
    """

    def __init__(
        self,
        table: Table,
        *,
        time_names: Sequence[str],
        chosen: Sequence[str],
        exclude: Sequence[str],
        path: Path,
        scratch: Path | None,
    ):
        """table: the first block, which has the names of the columns."""
        names = list(table.frame.columns)
        require(table.frame, chosen, path)
        self.path, self.scratch, self.chosen = path, scratch, chosen
        self._notes = [f"nothing to exclude: no column {name!r}" for name in exclude if name not in names]
        self._columns: list[_Column] = []
        for name in list(chosen) or [name for name in names if name not in time_names]:
            if name in exclude:
                continue
            if not chosen and (reason := _not_a_sensor(name)):
                self._notes.append(f"column {name!r} left out: {reason}")
            else:
                self._columns.append(_Column(name))
        self._rows, self._sentinels = Rows(scratch), Sentinels(len(self._columns))

    def add(self, table: Table) -> None:
        if self._columns:
            block = np.stack([column.numbers(table.frame[column.name], table.first_row) for column in self._columns], 1)
            self._sentinels.remove_(block, table.first_row)
            self._rows.add(block)

    def whole(self) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
        """float32 (T, C), the names of the channels, and notes on columns and cells that were not read."""
        kept = [number for number, column in enumerate(self._columns) if self._is_channel(column)]
        if not kept:
            hint = "check the delimiter, data.channels and data.exclude"
            raise DataError("no numeric channel", path=self.path, hint=hint)
        values_tc = self._rows.whole()
        if len(kept) < len(self._columns):
            values_tc = gathered((block[:, kept] for block in blocks(values_tc)), self.scratch)
        self._notes += _notes_on_lost([self._columns[number] for number in kept])
        notes = self._sentinels.notes({number: self._columns[number].name for number in kept})
        return values_tc, tuple(self._columns[number].name for number in kept), [*self._notes, *notes]

    def _is_channel(self, column: _Column) -> bool:
        column.refuse_other_notations(self.path)
        if column.is_numeric:
            return True
        if self.chosen:
            hint = "remove it from data.channels"
            raise DataError("the column is not numeric", path=self.path, column=column.name, hint=hint)
        self._notes.append(f"column {column.name!r} left out: not numeric{column.example()}")
        return False


def _notes_on_lost(columns: Sequence[_Column]) -> list[str]:
    """One note for all columns with the same rows of cells that are not numbers, such as a line of units."""
    alike: dict[tuple[int, int], list[_Column]] = {}
    for column in columns:
        if column.lost.count:
            alike.setdefault((column.lost.count, column.lost.row), []).append(column)
    notes = []
    for (count, row), (first, *others) in alike.items():
        more = f" and {len(others)} more" if others else ""
        which = f"{counted(count, 'cell')}{' each' if others else ''} not a number"
        notes.append(
            f"column {first.name!r}{more}: {which}, read as missing, the first in row {row} ({_short(first.lost.cell)})"
        )
    return notes


def _not_a_sensor(name: str) -> str | None:
    if name.lower() in LABEL_NAMES:
        return "a label, not a sensor (name it in data.channels if it is one)"
    if name.lower() in TIME_NAMES:
        return "a second time column"
    if not name or re.fullmatch(r"Unnamed: \d+", name) or name == "__index_level_0__":
        return "it has no name"
    return None


class _Found:
    """How many cells of a kind were found, and the row and text of the first."""

    def __init__(self):
        self.count, self.row, self.cell = 0, 0, None

    def add(self, cells: pd.Series, is_one_n: np.ndarray, first_row: int) -> None:
        count = int(np.count_nonzero(is_one_n))
        if count and not self.count:
            place = int(np.argmax(is_one_n))
            self.row, self.cell = first_row + place, cells.iloc[place]
        self.count += count


def _as_float(cell: object) -> float:
    """NaN for other texts, infinity for numbers that are too large."""
    try:
        return float(str(cell)) if isinstance(cell, int | str) else float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


class _Column:
    """One column, whose cells are added block by block.

    present: cells that are not empty; lost: those of them that are not numbers; commas, others, decorated: numbers with
    a decimal comma, cells without one, and numbers that are not written plainly.
    """

    def __init__(self, name: str):
        self.name = name
        self._has_scalars = True  # False for time stamps, lists and complex numbers
        self._num_filled = 0  # without blank cells
        self.present, self.lost = _Found(), _Found()
        self.commas, self.others, self.decorated = _Found(), _Found(), _Found()

    def numbers(self, cells: pd.Series, first_row: int) -> np.ndarray:
        """float32 (n,) of the next cells; NaN where a cell is missing or not a number."""
        present_n = cells.notna().to_numpy(dtype=bool)
        self.present.add(cells, present_n, first_row)
        number = cells
        if _holds_no_scalars(cells):
            self._has_scalars = False
            return np.full(len(cells), np.nan, dtype=np.float32)
        if pd.api.types.is_numeric_dtype(cells.dtype):
            self._num_filled += int(np.count_nonzero(present_n))
            if not self.others.count:
                self.others.add(cells, present_n, first_row)
        else:
            try:
                number = pd.to_numeric(cells, errors="coerce")
            except TypeError:  # lists, structs, times of day
                self._has_scalars = False
                return np.full(len(cells), np.nan, dtype=np.float32)
            except OverflowError:  # a number of more than 308 digits
                number = cells.map(_as_float).astype(np.float64)
            self._note_texts(cells, present_n, number.isna().to_numpy(dtype=bool), first_row)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, which is read as missing
            return number.to_numpy(dtype=np.float64, na_value=np.nan).astype(np.float32)

    def _note_texts(self, cells: pd.Series, present_n: np.ndarray, is_nan_n: np.ndarray, first_row: int) -> None:
        filled_n = present_n & (cells.astype("string").str.strip().fillna("") != "").to_numpy(dtype=bool)
        lost_n = filled_n & is_nan_n
        self._num_filled += int(np.count_nonzero(filled_n))
        self.lost.add(cells, lost_n, first_row)
        comma_n, decorated_n = (np.zeros(len(cells), dtype=bool) for _ in range(2))
        if lost_n.any():
            text = cells[lost_n].astype("string")
            comma_n[lost_n] = text.str.fullmatch(_DECIMAL_COMMA).to_numpy(dtype=bool, na_value=False)
            decorated_n[lost_n] = text.str.fullmatch(_DECORATED_NUMBER).to_numpy(dtype=bool, na_value=False)
        self.commas.add(cells, comma_n, first_row)
        self.others.add(cells, present_n & ~comma_n, first_row)
        self.decorated.add(cells, decorated_n, first_row)

    # --------------------------------------------------------------------------------------------- after the last block
    @property
    def is_numeric(self) -> bool:
        """Whether at least half of the filled cells are numbers."""
        return self._has_scalars and 2 * self.lost.count <= self._num_filled

    def example(self) -> str:
        return f", such as {_short(self.present.cell)}" if self.present.count else ""

    def refuse_other_notations(self, path: Path) -> None:
        """Raises DataError for numbers with units or separators, or with two decimal signs: their values would be a
        guess. A column of words, and a few cells that are not numbers, are accepted."""
        if not self._has_scalars:
            return
        if self.commas.count and self.lost.count < self.present.count:
            rarer = self.others if 2 * self.commas.count > self.present.count else self.commas
            raise DataError(
                f"{_short(rarer.cell)} has another decimal sign than other rows",
                path=path,
                row=rarer.row,
                column=self.name,
                hint="write one decimal sign in the whole file",
            )
        if not self.is_numeric and 2 * self.decorated.count > self.lost.count:
            raise DataError(
                f"{_short(self.decorated.cell)} is not a plain number",
                path=path,
                row=self.decorated.row,
                column=self.name,
                hint="write plain numbers, or name the column in data.exclude",
            )


def _holds_no_scalars(cells: pd.Series) -> bool:
    types = pd.api.types
    return (
        types.is_datetime64_any_dtype(cells.dtype)
        or types.is_timedelta64_dtype(cells.dtype)
        or types.is_complex_dtype(cells.dtype)
    )


def _short(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 40 else f"{text[:37]}…"
