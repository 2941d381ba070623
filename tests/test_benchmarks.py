"""The benchmarks themselves: what they count and write. No test looks at how long anything took."""

import json

import pytest
import torch
import torch.nn.functional as F

from benchmarks import page
from benchmarks.floor import Products, floor_seconds
from benchmarks.pairs import Comparison, Task, compare
from benchmarks.run import write_results
from benchmarks.sides import Side
from tests.support import REPO_ROOT

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


def test_a_floor_is_time():
    assert floor_seconds(lambda: torch.randn(64, 64) @ torch.randn(64, 64), rounds=1) > 0


def test_two_processes_work_in_turn(tmp_path):
    settings = {"sizes": SMALL, "arithmetic": "32"}
    ours = Task("Landfall", "benchmarks.patchtst:our_step", settings)
    theirs = Task("the same", "benchmarks.patchtst:our_step", {**settings, "encoder_sees": "visible"}, tuned=False)
    found = compare("small", ours, theirs, unit="windows", count=2, rounds=2, goal=1.0)
    assert found.ratio_range[0] <= found.ratio <= found.ratio_range[1]
    assert found.floor > 0
    assert found.memory_ratio > 0
    document = json.loads(write_results("patchtst", [found], tmp_path).read_text())
    assert document["comparisons"][0]["peer"] == "the same"
    assert "small" in page.page(tmp_path)


def test_a_side_that_cannot_start_is_told():
    with pytest.raises(RuntimeError, match=r"benchmarks\.patchtst:no_such_step ended with status 1"):
        Side("benchmarks.patchtst:no_such_step", tuned=True)


@pytest.mark.parametrize("ratio, told", [(2.0, "| 3 (missed) |"), (3.5, "| 3 |")])
def test_a_missed_goal_is_said(tmp_path, ratio, told):
    found = Comparison("t", "ours", "peer", "images", 10.0, 5.0, ratio, (1.0, 4.0), 0.5, goal=3.0, floor=20.0)
    write_results("swinmae", [found], tmp_path)
    assert told in page.page(tmp_path)
    assert "| 50% |" in page.page(tmp_path)


def test_the_page_is_that_of_the_results():
    assert (REPO_ROOT / page.FILE).read_text(encoding="utf-8") == page.page()
