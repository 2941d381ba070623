"""The report of `landfall devices`, on this machine and on simulated ones.

Golden files are renewed by

    python -m tests.pipelines.devices.test_report
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from core import checkpoint
from core.config.compose import environment_settings
from core.config.execution import Device, Execution
from core.config.hardware import load_tiers
from core.devices.capabilities import DeviceCapabilities
from core.devices.manager import DeviceManager
from core.devices.record import Host
from core.numbers import gib
from core.workspace import json_text, schema_text
from pipelines.devices.advice import torch_for
from pipelines.devices.command import main
from pipelines.devices.costs import load_costs
from pipelines.devices.document import CheckResult, DeviceReport
from pipelines.devices.fitting import load_profiles, run_batches
from pipelines.devices.report import Facts, device_report
from pipelines.devices.text import as_text
from tests.support import REPO_ROOT
from tests.support.hardware import StandIn

GOLDEN = Path(__file__).with_name("golden")


# ---------------------------------------------------------------------------------------------------------- stand-ins
def cpu(name: str, cores: int, physical: int, memory_mb: int) -> DeviceCapabilities:
    """A CPU with nine tenths of its memory free."""
    reason = f"{cores} cores may be used ({physical} physical), {gib(memory_mb)} of memory (the machine)"
    free_mb = memory_mb * 9 // 10
    return DeviceCapabilities(
        "cpu", name, cores, memory_mb, free_mb, ("float32",), True, reason,
        supports_distributed=True, physical_cores=physical,
    )  # fmt: skip


CPU = cpu("AMD EPYC", 2, 2, 24_105)
T4 = DeviceCapabilities(
    "cuda", "Tesla T4", 1, 15_102, 14_999, ("float32", "float16"), True, "Tesla T4 passed a forward and backward pass",
    compute_capability="7.5", cuda_version="13.0", driver_version="580.65.06",
    supports_mixed_precision=True, supports_distributed=True,
)  # fmt: skip
A100 = replace(
    T4, name="NVIDIA A100-SXM4-40GB", count=8, memory_total_mb=40_326, memory_free_mb=39_900, compute_capability="8.0",
    native_dtypes=("float32", "float16", "bfloat16"), reason="NVIDIA A100-SXM4-40GB passed a forward and backward pass",
)  # fmt: skip
M2 = DeviceCapabilities(
    "mps", "Apple M2", 1, 16_384, 9_216, ("float32", "float16"), True,
    "Apple GPU passed a forward and backward pass; memory is shared with the CPU, at most 10.7 GiB are recommended",
    supports_mixed_precision=True, unified_memory=True,
)  # fmt: skip
V5E = DeviceCapabilities(
    "tpu", "TPU v5e", 8, 15_258, 0, (), False,
    "TPU_ACCELERATOR_TYPE=v5litepod-8 announces a TPU, but training needs torch_xla: pip install torch_xla",
)  # fmt: skip
HIDDEN_T4 = replace(
    T4, usable=False, native_dtypes=(), cuda_version=None, supports_mixed_precision=False, supports_distributed=False,
    reason="torch 2.13.0+cpu is a CPU-only build; install one for CUDA",
)  # fmt: skip
HALF_A_DRIVER = DeviceCapabilities("cuda", "CUDA GPU", 0, 0, 0, (), False, "its driver fails: libcuda.so.1 is torn")

MACHINES = {
    "cpu": (CPU,),
    "t4": (T4, cpu("Intel(R) Xeon(R) CPU @ 2.00GHz", 4, 2, 30_086)),
    "a100x8": (A100, cpu("AMD EPYC 7742 64-Core Processor", 96, 96, 1_100_000)),
    "m2": (M2, cpu("Apple M2", 8, 8, 16_384)),
    "tpu-v5e": (V5E, cpu("AMD EPYC 7B13", 224, 112, 386_000)),
}


def facts(found: tuple[DeviceCapabilities, ...], **changes) -> Facts:
    """Facts of a machine without findings; values that vary between machines are fixed."""
    environment = changes.setdefault("environment", {})
    host = Host(
        ram_mb=changes.pop("ram_mb", found[-1].memory_total_mb),
        torch_cuda=changes.pop("torch_cuda", None),
        cuda_visible_devices=environment.get("CUDA_VISIBLE_DEVICES"),
    )
    frameworks = {"PyTorch": "2.13.0", "TensorFlow": None, "JAX": None}
    changes = {"profiles": load_profiles(REPO_ROOT), **changes}
    return replace(Facts(host, frameworks, load_tiers(REPO_ROOT), load_costs(REPO_ROOT)), **changes)


def report_of(*found: DeviceCapabilities, config: Execution | Device | None = None, **changes) -> DeviceReport:
    manager = DeviceManager(config or Execution(), StandIn(*found))
    return device_report(manager, facts(found, **changes))


def recommended(*found: DeviceCapabilities, **settings) -> dict[str, str]:
    """Findings with their remedies."""
    return {advice.finding: advice.action for advice in report_of(*found, **settings).recommendations}


def as_json(report: DeviceReport) -> dict:
    return report.model_dump(mode="json")


def check_schema(report: dict) -> None:
    jsonschema.Draft202012Validator(json.loads(schema_text(DeviceReport))).validate(report)


# --------------------------------------------------------------------------------------------------------- golden files
def goldens() -> dict[str, str]:
    """The expected content of every golden file."""
    texts: dict[str, str] = {}
    for name, found in MACHINES.items():
        report = report_of(*found, torch_cuda=found[0].cuda_version)
        texts[f"{name}.json"] = json_text(as_json(report))
        texts[f"{name}.txt"] = as_text(report) + "\n"
    return texts


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("ending", ["txt", "json"])
def test_the_report_equals_the_golden_file(machine, ending):
    name = f"{machine}.{ending}"
    assert goldens()[name] == (GOLDEN / name).read_text("utf-8"), "renew: python -m tests.pipelines.devices.test_report"


def test_no_golden_file_is_unused():
    assert {path.name for path in GOLDEN.iterdir()} == set(goldens())


# --------------------------------------------------------------------------------------------------------------- schema
def test_the_schema_is_valid_and_pins_the_version():
    schema = json.loads(schema_text(DeviceReport))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema_version"]["const"] == 1
    assert set(schema["properties"]) == set(schema["required"])


@pytest.mark.parametrize("found", [*MACHINES.values(), (HALF_A_DRIVER, CPU), (HIDDEN_T4, CPU)])
def test_every_report_matches_the_schema(found):
    check_schema(as_json(report_of(*found)))


def test_an_incomplete_report_violates_the_schema():
    report = as_json(report_of(CPU))
    del report["routing"]["mode"]
    with pytest.raises(jsonschema.ValidationError, match="'mode' is a required property"):
        check_schema(report)


def test_an_invalid_report_is_never_printed():
    with pytest.raises(ValidationError, match="valid string"):
        report_of(replace(A100, compute_capability=8.0), CPU)


# ----------------------------------------------------------------------------------------------- what suits the machine
H100 = replace(A100, name="NVIDIA H100 80GB HBM3", count=1, memory_total_mb=81_559, compute_capability="9.0")
RTX_3090 = replace(A100, name="NVIDIA GeForce RTX 3090", count=1, memory_total_mb=24_268, compute_capability="8.6")


@pytest.mark.parametrize("found, environment, name", [
    ((CPU,), {}, "cpu"), ((M2, CPU), {}, "mps"), ((RTX_3090, CPU), {}, "workstation_3090"),
    ((T4, CPU), {}, "single_gpu"), ((T4, CPU), {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, "kaggle_t4"),
    ((A100, CPU), {}, "hpc_a100"), ((replace(A100, count=2), CPU), {}, "multi_gpu"), ((H100, CPU), {}, "single_gpu"),
    ((HIDDEN_T4, CPU), {}, "cpu"),
])  # fmt: skip
def test_the_suitable_profile_is_named(found, environment, name):
    report = report_of(*found, environment=environment)
    assert report.profile.name == name
    assert f"local/devices={name}" in as_text(report)


def test_the_batch_size_of_the_last_run_is_named(tmp_path):
    hardware = {"name": "AMD EPYC", "batch": {"effective": 64, "micro": 32}}
    path = tmp_path / "checkpoints/patchtst_ssl.pt"
    checkpoint.save(path, {"epoch": 1}, description={"run_id": "run-1", "hardware": hardware})
    report = report_of(CPU, run_batches=run_batches(tmp_path))
    (batch,) = report.run_batches
    assert (batch.stream, batch.effective, batch.micro, batch.run_id) == ("patchtst", 64, 32, "run-1")
    assert "patchtst: 64 windows per step, micro-batch 32" in as_text(report)
    check_schema(as_json(report))


# ------------------------------------------------------------------------------------------------------------- routing
@pytest.mark.parametrize(
    "environment, mode, set_by",
    [
        ({}, "auto", "default"),
        ({"COMPUTE_PREFER": "CPU"}, "manual", "environment: COMPUTE_PREFER=CPU"),
        (
            {"COMPUTE_PREFER": "gpu", "LANDFALL_DEVICE__PREFER": "cpu"},
            "manual",
            "environment: LANDFALL_DEVICE__PREFER=cpu",
        ),
    ],
)
def test_the_report_names_the_origin_of_the_device_choice(environment, mode, set_by):
    config, origins = environment_settings(environment)
    manager = DeviceManager(config, StandIn(T4, CPU), origins=origins)
    routing = device_report(manager, facts((T4, CPU))).routing
    assert (routing.mode, routing.set_by) == (mode, set_by)


def test_a_gpu_count_and_its_cost_follow_the_devices_in_use():
    report = report_of(A100, CPU, config=Execution(devices=4))
    assert report.cost.model_dump() == {
        "usd_per_hour": 2.0,
        "runs": [{"hours": 1, "usd": 2.0}, {"hours": 8, "usd": 16.0}],
    }
    assert "cuda: 4 of 8 × NVIDIA A100-SXM4-40GB" in as_text(report)


# ----------------------------------------------------------------------------------------------------- recommendations
def test_a_healthy_machine_needs_nothing():
    assert recommended(replace(A100, count=1), CPU) == {}


@pytest.mark.parametrize("devices, idle", [(1, 7), (5, 3), (8, 0), ("auto", 0)])
def test_idle_gpus_are_reported(devices, idle):
    output = recommended(A100, cpu("AMD EPYC", 96, 96, 24_105), config=Execution(devices=devices))
    assert output == ({f"{idle} of 8 × {A100.name} stay idle": "devices=8"} if idle else {})


def test_a_preferred_device_that_is_missing_is_reported():
    (finding, action), *_ = recommended(CPU, config=Device(prefer="gpu")).items()
    assert re.match("device.prefer = gpu .*AMD EPYC is used", finding)
    assert "COMPUTE_PREFER" in action


def test_a_profile_that_does_not_fit_is_reported():
    output = recommended(T4, CPU, config=Execution(hardware={"kind": "cuda", "memory_gb": 40}))
    assert any("40" in finding and "local/devices" in action for finding, action in output.items())


@pytest.mark.parametrize("allow, count", [(False, 1), (True, 0)])
def test_a_tpu_that_works_but_is_not_allowed_is_reported(allow, count):
    tpu = replace(V5E, usable=True, native_dtypes=("float32", "bfloat16"), memory_free_mb=15_000, reason="passed")
    output = recommended(tpu, CPU, config=Device(prefer="cpu", allow_tpu=allow))
    assert sum("COMPUTE_ALLOW_TPU" in action for action in output.values()) == count


@pytest.mark.parametrize("free_mb, count", [(1_511, 0), (1_510, 1)])
def test_less_than_a_tenth_of_the_memory_free_is_reported(free_mb, count):
    output = recommended(replace(T4, memory_free_mb=free_mb), CPU)
    assert sum("nvidia-smi" in action for action in output.values()) == count


@pytest.mark.parametrize("ram_mb, count", [(24_105, 0), (24_500, 0), (64_000, 1)])
def test_a_memory_limit_below_the_machines_memory_is_reported(ram_mb, count):
    assert sum("cgroup" in finding for finding in recommended(CPU, ram_mb=ram_mb)) == count


@pytest.mark.parametrize("processes, threads, fewer", [(1, 3, 2), (2, 4, 1)])
def test_threads_beyond_the_physical_cores_are_reported(processes, threads, fewer):
    output = recommended(cpu("AMD EPYC", 4, 2, 24_105), config=Execution(devices=processes))
    (advice,) = [action for found, action in output.items() if found.startswith(f"{threads} threads on 2 physical ")]
    assert advice == f"max_threads={fewer}"


def test_an_unusable_gpu_has_a_remedy():
    output = recommended(HIDDEN_T4, CPU)
    assert output == {"Tesla T4 cannot be used": "make setup TORCH_INDEX=https://download.pytorch.org/whl/cu130"}
    hidden = recommended(HIDDEN_T4, CPU, environment={"CUDA_VISIBLE_DEVICES": ""})
    assert hidden == {"Tesla T4 cannot be used": "unset CUDA_VISIBLE_DEVICES"}
    torn = recommended(HALF_A_DRIVER, CPU)
    ((device, action),) = torn.items()
    assert device.startswith("CUDA GPU")
    assert "nvidia-smi" in action
    other = recommended(replace(M2, kind="xpu", name="Arc", usable=False), CPU)
    assert "TORCH_INDEX" in other["Arc cannot be used"]


@pytest.mark.parametrize(
    "driver, capability, torch_cuda, expected",
    [
        ("580.65.06", "7.5", None, "/whl/cu130"),
        ("550.54", "7.5", None, "/whl/cu126"),
        ("550.54", "7.5", "13.0", "/whl/cu126"),
        ("580.65.06", "6.0", "13.0", "/whl/cu126"),
        (None, None, None, "/whl/cu130"),
        ("470.82", "8.0", None, "driver to 525 or newer"),
        ("570.86", "12.0", "12.6", "driver to 580 or newer"),
        ("470.82", "3.7", None, "compute capability 3.7"),
        ("580.65.06", "7.5", "13.0", "restart the machine"),
    ],
)
def test_the_build_suits_driver_and_gpu(driver, capability, torch_cuda, expected):
    gpu = replace(HIDDEN_T4, driver_version=driver, compute_capability=capability)
    assert expected in torch_for(gpu, torch_cuda)


# ---------------------------------------------------------------------------------------------------------------- text
@pytest.mark.parametrize("found", [*MACHINES.values(), (HALF_A_DRIVER, CPU)])
def test_no_line_is_longer_than_a_hundred_columns(found):
    report = report_of(*(replace(one, name=f"{one.name} {'with a long name ' * 8}") for one in found))
    assert max(map(len, as_text(report, verbose=True).splitlines())) <= 100


def test_an_incomplete_driver_is_one_line_of_the_report():
    text = as_text(report_of(HALF_A_DRIVER, CPU))
    assert "CUDA GPU  NOT USABLE" in text
    assert "its driver fails: libcuda.so.1 is torn" in text
    assert text.startswith("Device        cpu: AMD EPYC\n")


def test_verbose_adds_metadata_cost_and_what_other_frameworks_see():
    report = report_of(T4, CPU, framework_devices={"JAX": ["cuda:0"], "TensorFlow": "no answer in 20 s"})
    text = as_text(report, verbose=True)
    added = set(text.splitlines()) - set(as_text(report).splitlines())
    assert {line.strip() for line in added} == {
        "1 h: 0.50 USD; 8 h: 4.00 USD",
        "driver 580.65.06 · CUDA 13.0 · capability 7.5 · native float32, float16 · mixed precision ·",
        "distributed",
        "2 physical cores · native float32 · no mixed precision · distributed",
    }
    assert "JAX: cuda:0" in text
    assert "TensorFlow: no answer in 20 s" in text


def test_checks_are_a_table_with_remedies_below():
    checks = [
        CheckResult(check="free disk", subject="workspace", status="PASS", detail="99 GiB"),
        CheckResult(check="shared memory", subject="/dev/shm", status="WARN", detail="0.06 GiB", cure="give it more"),
    ]
    manager = DeviceManager(Execution(), StandIn(CPU))
    report = device_report(manager, facts((CPU,)), checks=checks)
    check_schema(as_json(report))
    assert as_text(report).endswith(
        "Checks\n"
        "  PASS  free disk      workspace  99 GiB\n"
        "  WARN  shared memory  /dev/shm   0.06 GiB\n"
        "        → give it more"
    )


# ------------------------------------------------------------------------------------------------------------- command
def test_this_machine_can_be_reported(capsys):
    assert main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    check_schema(report)
    assert report["plan"]["kind"] in {device["kind"] for device in report["devices"] if device["usable"]}
    assert report["frameworks"]["PyTorch"]
    assert main([]) == 0
    assert f"{report['plan']['kind']}: " in capsys.readouterr().out.splitlines()[0]


def test_the_command_prints_its_schema(capsys):
    assert main(["--schema"]) == 0
    assert capsys.readouterr().out == schema_text(DeviceReport)


def test_help_starts_without_torch():
    command = [sys.executable, "-X", "importtime", "-m", "pipelines.devices.command", "--help"]
    answer = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True)
    assert answer.returncode == 0
    assert answer.stdout.startswith("usage: landfall devices")
    imported = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert "core.cli" in imported
    assert "torch" not in imported


@pytest.mark.slow
def test_a_torch_that_does_not_start_is_one_line(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPO_ROOT}"}
    command = [sys.executable, "-m", "pipelines.devices.command"]
    answer = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, env=environment)
    assert answer.returncode == 1
    assert answer.stderr == (
        "landfall devices: PyTorch cannot be imported: libcudart.so.13: cannot open shared object file "
        "— reinstall it with make setup\n"
    )


if __name__ == "__main__":
    for name, text in goldens().items():
        (GOLDEN / name).write_text(text, encoding="utf-8")
