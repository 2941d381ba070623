"""Common parts of documents that the training dashboard shows. Each is declared once, by the code that writes it.

All are of schema version 1 and without NaN or infinity. A reader ignores fields it does not know, so fields may be
added without a new version; a changed meaning needs one. `dev/DASHBOARD.md` lists the documents.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)

from core.errors import first_line
from core.numbers import finite
from core.secrets.redaction import printable

SCHEMA_VERSION = 1


def _utc(value: datetime) -> datetime:
    """Times without a zone are UTC by contract."""
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError as error:  # such as year 1 at +14:00
        raise ValueError("is out of range") from error


def _iso(value: datetime) -> str:
    """Always with microseconds, so that times in text sort as they follow each other."""
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z")


_MISLEADING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def encodable(value: str) -> str:
    """Text that can be written as UTF-8 and is displayed as it is stored.

    Half a surrogate pair, from a damaged file or an odd file name, becomes `?`; control characters except line breaks
    and tabs, and marks that reverse the writing direction, are escaped.
    """
    text = value.encode("utf-8", "replace").decode("utf-8")
    return _MISLEADING.sub(lambda found: printable(found[0]), text)


def jsonable(value: Any) -> Any:
    """`value` as JSON: keys as text, and values without a JSON type (dates, bytes) as text."""
    if isinstance(value, dict):
        return {encodable(str(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    return value if value is None or isinstance(value, int | float) else encodable(str(value))


def figure(value: Any) -> float | None:
    """A measured value; null if it is not a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


Time = Annotated[
    datetime,
    AfterValidator(_utc),
    PlainSerializer(_iso, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Text = Annotated[str, AfterValidator(encodable)]
Number = Annotated[float | None, BeforeValidator(finite)]
# Null also for what is not a number.
Figure = Annotated[Number, BeforeValidator(figure)]


def explain(error: Exception) -> str:
    """One line about a read error, without the path, which the caller knows."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "content"
        return f"{where}: {first['msg']}"
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON (line {error.lineno}: {error.msg})"
    return first_line(error)


class Document(BaseModel):
    """A published document or a part of one; unknown fields of a newer writer are ignored."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=(), json_schema_serialization_defaults_required=True)
