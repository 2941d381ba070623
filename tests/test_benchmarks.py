"""The benchmarks: their counts and outputs. No test depends on durations."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from benchmarks import busy, data, page
from benchmarks.demonstration import demonstration
from benchmarks.floor import Products, floor_seconds
from benchmarks.implementations import Implementation
from benchmarks.paired import Comparison, Task, compare
from benchmarks.run import write_results
from tests.support import REPO_ROOT
from tests.support.waiting import is_gone, until

SMALL = {
    "batch": 2, "channels": 3, "window": 32, "patch": 8, "width": 8, "heads": 2, "layers": 1, "hidden": 16,
}  # fmt: skip


def test_products_are_counted_by_shape_forwards_and_backwards():
    x, layer = torch.randn(5, 4), torch.nn.Linear(4, 3)
    with Products() as seen:
        layer(x).sum().backward()
    # The input needs no gradient: one product forwards, one for the weights.
    assert seen.counts == {((1, 5, 4, 3), torch.float32): 1, ((1, 3, 5, 4), torch.float32): 1}


def test_products_inside_fused_attention_are_counted():
    query, key, value = (torch.randn(2, 3, 256, 16, requires_grad=True) for _ in range(3))
    with Products() as seen:
        F.scaled_dot_product_attention(query, key, value).sum().backward()
    assert seen.counts[(6, 256, 16, 256), torch.float32] == 7


def test_a_lower_bound_is_a_time():
    assert floor_seconds(lambda: torch.randn(64, 64) @ torch.randn(64, 64), rounds=1) > 0


@pytest.mark.nightly
def test_two_processes_alternate(tmp_path):
    settings = {"sizes": SMALL, "arithmetic": "32"}
    ours = Task("Landfall", "benchmarks.patchtst:our_step", settings)
    theirs = Task("the same", "benchmarks.patchtst:our_step", {**settings, "drop_masked_tokens": True}, tuned=False)
    found = compare("small", ours, theirs, unit="windows", count=2, rounds=2, goal=1.0)
    assert found.ratio_range[0] <= found.ratio <= found.ratio_range[1]
    assert found.floor > 0
    assert found.memory_ratio > 0
    document = json.loads(write_results("patchtst", [found], tmp_path).read_text())
    assert document["comparisons"][0]["peer"] == "the same"
    assert "small" in page.page(tmp_path)


@pytest.mark.nightly
def test_an_implementation_that_cannot_start_is_reported():
    with pytest.raises(RuntimeError, match=r"benchmarks\.patchtst:no_such_step ended with status 1: AttributeError"):
        Implementation("benchmarks.patchtst:no_such_step", tuned=True)


@pytest.mark.parametrize("ratio_range, shown", [((1.0, 4.0), "| **2.0** (1.0 to 4.0) |"), ((2.0, 2.0), "| **2.0** |")])
def test_a_range_is_shown_if_there_was_more_than_one_round(tmp_path, ratio_range, shown):
    found = Comparison("t", "ours", "peer", "images", 10.0, 5.0, 2.0, ratio_range, 0.5, goal=3.0, floor=20.0)
    write_results("swinmae", [found], tmp_path)
    assert shown in page.page(tmp_path)
    assert "| 50% |" in page.page(tmp_path)
    page.plot_ratios(tmp_path / "ratios.png", tmp_path)
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


PARENT = """\
import signal, sys
from benchmarks.busy import busy
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
with busy(2) as processes:
    print(*(process.pid for process in processes), flush=True)
    if sys.argv[1:]:
        sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["itself", "SIGINT", "SIGKILL"])
def test_busy_processes_end_with_the_benchmark(end):
    words = [] if end == "itself" else ["wait"]
    command = [sys.executable, "-c", PARENT, *words]
    with subprocess.Popen(command, cwd=REPO_ROOT, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        if words:
            parent.send_signal(getattr(signal, end))
        until(lambda: all(map(is_gone, pids)))
        parent.kill()


@pytest.mark.nightly
def test_a_work_next_to_busy_processes_is_measured_and_written(tmp_path):
    found = busy.measured("scalograms", rounds=1, seconds=0.01)
    assert found.alone_per_second > 0
    assert {"one", "per_core", "two_at_once"} <= found.shares.keys()
    write_results("busy", [found], tmp_path)
    assert "| scalograms |" in page.page(tmp_path)
    write_results("busy", [replace(found, others=1.5)], tmp_path)
    assert "up to 1.5 cores" in page.page(tmp_path)


@pytest.mark.parametrize("maker", ["our_epoch", "loader_epoch", "patchtst_step", "swinmae_step"])
def test_implementations_of_the_data_path_work(maker, monkeypatch):
    monkeypatch.setattr(data, "CHANNELS", 3)
    settings = {"prepared": False} if maker.endswith("step") else {}
    getattr(data, maker)(**settings)()


def test_a_cached_table_gives_a_first_batch(tmp_path):
    data._write_table(tmp_path / "data" / "plant.csv", 12_000)
    folder = str(tmp_path)
    assert data.our_first_batch(folder)().shape == data.pandas_first_batch(folder)().shape == (16, 512, 64)


def test_the_page_equals_the_results():
    assert (REPO_ROOT / page.FILE).read_text(encoding="utf-8") == page.page()


@pytest.mark.nightly
def test_the_charts_find_the_faults_of_the_sample_chamber():
    """On a data seed that was not used to choose constants or to report figures."""
    found = demonstration("patchtst", 301)
    assert found["faults_total"] == 12
    assert found["faults_found"] >= 10
    assert found["false_events"] <= found["recorded_hours"]
    assert found["auroc"] >= 0.9


@pytest.mark.nightly
def test_the_charts_find_the_faults_of_the_sample_rig():
    found = demonstration("swinmae", 301)
    assert (found["faults_total"], found["healthy_recordings"]) == (8, 4)
    assert found["faults_found"] >= 7
    assert found["healthy_with_alarms"] <= 1
