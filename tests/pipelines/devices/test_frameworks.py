import sys
from importlib import metadata

import pytest
import torch

from core.errors import LandfallError
from core.programs import ask_python
from pipelines.devices import frameworks
from pipelines.devices.frameworks import framework_devices, installed_frameworks
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package made of one module, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(frameworks, "_TIMEOUT_S", PATIENCE_S)

    def write(name: str, version: str, source: str = "", *, distribution: str | None = None) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        distribution = distribution or name
        folder = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")

    return write


def test_versions_come_from_metadata_and_nothing_is_imported(install):
    install("jax", "0.7.1", "raise SystemExit('imported')")
    install("tensorflow", "2.19.0", "raise SystemExit('imported')", distribution="tensorflow-cpu")
    installed = metadata.version("torch")  # without the +cu130 of torch.__version__ in PyPI's build with CUDA
    assert torch.__version__.startswith(installed)
    assert installed_frameworks() == {"PyTorch": installed, "TensorFlow": "2.19.0", "JAX": "0.7.1"}
    assert {"jax", "tensorflow"}.isdisjoint(sys.modules)


def test_devices_are_listed_in_other_processes_without_using_memory(install):
    install(
        "jax",
        "0.7.1",
        "import os\nprint('noise')\n"
        "def devices(): return ['TPU_0', os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'], os.getpid()]",
    )
    install(
        "tensorflow",
        "2.19.0",
        "import os\nfrom types import SimpleNamespace as S\n"
        "names = ['/physical_device:GPU:0', os.environ['TF_FORCE_GPU_ALLOW_GROWTH']]\n"
        "config = S(list_physical_devices=lambda: [S(name=name) for name in names])",
    )
    found = framework_devices()
    assert found["TensorFlow"] == ["/physical_device:GPU:0", "true"]
    assert found["JAX"][:2] == ["TPU_0", "false"]
    assert {"jax", "tensorflow"}.isdisjoint(sys.modules)


def test_only_installed_frameworks_are_queried():
    assert set(framework_devices()) == {name for name in ("TensorFlow", "JAX") if installed_frameworks()[name]}


def test_a_framework_without_an_answer_is_reported(install):
    install("jax", "0.7.1", "raise ImportError('libtpu is broken')")
    assert framework_devices()["JAX"] == "it failed (exit code 1): ImportError: libtpu is broken"


@pytest.mark.parametrize(
    "program, timeout_s, problem",
    [
        ("import time; time.sleep(30)", 0.5, r"no answer in 0\.5 s"),
        ("import os; os.abort()", PATIENCE_S, "exit code -6"),
        ("print('hello')", PATIENCE_S, "not JSON"),
        ("pass", PATIENCE_S, "not JSON"),
    ],
)
def test_a_program_without_an_answer_is_an_error(program, timeout_s, problem):
    with pytest.raises(LandfallError, match=problem):
        ask_python(program, timeout_s)


def test_a_program_sees_the_modules_of_this_process(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("answer = {'a': [1, None]}")
    monkeypatch.syspath_prepend(tmp_path)
    assert ask_python("import json, only_here; print(json.dumps(only_here.answer))", PATIENCE_S) == {"a": [1, None]}
