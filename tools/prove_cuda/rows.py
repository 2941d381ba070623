"""The results of a section of `tools.prove_cuda`, and the device on which it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Row:
    """One result. status: measured, passed, failed or skipped; a goal that is missed is a fact, not a failure."""

    name: str
    status: str
    facts: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Where:
    """device: `cuda`, or `cpu` for small sections. out: folder of the report. peers: folder with clones of the authors'
    code."""

    device: str
    out: Path
    peers: Path | None = None

    @property
    def is_small(self) -> bool:
        return self.device == "cpu"

    @property
    def words(self) -> tuple[str, ...]:
        """Overrides with which a run uses this device and no other."""
        return ("device.prefer=cpu",) if self.is_small else ("device.prefer=gpu", "device.strict=true")
