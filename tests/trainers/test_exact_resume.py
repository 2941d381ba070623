"""Training that is killed with SIGKILL at random points ends bit-identical to an uninterrupted run."""

import random
from functools import partial
from pathlib import Path

import pytest

from core.config.compose import LoadedConfig, load_config
from tests.support.killing import Nursery, Outcome, kill_until_done
from tests.support.small_workspace import CONFIGS, build_small_workspace

pytestmark = pytest.mark.nightly

WORDS = (
    *(
        "deterministic=true",
        "cudnn_benchmark=false",
        "training.epochs=3",
        "training.batch_size=8",
        "training.windows_per_epoch=48",
    ),
    *("logging.progress='off'", "logging.tensorboard=false", "logging.every_steps=3", "model.dropout=0.1"),
)


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


@pytest.mark.parametrize("stream, num_kills", [("patchtst", 6), ("swinmae", 6)])
def test_a_run_that_is_killed_repeatedly_equals_an_uninterrupted_one(
    stream: str, num_kills: int, tmp_path: Path, nursery: Nursery
):
    outcomes = []
    for name in ("straight", "killed"):
        root = build_small_workspace(tmp_path / name)
        load = partial(_load, stream, root)
        if name == "straight":
            assert nursery.train(load(), root=root) == 0
        else:
            kills = kill_until_done(
                nursery, load, root=root, chance=random.Random(f"{stream} 8"), most=num_kills, steps=4
            )
            assert kills == num_kills, (root / "said.log").read_text()
            assert not list(root.rglob(".*.part")), "temporary files of killed processes are removed"
        assert nursery.score(load(), root=root) == 0
        outcomes.append(Outcome.of(load().config, root=root))
    assert outcomes[0].differences(outcomes[1]) == []


def _load(stream: str, root: Path, *more: str) -> LoadedConfig:
    return load_config(CONFIGS[stream], [*WORDS, *more], root=root, environment={})
