import logging
import os
import subprocess
import sys

import pytest

from core.config.execution import Profile
from core.devices.kernels import prepare_cublas
from tests.support import REPO_ROOT


def test_the_cublas_workspace_is_set_unless_the_user_set_it(monkeypatch, caplog):
    monkeypatch.setattr(os, "environ", {})
    prepare_cublas(Profile(deterministic=False))
    assert os.environ == {}
    prepare_cublas(Profile())  # deterministic by default
    assert os.environ == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    prepare_cublas(Profile(deterministic=True))
    assert (os.environ, caplog.text) == ({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, "")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"
    with caplog.at_level(logging.WARNING):
        prepare_cublas(Profile(deterministic=True))
    assert os.environ == {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}
    assert "CUBLAS_WORKSPACE_CONFIG = :0:0 is not deterministic" in caplog.text


COMMAND = """
import os
from core.config.execution import Device, Execution
from core.reproducibility import make_reproducible, prepare_process
config = Execution(device=Device(environment={"CUBLAS_WORKSPACE_CONFIG": ":16:8"}))
prepare_process(config)
from core.devices.manager import DeviceManager
DeviceManager(config)
make_reproducible(config)
print(os.environ["CUBLAS_WORKSPACE_CONFIG"])
"""


@pytest.mark.nightly
def test_a_command_takes_the_cublas_workspace_of_the_configuration(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    result = subprocess.run([sys.executable, "-c", COMMAND], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == ":16:8\n"
    assert "ignored" not in result.stderr
