import json
import os
import subprocess
import sys

import pytest

from tests.support import REPO_ROOT
from tests.trainers.distributed_checks import CHECKS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of each of two processes, by check."""
    out = tmp_path_factory.mktemp("joint")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [f"--log-dir={out / 'torchrun'}"]
    command += ["-m", "tests.trainers.distributed_checks", str(REPO_ROOT), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=REPO_ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.nightly
def test_two_processes_agree_on_the_objective(results, name):
    for rank, found in enumerate(results):
        assert found[name] is None, f"process {rank}: {found[name]}"
