import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from core import checkpoint
from core.config.compose import load_config, local_config_file
from core.config.execution import Distributed
from core.devices.capabilities import DeviceCapabilities
from core.devices.manager import DeviceManager
from core.errors import LandfallError
from core.runlog import read_loss_csv
from tests.support import REPO_ROOT
from tests.trainers.conftest import TINY
from trainers.distributed import World, launch, torchrun_arguments

CPU = DeviceCapabilities("cpu", "Plain CPU", 16, 64_000, 60_000, ("float32",), True, "16 cores may be used")
A100 = DeviceCapabilities(
    "cuda", "NVIDIA A100-SXM4-40GB", 8, 40_536, 40_000, ("float32", "float16", "bfloat16"), True, "passed", "8.0",
    supports_distributed=True,
)  # fmt: skip
A10 = replace(A100, name="NVIDIA A10G", count=1, memory_total_mb=23_028, compute_capability="8.6")
L4 = replace(A100, name="NVIDIA L4", count=4, memory_total_mb=23_034, compute_capability="8.9")
T4 = DeviceCapabilities("cuda", "Tesla T4", 1, 15_102, 15_000, ("float32", "float16"), True, "passed", "7.5", "13.0")


def test_a_process_that_torchrun_did_not_start_is_alone():
    world = World.from_environment({"RANK": "3"})
    assert (world.rank, world.size, world.is_main, world.is_alone) == (0, 1, True, True)


def test_torchrun_numbers_its_processes():
    world = World.from_environment({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert world == World(rank=3, size=4, local_rank=1, local_size=2)
    assert not world.is_main


def test_the_shares_of_all_processes_are_the_whole():
    items = torch.arange(10)
    shares = [World(rank, 4, rank).share(items) for rank in range(4)]
    assert torch.equal(torch.cat(shares), items)
    assert {len(share) for share in shares} == {2, 3}


def test_one_machine_meets_by_itself():
    words = torchrun_arguments("trainers.train_patchtst_ssl", ["devices=4"], 4, Distributed())
    assert words == [
        *("--standalone", "--nnodes=1", "--nproc-per-node=4", "--max-restarts=0", "--shutdown-timeout=300"),
        *("-m", "trainers.train_patchtst_ssl", "devices=4"),
    ]


def test_several_machines_meet_at_the_first():
    settings = Distributed(nodes=2, rendezvous="node-1:29500", timeout_minutes=30)
    words = torchrun_arguments("m", [], 8, settings)
    assert "--rdzv-endpoint=node-1:29500" in words
    assert "--rdzv-conf=join_timeout=1800" in words
    assert "--standalone" not in words


def test_several_machines_without_a_meeting_point():
    with pytest.raises(LandfallError, match=r"distributed.nodes = 2 without a meeting point"):
        torchrun_arguments("m", [], 8, Distributed(nodes=2))


@pytest.mark.parametrize("code, expected", [(75, 75), (3, 3), (-9, 1)], ids=["resumable", "data", "killed"])
def test_the_exit_code_is_that_of_the_process_that_failed(tmp_path, code, expected):
    def run(arguments):
        failure = SimpleNamespace(spec=ProcessFailure, exitcode=code)
        error = ChildFailedError.__new__(ChildFailedError)
        error.get_first_failure = lambda: (1, failure)
        raise error

    assert launch("m", [], 2, Distributed(), last_checkpoint=tmp_path / "last.pt", run=run) == expected


# The recipes of the documentation, against hardware that stands in, up to the start of the processes.
RECIPES = {
    ("local=default", "local/devices=single_gpu"): ((A100, CPU), 1),
    ("trainer=multi_gpu", "local=hpc", "local/devices=multi_gpu", "devices=4"): ((A100, CPU), 4),
    ("trainer=kaggle_safe", "local=default", "local/devices=kaggle_t4"): ((T4, CPU), 1),
    ("trainer=kaggle_safe", "local=default", "local/devices=kaggle_a10"): ((A10, CPU), 1),
    ("trainer=kaggle_safe", "local=default", "local/devices=kaggle_l4"): ((L4, CPU), 4),
    ("trainer=multi_gpu", "local=hpc", "local/devices=hpc_a100", "devices=8"): ((A100, CPU), 8),
    ("trainer=multi_gpu", "local=hpc", "local/devices=hpc_a100", "devices=16"): ((A100, CPU), 8),
}


@pytest.mark.parametrize("stream", ["patchtst", "swinmae"])
@pytest.mark.parametrize("recipe, expected", RECIPES.items(), ids=[" ".join(recipe) for recipe in RECIPES])
def test_recipes_start_a_process_for_each_device(workspace, stream, recipe, expected):
    found, count = expected
    config = load_config(local_config_file(stream), recipe, root=workspace, environment={}).config
    plan = DeviceManager(config, SimpleNamespace(detect_capabilities=lambda: list(found))).plan()
    assert (plan.kind, plan.count) == ("cuda", count)
    started = []
    module = f"trainers.train_{stream}_ssl"
    assert (
        launch(module, recipe, plan.count, config.distributed, last_checkpoint=workspace / "x.pt", run=started.append)
        == 0
    )
    assert (started[0].nproc_per_node, started[0].training_script) == (str(count), module)
    assert started[0].training_script_args == list(recipe)


@pytest.mark.parametrize("saved, code", [(True, 75), (False, 1)])
def test_a_signal_is_resumable_only_with_a_checkpoint(tmp_path, saved, code):
    last = tmp_path / "last.pt"

    def run(arguments):
        if saved:
            last.touch()
        raise SignalException("stopped", signal.SIGTERM)

    assert launch("m", [], 2, Distributed(), last_checkpoint=last, run=run) == code


@pytest.mark.slow
@pytest.mark.parametrize("norm", [("model.norm=layer",), ("model.norm=batch", "model.norm_windows=4")])
def test_two_processes_learn_what_one_learns(plant, norm):
    """Two processes on the CPU, for real: the same losses as one with the same windows in a step, where these divide
    into whole groups of batch normalisation. In 64 bit, where rounding does not grow into a difference."""
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--repo-root", str(plant), *TINY]
    command += ["training.epochs=2", "data.stride=4", "training.windows_per_epoch=96", "device.enable_x64=true", *norm]
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT), "OMP_NUM_THREADS": "1"}
    histories = []
    for words in (["training.batch_size=8"], ["training.batch_size=4", "devices=2"]):
        result = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["epochs"] == 2, "one process reports"
        histories.append(read_loss_csv(plant / "artifacts/loss/patchtst_loss_history.csv"))
    for alone, together in zip(*histories, strict=True):
        assert together.train_loss == pytest.approx(alone.train_loss, rel=1e-9)
        assert together.val_loss == pytest.approx(alone.val_loss, rel=1e-9)
    told = checkpoint.verify(plant / "checkpoints/patchtst_ssl.pt")
    assert told["hardware"]["count"] == 2
    assert told["hardware"]["batch"]["effective"] == 8
