"""The complete device report: the record of a run, and the additions of the command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from core.config.execution import Execution
from core.config.hardware import Tiers, load_tiers
from core.devices.manager import DeviceManager
from core.devices.record import Host, device_record
from core.workspace import CODE_ROOT, root_or
from pipelines.devices.advice import advice_for
from pipelines.devices.costs import Costs, cost_per_hour, load_costs
from pipelines.devices.document import CheckResult, Cost, DeviceReport, RunBatch, RunCost
from pipelines.devices.fitting import fitting_profile, load_profiles, run_batches
from pipelines.devices.frameworks import framework_devices, installed_frameworks

RUN_HOURS = (1, 8)


@dataclass(frozen=True)
class Facts:
    """Content of the report in addition to the decisions of the manager.

    frameworks: installed versions. framework_devices: devices that other frameworks find; None if they were not
    started.
    """

    host: Host
    frameworks: Mapping[str, str | None]
    tiers: Tiers
    costs: Costs
    framework_devices: Mapping[str, list[str] | str] | None = None
    profiles: Mapping[str, Execution] = field(default_factory=dict)
    run_batches: Sequence[RunBatch] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @classmethod
    def of_this_machine(cls, *, verbose: bool = False) -> Self:
        """`verbose` starts the other frameworks, which takes seconds."""
        root = root_or(CODE_ROOT)
        return cls(
            host=Host.of_this_process(),
            frameworks=installed_frameworks(),
            tiers=load_tiers(root),
            costs=load_costs(root),
            framework_devices=framework_devices() if verbose else None,
            profiles=load_profiles(root),
            run_batches=run_batches(root),
        )


def device_report(
    manager: DeviceManager, facts: Facts | None = None, *, checks: Sequence[CheckResult] | None = None
) -> DeviceReport:
    """What `landfall devices` prints; facts default to this machine's.

    Raises pydantic's ValidationError if a detector returned an invalid value.
    """
    facts = facts or Facts.of_this_machine()
    record = device_record(manager, facts.host, facts.tiers)
    per_hour = cost_per_hour(record, facts.costs)
    return DeviceReport(
        **dict(record),
        cost=Cost(usd_per_hour=per_hour, runs=[RunCost(hours=hours, usd=hours * per_hour) for hours in RUN_HOURS]),
        frameworks=dict(facts.frameworks),
        framework_devices=facts.framework_devices,
        recommendations=advice_for(record),
        checks=checks,
        profile=fitting_profile(manager, facts.profiles, facts.environment),
        run_batches=list(facts.run_batches),
    )
