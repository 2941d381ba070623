"""Checks that two processes run together: `torchrun … -m tests.trainers.distributed_checks ROOT OUT`.

Each check takes the world and a function that makes a configuration, and asserts in both processes. OUT/<rank>.json
gets the error of each, or null. `test_distributed_objective.py` starts it and reports.
"""

from __future__ import annotations

import copy
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.profiler import ProfilerActivity, profile

from core.config.execution import Distributed
from core.config.schema import AnyConfig
from core.data.inputs import Inputs
from core.errors import LandfallError
from core.reproducibility import generator
from tests.trainers.objectives import (
    CPU,
    NUM_WINDOWS,
    Cramped,
    assert_same,
    config_of,
    context_of,
    gradients,
    inputs_with_gaps,
    model_of,
    objective_of,
)
from trainers.distributed import World, process_group
from trainers.objective import Objective
from trainers.optimizer import build_optimizer

Configure = Callable[..., AnyConfig]
CHECKS: dict[str, Callable[[World, Configure], None]] = {}
BATCH_NORM = ("model.norm=batch", "model.norm_windows=4")
FSDP = "distributed.strategy=fsdp"


def check(function: Callable[[World, Configure], None]) -> Callable[[World, Configure], None]:
    CHECKS[function.__name__] = function
    return function


def assert_one_step_is_that_of_one_process(
    world: World, config: AnyConfig, num_windows: int, micro: int, **cramped: int
) -> Objective:
    """Loss, gradients and running statistics over the windows, and the joint objective. most: of memory."""
    alone, together = model_of(config), model_of(config)
    index_b = torch.randperm(NUM_WINDOWS, generator=torch.Generator().manual_seed(3))[:num_windows]
    loss = objective_of(alone, config, NUM_WINDOWS).backward(inputs_with_gaps(), index_b, "masks", 0, 0)
    tight = Cramped(together, **cramped) if cramped else together
    objective = objective_of(tight, config, micro, world)
    for _ in range(4):  # two trial steps, then normal steps
        for buffer, before in zip(together.buffers(), model_of(config).buffers(), strict=True):
            buffer.copy_(before)
        tight.zero_grad(set_to_none=True)
        joint_loss = objective.backward(inputs_with_gaps(), index_b, "masks", 0, 0)
        assert joint_loss.item() == pytest.approx(loss.item(), rel=1e-5)
        assert_same(gradients(alone), gradients(together))
        assert_same(dict(alone.named_buffers()), dict(together.named_buffers()))
    return objective


# ------------------------------------------------------------------------------------------------------- the same step
@check
def a_step_with_unequal_shards(world: World, configure: Configure) -> None:
    """13 windows are 7 and 6, in micro-batches of 2: the second process has one micro-batch less."""
    assert_one_step_is_that_of_one_process(world, configure("model.norm=layer"), num_windows=13, micro=2)


@check
def batch_statistics_of_all_processes(world: World, configure: Configure) -> None:
    assert_one_step_is_that_of_one_process(world, configure(*BATCH_NORM), num_windows=24, micro=4)


@check
def a_step_without_windows_for_one_process(world: World, configure: Configure) -> None:
    """Like the last step of an epoch: its batch statistics are those of one window."""
    assert_one_step_is_that_of_one_process(world, configure(*BATCH_NORM), num_windows=1, micro=4)


@check
def dropout_differs_between_processes_and_is_reproducible(world: World, configure: Configure) -> None:
    config = configure("model.norm=layer", "model.dropout=0.5")
    objective = objective_of(model_of(config), config, 4, world)
    draws = []
    for _ in range(2):
        objective.backward(inputs_with_gaps(), torch.arange(8), "masks", 3, 1)
        draws.append(torch.rand(1))
    assert draws[0] == draws[1]
    drawn = [torch.zeros(1) for _ in range(world.size)]
    distributed.all_gather(drawn, draws[0])
    assert drawn[0] != drawn[1]


# -------------------------------------------------------------------------------------------------------------- memory
@check
def out_of_memory_in_one_process(world: World, configure: Configure) -> None:
    """Both continue with the micro-batch size that fits the smaller memory."""
    most = 3 if world.rank == 1 else NUM_WINDOWS
    objective = assert_one_step_is_that_of_one_process(
        world, configure("model.norm=layer"), num_windows=16, micro=8, most=most
    )
    assert objective.micro == 2


@check
def out_of_memory_after_the_first_steps(world: World, configure: Configure) -> None:
    """While processes communicate during computation, a retry is impossible: the error names the next smaller size."""
    config = configure("model.norm=layer")
    model = Cramped(model_of(config), most=NUM_WINDOWS)
    objective = objective_of(model, config, 4, world)
    step = partial(objective.backward, inputs_with_gaps(), torch.arange(8), "masks", 0)
    step(0), step(1)
    model.most = 3
    with pytest.raises(LandfallError, match="micro-batch of 4 in each process") as caught:
        step(2)
    assert "training.batch_size=2" in caught.value.hint


@check
def out_of_memory_in_validation(world: World, configure: Configure) -> None:
    config = configure("model.norm=layer")
    model = model_of(config)
    whole = objective_of(model, config, NUM_WINDOWS).mean_loss(inputs_with_gaps())
    objective = objective_of(Cramped(model, most=3 if world.rank == 0 else NUM_WINDOWS), config, 8, world)
    assert objective.mean_loss(inputs_with_gaps()) == pytest.approx(whole, rel=1e-5)
    assert objective.micro == 2


# ---------------------------------------------------------------------------------------------------------- validation
class Counting(Inputs):
    """Windows that count how often they were read."""

    def __init__(self) -> None:
        made = inputs_with_gaps()
        self.feed, self.transform, self._cache = made.feed, made.transform, None
        self.seen = torch.zeros(len(made), dtype=torch.int64)

    def batch(self, index_b: torch.Tensor) -> torch.Tensor:
        self.seen[index_b] += 1
        return super().batch(index_b)


@check
def validation_reads_every_window_once(world: World, configure: Configure) -> None:
    import trainers.objective

    trainers.objective.MASK_BLOCK, usual = 5, trainers.objective.MASK_BLOCK  # seven blocks, of which the last is short
    try:
        config = configure("model.norm=layer")
        model, inputs = model_of(config), Counting()
        whole = objective_of(model, config, NUM_WINDOWS).mean_loss(inputs_with_gaps())
        assert objective_of(model, config, 2, world).mean_loss(inputs) == pytest.approx(whole, rel=1e-6)
        assert 0 < inputs.seen.sum() < NUM_WINDOWS
        assert world.all_reduce_sum(inputs.seen).tolist() == [1] * NUM_WINDOWS
        parts = objective_of(model_of(config), configure("model.norm=layer", FSDP), 2, world)
        assert parts.mean_loss(inputs_with_gaps()) == pytest.approx(whole, rel=1e-5)
    finally:
        trainers.objective.MASK_BLOCK = usual


# --------------------------------------------------------------------------------------------------------- collectives
def collectives(step: Callable[[], object]) -> Counter[str]:
    """The collective operations of a step, by name."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        step()
    return Counter(event.name.removeprefix("c10d::") for event in recorded.events() if event.name.startswith("c10d::"))


@check
def ddp_reduces_gradients_once_per_step(world: World, configure: Configure) -> None:
    """However many micro-batches a step has, its gradients and one pair of numbers are reduced once."""
    config = configure("model.norm=layer")
    counted = []
    for micro in (16, 2):
        objective = objective_of(model_of(config), config, micro, world)
        step = partial(objective.backward, inputs_with_gaps(), torch.arange(NUM_WINDOWS), "masks", 0)
        step(0), step(1)
        counted.append(collectives(partial(step, 2)))
    assert counted == [{"allreduce_": 2}] * 2, counted


@check
def fsdp_reduces_gradients_once_per_step(world: World, configure: Configure) -> None:
    config = configure("model.norm=layer", "model.num_layers=2", FSDP)
    counted = []
    for micro in (16, 4):
        objective = objective_of(model_of(config), config, micro, world)
        step = partial(objective.backward, inputs_with_gaps(), torch.arange(NUM_WINDOWS), "masks", 0)
        step(0)
        counted.append(collectives(partial(step, 1)))
    assert [each["_reduce_scatter_base_"] for each in counted] == [3, 3], (
        counted
    )  # two blocks and the rest of the model
    assert counted[1]["_allgather_base_"] > counted[0]["_allgather_base_"]


# ---------------------------------------------------------------------------------------------------------------- FSDP
class Training:
    """Optimizer steps on synthetic windows, as in the training loop; in float64, because the optimizer would scale
    gradients that are rounding errors only to full steps."""

    def __init__(self, world: World, config: AnyConfig):
        self.model = model_of(config).double()
        self.model.gradient_checkpointing = True
        self.objective = Objective(self.model, context_of(config, world, replace(CPU, x64=True)), micro=2)
        self.strategy, self.world = self.objective.strategy, world
        self.optimizer = build_optimizer(self.model, config.training, fused=True)

    def step(self, number: int) -> float:
        index_b = torch.randperm(NUM_WINDOWS, generator=torch.Generator().manual_seed(number))[:13]
        self.objective.backward(inputs_with_gaps(), index_b, "masks", number)
        norm = self.strategy.clip_gradients(0.05)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm.item()

    def state(self) -> tuple[dict, dict]:
        """The state of the main process, in both."""
        state = self.strategy.model_state(), self.strategy.optimizer_state(self.optimizer)
        return copy.deepcopy(self.world.gather(state)[0])

    def load(self, state: tuple[dict, dict]) -> None:
        self.strategy.load_model(state[0])
        self.strategy.load_optimizer(self.optimizer, state[1])


def assert_same_state(one: tuple[dict, dict], other: tuple[dict, dict]) -> None:
    assert_same(one[0], other[0])
    assert one[1]["state"].keys() == other[1]["state"].keys()
    for number, moments in one[1]["state"].items():
        assert_same(moments, other[1]["state"][number])


@check
def fsdp_trains_like_a_single_device(world: World, configure: Configure) -> None:
    """Weights, moments, running statistics and gradient norms; each strategy resumes the checkpoint of the other."""
    published = ("model.channel_attention=none", "model.masks=[patches]", "model.output=point")
    settings = (*published, *BATCH_NORM, "model.drop_masked_tokens=true")
    whole, parts = Training(world, configure(*settings)), Training(world, configure(*settings, FSDP))
    own = sum(weight.to_local().numel() for weight in parts.model.parameters())
    assert own < 0.6 * sum(weight.numel() for weight in whole.model.parameters())
    for number in range(3):
        assert parts.step(number) == pytest.approx(whole.step(number), rel=1e-4)
    saved = [whole.state(), parts.state()]
    assert_same_state(*saved)
    assert all(type(value) is torch.Tensor for value in saved[1][0].values())

    others = [Training(world, configure(*settings)), Training(world, configure(*settings, FSDP))]
    for training, state in zip(others, reversed(saved), strict=True):
        training.load(state)
        training.step(3)
    whole.step(3)
    assert_same_state(whole.state(), others[0].state())
    assert_same_state(whole.state(), others[1].state())


@check
def a_state_before_the_first_step_counts_no_step(world: World, configure: Configure) -> None:
    """PyTorch's API would execute a step to create a state."""
    training, straight = (Training(world, configure("model.norm=layer", FSDP)) for _ in range(2))
    saved = training.state()
    assert saved[1]["state"] == {}
    training.load(saved)
    assert training.step(0) == straight.step(0)
    assert_same_state(training.state(), straight.state())


@check
def weights_of_another_model_are_refused(world: World, configure: Configure) -> None:
    training = Training(world, configure("model.norm=layer", FSDP))
    model, _ = training.state()
    other = {name: value for name, value in model.items() if name != "head.weight"}
    for wrong in (other, {**model, "head.weight": model["head.weight"][:1]}, {**model, "more": model["head.weight"]}):
        with pytest.raises(RuntimeError, match=r"head\.weight|more"):
            training.strategy.load_model(wrong)


@check
def fsdp_trains_on_images_like_a_single_device(world: World, configure: Configure) -> None:
    from core.config.schema import SwinMAEModel
    from core.models.swinmae import SwinMAE

    small = {"embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2), "decoder_depths": (1,)}

    def made(strategy: str) -> tuple[nn.Module, Objective]:
        torch.manual_seed(0)
        model = SwinMAE(SwinMAEModel(drop_masked_tokens=True, **small), image_size=32)
        config = configure()
        config = config.model_copy(update={"distributed": Distributed(strategy=strategy)})
        return model, Objective(model, context_of(config, world), micro=2)

    class Images:
        def batch(self, index_b: torch.Tensor) -> torch.Tensor:
            return torch.stack([torch.randn(3, 32, 32, generator=generator(0, int(index))) for index in index_b])

    (whole, of_whole), (parts, of_parts) = made("ddp"), made("fsdp")
    losses = [objective.backward(Images(), torch.arange(5), "masks", 0).item() for objective in (of_whole, of_parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    joint = {name: weight.grad.full_tensor() for name, weight in parts.named_parameters()}
    assert_same(gradients(whole), joint)


# ------------------------------------------------------------------------------------------------------------ together
def main() -> None:
    root, out = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    world, results = World.from_environment(), dict.fromkeys(CHECKS, "not reached")

    def all_checks() -> None:
        for name, function in CHECKS.items():
            try:
                function(world, partial(config_of, root))
                results[name] = None
            except Exception:
                results[name] = traceback.format_exc()
                return  # the processes are no longer synchronised

    with process_group(world, CPU, Distributed(timeout_minutes=3.0)):
        all_checks()
    (out / f"{world.rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
