"""The hardware and the decisions about it as JSON; every run writes this record to its artifacts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import psutil

from core.config.faults import origin_of
from core.config.hardware import Tiers, load_tiers
from core.devices.batching import tier_for
from core.devices.manager import DeviceManager

SCHEMA_VERSION = 1
# File of a run's record, below `logging.artifacts_dir`.
RECORD_FILE = "devices.json"


@dataclass(frozen=True)
class Host:
    """Facts for advice, in addition to the devices.

    environment: variables that may have affected the choice. torch_cuda: CUDA version of the torch build. ram_mb:
    memory of the machine, including memory that a container may not use.
    """

    environment: Mapping[str, str]
    torch_cuda: str | None
    ram_mb: int

    @classmethod
    def of_this_process(cls) -> Self:
        from core.devices.backend import torch_versions

        return cls(os.environ, torch_versions()["cuda"], psutil.virtual_memory().total // 2**20)


def device_record(manager: DeviceManager, host: Host | None = None, tiers: Tiers | None = None) -> dict[str, Any]:
    """Plan, routing, devices, memory and batch of this machine; `landfall devices --json` adds advice and costs."""
    host = host or Host.of_this_process()
    plan, chosen, settings = manager.plan(), manager.capabilities, manager.config.device
    tier = tier_for(chosen, tiers or load_tiers(), tpu_batch_factor=settings.tpu_batch_factor)
    return {
        "schema_version": SCHEMA_VERSION,
        "plan": plan.to_json(),
        "routing": {
            "mode": "auto" if settings.prefer == "auto" else "manual",
            "prefer": settings.prefer,
            "set_by": origin_of("device.prefer", manager.origins) or _origin_of_preference(settings.prefer),
            "order": list(settings.order),
            "allow_tpu": settings.may_use_tpu,
            "prefer_cuda": settings.prefer_cuda,
            "strict": settings.strict,
        },
        "devices": [found.to_json() for found in manager.found],
        "memory": {
            "total_mb": chosen.memory_total_mb,
            "free_mb": chosen.memory_free_mb,
            "limit_mb": plan.memory_limit_mb,
            "strategy": settings.memory.strategy,
            "share": settings.memory.share,
        },
        "batch": {
            "tier": tier.name,
            "batch_size": tier.batch_size,
            "model_size": tier.model_size,
            "gradient_checkpointing": tier.gradient_checkpointing,
        },
        "host": {
            "ram_mb": host.ram_mb,
            "torch_cuda": host.torch_cuda,
            "cuda_visible_devices": host.environment.get("CUDA_VISIBLE_DEVICES"),
        },
    }


def _origin_of_preference(prefer: str) -> str:
    """Default if the origin is not recorded."""
    return "default" if prefer == "auto" else "configuration"
