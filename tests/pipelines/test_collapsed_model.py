"""A model that answers the same to everything, or no better than the mean, fails its check; a healthy one passes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.small_workspace import CONFIGS, PIPELINE_ARGUMENTS
from core import checkpoint
from core.config.compose import load_config
from core.errors import EXIT_OUTPUT
from pipelines.checks import environment, scoring, static
from pipelines.checks.base import CheckFailed, CheckSkipped
from pipelines.checks.scoring import Answers, model_has_not_collapsed
from pipelines.validate_training_outputs import build_context, main
from trainers.run import train

both_streams = pytest.mark.parametrize("stream", CONFIGS)


def check(root: Path, stream: str) -> str:
    return model_has_not_collapsed(build_context(root, *CONFIGS.values()), stream)


def change_weights(root: Path, stream: str, change) -> None:
    """In a real checkpoint, which stays whole."""
    path = root / f"checkpoints/{stream}_ssl.pt"
    payload, described = checkpoint.load(path), checkpoint.describe(path)
    for name, values in payload["model"].items():
        if values.is_floating_point():
            payload["model"][name] = change(name, values)
    checkpoint.save(path, payload, description=described)


@both_streams
def test_a_trained_model_passes_with_its_figures(finished_workspace, stream):
    told = check(finished_workspace.root, stream)
    num = {"patchtst": 4, "swinmae": 3}[stream]
    assert told.startswith(f"{num} of {num} channels predicted better than by their mean (loss ")


@both_streams
def test_weights_of_zero_fail(copied, stream):
    change_weights(copied, stream, lambda name, values: torch.zeros_like(values))
    with pytest.raises(CheckFailed, match="has collapsed, it answers the same to everything: 0 of") as caught:
        check(copied, stream)
    assert "it has up to 0.00% of the data's variance" in caught.value.detail
    assert "training.learning_rate" in caught.value.hint


@both_streams
def test_a_head_that_answers_one_patch_to_everything_fails(copied, stream):
    """All the rest is alive, and so is the bias: values differ, but within a patch only."""
    change_weights(copied, stream, lambda name, values: torch.zeros_like(values) if name == "head.weight" else values)
    with pytest.raises(CheckFailed, match="has collapsed, it answers the same to everything"):
        check(copied, stream)


@both_streams
def test_a_model_that_never_learned_fails(copied, stream):
    """A learning rate so small that the weights stay as they were drawn: it hardly varies, or knows nothing."""
    overrides = ["training.learning_rate=1e-12", "training.epochs=1", "logging.progress='off'"]
    train(load_config(CONFIGS[stream], overrides, root=copied), root=copied)
    with pytest.raises(CheckFailed, match=r"(same to everything|no better than predicting the mean): 0 of"):
        check(copied, stream)


@both_streams
def test_weights_that_are_no_numbers_fail(copied, stream):
    change_weights(copied, stream, lambda name, values: values * float("nan"))
    with pytest.raises(CheckFailed, match="the reconstruction is not finite"):
        check(copied, stream)


def test_the_checklist_reports_it_as_failed(copied, monkeypatch, capsys):
    for module in (environment, static):
        monkeypatch.setattr(module, "CHECKS", ())
    change_weights(copied, "patchtst", lambda name, values: torch.zeros_like(values))
    assert main([*PIPELINE_ARGUMENTS, "--repo-root", str(copied)]) == EXIT_OUTPUT
    printed = capsys.readouterr().out
    assert "FAIL  Model answers, patchtst: the model has collapsed" in printed
    assert "Model answers, swinmae" not in printed


@pytest.mark.parametrize(
    "loss, passes", [([0.9, 1.1, 1.1, 1.1], True), ([1.1, 1.1, 1.1, 1.1, 0.9], False), ([1.0, 1.0, 1.0], False)]
)
def test_some_sensors_may_be_noise_but_not_all(finished_workspace, monkeypatch, loss, passes):
    answers = Answers(loss, loss_of_mean=[1.0] * len(loss), change=[0.5] * len(loss))
    monkeypatch.setattr(scoring, "_answers", lambda *_: answers)
    if passes:
        assert check(finished_workspace.root, "patchtst").startswith("1 of 4 channels")
    else:
        with pytest.raises(CheckFailed, match="no better than predicting the mean"):
            check(finished_workspace.root, "patchtst")


def test_data_that_never_moves_tells_nothing(finished_workspace, monkeypatch):
    monkeypatch.setattr(scoring, "_answers", lambda *_: Answers([], [], []))
    with pytest.raises(CheckSkipped, match="no channel moves"):
        check(finished_workspace.root, "patchtst")
