"""Scores of a batch, and a scoring model out of its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core import checkpoint
from core.config.schema import PatchTSTConfig, SwinMAEConfig
from core.data.inputs import Identity, StandardisedScalogram
from core.data.scaling import Scaler
from core.devices.manager import DevicePlan
from core.errors import CheckpointError
from core.models.factory import build_model
from inference.scoring import infer_score, load_scoring_model

PLAN = DevicePlan("cpu", "test", "32", 1, "", "")
WHERE = {"logging": {"log_dir": "runs", "checkpoint_path": "model.pt"}, "dqvl": {"report_dir": "quality"}}
PATCHTST = PatchTSTConfig(
    **WHERE,
    data={"window": 32},
    model={"patch_length": 8, "d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32},
)
SWINMAE = SwinMAEConfig(
    **WHERE,
    data={"window": 128},
    scalogram={"image_size": 32, "frequencies": 16},
    model={"embed_dim": 12, "depths": (2, 1), "num_heads": (2, 4), "decoder_depths": (1,), "window_size": 4},
)


def batch_for(stream: str, size: int = 6) -> torch.Tensor:
    shape = {"patchtst": (size, 32, 4), "swinmae": (size, 3, 32, 32)}[stream]
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def model_for(stream: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(
        {"patchtst": PATCHTST, "swinmae": SWINMAE}[stream], num_channels=4 if stream == "patchtst" else 3
    )


class ZeroModel(torch.nn.Module):
    """Predicts zero everywhere, so the error is the input squared."""

    def inpaint(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros_like(x), x.square()


# -------------------------------------------------------------------------------------------------------------- a batch
@pytest.mark.parametrize("stream", ["patchtst", "swinmae"])
def test_scores_are_deterministic_and_independent_of_the_batch(stream):
    model, batch = model_for(stream).train(), batch_for(stream)
    score_b, aux = infer_score(batch, model, stream)
    assert torch.equal(score_b, infer_score(batch, model, stream)[0])
    order_b = torch.tensor([4, 0, 5, 2, 1, 3])
    torch.testing.assert_close(infer_score(batch[order_b], model, stream)[0], score_b[order_b], rtol=1e-5, atol=1e-7)
    alone = torch.cat([infer_score(one, model, stream)[0] for one in batch.split(1)])
    torch.testing.assert_close(alone, score_b, rtol=1e-5, atol=1e-7)
    assert score_b.dtype == torch.float32
    assert aux["error"].shape == batch.shape
    assert not any(tensor.requires_grad for tensor in (score_b, *aux.values()))


@pytest.mark.parametrize(("stream", "channels", "columns"), [("patchtst", 4, 32), ("swinmae", 3, 32)])
def test_aux_averages_what_was_observed(stream, channels, columns):
    batch = batch_for(stream)
    batch[0, :5] = torch.nan
    batch[1].view(-1)[::3] = torch.nan
    score_b, aux = infer_score(batch, ZeroModel(), stream)
    assert aux["channel_error"].shape == (6, channels)
    assert aux["time_error"].shape == (6, columns)
    torch.testing.assert_close(aux["error"], batch.square(), equal_nan=True)
    torch.testing.assert_close(score_b[1], batch[1][~batch[1].isnan()].square().mean())
    error = batch[2].square()
    over_channel, over_time = {"patchtst": ((0,), (1,)), "swinmae": ((1, 2), (0, 1))}[stream]
    torch.testing.assert_close(aux["channel_error"][2], error.mean(over_channel))
    torch.testing.assert_close(aux["time_error"][2], error.mean(over_time))


def test_the_error_of_an_axis_is_that_of_all_its_pictures():
    batch = torch.randn(6, 6, 32, 32, generator=torch.Generator().manual_seed(1))
    batch[:, [2, 5]] = torch.nan
    _, aux = infer_score(batch, ZeroModel(), "swinmae")
    torch.testing.assert_close(aux["channel_error"][:, 1], batch[:, [1, 4]].square().mean((1, 2, 3)))
    assert aux["channel_error"].isnan().any(0).tolist() == [False, False, True]


@pytest.mark.parametrize("stream", ["patchtst", "swinmae"])
def test_a_window_without_observed_values_has_no_score(stream):
    batch = batch_for(stream)
    batch[3] = torch.nan
    score_b, _ = infer_score(batch, model_for(stream), stream)
    assert score_b.isnan().tolist() == [False, False, False, True, False, False]


# ---------------------------------------------------------------------------------------------------------- checkpoints
def saved(folder: Path, config: Any, **changes: Any) -> Path:
    channels = ("a", "b", "c", "d") if config.stream == "patchtst" else ("x", "y", "z")
    scaler = Scaler("zscore", channels, (1.0,) * len(channels), (2.0,) * len(channels), 20.0, {})
    state = {
        "model": model_for(config.stream).state_dict(),
        "run_id": "run-1",
        "config": config.model_dump(mode="json"),
        "scaler": scaler.to_dict(),
        "transform": {} if config.stream == "patchtst" else {"mean": 2.0, "deviation": 0.5},
        "channels": list(channels),
        "sampling_rate_hz": None if config.stream == "patchtst" else 1000.0,
    }
    checkpoint.save(folder / "model.pt", {**state, **changes}, description={"run_id": "run-1"})
    return folder / "model.pt"


@pytest.mark.parametrize("config", [PATCHTST, SWINMAE], ids=["patchtst", "swinmae"])
def test_a_checkpoint_restores_the_model_and_its_preprocessing(tmp_path, config):
    scoring = load_scoring_model(saved(tmp_path, config), PLAN, config=config)
    batch = batch_for(config.stream)
    expected, _ = infer_score(batch, model_for(config.stream), config.stream)
    assert torch.equal(infer_score(batch, scoring.model, scoring.stream)[0], expected)
    assert scoring.config == config
    assert scoring.scaler.center == (1.0,) * len(scoring.channels)
    assert (scoring.run_id, scoring.sha256) == ("run-1", checkpoint.describe(tmp_path / "model.pt")["sha256"])
    if config.stream == "patchtst":
        assert isinstance(scoring.transform, Identity)
    else:
        assert isinstance(scoring.transform, StandardisedScalogram)
        assert (scoring.transform.mean, scoring.transform.deviation) == (2.0, 0.5)


def test_every_key_that_changes_the_input_is_named(tmp_path):
    path = saved(tmp_path, PATCHTST)
    data = PATCHTST.data.model_copy(update={"window": 64, "score_stride": 3, "root": "elsewhere"})
    other = PATCHTST.model_copy(
        update={"data": data, "seed": 1, "model": PATCHTST.model.model_copy(update={"d_ff": 64})}
    )
    with pytest.raises(CheckpointError, match=r"data\.window\b.* 32, .*64; model\.d_ff\b.* 32, .*64\b"):
        load_scoring_model(path, PLAN, config=other)
    free = PATCHTST.data.model_copy(update={"score_stride": 3, "root": "elsewhere"})
    assert load_scoring_model(path, PLAN, config=PATCHTST.model_copy(update={"data": free})).run_id == "run-1"


def test_foreign_and_damaged_checkpoints_are_rejected(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load_scoring_model(tmp_path / "model.pt", PLAN)
    path = saved(tmp_path, SWINMAE)
    with pytest.raises(CheckpointError, match=r"swinmae model, .*patchtst"):
        load_scoring_model(path, PLAN, config=PATCHTST)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=r"incomplete|damaged"):
        load_scoring_model(path, PLAN)


def test_weights_must_fit_exactly(tmp_path):
    weights = model_for("patchtst").state_dict()
    weights.pop("head.bias")
    with pytest.raises(CheckpointError, match=r"head\.bias"):
        load_scoring_model(saved(tmp_path, PATCHTST, model=weights), PLAN)
    state = checkpoint.load(saved(tmp_path, PATCHTST))
    state.pop("scaler")
    state.pop("format_version")
    checkpoint.save(tmp_path / "model.pt", state, description={})
    with pytest.raises(CheckpointError, match="'scaler'"):
        load_scoring_model(tmp_path / "model.pt", PLAN)
