"""Runs of several processes, on one machine and on two, compared with the run of one process."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from core import checkpoint
from core.config.compose import load_config, local_config_file
from core.data.dataset import load_stream_data
from core.data.inputs import Inputs
from core.errors import UsageError
from core.runlog import EpochRecord, read_metrics, read_status
from inference.scoring import load_scoring_model
from tests.support.waiting import until
from tests.trainers.conftest import TINY
from tests.trainers.objectives import CPU
from tests.trainers.process_groups import TOGETHER, assert_same_curve, finish, history, start
from trainers.distributed import World
from trainers.resuming import checkpoint_to_resume
from trainers.run import train

pytestmark = pytest.mark.slow

# With batch normalisation some gradients are rounding errors only, which the optimizer scales to full steps.
PLAIN = (*TINY, "data.stride=4", "model.norm=layer", "model.dropout=0", "training.epochs=3")
# The last step of an epoch has one window, so none for the second of two processes.
UNEVEN = "training.windows_per_epoch=97"
# Long enough to be interrupted.
LONG = ("data.stride=2", "training.epochs=5", "logging.every_steps=1")
VIBRATION = (
    *("device.prefer=cpu", "precision='32'", "max_threads=1", "logging.progress='off'", "logging.tensorboard=false"),
    *("data.window=256", "data.stride=128", "data.guard=0", "scalogram.image_size=32", "model.window_size=4"),
    *("model.embed_dim=8", "model.depths=[1,1]", "model.num_heads=[2,2]", "model.decoder_depths=[1]"),
    *("data.sampling_rate_hz=1000", "training.epochs=2", "training.learning_rate=0.001"),
)


# ------------------------------------------------------------------------------------------------------------ numbering
def test_a_process_that_torchrun_did_not_start_is_single():
    world = World.from_environment({"RANK": "3"})
    assert (world.rank, world.size, world.is_main, world.is_single) == (0, 1, True, True)


def test_torchrun_numbers_its_processes():
    world = World.from_environment({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert world == World(rank=3, size=4, local_rank=1, local_size=2)
    assert not world.is_main


def test_the_shards_of_all_processes_are_complete():
    items = torch.arange(10)
    shares = [World(rank, 4, rank).shard(items) for rank in range(4)]
    assert torch.equal(torch.cat(shares), items)
    assert {len(share) for share in shares} == {2, 3}


# ----------------------------------------------------------------------------------------------------------------- jobs
def alone(root: Path, words: Sequence[str], stream: str = "patchtst") -> tuple[EpochRecord, ...]:
    """The history of a run in this process."""
    loaded = load_config(local_config_file(stream), words, root=root, environment={})
    return train(loaded, root=root).history


def distance(tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> float:
    """The norm of all differences relative to that of the expected values. AdamW scales the rounding of single small
    gradients up, which depends on the processor."""
    assert tensors.keys() == expected.keys()
    differences, values = (
        torch.cat([tensor.flatten() for tensor in each])
        for each in ([tensors[name] - expected[name] for name in expected], expected.values())
    )
    return float(differences.norm() / values.norm())


def learned(root: Path) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The weights that have a gradient, and the output on the validation windows.

    The key bias of attention has none: it adds the same number to all logits of a query, and softmax removes it. Its
    computed gradient is rounding error, which AdamW scales up to full steps. No output depends on it.
    """
    scoring = load_scoring_model(root / "checkpoints/patchtst_ssl.pt", CPU)
    data = load_stream_data(
        scoring.config, root=root, splits=("validation",), scaler=scoring.scaler, run_id=scoring.run_id
    )
    windows = Inputs(data.splits["validation"], scoring.transform, CPU.device)
    output, _ = scoring.model.inpaint(windows.batch(torch.arange(len(windows))))
    weights = scoring.model.state_dict()
    for name in [name for name in weights if name.endswith("qkv.bias")]:
        query, _, value = weights.pop(name).chunk(3)
        weights |= {f"{name} of queries": query, f"{name} of values": value}
    return weights, output


def run_folder(root: Path) -> Path:
    (folder,) = (root / "runs/patchtst_ssl").glob("2*")
    return folder


def wait_for_epoch(root: Path, epoch: int, job: subprocess.Popen) -> None:
    """Waits until the run has logged some steps after it."""

    def has_logged() -> bool:
        folders = list((root / "runs/patchtst_ssl").glob("2*"))
        status = read_status(folders[0]) if folders else None
        return status is not None and status["step"] > epoch * status["steps"] / status["epochs"] + 2

    until(lambda: has_logged() or job.poll() is not None, patience_s=300)
    assert job.poll() is None, f"ended before epoch {epoch}: {finish(job)}"


def epochs_resumed_after(err: str, folder: Path) -> int:
    return int(re.search(rf"resuming {folder.name} after (\d+) epochs", err)[1])


def process_of_rank(job: subprocess.Popen, rank: int) -> psutil.Process:
    ranks = psutil.Process(job.pid).children(recursive=True)
    return next(process for process in ranks if process.environ().get("RANK") == str(rank))


# -------------------------------------------------------------------------------------------------------- started again
def test_restarted_processes_resume_their_own_run(plant):
    alone(plant, [*PLAIN, "training.epochs=1"])
    run_id, last = run_folder(plant).name, plant / "checkpoints/patchtst_ssl.last.pt"

    def choice(resume: str, of_run: str | None, **started: bool) -> Path | None:
        config = load_config(local_config_file("patchtst"), [*PLAIN, f"training.resume={resume}"], root=plant).config
        return checkpoint_to_resume(config, plant, of_run, **started)

    assert choice("never", run_id) is None
    assert choice("never", run_id, is_restarted=True) == last
    assert choice("never", "another", is_restarted=True) is None, "its own run has saved nothing yet"
    assert choice("auto", "another", is_restarted=True) == last
    earlier = plant / "checkpoints/earlier.pt"
    for suffix in (".pt", ".json"):
        shutil.copy(last.with_suffix(suffix), earlier.with_suffix(suffix))
    assert choice("checkpoints/earlier.pt", "another") == earlier
    assert choice("checkpoints/earlier.pt", "another", is_restarted=True) == last, "which resumes that run"


def test_machines_that_see_different_checkpoints_are_an_error(plant, monkeypatch):
    monkeypatch.setattr(
        World, "gather", lambda world, value: [value, (None, None) if type(value) is tuple else "other"]
    )
    with pytest.raises(UsageError, match="different checkpoints"):
        alone(plant, PLAIN)


# ------------------------------------------------------------------------------------------------------- the same curve
@pytest.mark.nightly
def test_two_processes_learn_what_one_learns(plant):
    """The same losses with the same windows in a step, the same weights, and the same output."""
    expected = alone(plant, [*PLAIN, UNEVEN])
    expected_weights, expected_output = learned(plant)
    for strategy in ("ddp", "fsdp"):
        others = ("training.promote=always", f"distributed.strategy={strategy}")  # the losses differ by their rounding
        out, _ = finish(start(plant, [*PLAIN, UNEVEN, *TOGETHER, *others]))
        assert json.loads(out)["epochs"] == 3, "one process reports"
        assert_same_curve(expected, history(plant))
        described = checkpoint.verify(plant / "checkpoints/patchtst_ssl.pt")
        assert (described["hardware"]["count"], described["hardware"]["batch"]["effective"]) == (2, 8)
        weights, output = learned(plant)
        assert distance(weights, expected_weights) < 1e-4
        assert distance({"output": output}, {"output": expected_output}) < 1e-4


@pytest.mark.nightly
def test_two_processes_learn_images_as_one_does(workspace):
    folder = workspace / "data" / "vib"
    folder.mkdir(parents=True)
    waves = np.sin(np.arange(12_000)[:, None] * np.array([0.31, 0.17, 0.05]))
    noise = np.random.default_rng(5).normal(size=waves.shape)
    np.save(folder / "train_0.npy", (waves + 0.1 * noise).astype(np.float32))
    expected = alone(workspace, [*VIBRATION, "training.batch_size=8"], "swinmae")
    finish(start(workspace, [*VIBRATION, *TOGETHER], "swinmae"))
    assert_same_curve(expected, history(workspace, "swinmae"))


@pytest.mark.nightly
# -------------------------------------------------------------------------------------------------------------- elastic
def test_a_killed_process_loses_no_finished_epoch(plant, tmp_path):
    """All processes restart from the last checkpoint, and the log continues without a gap. Here each process holds a
    shard of the weights (FSDP); below, on two machines, each holds all (DDP)."""
    other = tmp_path / "other"
    shutil.copytree(plant, other)
    words = [*PLAIN, *LONG]
    expected = alone(other, words)

    job = start(plant, [*words, *TOGETHER, "distributed.max_restarts=2", "distributed.strategy=fsdp"])
    wait_for_epoch(plant, 2, job)
    process_of_rank(job, 1).kill()
    _, err = finish(job)
    assert_same_curve(expected, history(plant))
    done = epochs_resumed_after(err, run_folder(plant))
    assert 2 <= done < 5
    records = read_metrics(run_folder(plant) / "metrics.jsonl")
    assert [record["epoch"] for record in records if record["kind"] == "epoch"] == [1, 2, 3, 4, 5]
    steps = [record["step"] for record in records if record["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    for number in range(1, done + 1):
        assert err.count(f" epoch {number}/5: ") == 1, "repeated"


@pytest.mark.nightly
def test_until_done_resumes_after_a_kill_without_restarts_of_torchrun(plant):
    job = start(plant, [*PLAIN, *LONG, *TOGETHER, "distributed.max_restarts=0", "--until-done"])
    wait_for_epoch(plant, 1, job)
    process_of_rank(job, 1).kill()
    _, err = finish(job)
    assert "process 2 of 2 was killed by SIGKILL" in err
    assert "killed by SIGKILL: restarting in 1 s" in err
    assert [record.epoch for record in history(plant)] == [1, 2, 3, 4, 5]
    assert 1 <= int(re.search(r"resuming \S+ after (\d+) epochs", err)[1]) < 5


@pytest.mark.nightly
def test_a_planned_stop_is_not_restarted_and_one_process_resumes_it(plant, tmp_path):
    """A signal to one ends both, with 75 and without a restart; one process then trains on the remaining windows."""
    other = tmp_path / "other"
    shutil.copytree(plant, other)
    words = [*PLAIN, *LONG, "training.windows_per_epoch=201"]
    expected = alone(other, words)

    job = start(plant, [*words, *TOGETHER, "distributed.max_restarts=2"])
    wait_for_epoch(plant, 1, job)
    process_of_rank(job, 1).send_signal(signal.SIGTERM)
    _, err = finish(job, expected=75)
    assert err.count("connected by gloo") == 1
    assert read_status(run_folder(plant))["state"] == "stopped"
    assert_same_curve(expected, alone(plant, [*words, "training.resume=auto"]))


@pytest.mark.nightly
@pytest.mark.parametrize("restarts", [0, 2])
def test_a_signal_to_a_process_that_is_not_connected_ends_all(plant, restarts):
    job = start(plant, [*PLAIN, *LONG, *TOGETHER, f"distributed.max_restarts={restarts}"])

    def importing() -> psutil.Process | None:
        """The second process as soon as it imports torch: from before that on, it heeds signals."""
        with contextlib.suppress(StopIteration, psutil.Error):
            second = process_of_rank(job, 1)
            return second if any("libtorch" in library.path for library in second.memory_maps()) else None

    until(importing).send_signal(signal.SIGTERM)
    _, err = finish(job, expected=75)
    assert "connected by gloo" not in err


@pytest.mark.nightly
def test_a_wrong_configuration_is_not_restarted(plant):
    words = [*PLAIN, *TOGETHER, "distributed.max_restarts=1", "data.splits.train.files=[data/fdc/none_*.csv]"]
    _, err = finish(start(plant, words), expected=3)
    assert "data/fdc/none_*.csv" in err
    assert err.count("connected by gloo") == 1, "the restarted processes ended before they did anything"


# --------------------------------------------------------------------------------------------------------- two machines
@pytest.fixture
def two_machines() -> Iterator[list[list[str]]]:
    """Command prefixes that run a command on one of two machines: connected network namespaces of Linux."""
    if sys.platform != "linux" or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux, the command ip, and root")
    names = [f"landfall-{os.getpid()}-{number}" for number in (1, 2)]
    first, second = names

    def ip(*words: str) -> None:
        result = subprocess.run(["ip", *words], capture_output=True, text=True)
        if result.returncode:
            pytest.skip(f"ip {' '.join(words)}: {result.stderr.strip()}")

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", first, "type", "veth", "peer", "name", "cable", "netns", second)
        for number, name in enumerate(names, start=1):
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@pytest.mark.nightly
def test_two_machines_learn_what_one_process_learns(plant, two_machines, tmp_path):
    """They know only their addresses, and continue after a process was killed on the second."""
    other = tmp_path / "other"
    shutil.copytree(plant, other)
    words = [*PLAIN, *LONG]
    expected = alone(other, words)
    words += ["distributed.nodes=2", "distributed.rendezvous=10.77.0.1:29500", "distributed.max_restarts=1"]
    jobs = [start(plant, [*words, "training.batch_size=4"], before=machine) for machine in two_machines]
    wait_for_epoch(plant, 1, jobs[0])
    process_of_rank(jobs[1], 1).kill()
    described = [finish(job) for job in jobs]
    assert [bool(out) for out, _ in described] == [True, False], "the first process reports"
    assert epochs_resumed_after(described[0][1], run_folder(plant)) >= 1
    assert_same_curve(expected, history(plant))
