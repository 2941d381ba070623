"""A model with one output for all windows, or not better than the mean input, fails its check."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core import checkpoint
from core.config.compose import load_config
from core.errors import EXIT_OUTPUT
from core.models.masking import MaskedModel
from core.models.skill import Skill
from core.runlog import read_metrics
from inference.scoring import load_scoring_model
from pipelines.checks import environment, scoring, static
from pipelines.checks.base import CheckFailed, CheckSkipped, Context
from pipelines.checks.scoring import Reconstruction, _reconstruction, model_has_not_collapsed
from pipelines.stream_configs import configs_in_use
from pipelines.validate_training_outputs import main
from tests.support.small_workspace import CONFIGS, PIPELINE_ARGUMENTS, RUN_ID
from trainers.run import train

both_streams = pytest.mark.parametrize("stream", CONFIGS)


def check(root: Path, stream: str) -> str:
    return model_has_not_collapsed(Context(root, *configs_in_use(CONFIGS, (), root)), stream)


def change_weights(root: Path, stream: str, change) -> None:
    """Changes a real checkpoint, which stays valid."""
    path = root / f"checkpoints/{stream}_ssl.pt"
    payload, described = checkpoint.load(path), checkpoint.describe(path)
    for name, values in payload["model"].items():
        if values.is_floating_point():
            payload["model"][name] = change(name, values)
    checkpoint.save(path, payload, description=described)


@pytest.mark.nightly
@both_streams
def test_a_trained_model_passes_with_its_skill(finished_workspace, stream):
    result = _reconstruction(
        Context(finished_workspace.root, *configs_in_use(CONFIGS, (), finished_workspace.root)), stream
    )
    assert result.skill.total > 0.05
    assert result.skill.in_full() in check(finished_workspace.root, stream)


@both_streams
def test_the_sidecar_holds_the_skill_of_the_best_epoch(finished_workspace, stream):
    metrics = checkpoint.describe(finished_workspace.root / f"checkpoints/{stream}_ssl.pt")["metrics"]
    logged = read_metrics(finished_workspace.root / f"runs/{stream}_ssl/{RUN_ID}/metrics.jsonl")
    (best,) = [r for r in logged if r["kind"] == "epoch" and r["epoch"] == metrics["best_epoch"]]
    assert metrics["skill"] == {"total": best["skill"], "channels": best["channel_skill"]}
    assert 0.05 < best["skill"] < 1.0


@both_streams
def test_a_model_that_predicts_the_mean_input_fails(finished_workspace, monkeypatch, stream):
    """The best constant image: better than the mean of each channel, but not a model."""
    monkeypatch.setattr(MaskedModel, "inpaint", lambda model, x: (model.picture.expand_as(x), None))
    real = load_scoring_model

    def with_picture(*arguments):
        scoring = real(*arguments)
        scoring.model.picture = scoring.mean_input
        return scoring

    monkeypatch.setattr("inference.scoring.load_scoring_model", with_picture)
    with pytest.raises(CheckFailed, match="collapsed"):
        check(finished_workspace.root, stream)


@both_streams
def test_weights_of_zero_fail(copied, stream):
    change_weights(copied, stream, lambda name, values: torch.zeros_like(values))
    with pytest.raises(CheckFailed, match="has collapsed") as caught:
        check(copied, stream)
    assert "training.learning_rate" in caught.value.hint


@both_streams
def test_a_model_that_predicts_one_patch_fails(copied, stream):
    """All other weights and the bias work: values differ, but only within a patch."""
    change_weights(copied, stream, lambda name, values: torch.zeros_like(values) if name == "head.weight" else values)
    with pytest.raises(CheckFailed, match="has collapsed"):
        check(copied, stream)


@both_streams
def test_a_model_that_never_learned_fails(copied, stream):
    """A learning rate so small that the weights do not change: the output hardly varies, or has no skill."""
    overrides = [
        "training.learning_rate=1e-12",
        "training.epochs=1",
        "training.promote=always",
        "logging.progress='off'",
    ]
    train(load_config(CONFIGS[stream], overrides, root=copied), root=copied)
    with pytest.raises(CheckFailed, match=r"collapsed|mean training input"):
        check(copied, stream)


@both_streams
def test_non_finite_weights_fail(copied, stream):
    change_weights(copied, stream, lambda name, values: values * float("nan"))
    with pytest.raises(CheckFailed, match="not finite"):
        check(copied, stream)


def test_the_checklist_reports_a_collapsed_model(copied, monkeypatch, capsys):
    for module in (environment, static):
        monkeypatch.setattr(module, "CHECKS", ())
    change_weights(copied, "patchtst", lambda name, values: torch.zeros_like(values))
    assert main([*PIPELINE_ARGUMENTS, "--repo-root", str(copied)]) == EXIT_OUTPUT
    printed = capsys.readouterr().out
    assert "FAIL  Model did not collapse, patchtst" in printed
    assert "Model did not collapse, swinmae" not in printed


@pytest.mark.parametrize("total, passes", [(0.005, True), (0.0005, False), (0.0, False), (-0.5, False)])
def test_too_little_skill_fails_despite_a_varying_reconstruction(finished_workspace, monkeypatch, total, passes):
    result = Reconstruction(Skill(total, {"a": total}), change=0.5)
    monkeypatch.setattr(scoring, "_reconstruction", lambda *_: result)
    if passes:
        assert check(finished_workspace.root, "patchtst")
    else:
        with pytest.raises(CheckFailed, match="mean training input"):
            check(finished_workspace.root, "patchtst")


def test_constant_data_is_skipped(finished_workspace, monkeypatch):
    monkeypatch.setattr(scoring, "_reconstruction", lambda *_: Reconstruction(Skill(None, {}), None))
    with pytest.raises(CheckSkipped, match="no channel changes"):
        check(finished_workspace.root, "patchtst")


@both_streams
def test_an_older_checkpoint_without_a_mean_input_fails(copied, stream):
    path = copied / f"checkpoints/{stream}_ssl.pt"
    payload, described = checkpoint.load(path), checkpoint.describe(path)
    del payload["mean_input"]
    checkpoint.save(path, payload, description=described)
    with pytest.raises(CheckFailed, match="no mean training input"):
        check(copied, stream)
