"""The checklist: the results of all checks of `landfall validate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self

from pydantic import Field

from core.documents import SCHEMA_VERSION, Document, Text, Time

REPORT = "artifacts/validation_report.json"
# Codes of docs/requirements/local/TRD.md. The JSON report contains them; people read the titles.
Group = Literal["V-01", "V-02", "V-03"]
Status = Literal["PASS", "FAIL", "WARN", "SKIP"]
GROUP_TITLES: dict[Group, str] = {
    "V-01": "Environment",
    "V-02": "Code, notebooks and configurations",
    "V-03": "Outputs of the run",
}


@dataclass(frozen=True)
class Item:
    """One line of the checklist."""

    id: str
    group: Group
    title: str
    status: Status
    detail: str
    hint: str | None = None


class Checklist(Document):
    """The results of all checks, which the dashboard shows too."""

    generated_at: Time | None = Field(None, description="When the checks ran.")
    passed: bool = Field(description="Whether no check failed.")
    groups: dict[Text, Text] = Field(default_factory=GROUP_TITLES.copy, description="Titles of the groups.")
    items: list[Item] = Field(default_factory=list, description="All checks, in order.")

    @classmethod
    def of(cls, items: Sequence[Item]) -> Self:
        passed = all(item.status != "FAIL" for item in items)
        return cls(generated_at=datetime.now(UTC), passed=passed, items=list(items))

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **self.model_dump(mode="json")}
