"""Checks of the scores of the model: equal for equal windows, and different for different windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.config.schema import Stream
from core.numbers import plain
from pipelines.checks.base import CheckFailed, CheckSkipped, Context

if TYPE_CHECKING:
    import torch

    from core.data.dataset import SplitName
    from core.models.skill import Skill
    from inference.scoring import ScoringModel

# Number of windows, evenly spaced over their split: enough to show that neither repetition nor order changes a score,
# and whether the reconstruction depends on the data.
_SMOKE_WINDOWS, _JUDGED_WINDOWS = 16, 64
# Minimum of a valid model: skill compared with the mean training input, and variance of its reconstruction from window
# to window relative to that of the data. A model with the same output for every window has 0 of both. The limits are
# low because data of a machine at one speed and load is hardly predictable: a bearing of CWRU has a skill of .006.
_LEAST_SKILL = _LEAST_CHANGE = 1e-3


def scoring_is_deterministic(context: Context, stream: Stream) -> str:
    """A few test windows, scored twice and once in reverse order, have the same scores."""
    import torch

    from inference.scoring import infer_score

    scoring, batch = _model_and_input(context, stream, "test", _SMOKE_WINDOWS)
    first, again = (infer_score(batch, scoring.model, stream)[0] for _ in range(2))
    backwards = infer_score(batch.flip(0), scoring.model, stream)[0].flip(0)
    hint = "train again; if that does not help, this is a fault of Landfall"
    if not torch.allclose(first, again, rtol=0.0, atol=0.0, equal_nan=True):
        raise CheckFailed("the same windows had different scores the second time", hint)
    if not torch.allclose(first, backwards, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise CheckFailed("the order of windows in a batch changes their scores", hint)
    # NaN is the score of a window without a single observed value.
    if first.isinf().any() or first.isnan().all():
        raise CheckFailed("a score is infinite, or all scores are NaN", hint)
    return f"{len(batch)} windows have equal scores twice and in reverse order"


def model_has_not_collapsed(context: Context, stream: Stream) -> str:
    """Masked values of validation windows are predicted better than by the mean training input."""
    result = _reconstruction(context, stream)
    if result.skill.total is None or result.change is None:
        raise CheckSkipped(
            "no channel changes in the validation split", "select rows with changes in data.splits.validation"
        )
    hint = "train longer; look at training.learning_rate, the loss curve and the scales of the channels"
    if not math.isfinite(result.skill.total):
        raise CheckFailed(f"the reconstruction is not finite: {result}", hint)
    if result.change < _LEAST_CHANGE:
        raise CheckFailed(f"the model has collapsed, its reconstruction hardly varies: {result}", hint)
    if result.skill.total < _LEAST_SKILL:
        raise CheckFailed(f"no better than the mean training input: {result}", hint)
    return str(result)


@dataclass(frozen=True)
class Reconstruction:
    """The quality of a model's predictions of masked values of validation windows, with the masks of scoring.

    change: variance of the reconstruction from window to window at the same position, divided by that of the data; None
    if the data does not vary.
    """

    skill: Skill
    change: float | None

    def __str__(self) -> str:
        variance = f"the reconstruction has {plain(100 * self.change, 2)} % of the data's variance"
        return f"with the masks of scoring, {self.skill.in_full()}; {variance}"


def _reconstruction(context: Context, stream: Stream) -> Reconstruction:
    from core.models.skill import Skill, error_sums

    scoring, x = _model_and_input(context, stream, "validation", _JUDGED_WINDOWS)
    if scoring.mean_input is None:
        raise CheckFailed("the checkpoint contains no mean training input to compare with", "train again")
    reconstruction, _ = scoring.model.inpaint(x)
    observed = ~x.isnan()
    axis = scoring.model.channel_axis
    sums_cs = error_sums(x, reconstruction, scoring.mean_input, observed, channel_axis=axis)
    of_data = _variance(x)
    change = _variance(reconstruction.masked_fill(~observed, math.nan)) / of_data if of_data > 0 else None
    return Reconstruction(Skill.of(sums_cs, scoring.channels), change)


def _variance(values: torch.Tensor) -> float:
    """Variance of the observed values at each position over the windows, averaged over positions."""
    values = values.double()
    return (values - values.nanmean(dim=0, keepdim=True)).square().nanmean().item()


def _model_and_input(
    context: Context, stream: Stream, split: SplitName, most: int
) -> tuple[ScoringModel, torch.Tensor]:
    """The trained model, and its input for at most `most` windows, evenly spaced over a split."""
    import torch

    from core.config.recipe import as_trained
    from core.data.dataset import load_stream_data
    from core.data.inputs import Inputs, evenly_spaced
    from core.devices.manager import DeviceManager
    from inference.scoring import load_scoring_model

    if context.splits_elsewhere(stream, [split]):
        raise CheckSkipped(
            f"the model was imported, and the files of data.splits.{split} are not in this workspace",
            "copy them to where data.splits names them",
        )
    config = context.config(stream)
    scoring = load_scoring_model(context.checkpoint(stream), DeviceManager(config).plan(processes=1))
    config = as_trained(config, scoring.config.model_dump(mode="json"))
    # Reading checks the files again; the reports of the run must not be overwritten.
    data = load_stream_data(config, root=context.root, splits=[split], scaler=scoring.scaler, write_reports=False)
    windows = data.splits[split]
    chosen = windows.subset(evenly_spaced(len(windows), most).numpy())
    return scoring, Inputs(chosen, scoring.transform, scoring.device).batch(torch.arange(len(chosen)))
