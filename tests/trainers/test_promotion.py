"""Which run's weights are the model of a stream. No better model is replaced, and every promotion can be undone."""

import json
import os

import pytest

from core import checkpoint, promotion
from core.config.compose import load_config, local_config_file, recorded
from pipelines import list_runs, promote_run
from tests.trainers.trainings import run_training
from trainers import train_patchtst_ssl

MODEL = "checkpoints/patchtst_ssl.pt"


def _model(plant):
    return checkpoint.verify(plant / MODEL)


def _weights(plant, run_id):
    return plant / "runs/patchtst_ssl" / run_id / "model.pt"


def test_the_first_run_is_the_model(plant):
    result = run_training(plant, "training.epochs=1")
    assert result.promoted
    assert result.checkpoint == _weights(plant, "run-1")
    assert _model(plant) == checkpoint.verify(result.checkpoint)


@pytest.mark.slow
def test_a_worse_run_on_the_same_data_keeps_its_weights_and_leaves_the_model(plant, caplog):
    run_training(plant, "training.epochs=6")
    before = _model(plant)
    result = run_training(plant, "training.epochs=1", run_id="run-2")
    assert not result.promoted
    assert _model(plant) == before
    assert checkpoint.verify(_weights(plant, "run-2"))["run_id"] == "run-2"
    (warning,) = (record.getMessage() for record in caplog.records if "landfall promote run-2" in record.getMessage())
    assert f"{before['val_loss']:.5f}" in warning


@pytest.mark.slow
def test_a_better_run_replaces_the_model_and_the_old_weights_are_kept(plant):
    worse = run_training(plant, "training.epochs=1")
    old = _model(plant)
    assert run_training(plant, "training.epochs=6", run_id="run-2").promoted
    assert _model(plant)["run_id"] == "run-2"
    assert checkpoint.verify(worse.checkpoint)["sha256"] == old["sha256"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "change",
    [
        "data.splits.validation.stop=0.72",
        pytest.param("model.mask_ratio=0.6", marks=pytest.mark.nightly),
        "training.promote=always",
    ],
)
def test_a_run_whose_loss_cannot_be_compared_replaces_the_model(plant, change):
    run_training(plant, "training.epochs=6")
    assert run_training(plant, "training.epochs=1", change, run_id="run-2").promoted
    assert _model(plant)["run_id"] == "run-2"


def test_a_setting_that_a_former_version_did_not_have_has_its_default(workspace):
    config = recorded(load_config(local_config_file("swinmae"), ["data.root=."], root=workspace).config)
    former = {**config, "model": {name: value for name, value in config["model"].items() if name != "mask_ratio"}}
    assert former != config
    new = {"run_id": "run-2", "val_loss": 0.8, "config": config}
    old = {"run_id": "run-1", "val_loss": 0.7, "config": former}
    assert not promotion.compare(new, old).replaces
    assert promotion.compare({**new, "val_loss": 0.6}, old).replaces


def test_a_run_that_may_not_be_promoted_leaves_no_model(plant):
    result = run_training(plant, "training.epochs=1", "training.promote=never")
    assert not result.promoted
    assert result.checkpoint.is_file()
    assert not (plant / MODEL).exists()


@pytest.mark.nightly
def test_a_model_without_a_run_of_its_own_is_kept_before_it_is_replaced(plant):
    """Such as one that was imported, or that an earlier version of Landfall trained."""
    result = run_training(plant, "training.epochs=1")
    sha256 = _model(plant)["sha256"]
    for file in (result.checkpoint, checkpoint.sidecar_path(result.checkpoint)):
        file.unlink()
    run_training(plant, "training.epochs=6", run_id="run-2")
    assert checkpoint.verify(result.checkpoint)["sha256"] == sha256


@pytest.mark.slow
def test_promote_switches_and_switches_back_with_the_detectors(plant, capsys):
    run_training(plant, "training.epochs=6")
    run_training(plant, "training.epochs=1", run_id="run-2")
    detector = checkpoint.detector_path(plant / MODEL)
    detector.write_bytes(b"of run-1")
    root = ["--repo-root", str(plant)]

    assert promote_run.main(["run-2", *root]) == 0
    assert json.loads(capsys.readouterr().out) == {"promoted": "run-2", "before": {"patchtst": "run-1"}}
    assert _model(plant)["run_id"] == "run-2"
    assert not detector.exists()

    assert list_runs.main(["--json", *root]) == 0
    runs = {run["run_id"]: run for run in json.loads(capsys.readouterr().out)}
    assert {name: (run["promoted"], run["has_weights"]) for name, run in runs.items()} == {
        "run-1": (False, True),
        "run-2": (True, True),
    }

    assert promote_run.main(["run-1", *root]) == 0
    assert _model(plant)["run_id"] == "run-1"
    assert detector.read_bytes() == b"of run-1"


@pytest.mark.slow
def test_promote_refuses_a_run_without_weights_or_with_damaged_ones(plant, capsys):
    result = run_training(plant, "training.epochs=1")
    before, root = _model(plant), ["--repo-root", str(plant)]
    assert promote_run.main(["run-9", *root]) == 2
    assert "run-9" in capsys.readouterr().err
    result.checkpoint.write_bytes(b"damaged")
    assert promote_run.main(["run-1", *root]) == 4
    assert "model.pt" in capsys.readouterr().err
    assert _model(plant) == before


@pytest.mark.nightly
def test_old_weights_are_removed_but_never_those_of_the_model(plant):
    config = load_config(local_config_file("patchtst"), ["training.keep_runs=2"], root=plant).config
    run_training(plant, "training.epochs=6")
    for number in (2, 3, 4):
        run_training(plant, "training.epochs=1", "training.keep_runs=2", run_id=f"run-{number}")
    assert promotion.promoted(plant, config)["run_id"] == "run-1"
    assert [_weights(plant, f"run-{number}").exists() for number in (1, 2, 3, 4)] == [True, False, False, True]
    assert (plant / "runs/patchtst_ssl/run-2/metrics.jsonl").is_file()


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_weights_behind_a_link_to_a_run_are_not_removed(plant):
    config = load_config(local_config_file("patchtst"), ["training.keep_runs=1"], root=plant).config
    run_training(plant, "training.epochs=1")
    (plant / "runs/patchtst_ssl/latest").symlink_to("run-1")
    (plant / "runs/patchtst_ssl/other").symlink_to("run-1")
    promotion.remove_old_weights(plant, config)
    assert _weights(plant, "run-1").exists()


def test_the_name_of_a_run_is_not_used_twice(plant, capsys):
    result = run_training(plant, "training.epochs=1")
    before = checkpoint.verify(result.checkpoint)
    words = ["--repo-root", str(plant), "--run-id", "run-1", "--resume", "never"]
    assert train_patchtst_ssl.main(words) == 2
    assert "run-1" in capsys.readouterr().err
    assert checkpoint.verify(result.checkpoint) == before
