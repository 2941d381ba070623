"""Training that starts from the weights of a model of other machines."""

import json
import logging

import pandas as pd
import pytest
import torch

from core import checkpoint
from core.errors import CheckpointError
from tests.trainers.conftest import TINY
from tests.trainers.small_runs import environment_of, losses, run_training
from trainers.resuming import CHANNEL_WEIGHTS

PRE = "checkpoints/elsewhere.pt"
# Steps too small to have an effect.
STILL = ("training.learning_rate=1e-12", "training.epochs=1")
# Buffers of batch normalisation, which change at any learning rate.
COUNTED = ("running_mean", "running_var", "num_batches_tracked")


@pytest.fixture
def pretrained(plant):
    """A model with one channel, as after `landfall pool`; the plant has three."""
    for file in sorted((plant / "data/fdc").glob("*.csv")):
        frame = pd.read_csv(file)[["timestamp", "c1"]].rename(columns={"c1": "value"})
        frame.to_csv(file.with_name(f"alone_{file.name}"), index=False)
    splits = [f'data.splits.{split}.files=["data/fdc/alone_*"]' for split in ("train", "validation", "calibration")]
    run_training(plant, f"logging.checkpoint_path={PRE}", "training.epochs=3", *splits)
    return plant


def weights(root, path: str = "checkpoints/patchtst_ssl.pt") -> dict[str, torch.Tensor]:
    return checkpoint.load(root / path)["model"]


@pytest.mark.slow
def test_a_run_starts_from_the_weights_of_other_sensors(pretrained, caplog):
    caplog.set_level(logging.INFO)
    untrained = run_training(pretrained, *STILL)
    before = weights(pretrained)
    pretrained_start = run_training(pretrained, *STILL, f"training.start_from={PRE}")
    after, start = weights(pretrained), weights(pretrained, PRE)
    learned = [name for name in start if not name.endswith(COUNTED) and name != CHANNEL_WEIGHTS]
    assert [name for name in learned if not torch.allclose(after[name], start[name], atol=1e-6)] == []
    assert any(not torch.allclose(before[name], start[name], atol=1e-3) for name in start)
    assert losses(pretrained_start)[0][1] < losses(untrained)[0][1], "the initial weights already fit the sensors"
    assert len(after[CHANNEL_WEIGHTS]) == 3
    assert len(start[CHANNEL_WEIGHTS]) == 1
    assert "elsewhere.pt: run run-1, epoch 3" in caplog.text
    sha256 = checkpoint.describe(pretrained / PRE)["sha256"]
    origin = {"file": "elsewhere.pt", "run_id": "run-1", "epoch": 3, "sha256": sha256}
    assert environment_of(pretrained)["model"]["started_from"] == origin


@pytest.mark.nightly
def test_only_the_weights_are_loaded(pretrained):
    """Epoch, schedule, masks and order of windows are those of a new run."""
    result = run_training(pretrained, "training.epochs=2", f"training.start_from={PRE}")
    assert [record.epoch for record in result.history] == [1, 2]
    assert checkpoint.load(result.checkpoint)["channels"] == ["c0", "c1", "c2"]
    again = run_training(pretrained, "training.epochs=2", f"training.start_from={PRE}")
    assert losses(again) == losses(result)


@pytest.mark.nightly
def test_a_resumed_run_does_not_load_initial_weights(pretrained):
    whole = run_training(pretrained, "training.epochs=2", f"training.start_from={PRE}")
    (pretrained / PRE).unlink()
    resumed = run_training(pretrained, "training.epochs=2", f"training.start_from={PRE}", "training.resume=auto")
    assert losses(resumed) == losses(whole)


@pytest.mark.slow
def test_an_automatic_size_follows_the_initial_weights(pretrained):
    words = tuple(word for word in TINY if not word.startswith(("model.d_", "model.num_")))
    run_training(pretrained, f"training.start_from={PRE}", "training.epochs=1", "model.size=auto", words=words)
    described = environment_of(pretrained)["model"]
    assert "checkpoint it starts from" in described["reason"]
    assert checkpoint.load(pretrained / "checkpoints/patchtst_ssl.pt")["config"]["model"]["d_model"] == 16


@pytest.mark.slow
def test_stride_and_number_of_windows_follow_from_the_new_data(pretrained):
    """Those of a pool would leave a machine with little history a handful of windows."""
    run_training(pretrained, f"training.start_from={PRE}", "training.epochs=1", "data.stride=auto",
                 "data.window=auto", "training.windows_per_epoch=auto")  # fmt: skip
    origin = checkpoint.load(pretrained / PRE)["config"]
    started = checkpoint.load(pretrained / "checkpoints/patchtst_ssl.pt")["config"]
    assert (origin["data"]["stride"], origin["training"]["windows_per_epoch"]) == (8, 0)
    assert started["data"]["window"] == origin["data"]["window"]
    assert started["data"]["stride"] == 1
    assert started["training"]["windows_per_epoch"] > 0


@pytest.mark.slow
def test_embeddings_of_other_channels_have_the_spread_of_those_learned(pretrained):
    state = checkpoint.load(pretrained / PRE)
    state["model"][CHANNEL_WEIGHTS] *= 100
    description = json.loads(checkpoint.sidecar_path(pretrained / PRE).read_text())
    checkpoint.save(pretrained / PRE, state, description=description)
    run_training(pretrained, *STILL, f"training.start_from={PRE}")
    found, learned = weights(pretrained)[CHANNEL_WEIGHTS], state["model"][CHANNEL_WEIGHTS]
    assert found.std() == pytest.approx(float(learned.std()), rel=1e-3)
    assert not torch.allclose(found[0], found[1])


@pytest.mark.slow
def test_a_model_of_another_shape_is_rejected_with_the_differences(pretrained):
    with pytest.raises(CheckpointError) as caught:
        run_training(pretrained, f"training.start_from={PRE}", "data.window=48", "model.d_model=32")
    described = str(caught.value)
    assert "data.window was 32, is 48; model.d_model was 16, is 32" in described
    assert "training.batch_size" not in described
    assert "model.size=auto takes its size" in described


@pytest.mark.slow
def test_another_stream_a_damaged_and_a_missing_file_are_rejected(pretrained):
    path = pretrained / PRE
    state, described = checkpoint.load(path), json.loads(checkpoint.sidecar_path(path).read_text())
    checkpoint.save(path, {**state, "stream": "swinmae"}, description={**described, "stream": "swinmae"})
    with pytest.raises(CheckpointError, match="stream swinmae, not patchtst"):
        run_training(pretrained, f"training.start_from={PRE}")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is damaged"):
        run_training(pretrained, f"training.start_from={PRE}")
    with pytest.raises(CheckpointError, match="does not exist"):
        run_training(pretrained, "training.start_from=checkpoints/none.pt")
