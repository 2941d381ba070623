"""Tests that need a CUDA device. `python -m tools.prove_cuda` runs them and collects their results.

PROVE_CUDA_DEVICE=cpu runs them on the CPU, as far as that has what they test. Without a CUDA device they are skipped,
with PROVE_CUDA_DEVICE=cuda they fail. `record_property` adds a figure to the report.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from core.config.execution import Precision
from core.devices.backend import backend
from core.devices.plan import DevicePlan
from tests.trainers.conftest import plant  # noqa: F401  a fixture
from tools.prove_cuda.rows import Row
from tools.prove_cuda.sections import ROW_MARK

VARIABLE = "PROVE_CUDA_DEVICE"
_STATUS = {"passed": "passed", "skipped": "skipped"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    global _terminal
    _terminal = config.pluginmanager.get_plugin("terminalreporter")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.cuda)


@pytest.fixture(scope="session")
def kind() -> str:
    """The device under test: `cuda`, or `cpu` for the stand-in."""
    kind = os.environ.get(VARIABLE, "cuda")
    if not backend(kind).is_present:
        if VARIABLE in os.environ:  # a skipped test would count as one that need not run again
            pytest.fail(f"no {kind} device")
        pytest.skip(f"no CUDA device; {VARIABLE}=cpu runs this test on the CPU")
    if "PYTEST_XDIST_WORKER" in os.environ and VARIABLE not in os.environ:
        pytest.skip("tests of one GPU run one after the other: python -m tools.prove_cuda")
    return kind


@pytest.fixture
def cuda(kind: str) -> str:
    """For what a CPU has no counterpart of."""
    if kind != "cuda":
        pytest.skip("needs CUDA: a CPU has no counterpart")
    return kind


@pytest.fixture
def words(kind: str) -> tuple[str, ...]:
    """Overrides by which a run takes the device, and fails without it."""
    return ("device.prefer=cpu",) if kind == "cpu" else ("device.prefer=gpu", "device.strict=true")


@pytest.fixture(autouse=True)
def _settings_of_torch() -> Iterator[None]:
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    products, convolutions = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode(mode)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, convolutions


def plan_of(kind: str, precision: Precision = "32", **more) -> DevicePlan:
    return DevicePlan(kind, kind, precision, 1, "a test", "a test", **more)


# -------------------------------------------------------------------------------------------------------------- report
_reports: dict[str, Row] = {}
_terminal: Any = None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes the result of a test; the worst of set-up, test and tear-down counts."""
    name, known = report.nodeid.partition("::")[2], _reports.get(report.nodeid)
    if known is None or report.outcome != "passed":
        status = _STATUS.get(report.outcome, "failed")
        _reports[report.nodeid] = Row(name, status, dict(report.user_properties), _reason(report))
    elif report.when == "call":
        _reports[report.nodeid] = Row(name, known.status, dict(report.user_properties), known.reason)


def _reason(report: pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # file, line and text of a skip
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr)).split())[:300]


def pytest_runtest_logfinish(nodeid: str) -> None:
    row = _reports.pop(nodeid, None)
    if row is not None and _terminal is not None and VARIABLE in os.environ:
        _terminal.ensure_newline()
        _terminal.write_line(ROW_MARK + json.dumps(asdict(row)))
