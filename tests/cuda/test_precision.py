"""The same numbers as on the CPU, within the precision of each kind of arithmetic; fp16 with its loss scale."""

import contextlib
import json
import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from core import checkpoint
from core.config.compose import load_config, local_config_file
from core.config.execution import Profile
from core.config.schema import PatchTSTModel, Scalogram, SwinMAEModel
from core.data.scalogram import Scalogram as Transform
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE
from core.reproducibility import make_reproducible
from core.runlog import read_metrics
from inference.scoring import infer_score
from tests.trainers.conftest import TINY
from trainers.run import train

STREAMS = ("patchtst", "swinmae")
BATCH, SEED = 8, 3
# Largest relative difference of the loss, and of the gradients by their norm. Matrix products in tf32 and fp16 have ten
# bits of mantissa, in bfloat16 seven; fp32 differs by the order of sums.
BOUNDS = {"32": (1e-5, 1e-4), "tf32": (2e-3, 2e-2), "16-mixed": (2e-3, 2e-2), "bf16-mixed": (2e-2, 1e-1)}


def model_of(stream: str) -> torch.nn.Module:
    torch.manual_seed(SEED)
    if stream == "patchtst":
        settings = PatchTSTModel(patch_length=16, d_model=64, num_heads=4, num_layers=2, d_ff=128)
        return PatchTST(settings, num_channels=5, window=128)
    settings = SwinMAEModel(embed_dim=24, depths=(2, 2), num_heads=(2, 4), decoder_depths=(2,))
    return SwinMAE(settings, image_size=64)


def input_of(stream: str) -> torch.Tensor:
    """With missing values, which are hidden in both models."""
    shape = (BATCH, 128, 5) if stream == "patchtst" else (BATCH, 3, 64, 64)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))
    x[0, 0] = math.nan
    return x


def loss_and_gradients(stream: str, device: str, arithmetic: str) -> tuple[float, torch.Tensor]:
    model = model_of(stream)
    mask = model.draw_mask(BATCH, generator=torch.Generator().manual_seed(SEED)).to(device)
    model.to(device).train()
    for settings in (torch.backends.cuda.matmul, torch.backends.cudnn):
        settings.allow_tf32 = arithmetic == "tf32"
    types = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}
    autocast = torch.autocast(device, types[arithmetic]) if arithmetic in types else contextlib.nullcontext()
    scale = 2.0**10 if arithmetic == "16-mixed" else 1.0
    with autocast:
        loss = model(input_of(stream).to(device), mask).loss
    (loss * scale).backward()
    gradients = [p.grad.flatten().double().cpu() / scale for p in model.parameters() if p.grad is not None]
    return loss.item(), torch.cat(gradients)


@pytest.mark.parametrize("arithmetic", BOUNDS)
@pytest.mark.parametrize("stream", STREAMS)
def test_loss_and_gradients_are_those_of_the_cpu(stream, arithmetic, kind, record_property):
    if arithmetic == "tf32" and kind == "cpu":
        pytest.skip("needs CUDA: a CPU does not compute in tf32")
    expected_loss, expected = loss_and_gradients(stream, "cpu", "32")
    loss, gradients = loss_and_gradients(stream, kind, arithmetic)
    differences = abs(loss / expected_loss - 1), ((gradients - expected).norm() / expected.norm()).item()
    record_property("loss differs by", differences[0])
    record_property("gradients differ by", differences[1])
    assert differences[0] <= BOUNDS[arithmetic][0]
    assert differences[1] <= BOUNDS[arithmetic][1]


@pytest.mark.parametrize("stream", STREAMS)
def test_scores_are_those_of_the_cpu(stream, kind, record_property):
    """In fp32, as in every scoring run."""
    make_reproducible(Profile())
    model, x = model_of(stream).eval(), input_of(stream)
    expected, _ = infer_score(x, model, stream)
    scores, _ = infer_score(x.to(kind), model.to(kind), stream)
    difference = (scores.cpu() / expected - 1).abs().max().item()
    record_property("scores differ by", difference)
    assert difference <= 1e-3


def test_scalograms_are_those_of_the_cpu(kind, record_property):
    transform = Transform(Scalogram(frequencies=48, image_size=64, frequency_min_hz=20.0))
    x_bta = torch.randn(4, 2000, 3, generator=torch.Generator().manual_seed(SEED))
    expected = transform(x_bta, 6400.0)
    difference = (transform(x_bta.to(kind), 6400.0).cpu() - expected).abs().max().item()
    record_property("decades, at most", difference)
    assert difference <= 1e-3


# ------------------------------------------------------------------------------------------------------------ trainings
def run_training(root: Path, *overrides: str):
    values = [*TINY, "training.epochs=2", "training.recoveries=20", "training.promote=always", *overrides]
    loaded = load_config(local_config_file("patchtst"), values, root=root, environment={})
    return train(loaded, root=root)


@pytest.mark.parametrize("precision, bound", [("32", 1e-3), ("16-mixed", 5e-2), ("bf16-mixed", 5e-2)])
def test_a_training_learns_what_it_learns_on_the_cpu(plant, words, kind, precision, bound, record_property):
    """Masks are drawn on the device, so the losses are compared after both have learned."""
    expected = run_training(plant, "training.epochs=8").history[-1].val_loss
    result = run_training(plant, "training.epochs=8", f"precision='{precision}'", *words)
    described = checkpoint.describe(plant / "checkpoints/patchtst_ssl.pt")["hardware"]
    assert (described["kind"], described["precision"]) == (kind, precision)
    ratio = result.history[-1].val_loss / expected
    record_property("validation loss, of the CPU's", ratio)
    assert abs(ratio - 1) <= (bound if kind == "cpu" else 0.25)
    assert result.history[-1].val_loss < 0.7 * result.history[0].val_loss


def test_with_fp16_a_step_that_is_not_finite_changes_nothing(plant, words, kind):
    """A spike of 1e30 in data that is not scaled: first the precision is raised, then steps with the spike are left
    out, and what the run learned stays finite."""
    path = plant / "data/fdc/train_1.csv"
    frame = pd.read_csv(path)
    frame.loc[200, "c1"] = 1e30
    frame.to_csv(path, index=False)
    bare = ("data.scaling.method=none", "data.scaling.clip=1e38", "training.batch_size=1")
    result = run_training(plant, *bare, "precision=16-mixed", *words)
    (folder,) = (plant / "runs/patchtst_ssl").glob("2*")
    recoveries = [record for record in read_metrics(folder / "metrics.jsonl") if record["kind"] == "recovery"]
    assert recoveries[0]["precision"] == "16-mixed"
    raised = [record["remedy"] for record in recoveries if record["remedy"].startswith("computing in")]
    assert raised == [record["remedy"] for record in recoveries[: len(raised)]] != []
    assert len(recoveries) == len(raised) + 8, "four windows contain the spike, in each of two epochs"
    assert json.loads((folder / "status.json").read_text())["state"] == "completed"
    assert math.isfinite(result.history[-1].val_loss)
    state = checkpoint.load(plant / "checkpoints/patchtst_ssl.last.pt")
    assert all(values.isfinite().all() for values in state["model"].values() if values.is_floating_point())
