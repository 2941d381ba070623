import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from core.config.compose import load_config, local_config_file
from core.config.execution import Distributed
from core.devices.capabilities import DeviceCapabilities
from core.devices.manager import DeviceManager
from core.errors import EXIT_KILLED, EXIT_OK, EXIT_RESUMABLE, ConfigError, LandfallError
from tests.support import REPO_ROOT, most_nightly
from trainers import elastic
from trainers.launching import Rendezvous, launch, torchrun_arguments

CPU = DeviceCapabilities("cpu", "Plain CPU", 16, 64_000, 60_000, ("float32",), True, "16 cores may be used")
A100 = DeviceCapabilities(
    "cuda", "NVIDIA A100-SXM4-40GB", 8, 40_536, 40_000, ("float32", "float16", "bfloat16"), True, "passed", "8.0",
    supports_distributed=True,
)  # fmt: skip
A10 = replace(A100, name="NVIDIA A10G", count=1, memory_total_mb=23_028, compute_capability="8.6")
L4 = replace(A100, name="NVIDIA L4", count=4, memory_total_mb=23_034, compute_capability="8.9")
T4 = DeviceCapabilities("cuda", "Tesla T4", 1, 15_102, 15_000, ("float32", "float16"), True, "passed", "7.5", "13.0")
LOGS = Path("job/torchrun")
FIRST = Rendezvous("10.0.0.1:29500", "10.0.0.1", "eth0", is_here=True)


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "cache" / "job"


def launched(run: Callable, count: int, settings: Distributed, notes: Path) -> int:
    """The exit code of a job in which `run` stands for torchrun."""
    with patch("torch.distributed.run.run", run):
        return launch("m", [], count, settings, notes=notes)


# ---------------------------------------------------------------------------------------------------- torchrun's words
def test_one_machine_needs_no_rendezvous():
    settings = Distributed(max_restarts=3)
    words = torchrun_arguments("trainers.train_patchtst_ssl", ["devices=4"], 4, settings, None, log_dir=LOGS)
    assert words == [
        *("--standalone", "--nnodes=1", "--nproc-per-node=4", "--max-restarts=3", "--shutdown-timeout=300"),
        "--log-dir=job/torchrun",
        *("-m", "trainers.train_patchtst_ssl", "devices=4"),
    ]


def test_several_machines_use_the_first_as_rendezvous():
    settings = Distributed(nodes=4, min_nodes=2, max_restarts=1, rendezvous=FIRST.endpoint, timeout_minutes=30)
    words = torchrun_arguments("m", [], 8, settings, FIRST, log_dir=LOGS)
    assert {"--rdzv-endpoint=10.0.0.1:29500", "--local-addr=10.0.0.1", "--nnodes=2:4"} <= set(words)
    assert "--rdzv-conf=join_timeout=1800,is_host=true" in words
    assert "--standalone" not in words
    words = torchrun_arguments("m", [], 8, settings, replace(FIRST, address="10.0.0.2", is_here=False), log_dir=LOGS)
    assert {"--local-addr=10.0.0.2", "--rdzv-conf=join_timeout=1800,is_host=false"} <= set(words)


def test_a_loopback_address_is_not_announced():
    here = Rendezvous.at("127.0.0.1:29500")
    assert (here.is_loopback, here.is_here) == (True, True)
    words = torchrun_arguments("m", [], 8, Distributed(nodes=2), here, log_dir=LOGS)
    assert not [word for word in words if word.startswith("--local-addr") or "is_host" in word]


@pytest.mark.parametrize("endpoint", ["node-1", "nobody.invalid:29500", ":29500:", "10.0.0.1:port"])
def test_a_rendezvous_that_cannot_be_reached(endpoint):
    with pytest.raises(LandfallError, match=r"distributed.rendezvous = .* cannot be reached") as caught:
        Rendezvous.at(endpoint)
    assert "host:port" in caught.value.hint


def test_several_machines_without_a_rendezvous(notes):
    with pytest.raises(LandfallError, match=r"distributed\.nodes = 2"):
        launched(pytest.fail, 8, Distributed(nodes=2), notes)


def test_gloo_uses_the_interface_to_the_first_machine(notes, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(Rendezvous, "at", lambda endpoint: FIRST)
    settings = Distributed(nodes=2, rendezvous=FIRST.endpoint)
    launched(lambda arguments: None, 1, settings, notes)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth0"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    launched(lambda arguments: None, 1, settings, notes)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "ib0"


def test_processes_are_limited_to_their_share_of_the_cores(notes, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("trainers.launching.usable_cores", lambda: 7)
    launched(lambda arguments: None, 2, Distributed(), notes)
    assert os.environ["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    launched(lambda arguments: None, 2, Distributed(), notes)
    assert os.environ["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "words, fault",
    [
        (["distributed.nodes=2", "distributed.min_nodes=3"], "min_nodes = 3 of nodes = 2"),
        (["distributed.nodes=2", "distributed.min_nodes=1"], "min_nodes = 1 with max_restarts = 0"),
    ],
)
def test_a_wrong_number_of_machines(workspace, words, fault):
    with pytest.raises(ConfigError, match=fault):
        load_config(local_config_file("patchtst"), words, root=workspace, environment={})


# ------------------------------------------------------------------------------------------------------- how it ended
def raising(error: Exception):
    def run(arguments):
        raise error

    return run


def failed(*codes: int, seconds_between: int = 0) -> ChildFailedError:
    """Processes in the order in which torchrun noticed that they ended."""
    failures = {rank: ProcessFailure(rank, 1000 + rank, code, "") for rank, code in enumerate(codes)}
    for rank, failure in failures.items():
        failure.timestamp = 1_800_000_000 + rank * seconds_between
    return ChildFailedError("m", failures)


@pytest.mark.parametrize(
    "code, expected", [(3, 3), (1, 1), (-9, 137), (-11, 1)], ids=["data", "error", "killed", "crash"]
)
def test_the_exit_code_is_that_of_the_process_that_failed(notes, code, expected):
    assert launched(raising(failed(code)), 2, Distributed(), notes) == expected


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_lost_connection_to_a_killed_process_does_not_count_as_a_failure(notes, seconds, caplog):
    error = failed(1, -signal.SIGKILL, seconds_between=seconds)
    assert launched(raising(error), 2, Distributed(), notes) == 137
    assert "process 2 of 2 was killed by SIGKILL" in caplog.text


@pytest.mark.parametrize("code, seconds", [(-signal.SIGKILL, 30), (-signal.SIGTERM, 0)])
def test_a_process_that_torchrun_ends_does_not_count_as_killed(notes, code, seconds):
    error = failed(3, code, seconds_between=seconds)
    assert launched(raising(error), 2, Distributed(), notes) == 3


@pytest.mark.parametrize("code", [75, 130])
def test_a_planned_stop_is_success_for_torchrun_and_keeps_its_exit_code(notes, code, monkeypatch):
    monkeypatch.setattr(elastic, "_is_connected", False)

    def run(arguments):
        elastic.record_connection()
        assert elastic.record_exit(code) == 0

    assert launched(run, 2, Distributed(max_restarts=3), notes) == code
    assert elastic.record_exit(code) == code, "outside of a job"


@pytest.mark.parametrize("code", [75, 130])
def test_a_stop_before_the_processes_are_connected_ends_the_others(notes, code, monkeypatch):
    monkeypatch.setattr(elastic, "_is_connected", False)

    def run(arguments):
        assert elastic.record_exit(code) == code, "torchrun must end the others"
        assert elastic.record_exit(code) == 0, "the others, and restarted ones"
        raise failed(code)

    assert launched(run, 2, Distributed(max_restarts=3), notes) == code


@pytest.mark.parametrize("code", [2, 3, 4])
def test_an_error_that_a_restart_repeats_is_not_restarted(notes, code):
    def run(arguments):
        assert elastic.final_exit_code() is None
        assert elastic.record_exit(code) == code, "torchrun must end the other processes"
        assert elastic.final_exit_code() == code
        raise failed(code)

    assert launched(run, 2, Distributed(max_restarts=3), notes) == code
    assert elastic.final_exit_code() is None


def test_restarted_processes_know_the_run_of_the_first(notes):
    def run(arguments):
        assert elastic.previous_run() is None
        elastic.record_run("run-1")
        assert elastic.previous_run() == "run-1"

    launched(run, 2, Distributed(max_restarts=3), notes)
    assert elastic.previous_run() is None
    assert list(notes.parent.iterdir()) == []
    elastic.record_run("run-2")
    assert elastic.previous_run() is None, "no job"


def test_a_crashed_process_is_restarted(notes):
    def run(arguments):
        assert elastic.record_exit(1) == 1
        assert elastic.final_exit_code() is None

    assert launched(run, 2, Distributed(max_restarts=3), notes) == 0


@pytest.mark.parametrize("number, saved, code", [("SIGTERM", 75, 75), ("SIGINT", 130, 130), ("SIGTERM", None, 1)])
def test_a_signal_is_resumable_only_with_a_checkpoint(notes, number, saved, code):
    def run(arguments):
        if saved:
            elastic.record_exit(saved)
        raise SignalException("stopped", signal.Signals[number])

    assert launched(run, 2, Distributed(), notes) == code


# ------------------------------------------------------------------------------------------------------------- recipes
# The commands of the documentation, with simulated hardware, up to the start of the processes.
RECIPES = {
    ("local=default", "local/devices=single_gpu"): ((A100, CPU), 1),
    ("trainer=multi_gpu", "local=hpc", "local/devices=multi_gpu", "devices=4"): ((A100, CPU), 4),
    ("trainer=kaggle_safe", "local=default", "local/devices=kaggle_t4"): ((T4, CPU), 1),
    ("trainer=kaggle_safe", "local=default", "local/devices=kaggle_a10"): ((A10, CPU), 1),
    ("trainer=kaggle_safe", "local=default", "local/devices=kaggle_l4"): ((L4, CPU), 4),
    ("trainer=multi_gpu", "local=hpc", "local/devices=hpc_a100", "devices=8"): ((A100, CPU), 8),
    ("trainer=multi_gpu", "local=hpc", "local/devices=hpc_a100", "devices=16"): ((A100, CPU), 8),
}


@pytest.mark.parametrize("stream", most_nightly(["patchtst", "swinmae"], but=1))
@pytest.mark.parametrize(
    "recipe, expected", most_nightly(RECIPES.items(), but=3), ids=[" ".join(recipe) for recipe in RECIPES]
)
def test_recipes_start_a_process_for_each_device(notes, workspace, stream, recipe, expected):
    found, count = expected
    config = load_config(local_config_file(stream), recipe, root=workspace, environment={}).config
    plan = DeviceManager(config, SimpleNamespace(detect_capabilities=lambda: list(found))).plan()
    assert (plan.kind, plan.count) == ("cuda", count)
    started = []
    module = f"trainers.train_{stream}_ssl"
    with patch("torch.distributed.run.run", started.append):
        assert launch(module, recipe, plan.count, config.distributed, notes=notes) == 0
    assert (started[0].nproc_per_node, started[0].training_script) == (str(count), module)
    assert started[0].training_script_args == list(recipe)


# ------------------------------------------------------------------------------------- processes that die, or are asked
_SLOW_TORCH = "import time\nprint('importing', flush=True)\ntime.sleep(30)\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs signals of POSIX")
def test_a_training_process_that_is_asked_to_stop_while_it_imports_torch_records_a_planned_stop(
    workspace, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("job")
    (folder / "torch.py").write_text(_SLOW_TORCH)
    environment = {**os.environ, "_LANDFALL_JOB": str(folder), "PYTHONPATH": f"{folder}{os.pathsep}{REPO_ROOT}"}
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--repo-root", str(workspace)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"importing\n"
        process.terminate()
    assert process.returncode == EXIT_RESUMABLE, "torchrun must end the others, which would wait for it"
    assert (folder / "exit_code").read_text() == str(EXIT_RESUMABLE)


@pytest.mark.nightly
@pytest.mark.skipif(os.name == "nt", reason="needs signals of POSIX")
@pytest.mark.parametrize(
    "what, restarts, code",
    [
        ("died", 1, EXIT_OK),
        pytest.param("died", 0, EXIT_KILLED, marks=pytest.mark.nightly),
        pytest.param("asked", 0, EXIT_RESUMABLE, marks=pytest.mark.nightly),
        pytest.param("asked", 1, EXIT_RESUMABLE, marks=pytest.mark.nightly),
    ],
)
def test_a_process_that_dies_while_data_is_read_is_restarted_and_one_that_is_asked_to_stop_ends_all(
    what, restarts, code, notes, tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    module = "tests.trainers.worker_that_stops"
    assert launch(module, [what, str(tmp_path)], 2, Distributed(max_restarts=restarts), notes=notes) == code
    starts = len(list(tmp_path.glob("started-0-*")))
    assert starts == (2 if what == "died" and restarts else 1)
    assert list(temporary.iterdir()) == []
