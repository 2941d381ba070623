"""On one device the same command gives the same bits, also where it was killed and resumed."""

import random
from functools import partial
from pathlib import Path

import pytest

from core.config.compose import LoadedConfig, load_config
from tests.support.killing import Nursery, Outcome, kill_until_done
from tests.support.small_workspace import CONFIGS, build_small_workspace

KILLS = 4
WORDS = (
    *("deterministic=true", "cudnn_benchmark=false", "training.epochs=2", "training.batch_size=8"),
    *("training.windows_per_epoch=48", "logging.progress='off'", "logging.tensorboard=false", "logging.every_steps=3"),
    "model.dropout=0.1",
)
RUNS = [("patchtst", "bf16-mixed"), ("patchtst", "16-mixed"), ("swinmae", "32")]


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


@pytest.mark.parametrize("stream, precision", RUNS)
def test_a_repeated_and_a_killed_run_equal_an_undisturbed_one(
    stream: str, precision: str, tmp_path: Path, nursery: Nursery, kind, words, record_property
):
    """Weights, moments, losses and scores, to the bit; kills at random instructions, lines and writes."""
    outcomes = {}
    for name in ("straight", "again", "killed"):
        root = build_small_workspace(tmp_path / name)
        load = partial(_load, stream, root, f"precision={precision}", *words)
        if name == "killed":
            chance = random.Random(f"{stream} {precision} 8")
            kills = kill_until_done(nursery, load, root=root, chance=chance, most=KILLS, steps=4)
            record_property("kills", kills)
            assert kills >= 2, (root / "said.log").read_text()
        else:
            assert nursery.train(load(), root=root) == 0, (root / "said.log").read_text()
        assert nursery.score(load(), root=root) == 0, (root / "said.log").read_text()
        outcomes[name] = Outcome.of(load().config, root=root)
    assert outcomes["straight"].differences(outcomes["again"]) == []
    assert outcomes["straight"].differences(outcomes["killed"]) == []


def _load(stream: str, root: Path, *words: str) -> LoadedConfig:
    return load_config(CONFIGS[stream], [*WORDS, *words], root=root, environment={})
