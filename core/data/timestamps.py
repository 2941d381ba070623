"""Time stamps: from text, datetimes or numbers to int64 nanoseconds, with a note on everything that was guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from core.data.recording import NOT_A_TIME, NS_PER_S

TIME_NAMES = ("timestamp", "datetime", "time", "date")
"""Names of time columns, in upper or lower case, best first."""

# Unit of numeric epochs, by magnitude. Each bound is in 1973, so that every plausible date matches one unit.
_EPOCH_UNITS = ((1e17, 1, "ns"), (1e14, 1_000, "µs"), (1e11, 1_000_000, "ms"), (1e8, NS_PER_S, "s"))
# 14 digits read as milliseconds would lie beyond the year 2570: they are YYYYMMDDhhmmss.
_COMPACT_DATE = (1.9e13, 2.2e13)

_ZONE = r"(?i)(?:\d:\d{2}|T\d{4,6})(?:[.,]\d+)?\s*(?:Z|UTC|[+-]\d{2}(?::?\d{2})?)$"
# A test that is seven times faster; it accepts all zones and few other texts.
_LIKE_A_ZONE = r"[+-]\d{2}(?::?\d{2})?$|[zZcC]$"
_PLANT_FORM = re.compile(
    r"(?P<a>\d{1,2})(?P<sep>[./ -])(?P<b>\d{1,2}|[A-Za-z]{3})(?P=sep)(?P<year>\d{4}|\d{2})"
    r"(?:(?P<gap>[ T])(?P<hm>\d{1,2}:\d{2})(?P<second>:\d{2})?(?P<fraction>\.\d+)?(?P<half> ?[AaPp][Mm])?)?"
)
_SAMPLE = 64
# A column with another name holds times if most sampled cells are dates with a time of day, and differ.
_DATE_AND_TIME = r"\d[./ -]\w{1,9}[./ -]\d+[ T]+\d{1,2}:\d{2}"
MIN_READABLE = _MIN_DISTINCT = 0.9


@dataclass(frozen=True)
class Times:
    """time_ns: int64 (T,), `NOT_A_TIME` where unreadable; source "index" means that the column only counts rows.

    by_majority: whether a form was chosen because most of these rows have or allow it.
    """

    time_ns: np.ndarray
    source: Literal["timestamp", "index"] = "timestamp"
    notes: tuple[str, ...] = field(default=())
    by_majority: bool = False


def parse_times(column: pd.Series, *, few_rows: bool = False) -> Times:
    """Reads one column of time stamps. Times with a zone are converted to UTC; others are not changed.

    few_rows: the rows cannot decide the order of day and month; dates with dots are then read day first.
    """
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return Times(_as_ns(column.dt.tz_convert("UTC").dt.tz_localize(None)), notes=("time stamps converted to UTC",))
    if pd.api.types.is_datetime64_dtype(column.dtype):
        return Times(_as_ns(column))
    if pd.api.types.is_numeric_dtype(column.dtype):
        return _from_numbers(column)
    text = column.astype("string").str.strip()
    if pd.to_numeric(sampled(text), errors="coerce").notna().mean() > 0.5:
        return _from_numbers(pd.to_numeric(text, errors="coerce").astype("float64"))
    return _from_text(text, few_rows)


def holds_times(column: pd.Series) -> bool:
    """Whether a column that is not numeric holds time stamps that advance, whatever its name: `Zeit`, `Date/Time`."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return False
    sample = sampled(column)
    if sample.empty or sample.nunique() < _MIN_DISTINCT * len(sample):
        return False
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return True
    text = sample.astype("string").str.strip()
    if not text.str.contains(_DATE_AND_TIME).mean() > MIN_READABLE:
        return False
    return bool((parse_times(text).time_ns != NOT_A_TIME).mean() > MIN_READABLE)


def _as_ns(column: pd.Series) -> np.ndarray:
    # NaT is the smallest int64 in every unit, which is NOT_A_TIME. Years beyond the range of nanoseconds (9999 often
    # stands for "never") are unreadable.
    in_range = column.between(pd.Timestamp.min, pd.Timestamp.max)
    return column.where(in_range).astype("datetime64[ns]").to_numpy().astype(np.int64)


def _from_numbers(column: pd.Series) -> Times:
    if pd.api.types.is_signed_integer_dtype(column.dtype) and not column.hasnans:
        number_t = column.to_numpy(dtype=np.int64)
        valid_t = np.ones(len(number_t), dtype=bool)
    else:
        number_t = column.to_numpy(dtype=np.float64, na_value=np.nan)
        valid_t = np.isfinite(number_t)
    if not valid_t.any():
        return Times(np.full(len(number_t), NOT_A_TIME), notes=("the time column has no time stamp",))
    magnitude = float(np.median(np.abs(number_t[valid_t])))
    if _COMPACT_DATE[0] <= magnitude < _COMPACT_DATE[1]:
        text = pd.Series(np.where(valid_t, number_t, 0).astype(np.int64)).astype("string")
        parsed = pd.to_datetime(text, format="%Y%m%d%H%M%S", errors="coerce")
        return Times(_as_ns(parsed), notes=("time stamps read as YYYYMMDDhhmmss",))
    for bound, factor, unit in _EPOCH_UNITS:
        if magnitude >= bound:
            return Times(_scaled(number_t, valid_t, factor), notes=(f"time stamps read as {unit} since 1970",))
    if _counts_rows(number_t[valid_t]):
        return Times(_scaled(number_t, valid_t, NS_PER_S), "index", ("the time column only counts rows",))
    return Times(_scaled(number_t, valid_t, NS_PER_S), notes=("time stamps read as elapsed seconds",))


def _scaled(number_t: np.ndarray, valid_t: np.ndarray, factor: int) -> np.ndarray:
    """Whole units are multiplied as integers: float64 would lose nanoseconds."""
    bound = np.iinfo(np.int64).max // factor
    valid_t = valid_t & (number_t > -bound) & (number_t < bound)
    kept_t = np.where(valid_t, number_t, 0)
    whole_t = np.floor(kept_t).astype(np.int64)
    time_ns = whole_t * factor + np.rint((kept_t - whole_t) * factor).astype(np.int64)
    return np.where(valid_t, time_ns, NOT_A_TIME)


def _counts_rows(number_n: np.ndarray) -> bool:
    step_n = np.diff(number_n)
    whole = bool(np.all(number_n == np.floor(number_n)))
    return whole and (not step_n.size or float(np.median(step_n)) == 1.0)


def _from_text(text: pd.Series, few_rows: bool) -> Times:
    text = text.str.replace(r"(\d),(\d+)", r"\1.\2", n=1, regex=True) if sampled(text).str.contains(",").any() else text
    text, notes, by_majority = _of_one_kind(text)
    parsed = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True)
    rest = text[parsed.isna() & text.notna()]
    forms = _plant_forms(sampled(rest))
    if len(rest) and forms:
        filled, note = _parse_plant(rest, forms, few_rows)
        parsed = parsed.fillna(filled)
        notes += [note] if note else []
        by_majority |= note is not None
    return Times(_as_ns(parsed.dt.tz_localize(None)), notes=tuple(notes), by_majority=by_majority)


def _of_one_kind(text: pd.Series) -> tuple[pd.Series, list[str], bool]:
    """Time stamps that all have a zone, or none: the rarer kind may be hours off, so it becomes unreadable. With notes,
    and whether there were two kinds."""
    zoned = text.str.contains(_LIKE_A_ZONE).fillna(False).astype(bool)
    zoned[zoned] = text[zoned].str.contains(_ZONE).fillna(False).astype(bool)
    if not zoned.any():
        return text, [], False
    notes = ["time stamps converted to UTC"]
    zoneless = ~zoned & text.str.contains(r"\d:\d{2}").fillna(False).astype(bool)
    if not zoneless.any():
        return text, notes, False
    rare, which = (zoneless, "without a zone") if zoneless.sum() <= zoned.sum() else (zoned, "with a zone")
    first = int(np.argmax(rare.to_numpy()))
    notes.append(
        f"{int(rare.sum())} time stamps {which}, unlike the others, are unreadable, the first {text.iloc[first]!r}"
    )
    return text.mask(rare), notes, True


def sampled(text: pd.Series) -> pd.Series:
    """Some cells that are not missing, evenly spaced."""
    present = text.dropna()
    return present.iloc[:: max(1, len(present) // _SAMPLE)]


def _plant_forms(sample: pd.Series) -> list[tuple[str, str]]:
    """strptime formats of the sampled texts, (day first, month first); both are equal where the month is a word."""
    forms = {}
    for match in filter(None, map(_PLANT_FORM.fullmatch, sample)):
        part, sep = match.groupdict(), match["sep"]
        year = "%Y" if len(part["year"]) == 4 else "%y"
        clock = ""
        if part["hm"]:
            hour = "%I:%M" if part["half"] else "%H:%M"
            half = (" %p" if part["half"].startswith(" ") else "%p") if part["half"] else ""
            clock = part["gap"] + hour + (":%S" if part["second"] else "") + (".%f" if part["fraction"] else "") + half
        month = "%b" if part["b"].isalpha() else "%m"
        day_first, month_first = f"%d{sep}{month}{sep}{year}{clock}", f"%m{sep}%d{sep}{year}{clock}"
        forms[day_first] = month_first if month == "%m" else day_first
    return list(forms.items())


def _parse_plant(text: pd.Series, forms: list[tuple[str, str]], few_rows: bool) -> tuple[pd.Series, str | None]:
    """Parses common local forms. If day and month could be swapped, the form that reads most rows is used; if both read
    the same number, the one whose times are closer to ascending order."""
    orders = {}
    for number, name in enumerate(("day first", "month first")):
        parsed = pd.Series(pd.NaT, index=text.index, dtype="datetime64[ns, UTC]")
        for form in forms:
            found = pd.to_datetime(text, format=form[number], errors="coerce", utc=True)
            parsed = parsed.fillna(found.astype("datetime64[ns, UTC]"))
        orders[name] = parsed
    day, month = orders["day first"], orders["month first"]
    if day.equals(month) or (few_rows and _have_dots(forms)):
        return day, None
    if day.notna().sum() != month.notna().sum():
        name = max(orders, key=lambda order: orders[order].notna().sum())
        return orders[name], f"dates read {name}: more rows are valid dates"
    fits = {order: _disorder(parsed) for order, parsed in orders.items()}
    if fits["day first"] == fits["month first"]:
        return _by_convention(day, month, forms)
    name = min(fits, key=lambda order: fits[order])
    return orders[name], f"dates read {name}: the rows are closer to ascending order"


def _by_convention(day: pd.Series, month: pd.Series, forms: Sequence[tuple[str, str]]) -> tuple[pd.Series, str | None]:
    """Dates that the rows do not decide: with dots, the day is first; with slashes and AM or PM, the month."""
    if _have_dots(forms):
        return day, None
    if all("/" in day_first and "%p" in day_first for day_first, _ in forms):
        return month, "dates are ambiguous (day or month first) and were read month first, as usual with AM and PM"
    return day, "dates are ambiguous (day or month first) and were read day first"


def _have_dots(forms: Sequence[tuple[str, str]]) -> bool:
    return all("." in day_first.split("%y")[0].split("%Y")[0] for day_first, _ in forms)


def _disorder(parsed: pd.Series) -> tuple[int, int]:
    """Backward steps, then the span in days: dates with day and month swapped are spread over months."""
    time_ns = _as_ns(parsed.dropna().dt.tz_localize(None))
    if not time_ns.size:
        return 0, 0
    return int((np.diff(time_ns) < 0).sum()), int(np.ptp(time_ns) // (86_400 * NS_PER_S))
