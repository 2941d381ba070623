"""Types of values in a configuration; a wrong value is reported as one fault."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Ratio = Annotated[float, Field(gt=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


def _as_bound(value: Any) -> Any:
    """One fault for a bound that is not a number; a union of number types would report one per type."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is neither a fraction nor a row number")
    return value


Bound = Annotated[float | int, BeforeValidator(_as_bound)]


def _as_count_or_auto(value: Any) -> Any:
    """One fault, as for a bound."""
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{value!r} is neither auto nor a whole number of one or more")
    return value


def _as_switch_or_auto(value: Any) -> Any:
    if value != "auto" and not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither auto, true nor false")
    return value


def _as_total_or_auto(value: Any) -> Any:
    return value if value == 0 and not isinstance(value, bool) else _as_count_or_auto(value)


def _as_positive_or_auto(value: Any) -> Any:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf):
        raise ValueError(f"{value!r} is neither auto nor a number above 0")
    return value


def _as_fraction_or_auto(value: Any) -> Any:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1):
        raise ValueError(f"{value!r} is neither auto nor a number from 0 to 1")
    return value


CountOrAuto = Annotated[int | Literal["auto"], BeforeValidator(_as_count_or_auto)]
TotalOrAuto = Annotated[int | Literal["auto"], BeforeValidator(_as_total_or_auto)]
PositiveOrAuto = Annotated[float | Literal["auto"], BeforeValidator(_as_positive_or_auto)]
FractionOrAuto = Annotated[float | Literal["auto"], BeforeValidator(_as_fraction_or_auto)]
SwitchOrAuto = Annotated[bool | Literal["auto"], BeforeValidator(_as_switch_or_auto)]


class Contradiction(NamedTuple):
    """A contradiction between values. keys: their keys, relative to the section; empty for the section itself."""

    problem: str
    keys: tuple[str, ...] = ()


class ContradictionError(ValueError):
    """Every contradiction of a section."""

    def __init__(self, found: list[Contradiction]):
        self.found = found
        super().__init__("; ".join(contradiction.problem for contradiction in found))


class Section(BaseModel):
    """A group of keys. Unknown keys are an error; values do not change after validation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, protected_namespaces=()
    )

    def contradictions(self) -> Iterator[Contradiction]:
        """Values that are valid alone but contradict each other."""
        yield from ()

    @model_validator(mode="after")
    def _has_no_contradictions(self) -> Self:
        if found := list(self.contradictions()):
            raise ContradictionError(found)
        return self

    @field_validator("*", mode="before")
    @classmethod
    def _booleans_are_not_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Python treats `true` as 1."""
        if isinstance(value, bool) and {int, float} & {
            (kind := cls.model_fields[info.field_name].annotation),
            *get_args(kind),
        }:
            raise ValueError(f"{value!r} is a boolean, not a number")
        return value
