import importlib
import sys

import pytest

from core.devices import tpu

TORCH_XLA = {
    "__init__": "import torch\ndef device(): return torch.device('cpu')",
    "runtime": "def device_type(): return 'TPU'\ndef addressable_runtime_device_count(): return 4",
    "core/__init__": "",
    "core/xla_model": "def get_memory_info(device): return {'bytes_used': 2**30, 'bytes_limit': 31 * 2**30}\n"
    "def xla_device_kind(device): return 'TPU v6 lite'",
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    for name in ("TPU_NAME", "TPU_ZONE", "TPU_ACCELERATOR_TYPE"):
        monkeypatch.delenv(name, raising=False)
    tpu._asked_once.cache_clear()
    yield
    tpu._asked_once.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs simulated Google libraries, which the other process imports."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(package: str, modules: dict[str, str]) -> None:
        for name, source in modules.items():
            path = tmp_path / package / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        importlib.invalidate_caches()

    return write


@pytest.fixture
def in_this_process(monkeypatch):
    """Avoids the start of another process, which takes longer than the rest of the test."""
    monkeypatch.setattr(tpu, "ask_python", lambda _program, _timeout_s: tpu.seen_by_torch_xla())
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "torch_xla"]:
        del sys.modules[name]


def test_a_machine_without_a_tpu_has_no_entry():
    assert tpu.detect_tpu() is None


@pytest.mark.parametrize("kind, name", [("v4-8", "TPU v4-8"), (None, "TPU")])
def test_the_environment_announces_a_tpu_that_cannot_be_used(monkeypatch, kind, name):
    monkeypatch.setenv("TPU_NAME", "node-1")
    if kind is not None:
        monkeypatch.setenv("TPU_ACCELERATOR_TYPE", kind)
    found = tpu.detect_tpu()
    assert (found.kind, found.usable, found.name) == ("tpu", False, name)
    announced = "TPU_NAME=node-1" + (f", TPU_ACCELERATOR_TYPE={kind}" if kind else "")
    assert f"{announced} announces a TPU" in found.reason
    assert "pip install torch_xla" in found.reason


@pytest.mark.nightly
def test_a_tpu_through_torch_xla_is_usable_after_a_real_operation(install):
    install("torch_xla", TORCH_XLA)
    found = tpu.detect_tpu()
    assert (found.usable, found.count, found.name) == (True, 4, "TPU v6 lite")
    assert (found.memory_total_mb, found.memory_free_mb) == (31 * 1024, 30 * 1024)
    assert found.native_dtypes == ("float32", "bfloat16")
    assert found.supports_mixed_precision
    assert found.reason.startswith("4 passed ")


def test_a_tpu_that_fails_its_operation_is_listed_with_the_reason(install, in_this_process):
    install("torch_xla", {**TORCH_XLA, "__init__": "import torch\ndef device(): return torch.device('meta')"})
    found = tpu.detect_tpu()
    assert (found.usable, found.memory_free_mb, found.native_dtypes) == (False, 0, ())
    assert "failed a small operation" in found.reason


def test_older_torch_xla_takes_the_name_from_the_environment(install, in_this_process, monkeypatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    memory = TORCH_XLA["core/xla_model"].partition("\n")[0]
    install("torch_xla", {**TORCH_XLA, "core/xla_model": memory})
    found = tpu.detect_tpu()
    assert (found.usable, found.name, found.memory_total_mb) == (True, "TPU v5litepod-4", 31 * 1024)


def test_torch_xla_on_another_device_is_not_a_tpu(install, in_this_process, monkeypatch):
    install("torch_xla", {**TORCH_XLA, "runtime": "def device_type(): return 'CPU'"})
    assert tpu.detect_tpu() is None
    monkeypatch.setenv("TPU_NAME", "node-1")
    assert tpu.detect_tpu().reason == "TPU_NAME=node-1 announces a TPU, but torch_xla runs on something else"


@pytest.mark.nightly
def test_a_library_that_kills_its_process_does_not_kill_this_one(install, monkeypatch):
    monkeypatch.setenv("TPU_NAME", "node-1")
    install("torch_xla", {"__init__": "import os\nos.abort()"})
    found = tpu.detect_tpu()
    assert not found.usable
    assert "exit code -6" in found.reason


@pytest.mark.nightly
def test_the_library_is_queried_once_per_process(install):
    install("torch_xla", {"__init__": "raise ImportError"})
    tpu.detect_tpu()
    tpu.detect_tpu()
    assert tpu._asked_once.cache_info().misses == 1


def test_jax_reports_a_tpu_that_cannot_train(install):
    install("libtpu", {"__init__": ""})
    install(
        "jax",
        {
            "__init__": "from types import SimpleNamespace\n"
            "def devices(kind): return [SimpleNamespace(device_kind='TPU v4')] * 4"
        },
    )
    found = tpu.detect_tpu()
    assert (found.usable, found.name, found.count) == (False, "TPU v4", 4)
    assert found.reason.endswith("pip install torch_xla")


def test_jax_without_libtpu_is_not_started(install):
    install("jax", {"__init__": "raise SystemExit('started')"})
    assert tpu.detect_tpu() is None
    assert tpu._asked_once.cache_info().misses == 0


def test_jax_without_a_tpu_finds_none(install):
    install("libtpu", {"__init__": ""})
    install("jax", {"__init__": "def devices(kind): raise RuntimeError('Unknown backend tpu')"})
    assert tpu.detect_tpu() is None
