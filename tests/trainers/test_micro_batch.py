import json
import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.support import REPO_ROOT
from tests.trainers.machines import Machine, level
from trainers.micro_batch import EQUAL, HEADROOM, Probe, ProbeCache, ProbeResult, agree


# --------------------------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize("limit_mb", [120, 150, 200, 400, 1000, 3000])
@pytest.mark.parametrize("group", [1, 8])
def test_no_batch_over_the_limit_is_run(limit_mb, group):
    machine = Machine()
    result = machine.probe(limit_mb=limit_mb, group=group)
    allowed = limit_mb * (1 - HEADROOM)
    assert max(map(machine.peak_of, machine.ran)) <= allowed
    assert machine.peak_of(result.micro) == result.peak_mb <= allowed
    assert machine.peak_of(result.largest) <= allowed
    assert result.largest == 1024 or machine.peak_of(result.largest + 1) > allowed
    assert result.line.mb_per_window == pytest.approx(machine.per_window)


def test_more_memory_never_means_a_smaller_batch():
    results = [Machine().probe(limit_mb=limit_mb) for limit_mb in range(115, 3000, 37)]
    assert [result.largest for result in results] == sorted(result.largest for result in results)
    assert [result.micro for result in results] == sorted(result.micro for result in results)


def test_an_unpredicted_peak_counts():
    """Memory seems constant below the size of the gradients, and grows above it."""
    machine = Machine(gradients=20.0)
    result = machine.probe(limit_mb=168)  # 151 allowed; 32 windows take 164, but 4, 8 and 16 predict 148
    assert machine.ran[-1] == 32
    assert (result.trials[-1].fits, result.trials[-1].peak_mb) == (False, 164.0)
    assert result.trials[-1].predicted_mb < 151
    assert 16 <= result.largest < 32
    assert result.micro == 16
    assert "16: 32 used 164 MiB" in result.reason


def test_growth_ends_at_the_needed_size_without_a_limit():
    machine = Machine(seconds=level(10_000))
    result = machine.probe(largest=100)
    assert (result.micro, result.largest, max(machine.ran)) == (64, 100, 64)
    assert "more than 100" in result.reason


def test_running_out_of_memory_counts_as_too_large():
    machine = Machine(capacity=300, seconds=level(10_000))
    result = machine.probe()
    assert (result.micro, machine.ran[-1]) == (64, 128)
    assert 64 <= result.largest < 128
    assert (result.trials[-1].peak_mb, result.trials[-1].fits) == (None, False)
    assert "128 ran out of memory" in result.reason


def test_other_errors_do_not_count_as_out_of_memory():
    machine = Machine()

    def broken(size: int) -> None:
        raise RuntimeError("expected scalar type Float but found Half")

    with pytest.raises(RuntimeError, match="found Half"):
        Probe(broken, machine.validation_step, machine, limit_mb=None, largest=8).run()


@pytest.mark.parametrize("machine, limit_mb", [(Machine(), 105), (Machine(capacity=50), None)])
def test_checkpointing_is_requested_if_no_window_fits(machine, limit_mb):
    result = machine.probe(limit_mb=limit_mb)
    assert (result.needs_checkpointing, result.micro, result.largest) == (True, 1, 0)
    assert set(machine.ran) == {1}
    assert ("1 ran out of memory" if limit_mb is None else "1 used 102 MiB (limit 105 MiB less 10%)") in result.reason


# ---------------------------------------------------------------------------------------------------------------- speed
def test_the_smallest_of_the_fastest_sizes_is_chosen():
    machine = Machine(seconds=level(32, power=1.2))
    result = machine.probe(limit_mb=100_000, largest=4096)
    assert result.micro == 32
    assert result.seconds_per_step == pytest.approx(0.01)
    assert max(machine.ran) == 128, "two doublings without growth are enough"
    assert result.largest == 4096
    assert "throughput no longer grew" in result.reason


@pytest.mark.parametrize("gain, micro", [(EQUAL / 2, 32), (EQUAL * 2, 64)])
def test_a_larger_batch_must_be_faster_to_be_chosen(gain, micro):
    machine = Machine(seconds=lambda size: {32: 1.0, 64: 2.0 / (1 + gain)}.get(size, 100.0))
    assert machine.probe(largest=64).micro == micro


def test_a_size_beyond_the_time_budget_is_not_started():
    machine = Machine(seconds=level(1, power=0.8))  # each doubling pays, so that only time ends it
    result = machine.probe(budget_s=5.0, largest=2**20)
    assert 1.5 < machine.now < 5.0
    assert result.micro == max(machine.ran) > 16
    assert f"{2 * result.micro} would exceed the 5 s" in result.reason


def test_complete_groups_are_preferred_with_any_budget():
    machine = Machine(seconds=lambda size: 1.0 * size)
    result = machine.probe(group=8, budget_s=1.0)
    assert machine.ran == [1, 1, 8, 8], "no more steps than it takes: a first and a timed one"
    assert result.micro == 8


def test_smaller_batches_are_used_if_no_group_fits():
    machine = Machine(per_window=10)
    result = machine.probe(group=8, limit_mb=170)  # 153 allowed: five windows
    assert (result.micro, result.largest) == (4, 5)


def test_a_group_larger_than_the_need_is_allowed():
    assert Machine().probe(group=8, largest=5).micro == 4


# ---------------------------------------------------------------------------------------------------------- remembering
def test_a_result_survives_json():
    for result in (Machine().probe(limit_mb=400), Machine(capacity=50).probe(), Machine(capacity=300).probe()):
        assert ProbeResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


def test_the_cache_contains_only_earlier_requests(tmp_path):
    cache = ProbeCache(tmp_path / "cache" / "probe.json")
    facts = {"device": "a GPU", "precision": "32"}
    result = Machine().probe(limit_mb=400)
    assert cache.get(facts) is None
    cache.put(facts, result)
    cache.put({**facts, "precision": "bf16-mixed"}, Machine().probe(limit_mb=200))
    assert ProbeCache(cache.path).get(dict(reversed(facts.items()))) == result
    assert cache.get({**facts, "device": "another GPU"}) is None


@pytest.mark.parametrize("content", ["", "{ torn", "[1, 2]", "entry"])
def test_a_damaged_cache_is_replaced_with_a_warning(tmp_path, caplog, content):
    cache, result = ProbeCache(tmp_path / "probe.json"), Machine().probe(limit_mb=400)
    if content == "entry":
        cache.put({"a": 1}, result)
        content = cache.path.read_text().replace('"micro"', '"macro"')
    cache.path.write_text(content)
    assert cache.get({"a": 1}) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "measuring again" in caplog.text
    cache.put({"a": 1}, result)
    assert cache.get({"a": 1}) == result


def answers_of(commands: Iterable[list[str]]) -> list:
    """The JSON output of the commands, which run in parallel."""
    running = [subprocess.Popen(command, cwd=REPO_ROOT, stdout=subprocess.PIPE) for command in commands]
    printed = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return [json.loads(text) for text in printed]


# ---------------------------------------------------------------------------------------------------- several processes
AGREE = """
import json, sys
from dataclasses import replace
from torch import distributed
from trainers.micro_batch import agree
from tests.trainers.machines import Machine, level

rank, store = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
own = Machine(seconds=level(10_000)).probe(limit_mb=(400, 200)[rank])
agreed = agree(own)
starved = agree(replace(own, needs_checkpointing=rank == 1))
distributed.destroy_process_group()
print(json.dumps([own.to_json(), agreed.to_json(), starved.needs_checkpointing]))
"""


@pytest.mark.nightly
def test_processes_use_the_smallest_result(tmp_path):
    answers = answers_of([sys.executable, "-c", AGREE, rank, str(tmp_path / "store")] for rank in "01")
    owns, agreed = ([ProbeResult.from_json(answer[which]) for answer in answers] for which in (0, 1))
    assert [own.micro for own in owns] == [128, 32]
    assert [result.micro for result in agreed] == [32, 32]
    assert [result.largest for result in agreed] == [owns[1].largest] * 2
    assert agreed[0].peak_mb == Machine().peak_of(32)
    assert agreed[1] == owns[1]
    assert [starved for _, _, starved in answers] == [True, True]


def test_a_single_process_uses_its_own_result():
    result = Machine().probe(limit_mb=400)
    assert agree(result) is result


# --------------------------------------------------------------------------------------------------------- this machine
# A PatchTST whose activations dwarf its weights, in control groups that let the process grow by so many MB.
LIMITED = """
import itertools, json, sys
from pathlib import Path
import torch
from core.config.schema import PatchTSTModel
from core import host
from core.devices.backend import backend
from core.devices.memory import is_out_of_memory
from trainers.micro_batch import HEADROOM, Probe
from core.models.patchtst import PatchTST

torch.set_num_threads(1)
settings = PatchTSTModel(patch_length=8, d_model=32, num_heads=4, num_layers=2, d_ff=64)
model = PatchTST(settings, num_channels=16, window=256)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
cpu, root = backend("cpu"), Path(sys.argv[1])
(root / "proc/self").mkdir(parents=True)
(root / "sys/fs/cgroup/job").mkdir(parents=True)
(root / "proc/self/cgroup").write_text("0::/job")
(root / "proc/self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw")

def train_step(size):
    optimizer.zero_grad()
    model(torch.ones(size, 256, 16)).loss.backward()
    optimizer.step()

@torch.no_grad()
def validation_step(size):
    model(torch.ones(size, 256, 16))

def refused(size):
    try:
        train_step(size)
    except RuntimeError as error:
        return is_out_of_memory(error)
    return False

def answer(growth_mb):
    cpu.empty_cache()
    held_mb = cpu.reserved_mb()
    limit_mb = round((held_mb + growth_mb) / (1 - HEADROOM))  # builds of torch differ in the memory that they hold
    (root / "sys/fs/cgroup/job/memory.max").write_text(str(limit_mb * 2**20))
    limit_mb = host.memory_mb(root).total_mb
    clock = itertools.count().__next__  # every step takes a second, so only memory ends the growth
    with cpu.limited(limit_mb):
        result = Probe(train_step, validation_step, cpu, limit_mb, largest=128, budget_s=1e3, clock=clock).run()
        cpu.reset_peak_memory()
        train_step(result.micro)
        train_step(result.micro)
        peak_mb = cpu.peak_memory_mb()
        wall = refused(8 * result.largest)
    return {"result": result.to_json(), "held_mb": held_mb, "limit_mb": limit_mb, "peak_mb": peak_mb, "wall": wall}

train_step(8)
print(json.dumps([answer(growth_mb) for growth_mb in (100, 200)]))
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """Results of the probe in control groups that allow 100 MiB and 200 MiB above the present memory."""
    if sys.platform != "linux":
        pytest.skip("only Linux can limit the memory of a process")
    return answers_of([[sys.executable, "-c", LIMITED, str(tmp_path_factory.mktemp("root"))]])[0]


@pytest.mark.nightly
def test_the_chosen_batch_stays_within_the_memory_limit(limited):
    for answer in limited:
        result = ProbeResult.from_json(answer["result"])
        assert answer["peak_mb"] < answer["limit_mb"]
        assert all(trial.peak_mb < answer["limit_mb"] for trial in result.trials), (
            "the fitted line predicted it in time"
        )
        assert answer["wall"], "the limit is real: eight times the batch is refused"


@pytest.mark.nightly
def test_more_memory_allows_a_larger_batch(limited):
    small, large = (answer["result"]["largest"] for answer in limited)
    assert 8 <= small < large


@pytest.mark.nightly
def test_the_linear_model_predicts_the_measured_peak(limited):
    """Compares the growth above the present memory: interpreter and torch would hide an error of the line."""
    result, held_mb = ProbeResult.from_json(limited[-1]["result"]), limited[-1]["held_mb"]
    last = result.trials[-1]
    assert last.peak_mb - held_mb > 50
    assert last.predicted_mb - held_mb == pytest.approx(last.peak_mb - held_mb, rel=0.25)
    assert limited[-1]["peak_mb"] == pytest.approx(result.peak_mb, rel=0.10)
