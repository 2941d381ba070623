"""Builds the model that a configuration describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from core.config.models import NUM_PLANES, SwinMAEModel
from core.config.schema import Config, Stream
from core.errors import DataError
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE


def _patchtst(config: Config, num_channels: int) -> nn.Module:
    return PatchTST(config.model, num_channels=num_channels, window=config.data.window)


def _swinmae(config: Config, num_channels: int) -> nn.Module:
    if num_channels > NUM_PLANES:
        raise DataError(
            f"{num_channels} vibration channels, the model has {NUM_PLANES} image planes",
            hint="choose the axes with data.channels",
        )
    scalogram = config.scalogram
    in_channels = NUM_PLANES * scalogram.pictures
    return SwinMAE(
        config.model,
        image_size=scalogram.image_size,
        in_channels=in_channels,
        num_axes=num_channels,
        level_rows=scalogram.level_rows,
    )


# Limit of the values in masks and indices, far above those of any model size of Landfall.
_MAX_CONSTANTS = 1 << 28

BUILDERS: dict[Stream, Callable[[Config, int], nn.Module]] = {"patchtst": _patchtst, "swinmae": _swinmae}


def build_model(config: Config, *, num_channels: int) -> nn.Module:
    """The model of `config.stream`, freshly initialised from torch's global generator: seed before calling.

    num_channels: sensors of the FDC data, or axes of the vibration data (up to three, one model for all).
    Raises ConfigError for sizes that do not fit together and DataError for too many axes.
    """
    return BUILDERS[config.stream](config, num_channels)


def refuse_other_weights(config: Config, weights: Mapping[str, Any], *, num_bytes: int) -> None:
    """Raises ValueError if `weights`, from a file of `num_bytes`, cannot be those of the model that `config` describes.

    Call it before the model is built: the configuration in an untrusted file may describe a model of any size. If this
    check passes, building the model needs at most a small multiple of the memory of the weights. Shapes are compared
    when the weights are loaded.
    """
    if not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise ValueError("contains weights that are not tensors")
    declared = sum(weight.numel() * weight.element_size() for weight in weights.values())
    if declared > num_bytes:
        raise ValueError(f"declares weights of {declared} bytes in a file of {num_bytes}")
    sizes = _outline_swinmae(config) if isinstance(config.model, SwinMAEModel) else _outline_patchtst(config)
    if sizes.layers > len(weights):
        raise ValueError(f"describes {sizes.layers} layers and contains {len(weights)} tensors")
    if sizes.weights > (held := sum(weight.numel() for weight in weights.values())):
        raise ValueError(f"describes at least {sizes.weights:.3g} weights and contains {held}")
    if sizes.constants > _MAX_CONSTANTS:
        raise ValueError(f"describes masks and indices of {sizes.constants:.3g} values")


class _Outline(NamedTuple):
    """Size of a model without building it. layers: their number. weights: a lower bound of their number. constants: an
    upper bound of the number of values in masks and indices."""

    layers: int
    weights: float
    constants: float


def _outline_patchtst(config: Config) -> _Outline:
    model = config.model
    decoder = model.decoder_layers if model.drop_masked_tokens else 0
    weights = model.num_layers * model.d_model * (4 * model.d_model + 2 * model.d_ff)
    weights += decoder * 4 * model.decoder_width**2 + model.patch_length * model.d_model
    if model.channel_attention == "groups":
        weights += model.num_layers * model.channel_groups * model.d_model
    num_patches = config.data.window / model.patch_length
    return _Outline(model.num_layers + decoder, weights, num_patches * (model.d_model + 1 / model.mask_ratio))


def _outline_swinmae(config: Config) -> _Outline:
    model = config.model
    depths = (*model.depths, *model.decoder_depths)
    biases = (2 * model.window_size - 1) ** 2
    weights = sum(depth * (4 * (model.embed_dim * 2**stage) ** 2 + biases) for stage, depth in enumerate(model.depths))
    weights += sum(model.decoder_depths) * biases + 3 * model.patch_size**2 * model.embed_dim
    places = max(config.scalogram.image_size, model.mask_unit) ** 2
    constants = sum(depths) * model.window_size**2 * (model.window_size**2 + places / model.patch_size**2)
    return _Outline(sum(depths), weights, constants + places / model.mask_ratio)


def count_parameters(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
