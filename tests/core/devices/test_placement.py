from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from core.devices import backend
from core.devices.compat import create_tensor, distribute_data, move_to_device
from core.errors import UsageError

CPU, ELSEWHERE = torch.device("cpu"), torch.device("meta")  # a device every torch has, and tensors really move to
Pair = namedtuple("Pair", "x name")


@dataclass
class Batch:
    x: torch.Tensor
    names: Any = None
    size: int = field(init=False, default=-1)

    def __post_init__(self):
        self.size = len(self.x)


@dataclass(frozen=True, slots=True)
class Sealed:
    x: torch.Tensor
    note: str = "unchanged"


# --------------------------------------------------------------------------------------------------------------- create
@pytest.mark.parametrize(
    "data, dtype",
    [
        (1.5, torch.float32),
        ([1.0, 2.0], torch.float32),
        (np.float64(2.0), torch.float32),
        (np.ones(3), torch.float32),
        (torch.ones(2, dtype=torch.float64), torch.float32),
        ([1, 2], torch.int64),
        (np.ones(3, dtype=np.int16), torch.int16),
        ([True, False], torch.bool),
        (torch.ones(2, dtype=torch.uint8), torch.uint8),
    ],
)
def test_floating_numbers_take_the_default_type_and_others_keep_theirs(data, dtype):
    tensor = create_tensor(data, "cpu")
    assert tensor.dtype == dtype
    assert tensor.tolist() == np.asarray(data).tolist()


def test_the_default_type_may_be_float64():
    torch.set_default_dtype(torch.float64)
    try:
        assert create_tensor(np.ones(2, dtype=np.float32), CPU).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_type_may_be_requested():
    assert create_tensor([1, 2], CPU, dtype=torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("data", [np.zeros(3, dtype=np.float32), torch.zeros(3, requires_grad=True)])
def test_a_created_tensor_shares_neither_memory_nor_history(data):
    tensor = create_tensor(data, CPU)
    assert not tensor.requires_grad
    tensor += 1
    assert data.tolist() == [0, 0, 0]


@pytest.mark.parametrize("array", [np.arange(4.0)[::-1], np.arange(4.0, dtype=">f8")[::-1], np.arange(8.0)[6::-2]])
def test_an_array_may_have_any_memory_layout(array):
    assert create_tensor(array, CPU).tolist() == array.tolist()


def test_a_tensor_is_created_on_the_requested_device():
    assert create_tensor([1.0], ELSEWHERE).device == ELSEWHERE


@pytest.mark.parametrize("data", [["a", "b"], None, [{}]])
def test_values_that_are_not_numbers_are_rejected(data):
    with pytest.raises(TypeError):
        create_tensor(data, CPU)


# ----------------------------------------------------------------------------------------------------------------- move
@pytest.mark.parametrize(
    "value, read",
    [
        (torch.ones(2), lambda v: v),
        ({"x": torch.ones(2)}, lambda v: v["x"]),
        (OrderedDict(a=1, x=torch.ones(2)), lambda v: v["x"]),
        ([torch.ones(2)], lambda v: v[0]),
        ((1, torch.ones(2)), lambda v: v[1]),
        (Pair(torch.ones(2), "n"), lambda v: v.x),
        (Batch(torch.ones(2)), lambda v: v.x),
        (Sealed(torch.ones(2)), lambda v: v.x),
        ({"deep": [(Sealed(torch.ones(2)), None)]}, lambda v: v["deep"][0][0].x),
    ],
)
def test_tensors_move_in_every_container(value, read):
    moved = move_to_device(value, ELSEWHERE)
    assert type(moved) is type(value)
    assert read(moved).device == ELSEWHERE
    assert read(value).device == CPU  # the original stays


def test_values_that_are_not_tensors_are_kept():
    names, array = ["a", "b"], np.ones(2)
    batch = defaultdict(list, x=torch.ones(2), names=names, array=array, nothing=None, text="x", pair=Pair(1, "n"))
    moved = move_to_device(batch, ELSEWHERE)
    assert moved["names"] == names
    assert moved["array"] is array
    assert (moved["nothing"], moved["text"], moved["pair"]) == (None, "x", Pair(1, "n"))
    assert moved["unheard of"] == []


def test_fields_outside_the_constructor_are_kept():
    batch = Batch(torch.ones(3), names=[torch.ones(1)])
    batch.size = 99
    moved = move_to_device(batch, ELSEWHERE)
    assert (moved.size, moved.names[0].device) == (99, ELSEWHERE)
    assert move_to_device(Sealed(torch.ones(1), note="kept"), ELSEWHERE).note == "kept"


@pytest.mark.parametrize("value", [torch.ones(2), None, "text", Batch])
def test_a_tensor_on_the_device_and_what_is_no_container_are_not_copied(value):
    assert move_to_device(value, "cpu") is value


class Travelling(torch.Tensor):
    """A tensor that records its transfers."""

    def pin_memory(self):
        self.way = ["pinned"]
        return self

    def to(self, device, non_blocking=False):
        self.way = [*getattr(self, "way", []), str(device), *(["not waited for"] if non_blocking else [])]
        return self


@pytest.mark.parametrize(
    "device, way",
    [
        ("cuda:1", ["pinned", "cuda:1", "not waited for"]),
        ("mps", ["mps"]),
        ("xpu:0", ["xpu:0"]),
        ("cpu", ["cpu"]),
    ],
)
def test_memory_is_pinned_only_for_cuda(device, way):
    tensor = torch.ones(2).as_subclass(Travelling)
    assert move_to_device([tensor], device)[0].way == way


def test_a_complete_data_set_is_not_pinned(monkeypatch):
    monkeypatch.setattr(backend, "LARGEST_PINNED", 7)
    tensor = torch.ones(2).as_subclass(Travelling)
    assert move_to_device(tensor, "cuda").way == ["cuda"]


# ----------------------------------------------------------------------------------------------------------- distribute
@pytest.mark.parametrize(
    "samples, devices, sizes",
    [(8, 2, [4, 4]), (10, 3, [4, 3, 3]), (7, 4, [2, 2, 2, 1]), (2, 4, [1, 1]), (5, 1, [5]), (0, 3, [])],
)
def test_a_batch_is_split_in_order_and_keeps_its_remainder(samples, devices, sizes):
    batch = torch.arange(2 * samples).reshape(samples, 2)
    shares = distribute_data(batch, [CPU] * devices)
    assert [len(share) for share in shares] == sizes
    assert torch.equal(torch.cat([batch[:0], *shares]), batch)


def test_each_share_is_on_its_device():
    shares = distribute_data({"x": torch.ones(3)}, ["cpu", "meta"])
    assert [(len(share["x"]), share["x"].device) for share in shares] == [(2, CPU), (1, ELSEWHERE)]


def test_nested_batches_are_split_consistently():
    batch = {
        "x": torch.arange(5),
        "pair": Pair(torch.arange(10).reshape(5, 2), "one name"),
        "deep": [Sealed(torch.arange(5) * 10), None],
        "array": np.arange(5),
        "names": ["a", "b", "c", "d", "e"],
        "rows": (1, 2, 3, 4, 5),
        "rate": torch.tensor(0.5),
        "limits": (1, 2),
    }
    first, second = distribute_data(batch, [CPU, CPU])
    assert first["x"].tolist() == [0, 1, 2]
    assert second["x"].tolist() == [3, 4]
    assert second["pair"].x.tolist() == [[6, 7], [8, 9]]
    assert second["pair"].name == "one name"
    assert second["deep"][0].x.tolist() == [30, 40]
    assert second["deep"][1] is None
    assert second["array"].tolist() == [3, 4]
    assert (first["names"], second["names"]) == (["a", "b", "c"], ["d", "e"])
    assert (first["rows"], second["rows"]) == ((1, 2, 3), (4, 5))
    assert second["rate"].item() == 0.5
    assert second["limits"] == (1, 2)


def test_a_list_of_tensors_is_not_a_list_of_samples():
    (x, y), _ = distribute_data([torch.arange(2), torch.arange(2) + 10], [CPU, CPU])
    assert (x.tolist(), y.tolist()) == ([0], [10])


def test_a_named_tuple_of_settings_is_not_a_list_of_samples():
    shares = distribute_data((torch.arange(2), Pair(1, "n")), [CPU, CPU])
    assert [pair for _, pair in shares] == [Pair(1, "n"), Pair(1, "n")]


def test_a_list_of_plain_samples_is_split():
    assert distribute_data(["a", "b", "c"], [CPU, CPU]) == [["a", "b"], ["c"]]


def test_shares_on_the_same_device_are_views():
    batch = torch.zeros(4)
    distribute_data(batch, [CPU, CPU])[1][0] = 1
    assert batch.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "batch, devices, problem",
    [
        (torch.ones(3), [], "over no devices"),
        ({"x": torch.ones(3), "y": torch.ones(4)}, [CPU], "parts of 3, 4 samples"),
        ({"text": "x", "rate": torch.tensor(1.0)}, [CPU], "no samples"),
        (None, [CPU], "no samples"),
    ],
)
def test_a_batch_that_cannot_be_split_is_rejected(batch, devices, problem):
    with pytest.raises(UsageError, match=problem):
        distribute_data(batch, devices)
