"""Two processes on one device: `torchrun … -m tests.cuda.two_processes cuda|cpu gloo|nccl ROOT OUT`.

Each compares joint steps with those of one process; OUT/<rank>.json gets its error, or null. With NCCL, each process
has a device of its own.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import torch
from torch import distributed

from core.config.schema import AnyConfig
from core.devices.plan import DevicePlan
from tests.trainers.objectives import NUM_WINDOWS, assert_same, config_of, gradients, inputs_with_gaps, model_of
from tests.trainers.objectives import objective_of as make_objective
from trainers.distributed import SINGLE_PROCESS, World
from trainers.objective import Objective


def step_of(config: AnyConfig, micro: int, world: World, plan: DevicePlan) -> tuple[Objective, list[torch.Tensor]]:
    """Three steps over 13 windows: the first are trials, the last communicates while it computes."""
    model = model_of(config).to(plan.device)
    objective = make_objective(model, config, micro, world, plan)
    index_b = torch.randperm(NUM_WINDOWS, generator=torch.Generator().manual_seed(3))[:13]
    losses = []
    for _ in range(3):
        model.zero_grad(set_to_none=True)
        losses.append(objective.backward(inputs_with_gaps(plan.device), index_b, "masks", 0, 0))
    return objective, losses


def compare(root: Path, world: World, plan: DevicePlan) -> None:
    config = config_of(root, "model.norm=layer")
    alone, expected = step_of(config, NUM_WINDOWS, SINGLE_PROCESS, plan)
    together, losses = step_of(config, 2, world, plan)
    torch.testing.assert_close(distributed_sum(plan), torch.full((1,), float(world.size)))
    torch.testing.assert_close(torch.stack(losses), torch.stack(expected), rtol=1e-4, atol=0)
    assert_same(gradients(alone.model), gradients(together.model))


def distributed_sum(plan: DevicePlan) -> torch.Tensor:
    """One per process, summed by the library: also where a single process trains without it."""
    ones = torch.ones(1, device=plan.device)
    distributed.all_reduce(ones)
    return ones.cpu()


def main() -> None:
    kind, library, *folders = sys.argv[1:]
    root, out = map(Path, folders)
    torch.set_num_threads(1)
    world, error = World.from_environment(), None
    index = world.rank if library == "nccl" else 0
    plan = DevicePlan(kind, kind, "32", 1, "a test", "a test", index=index)
    if kind == "cuda":
        torch.cuda.set_device(index)
    distributed.init_process_group(library)
    try:
        compare(root, world, plan)
    except Exception:
        error = traceback.format_exc()
    (out / f"{world.rank}.json").write_text(json.dumps(error))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
