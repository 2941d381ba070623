"""The documented recipes of the command line, in one workspace, in the order of the documentation."""

import json
from pathlib import Path

import pytest
import torch

from core import checkpoint
from tests.trainers.conftest import TINY
from trainers import train_patchtst_ssl

# Small data and a small model; nothing about devices, which the recipes decide.
SMALL = tuple(word for word in TINY if not word.startswith(("device.", "precision", "max_threads")))
RECIPES = (
    "local=default local/devices=cpu",
    "local=default local/devices=single_gpu",
    "trainer=multi_gpu local=hpc local/devices=multi_gpu devices=4",
    "trainer=kaggle_safe local=default local/devices=kaggle_t4",
    "trainer=kaggle_safe local=default local/devices=kaggle_a10",
    "trainer=kaggle_safe local=default local/devices=kaggle_l4",
    "trainer=multi_gpu local=hpc local/devices=hpc_a100 devices=8",
)


@pytest.fixture
def train(plant: Path, capsys, caplog):
    """Runs the training command: exit code, JSON of stdout, and what it logs and writes to stderr."""

    def run(*words: str) -> tuple[int, dict, str]:
        caplog.clear()
        code = train_patchtst_ssl.main(["--repo-root", str(plant), *words, *SMALL])
        captured = capsys.readouterr()
        return code, json.loads(captured.out or "{}"), captured.err + caplog.text

    return run


@pytest.mark.nightly
def test_the_recipes_train_one_after_the_other_in_one_workspace(plant, train):
    seen = []
    for recipe in (*RECIPES, RECIPES[2]):
        code, result, errors = train(*recipe.split(), "training.epochs=2")
        assert (code, result["trained_epochs"]) == (0, 2), recipe
        assert result["run_id"] not in seen, recipe
        weights = plant / "runs/patchtst_ssl" / result["run_id"] / "model.pt"
        assert checkpoint.describe(weights)["run_id"] == result["run_id"]
        seen.append(result["run_id"])
        if not torch.cuda.is_available():
            assert errors.count("1 process trains") == (" devices=" in recipe), "reported once"


@pytest.mark.slow
def test_auto_refuses_a_finished_run_that_was_not_named(train):
    words = ("local/devices=cpu", "training.epochs=1")
    code, first, _ = train(*words, "--run-id", "first")
    assert (code, first["trained_epochs"]) == (0, 1)
    code, result, errors = train(*words, "--resume", "auto")
    assert (code, result) == (2, {})
    assert "run first is finished" in errors
    code, result, errors = train(*words, "--resume", "auto", "--run-id", "first")
    assert (code, result["run_id"], result["trained_epochs"]) == (0, "first", 0)
    assert result["best_val_loss"] == first["best_val_loss"]
    more = train("local/devices=cpu", "training.epochs=2", "--resume", "auto", "--allow-changes")
    assert (more[0], more[1]["run_id"], more[1]["trained_epochs"]) == (0, "first", 1)
