"""The checks of `landfall devices --doctor`: on this machine, and with broken or absent hardware."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.config.execution import Execution
from core.devices.capabilities import DeviceCapabilities
from core.devices.manager import DeviceManager
from pipelines.devices import doctor
from pipelines.devices.command import main
from pipelines.devices.doctor import CHECKS, Check, CheckContext, SubjectResult, agreement, grade, run_checks
from pipelines.devices.document import CheckResult
from tests.support.hardware import StandIn

CPU = DeviceCapabilities("cpu", "Plain CPU", 8, 16_000, 8_000, ("float32",), True, "8 cores may be used")
ABSENT = DeviceCapabilities(
    "xpu", "Arc", 2, 16_000, 8_000, ("float32", "bfloat16"), True, "a stand-in says it works: no kernel agrees"
)


def manager(*found: DeviceCapabilities) -> DeviceManager:
    return DeviceManager(Execution(), StandIn(*found))


def results(found: tuple[DeviceCapabilities, ...], root: Path) -> dict[tuple[str, str], CheckResult]:
    return {(result.check, result.subject): result for result in run_checks(manager(*found), root)}


def statuses(findings) -> list[tuple[str, str]]:
    return [(finding.subject, finding.status) for finding in findings]


def test_all_checks_run_on_this_machine_and_leave_it_unchanged(tmp_path):
    checked = results((CPU,), tmp_path)
    assert list(dict.fromkeys(check for check, _ in checked)) == [check.title for check in CHECKS]
    passed = {check for (check, _), result in checked.items() if result.status == "PASS"}
    assert passed >= {"forward and backward", "bfloat16 product"}
    assert checked["parity with the CPU", "–"].status == checked["pinned memory", "–"].status == "SKIP"
    assert all(result.cure is None for result in checked.values() if result.status in ("PASS", "SKIP"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.xpu.is_available(), reason="the GPU that is to be absent is here")
def test_each_failed_device_has_a_remedy_and_the_others_are_checked(tmp_path):
    checked = results((ABSENT, CPU), tmp_path)
    for check in ("forward and backward", "parity with the CPU", "bfloat16 product"):
        for device in ("xpu:0", "xpu:1"):
            assert checked[check, device].status == "FAIL"
            assert checked[check, device].detail
            assert checked[check, device].cure
    assert checked["forward and backward", "cpu"].status == "PASS"


def test_a_broken_device_is_a_warning():
    broken = replace(ABSENT, usable=False, reason="no driver")
    (finding,) = doctor.unusable_platforms(CheckContext(manager(broken, CPU), Path()))
    assert finding == SubjectResult("xpu", "WARN", "Arc: no driver")


def test_a_check_that_raises_is_a_failed_line_and_the_next_one_runs(monkeypatch, tmp_path):
    def half_done(context):
        yield SubjectResult("cpu", "PASS", "first half")
        raise KeyError("driver")

    def fine(context):
        yield SubjectResult("cpu", "PASS", "well")

    monkeypatch.setattr(doctor, "CHECKS", (Check("odd", half_done, "fix it"), Check("next", fine, "fix that")))
    assert run_checks(manager(CPU), tmp_path) == [
        CheckResult(check="odd", subject="cpu", status="PASS", detail="first half"),
        CheckResult(check="odd", subject="", status="FAIL", detail="KeyError: 'driver'", cure="fix it"),
        CheckResult(check="next", subject="cpu", status="PASS", detail="well"),
    ]


def test_an_unwritable_workspace_fails_with_a_remedy(tmp_path):
    checked = results((CPU,), tmp_path / "gone")
    assert checked["disk write speed", ""].status == "FAIL"
    assert "local disk" in checked["disk write speed", ""].cure


def test_shared_memory_is_checked_if_it_exists(tmp_path):
    absent = CheckContext(manager(CPU), tmp_path, shared_memory=tmp_path / "shm")
    assert statuses(doctor.shared_memory(absent)) == [(str(tmp_path / "shm"), "SKIP")]
    present = CheckContext(manager(CPU), tmp_path, shared_memory=tmp_path)
    assert statuses(doctor.shared_memory(present)) != [(str(tmp_path), "SKIP")]


@pytest.mark.parametrize("value, status", [(10.0, "PASS"), (9.9, "WARN"), (1.0, "WARN"), (0.9, "FAIL")])
def test_a_value_is_graded_by_its_limits(value, status):
    assert grade(value, (10.0, 1.0)) == status


@pytest.mark.parametrize(
    "got, agrees",
    [
        ([1.0, -2.0], True),
        ([1.0, -2.009], True),
        ([1.0, -2.02], False),
        ([math.nan, -2.0], False),
        ([math.inf, 0], False),
    ],
)
def test_a_device_agrees_with_the_cpu_within_tensor_core_accuracy(got, agrees):
    assert agreement([torch.tensor(got)], [torch.tensor([1.0, -2.0])])[0] is agrees


@pytest.mark.parametrize("status, code", [("PASS", 0), ("WARN", 0), ("SKIP", 0), ("FAIL", 1)])
def test_only_failures_set_the_exit_code(monkeypatch, capsys, status, code):
    checks = (Check("one", lambda context: iter([SubjectResult("cpu", status, "so")]), "fix it"),)
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert main(["--doctor", "--json"]) == code
    cure = "fix it" if status in ("WARN", "FAIL") else None
    assert json.loads(capsys.readouterr().out)["checks"] == [
        {"check": "one", "subject": "cpu", "status": status, "detail": "so", "cure": cure}
    ]
