"""V-03, what the model answers: the same to the same, and not the same to everything."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.config.schema import Stream
from pipelines.checks.base import CheckFailed, CheckSkipped, Context

if TYPE_CHECKING:
    import torch

    from core.data.dataset import PartName
    from inference.scoring import ScoringModel

# Windows looked at, evenly spaced over their part: enough to show that neither repetition nor order changes a score,
# and what a model makes of the data.
_SMOKE_WINDOWS, _JUDGED_WINDOWS = 16, 64
# Share of the data's variance that is as good as none: a reconstruction that changes no more from window to window
# answers the same to everything, and one that explains no more is no better than the mean.
_NOTHING = 1e-3
# Share of the channels whose mean may be as good a prediction as the model's: some sensors are noise.
_UNPREDICTABLE = 0.75

# Per stream, the axes of model input along which the values of one channel lie.
_AXES: dict[Stream, tuple[int, ...]] = {"patchtst": (0, 1), "swinmae": (0, 2, 3)}


def scoring_is_deterministic(context: Context, stream: Stream) -> str:
    """The smoke: a few test windows scored twice, and once in reverse order, give the same scores."""
    import torch

    from inference.scoring import infer_score

    scoring, batch = _model_and_input(context, stream, "test", _SMOKE_WINDOWS)
    first, again = (infer_score(batch, scoring.model, stream)[0] for _ in range(2))
    backwards = infer_score(batch.flip(0), scoring.model, stream)[0].flip(0)
    hint = "train again; if that does not help, this is a fault of Landfall"
    if not torch.allclose(first, again, rtol=0.0, atol=0.0, equal_nan=True):
        raise CheckFailed("the same windows gave other scores the second time", hint)
    if not torch.allclose(first, backwards, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise CheckFailed("the order of windows in a batch changes their scores", hint)
    # NaN is the score of a window without a single observed value.
    if first.isinf().any() or first.isnan().all():
        raise CheckFailed("a score is infinite, or none is a number", hint)
    return f"{len(batch)} windows scored alike twice and in reverse order"


def model_has_not_collapsed(context: Context, stream: Stream) -> str:
    """Hidden values of validation windows are predicted better than by the mean of their channel."""
    answers = _answers(context, stream)
    if not answers.loss:
        raise CheckSkipped(
            "no channel moves in the validation part", "name a livelier stretch in data.parts.validation"
        )
    hint = "train longer; look at training.learning_rate, the loss curve and how the channels are scaled"
    if not all(math.isfinite(loss) for loss in answers.loss):
        raise CheckFailed(f"the reconstruction is not finite: {answers}", hint)
    if max(answers.change) < _NOTHING:
        raise CheckFailed(f"the model has collapsed, it answers the same to everything: {answers}", hint)
    if answers.num_predicted < (1.0 - _UNPREDICTABLE) * len(answers.loss):
        raise CheckFailed(f"the loss is no better than predicting the mean: {answers}", hint)
    return str(answers)


@dataclass(frozen=True)
class Answers:
    """How a model predicts hidden values; one number for each channel that moves in the data.

    loss: mean squared error, in squared units of model input. loss_of_mean: of predicting the channel's mean, which is
    the variance of the data. change: how much the reconstruction of a place varies from window to window, as a share of
    how much the data does there.
    """

    loss: list[float]
    loss_of_mean: list[float]
    change: list[float]

    @property
    def num_predicted(self) -> int:
        """Channels that are predicted better than by their mean."""
        pairs = zip(self.loss, self.loss_of_mean, strict=True)
        return sum(loss < (1.0 - _NOTHING) * of_mean for loss, of_mean in pairs)

    def __str__(self) -> str:
        num = len(self.loss)
        loss, of_mean = sum(self.loss) / num, sum(self.loss_of_mean) / num
        return (
            f"{self.num_predicted} of {num} channels predicted better than by their mean (loss {loss:.4g}, of the mean "
            f"{of_mean:.4g}); from window to window it has up to {max(self.change):.2%} of the data's variance"
        )


def _answers(context: Context, stream: Stream) -> Answers:
    scoring, x = _model_and_input(context, stream, "validation", _JUDGED_WINDOWS)
    reconstruction, error = scoring.model.inpaint(x)
    axes = _AXES[stream]
    loss_c = error.double().nanmean(dim=axes)
    loss_of_mean_c = _variance(x, axes).nanmean(dim=axes)
    changes_c = _variance(reconstruction.masked_fill(x.isnan(), math.nan), (0,)).nanmean(dim=axes)
    of_data_c = _variance(x, (0,)).nanmean(dim=axes)
    moves_c = of_data_c > 0  # neither missing nor the same in every window
    return Answers(*(values_c[moves_c].tolist() for values_c in (loss_c, loss_of_mean_c, changes_c / of_data_c)))


def _variance(values: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """Of the observed values along the axes, which stay with a length of 1."""
    values = values.double()
    return (values - values.nanmean(dim=axes, keepdim=True)).square().nanmean(dim=axes, keepdim=True)


def _model_and_input(context: Context, stream: Stream, part: PartName, most: int) -> tuple[ScoringModel, torch.Tensor]:
    """The trained model, and its input for up to so many windows, evenly spaced over a part."""
    import torch

    from core.data.dataset import load_stream_data
    from core.data.inputs import Inputs
    from core.devices.manager import DeviceManager
    from inference.scoring import load_scoring_model

    config = context.config(stream)
    scoring = load_scoring_model(context.checkpoint(stream), DeviceManager(config).plan(processes=1))
    with tempfile.TemporaryDirectory() as folder:
        # Reading judges the files again; the reports of the run are evidence and stay as they are.
        elsewhere = config.model_copy(update={"dqvl": config.dqvl.model_copy(update={"report_dir": folder})})
        data = load_stream_data(elsewhere, root=context.root, parts=[part], scaler=scoring.scaler)
    windows = data.parts[part]
    index_b = torch.linspace(0, len(windows) - 1, min(most, len(windows))).long()
    inputs = Inputs(windows.subset(index_b), scoring.transform, scoring.device)
    return scoring, inputs.batch(torch.arange(len(index_b)))
