"""What the sections of a configuration are made of: kinds of values, each refused with one clear fault."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Ratio = Annotated[float, Field(gt=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


def _as_bound(value: Any) -> Any:
    """One fault for a bound that is no number, where a union of number types would report one per type."""
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


CountOrAuto = Annotated[int | Literal["auto"], BeforeValidator(_as_count_or_auto)]
SwitchOrAuto = Annotated[bool | Literal["auto"], BeforeValidator(_as_switch_or_auto)]


class Section(BaseModel):
    """A group of keys; unknown keys are refused and values never change after validation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, protected_namespaces=()
    )
