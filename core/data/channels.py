"""Which columns of a table are channels, and their cells as float32: for a table that comes some rows at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from core.data.blocks import Rows, blocks, gathered
from core.data.tables import Table, require
from core.data.timestamps import TIME_NAMES
from core.errors import DataError

LABEL_NAMES = frozenset({"anomaly", "is_anomaly", "changepoint", "label", "fault", "is_fault"})
"""Columns that tell the answer; read as sensors only where the settings name them."""

_DECIMAL_COMMA = r"\s*[+-]?\d+,\d+\s*"
# A number with a unit, with thousands separators, or with another decimal sign than the file's.
_NO_PLAIN_NUMBER = (
    r"\s*[+-]?(?:\d+|\d{1,3}(?:[ ',.]\d{3})+)(?:[.,]\d+)?(?:[eE][+-]?\d+)?"
    r"\s*(?:[A-Za-z%°µμΩ][\w%°/²³^·.]{0,7})?\s*"
)


class Channels:
    """The numeric channels of a table, whose blocks `add` takes in order; what is one is known only at its end.

    Raises DataError where a chosen channel is absent or not numeric, where numbers stand in a form that cannot be read
    without a guess, or where no channel is left.
    """

    def __init__(
        self,
        table: Table,
        *,
        time_names: Sequence[str],
        chosen: Sequence[str],
        exclude: Sequence[str],
        path: Path,
        folder: Path | None,
    ):
        """table: the first block, which tells the columns. folder: where long arrays lie; None for memory."""
        names = list(table.frame.columns)
        require(table.frame, chosen, path)
        self.path, self.folder, self.chosen = path, folder, chosen
        self._notes = [f"nothing to exclude: no column {name!r}" for name in exclude if name not in names]
        self._columns: list[_Column] = []
        for name in list(chosen) or [name for name in names if name not in time_names]:
            if name in exclude:
                continue
            if not chosen and (reason := _not_a_sensor(name)):
                self._notes.append(f"column {name!r} left out: {reason}")
            else:
                self._columns.append(_Column(name))
        self._rows = Rows(folder)

    def add(self, table: Table) -> None:
        if self._columns:
            columns = [column.numbers(table.frame[column.name], table.first_row) for column in self._columns]
            self._rows.add(np.stack(columns, axis=1))

    def whole(self) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
        """float32 (T, C), the channels' names, and notes on what was left out or mended."""
        kept = [number for number, column in enumerate(self._columns) if self._is_channel(column)]
        if not kept:
            hint = "check the delimiter, data.channels and data.exclude"
            raise DataError("no numeric channel", path=self.path, hint=hint)
        values_tc = self._rows.whole()
        if len(kept) < len(self._columns):
            values_tc = gathered((block[:, kept] for block in blocks(values_tc)), self.folder)
        columns = [self._columns[number] for number in kept]
        if num_infinite := sum(column.num_infinite for column in columns):
            first = min((column for column in columns if column.num_infinite), key=lambda each: each.first_infinite)
            self._notes.append(
                f"{num_infinite} values, infinite or beyond 32 bit, read as missing, the first in row "
                f"{first.first_infinite}, column {first.name!r}"
            )
        return values_tc, tuple(column.name for column in columns), self._notes

    def _is_channel(self, column: _Column) -> bool:
        column.refuse_other_notations(self.path)
        if column.is_numeric:
            if column.num_lost:
                self._notes.append(f"column {column.name!r}: {column.told_of_lost}")
            return True
        if self.chosen:
            hint = "drop it from data.channels"
            raise DataError("the column is not numeric", path=self.path, column=column.name, hint=hint)
        self._notes.append(f"column {column.name!r} left out: not numeric{column.example}")
        return False


def _not_a_sensor(name: str) -> str | None:
    if name.lower() in LABEL_NAMES:
        return "a label, not a sensor (name it in data.channels if it is one)"
    if name.lower() in TIME_NAMES:
        return "a second time column"
    if not name or re.fullmatch(r"Unnamed: \d+", name) or name == "__index_level_0__":
        return "it has no name"
    return None


class _Found:
    """How many cells of a kind there are, and row and text of the first."""

    def __init__(self):
        self.count, self.row, self.cell = 0, 0, None

    def add(self, cells: pd.Series, is_one_n: np.ndarray, first_row: int) -> None:
        count = int(np.count_nonzero(is_one_n))
        if count and not self.count:
            place = int(np.argmax(is_one_n))
            self.row, self.cell = first_row + place, cells.iloc[place]
        self.count += count


class _Column:
    """One column, whose cells come some at a time."""

    def __init__(self, name: str):
        self.name = name
        self.num_infinite, self.first_infinite = 0, 0
        self._no_scalars = False  # time stamps, lists, complex numbers: nothing that could be a number
        self._num_filled = 0  # blank cells aside
        self._present, self._lost = _Found(), _Found()  # cells that are not empty; of these, those that are no number
        self._commas, self._others, self._odd = _Found(), _Found(), _Found()

    def numbers(self, cells: pd.Series, first_row: int) -> np.ndarray:
        """float32 (n,) of the next cells; NaN is missing, infinite or no number."""
        present_n = cells.notna().to_numpy(dtype=bool)
        self._present.add(cells, present_n, first_row)
        number = cells
        if _holds_no_scalars(cells):
            self._no_scalars = True
            return np.full(len(cells), np.nan, dtype=np.float32)
        if pd.api.types.is_numeric_dtype(cells.dtype):
            self._num_filled += int(np.count_nonzero(present_n))
            if not self._others.count:
                self._others.add(cells, present_n, first_row)
        else:
            try:
                number = pd.to_numeric(cells, errors="coerce")
            except TypeError:  # lists, structs, clock times
                self._no_scalars = True
                return np.full(len(cells), np.nan, dtype=np.float32)
            self._note_texts(cells, present_n, number.isna().to_numpy(dtype=bool), first_row)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and infinite is missing
            values_n = number.to_numpy(dtype=np.float64, na_value=np.nan).astype(np.float32)
        infinite_n = np.isinf(values_n)
        if infinite_n.any():
            self.first_infinite = self.first_infinite or first_row + int(np.argmax(infinite_n))
            self.num_infinite += int(np.count_nonzero(infinite_n))
            values_n[infinite_n] = np.nan
        return values_n

    def _note_texts(self, cells: pd.Series, present_n: np.ndarray, is_nan_n: np.ndarray, first_row: int) -> None:
        filled_n = present_n & (cells.astype("string").str.strip().fillna("") != "").to_numpy(dtype=bool)
        lost_n = filled_n & is_nan_n
        self._num_filled += int(np.count_nonzero(filled_n))
        self._lost.add(cells, lost_n, first_row)
        comma_n, odd_n = (np.zeros(len(cells), dtype=bool) for _ in range(2))
        if lost_n.any():
            text = cells[lost_n].astype("string")
            comma_n[lost_n] = text.str.fullmatch(_DECIMAL_COMMA).to_numpy(dtype=bool, na_value=False)
            odd_n[lost_n] = text.str.fullmatch(_NO_PLAIN_NUMBER).to_numpy(dtype=bool, na_value=False)
        self._commas.add(cells, comma_n, first_row)
        self._others.add(cells, present_n & ~comma_n, first_row)
        self._odd.add(cells, odd_n, first_row)

    # ---------------------------------------------------------------------------------------------------- at the end
    @property
    def is_numeric(self) -> bool:
        """Whether at least half of the filled cells are numbers."""
        return not self._no_scalars and 2 * self._lost.count <= self._num_filled

    @property
    def num_lost(self) -> int:
        return self._lost.count

    @property
    def told_of_lost(self) -> str:
        first = f"the first in row {self._lost.row} ({_short(self._lost.cell)})"
        return f"{self._lost.count} cells that are no numbers read as missing, {first}"

    @property
    def example(self) -> str:
        return f", such as {_short(self._present.cell)}" if self._present.count else ""

    def refuse_other_notations(self, path: Path) -> None:
        """Raises DataError for numbers with units or separators, or of two decimal signs: the values are there, and
        reading them would be a guess. A few cells that are no numbers, or a column of words, are not its business."""
        if self._no_scalars:
            return
        if self._commas.count and self._lost.count < self._present.count:
            rarer = self._others if 2 * self._commas.count > self._present.count else self._commas
            raise DataError(
                f"{_short(rarer.cell)} has another decimal sign than other rows",
                path=path,
                row=rarer.row,
                column=self.name,
                hint="write one decimal sign in the whole file",
            )
        if not self.is_numeric and 2 * self._odd.count > self._lost.count:
            raise DataError(
                f"{_short(self._odd.cell)} is no plain number",
                path=path,
                row=self._odd.row,
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
