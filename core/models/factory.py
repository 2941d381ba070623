"""From a configuration to the model it describes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from core.config.schema import Config, Stream
from core.errors import DataError
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE

# One image plane per axis of a vibration sensor; the planes of axes a sensor lacks are missing (NaN).
NUM_PLANES = 3


def _patchtst(config: Config, num_channels: int) -> nn.Module:
    return PatchTST(config.model, num_channels=num_channels, window=config.data.window)


def _swinmae(config: Config, num_channels: int) -> nn.Module:
    if num_channels > NUM_PLANES:
        raise DataError(
            f"{num_channels} vibration channels, the model has {NUM_PLANES} image planes",
            hint="choose the axes with data.channels",
        )
    return SwinMAE(config.model, image_size=config.scalogram.image_size, in_channels=NUM_PLANES)


BUILDERS: dict[Stream, Callable[[Config, int], nn.Module]] = {"patchtst": _patchtst, "swinmae": _swinmae}


def build_model(config: Config, *, num_channels: int) -> nn.Module:
    """The model of `config.stream`, freshly initialised from torch's global generator: seed before calling.

    num_channels: sensors of the FDC data, or axes of the vibration data (up to three, one model for all).
    Raises ConfigError for sizes that do not fit together and DataError for too many axes.
    """
    return BUILDERS[config.stream](config, num_channels)


def count_parameters(model: nn.Module) -> int:
    """How many weights training changes."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
