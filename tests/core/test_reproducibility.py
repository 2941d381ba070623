import random

import numpy as np
import pytest
import torch

from core.reproducibility import derive_seed, generator, seed_everything


@pytest.fixture(autouse=True)
def _torch_as_it_was():
    """Seeding is global; other tests are not to notice."""
    deterministic, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    with torch.random.fork_rng(devices=[]):
        yield
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = benchmark


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_seed_is_fixed_for_ever():
    assert derive_seed(42, "masks", 3) == 1960837808621840356


def test_each_purpose_has_its_own_seed():
    seeds = [derive_seed(42, purpose, epoch) for purpose in ("masks", "order") for epoch in range(100)]
    seeds += [derive_seed(seed, "masks", 0) for seed in range(100)]
    assert len(set(seeds)) == 299, "only (42, masks, 0) is asked for twice"
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_no_draw_for_one_purpose_shifts_another():
    alone = torch.rand(4, generator=generator(1, "order"))
    torch.rand(100, generator=generator(1, "masks"))
    torch.rand(100)
    assert torch.equal(torch.rand(4, generator=generator(1, "order")), alone)


def test_all_global_generators_follow_the_seed():
    draws = []
    for seed in (1, 1, 2):
        seed_everything(seed, deterministic=False)
        draws.append(draw())
    assert draws[0] == draws[1]
    assert all(one != other for one, other in zip(draws[0], draws[2], strict=True))


@pytest.mark.parametrize("deterministic", [True, False])
def test_determinism_is_asked_of_torch(deterministic):
    seed_everything(1, deterministic=deterministic)
    assert torch.are_deterministic_algorithms_enabled() is deterministic
    assert torch.backends.cudnn.benchmark is not deterministic
