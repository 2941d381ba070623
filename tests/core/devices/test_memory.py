import json
import logging
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch

from core.config.execution import Device, Memory
from core.devices import memory
from core.devices.backend import BACKENDS, backend
from core.devices.capabilities import DeviceCapabilities
from core.devices.compat import optimize_for_model_size
from core.devices.memory import memory_limit_mb, prepare_environment
from core.devices.plan import DevicePlan
from core.errors import ConfigError
from tests.support import REPO_ROOT

T4 = DeviceCapabilities("cuda", "T4", 1, 15_102, 14_900, ("float32", "float16"), True, "T4 passed", "7.5")
TORCH_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
GROWING = "expandable_segments:True"


def settings(strategy: str = "balanced", **environment: str) -> Device:
    return Device(memory=Memory(strategy=strategy), environment=environment)


def plan(kind: str = "cpu", limit_mb: int | None = None, index: int = 0) -> DevicePlan:
    return DevicePlan(kind, kind, "32", 1, "", "", index=index, memory_limit_mb=limit_mb)


# ----------------------------------------------------------------------------------------------------------- strategies
@pytest.mark.parametrize(
    "parameters, strategy, share",
    [
        (0, "conservative", 0.60),
        (999_999, "conservative", 0.60),
        (1_000_000, "balanced", 0.75),
        (99_999_999, "balanced", 0.75),
        (100_000_000, "aggressive", 0.90),
    ],
)
def test_a_larger_model_takes_a_larger_share(parameters, strategy, share):
    settings = Device(order=("cpu",), memory=Memory(strategy="auto"))
    chosen = optimize_for_model_size(parameters, settings)
    assert (chosen.memory.strategy, chosen.memory.share, chosen.order) == (strategy, share, ("cpu",))
    assert settings.memory == Memory(strategy="auto"), "unchanged"


# ---------------------------------------------------------------------------------------------------------- environment
@pytest.fixture
def environment(monkeypatch) -> dict[str, str]:
    """An empty environment of this process, whose torch keeps its settings."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(memory, "_pass_to_torch", lambda done: None)
    return os.environ


def test_the_environment_is_prepared_for_the_allocator(environment):
    done = prepare_environment(settings())
    assert done.items() <= environment.items()
    assert done == (
        {"PYTORCH_ALLOC_CONF": GROWING} if sys.platform == "linux" else {}
    )  # torch warns about its old name


@pytest.mark.parametrize(
    "version, name",
    [("2.6.0", TORCH_NAMES[1]), ("2.8.1+cu126", TORCH_NAMES[1]), ("2.9.0", TORCH_NAMES[0]), ("3.0", TORCH_NAMES[0])],
)
def test_the_allocator_variable_has_the_name_of_the_torch_version(monkeypatch, environment, version, name):
    monkeypatch.setattr(memory.importlib.metadata, "version", lambda package: version)
    monkeypatch.setattr(sys, "platform", "linux")
    assert set(prepare_environment(settings())) & set(TORCH_NAMES) == {name}


def test_expandable_segments_are_off_without_driver_support(monkeypatch, environment):
    monkeypatch.setattr(sys, "platform", "win32")
    assert set(prepare_environment(settings())).isdisjoint(TORCH_NAMES)


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_a_user_variable_overrides_under_each_of_its_names(environment, name, caplog):
    environment[name] = "backend:native"
    with caplog.at_level(logging.INFO):
        assert prepare_environment(settings()) == {}
    assert {key: value for key, value in environment.items() if key in TORCH_NAMES} == {name: "backend:native"}
    assert f"{name} = backend:native of the environment" in caplog.text


def test_variables_of_the_configuration_come_before_those_of_the_allocator(environment, caplog):
    settings_of_user = {"NCCL_DEBUG": "INFO", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    assert prepare_environment(settings(**settings_of_user)) == settings_of_user
    assert settings_of_user.items() <= environment.items()
    assert caplog.text == ""


def test_an_environment_variable_overrides_the_configuration_with_a_warning(environment, caplog):
    environment |= {"NCCL_DEBUG": "WARN", "OMP_PROC_BIND": "true"}
    done = prepare_environment(settings(NCCL_DEBUG="INFO", OMP_PROC_BIND="true"))
    assert environment["NCCL_DEBUG"] == "WARN"
    assert "NCCL_DEBUG" not in done
    (record,) = caplog.records
    assert "device.environment.NCCL_DEBUG = INFO is ignored" in record.message


def test_a_later_plan_or_a_child_process_sets_its_own_but_keeps_the_users(environment):
    environment["OMP_PROC_BIND"] = "true"
    prepare_environment(settings(NCCL_DEBUG="INFO"))
    prepare_environment(settings(NCCL_DEBUG="WARN", OMP_PROC_BIND="false"))
    assert (environment["OMP_PROC_BIND"], environment["NCCL_DEBUG"]) == ("true", "WARN")
    environment["NCCL_DEBUG"] = "TRACE"  # now the user's
    prepare_environment(settings(NCCL_DEBUG="INFO"))
    assert environment["NCCL_DEBUG"] == "TRACE"


def test_a_variable_that_cannot_be_set_is_a_configuration_fault():
    with pytest.raises(ConfigError) as caught:
        prepare_environment(settings(NCCL_DEBUG="null\0byte"))
    assert caught.value.faults[0].key == "device.environment.NCCL_DEBUG"


def python(script: str) -> Any:
    """The JSON output of a new process."""
    environment = {name: value for name, value in os.environ.items() if name not in TORCH_NAMES}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, cwd=REPO_ROOT, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.nightly
@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(torch._C, "_accelerator_getAllocatorSettings"),
    reason="this torch does not report its allocator's settings, or has none for this system",
)
def test_torch_is_configured_even_if_it_was_imported_earlier():
    assert python(
        """
        import json, torch
        before = torch._C._accelerator_getAllocatorSettings()  # now the environment has been read
        from core.config.execution import Device
        from core.devices.memory import prepare_environment
        prepare_environment(Device())
        print(json.dumps([before, torch._C._accelerator_getAllocatorSettings()]))
        """
    ) == ["", "expandable_segments:True"]


def test_the_environment_is_prepared_without_torch():
    assert python(
        """
        import json, sys
        from core.config.execution import Device
        from core.devices.memory import prepare_environment
        done = prepare_environment(Device())
        print(json.dumps(["torch" in sys.modules, list(done.values())]))
        """
    ) == [False, [GROWING] if sys.platform == "linux" else []]


# ---------------------------------------------------------------------------------------------------------------- limit
@pytest.mark.parametrize("share, limit_mb", [(0.6, 9_061), (0.75, 11_326), (0.9, 13_591), (0.99, 14_900)])
def test_a_limit_is_at_most_the_free_memory(share, limit_mb):
    assert memory_limit_mb(T4, share) == limit_mb


def test_memory_of_this_process_counts_as_available():
    held_mb = backend("cpu").reserved_mb()
    machine = DeviceCapabilities("cpu", "CPU", 8, 16_000, 1_000, ("float32",), True, "8 cores")
    assert memory_limit_mb(machine, 0.9) == pytest.approx(held_mb + 1_000, abs=20)
    assert memory_limit_mb(machine, 0.9, processes=2) == pytest.approx(held_mb + 500, abs=20)
    assert memory_limit_mb(machine, 0.01) == 160


GUARDED_TRAINING = """
    import json, resource
    import torch
    from core.config.execution import Memory
    from core.devices import memory
    from core.devices.backend import backend
    from core.devices.memory import is_out_of_memory
    from core.devices.capabilities import DeviceCapabilities
    from core.devices.plan import DevicePlan

    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    x = torch.randn(256, 64)

    def step():
        loss = (model(x) - x).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= 0.5 * gradient
        return loss.item()

    step()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    held_mb = backend("cpu").reserved_mb()
    strategy = Memory(strategy="conservative")
    machine = DeviceCapabilities("cpu", "CPU", 1, int((held_mb + 200) / strategy.share), 9_000, (), True, "")
    limit_mb = memory.memory_limit_mb(machine, strategy.share)
    answer = {"limit_mb": limit_mb - held_mb, "losses": []}
    with memory.applied(DevicePlan("cpu", "CPU", "32", 1, "", "", memory_limit_mb=limit_mb)):
        torch.ones(100 * 2**18)
        for attempt in range(3):
            try:
                torch.ones(300 * 2**18)
            except RuntimeError as error:
                answer["losses"].append(step())
                answer["known"] = is_out_of_memory(error)
        answer["peak_mb"] = backend("cpu").peak_memory_mb() - held_mb
    answer["restored"] = resource.getrlimit(resource.RLIMIT_DATA) == before
    answer["afterwards_mb"] = torch.empty(300 * 2**18).nbytes >> 20
    print(json.dumps(answer))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_a_limit_on_a_cpu_raises_memory_errors_and_ends_with_the_run():
    answer = python(GUARDED_TRAINING)
    assert answer["limit_mb"] == pytest.approx(200, abs=2)
    assert answer["known"]
    first, _, last = answer["losses"]  # three allocations were refused, and training continued after each
    assert last < first
    assert 99 <= answer["peak_mb"] <= 200  # the 100 of one tensor; a page or two held at the start may go meanwhile
    assert answer["restored"]
    assert answer["afterwards_mb"] == 300


class Noting:
    """A simulated GPU backend."""

    kind, is_present = "cuda", True

    def __init__(self):
        self.calls = []

    def select(self, index):
        self.calls.append(("select", index))

    def limited(self, limit_mb):
        self.calls.append(("limited", limit_mb))
        return memory.contextlib.nullcontext()


@pytest.mark.parametrize("limit_mb, limits", [(11_326, [("limited", 11_326)]), (None, [])])
def test_a_plan_takes_its_device_and_its_limit(monkeypatch, limit_mb, limits):
    gpu = Noting()
    monkeypatch.setitem(BACKENDS, "cuda", gpu)
    with memory.applied(plan("cuda", limit_mb, index=2)):
        assert gpu.calls == [("select", 2), *limits]


@pytest.mark.parametrize("limit_mb, held_mb, cache_mb", [(None, 100.0, 350.0), (700, 100.0, 250.0), (700, 400.0, 0.0)])
def test_caches_fill_at_most_half_of_what_the_plan_and_the_device_allow(monkeypatch, limit_mb, held_mb, cache_mb):
    gpu = Noting()
    gpu.memory_mb, gpu.reserved_mb = lambda: (800.0, 1000.0), lambda: held_mb
    monkeypatch.setitem(BACKENDS, "cuda", gpu)
    with memory.applied(plan("cuda", limit_mb)):
        assert memory.cache_limit_mb("cuda") == cache_mb
    assert memory.cache_limit_mb("cuda") == (800.0 + held_mb) / 2 - held_mb
