"""Estimated costs of devices, from `configs/hardware/costs.yaml`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from core.config.execution import DeviceKind
from core.config.fields import Section
from core.config.hardware import HARDWARE_DIR
from core.config.yaml_files import read_validated
from core.devices.record import DeviceRecord
from core.workspace import CODE_ROOT, root_or


class Costs(Section):
    """`costs.yaml`: estimated USD for one device and hour."""

    cpu: float = Field(ge=0.0)
    gpu: float = Field(ge=0.0)
    tpu: float = Field(ge=0.0)

    def per_hour(self, kind: DeviceKind) -> float:
        return getattr(self, kind if kind in ("cpu", "tpu") else "gpu")


def load_costs(root: Path | None = None) -> Costs:
    """The costs of a workspace; raises as `core.config.hardware.load_tiers` does."""
    return read_validated(f"{HARDWARE_DIR}/costs.yaml", Costs, root=root or root_or(CODE_ROOT))


def cost_per_hour(record: DeviceRecord, costs: Costs) -> float:
    """Estimated USD of all devices in use; processes on a CPU share one machine."""
    present = 1 if record.plan.kind == "cpu" else record.chosen.count
    return costs.per_hour(record.plan.kind) * min(record.plan.count, present)
