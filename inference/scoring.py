"""Scores of a trained model: its prediction errors for masked values.

All arithmetic is float32, regardless of the precision of training, so that a threshold means the same on every device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core import checkpoint
from core.config.compose import config_from_dict
from core.config.execution import DeviceKind
from core.config.models import NUM_PLANES
from core.config.schema import AnyConfig, Stream
from core.data.inputs import InputTransform, build_transform
from core.data.scaling import Scaler
from core.devices.plan import DevicePlan
from core.errors import CheckpointError, ConfigError
from core.models.factory import build_model, refuse_other_weights
from inference.predictor import refuse_other_input

# Per stream, the axes of an error to average over for one value per point in time: windows are (B, T, C), images
# (B, plane, frequency, time).
_TIME_AXES: dict[Stream, tuple[int, ...]] = {"patchtst": (2,), "swinmae": (1, 2)}


# -------------------------------------------------------------------------------------------------------------- a batch
@torch.no_grad()
def infer_score(batch: Tensor, model: nn.Module, stream: Stream) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores of model input: the mean error of each sample, with every value predicted while it is masked. Errors are
    squared, or standardised by the predicted variance.

    batch: float32 (B, T, C) for `patchtst`, (B, 3, H, W) for `swinmae`, in scaled units; NaN is missing. Images have
    six planes with `scalogram.envelope`, and one more row, with the level, with `scalogram.level: separate`.
    Returns (score, aux). score: float32 (B,), NaN for a sample without any observed value, because 0 would mean normal.
    aux, all float32; means are over observed values only:
        error: the shape of the batch, NaN where a value is missing
        expected: the shape of the batch, the predictions
        channel_error: (B, C), or (B, 3) for images
        time_error: (B, T), or (B, W) for images

    There is no randomness, and samples do not affect each other: the same sample gets the same score at every call and
    in every batch, up to the rounding of the device's matrix products.
    """
    expected, error = model.inpaint(batch)
    aux = {
        "error": error,
        "expected": expected,
        "channel_error": channel_errors(error, stream),
        "time_error": error.nanmean(dim=_TIME_AXES[stream]),
    }
    return error.flatten(1).nanmean(dim=1), aux


def channel_errors(error: Tensor, stream: Stream) -> Tensor:
    """Mean errors of each sample: (B, C) of windows, (B, 3) of images, over all pictures of an axis."""
    if stream == "patchtst":
        return error.nanmean(dim=1)
    return error.unflatten(1, (-1, NUM_PLANES)).nanmean(dim=(1, 3, 4))


@torch.no_grad()
def infer_forecast(batch: Tensor, model: nn.Module) -> dict[str, Tensor]:
    """Errors of the newest patch of windows of process sensors, predicted without any later row: from the rows before
    it and, by a model with attention between channels, from the other channels. Errors are standardised by the
    predicted variance, if the model predicts it.

    batch: float32 (B, T, C) as in `infer_score`. Returns `error` and `expected`, float32 (B, P, C), for the last P rows
    of each window; as deterministic as `infer_score`.
    """
    expected, error = model.forecast(batch)
    return {"error": error, "expected": expected}


# ------------------------------------------------------------------------------------------------------------ the model
@dataclass(frozen=True)
class ScoringModel:
    """A trained model and the preprocessing of its input.

    config: the configuration it was trained with. sampling_rate_hz: rate of the training data, if known.
    mean_input: the mean training input, with the shape of one sample; None if the checkpoint does not have it.
    sha256: digest of the checkpoint file. training_rows: as returned by `core.data.overlap.row_ranges`; None if an
    older version of Landfall wrote the checkpoint.
    """

    model: nn.Module
    config: AnyConfig
    scaler: Scaler
    transform: InputTransform
    channels: tuple[str, ...]
    sampling_rate_hz: float | None
    plan: DevicePlan
    run_id: str
    path: Path
    sha256: str
    mean_input: Tensor | None = None
    training_rows: Sequence[Mapping[str, Any]] | None = None

    @property
    def stream(self) -> Stream:
        return self.config.stream

    @property
    def device(self) -> torch.device:
        return self.plan.device

    @property
    def kind(self) -> DeviceKind:
        return self.plan.kind


def load_scoring_model(path: Path, plan: DevicePlan, *, config: AnyConfig | None = None) -> ScoringModel:
    """The model of a checkpoint, ready on the plan's device.

    config: the configuration of scoring, with its model size resolved; None uses that of the checkpoint.
    Raises CheckpointError for a file that is missing, damaged or not a checkpoint, and if the model's input would
    differ from its training input (`refuse_other_input`).
    """
    state, description = checkpoint.load_described(path)
    try:
        trained = config_from_dict(state["config"], source=str(path))
        if config is not None:
            refuse_other_input(path, trained, config)
        scaler = Scaler.from_dict(state["scaler"])
        transform = build_transform(trained, sampling_rate_hz=state["sampling_rate_hz"], fitted=state["transform"])
        refuse_other_weights(trained, state["model"], num_bytes=description["bytes"])
        model = build_model(trained, num_channels=len(state["channels"]))
        model.load_state_dict(state["model"], strict=True)
    except KeyError as error:
        raise CheckpointError(
            path, f"has no key {error}", hint="it was not written by training; train again"
        ) from error
    except (ConfigError, RuntimeError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(path, f"has no model for this version: {error}", hint="train again") from error
    return ScoringModel(
        model=model.to(plan.device).eval().requires_grad_(False),
        config=trained,
        scaler=scaler,
        transform=transform,
        channels=tuple(state["channels"]),
        sampling_rate_hz=state["sampling_rate_hz"],
        plan=plan,
        run_id=state["run_id"],
        path=path,
        sha256=description["sha256"],
        mean_input=None if (mean := state.get("mean_input")) is None else mean.to(plan.device),
        training_rows=state.get("training_rows"),
    )
