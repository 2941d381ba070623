"""Swin-MAE: masked reconstruction of images with a hierarchical encoder and decoder of shifted-window attention.

Xu, Dai, Liu, Song: Swin MAE: Masked Autoencoders for Small Datasets, 2022 (arXiv 2212.13805).
Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021.

Whole units of patches are replaced by a learned token after the patch embedding; a Swin encoder, a mirrored Swin
decoder without skip connections and a linear head predict their pixels. As in the paper's code there are no absolute
positions and no norm between encoder and decoder.

Shape suffixes: b batch, c channel, h/w rows and columns (of pixels or patches), d width, n mask unit, v attention
window, l patch within a window, a head, p values of a patch.
A missing pixel is NaN, e.g. the plane of an axis the sensor lacks: zero in the input, absent from loss and error.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.config.schema import SwinMAEModel
from core.errors import ConfigError, ConfigFault
from core.models.blocks import run_blocks
from core.models.masking import MaskedModel, MaskedOutput, at_least_float32, masked_mse

TARGET_VARIANCE_FLOOR = 1e-6
WEIGHT_STD = 0.02


@dataclass(frozen=True)
class Preset:
    """A model and the image size it is meant for."""

    model: SwinMAEModel
    image_size: int


PRESETS: dict[str, Preset] = {
    # Trains on a CPU.
    "tiny": Preset(SwinMAEModel(), image_size=64),
    "small": Preset(SwinMAEModel(embed_dim=96, window_size=8, drop_path=0.1), image_size=128),
    # As published: a Swin-T with two blocks in every stage.
    "base": Preset(
        SwinMAEModel(
            embed_dim=96,
            depths=(2, 2, 2, 2),
            num_heads=(3, 6, 12, 24),
            decoder_depths=(2, 2, 2),
            window_size=7,
            drop_path=0.1,
        ),
        image_size=224,
    ),
}


class WindowAttention(nn.Module):
    """Multi-head attention within square windows of a map, with a learned bias per relative position.

    With a shift the map is rolled first, so that windows straddle the borders of the unshifted ones; patches that
    only the roll made neighbours do not attend to each other.
    """

    def __init__(self, dim: int, num_heads: int, map_size: int, window: int, shift: int):
        super().__init__()
        self.num_heads, self.window, self.shift = num_heads, window, shift
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.relative_bias = nn.Parameter(torch.empty((2 * window - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.relative_bias, std=WEIGHT_STD)
        self.register_buffer("relative_index_ll", _relative_index(window), persistent=False)
        self.register_buffer("strangers_vll", _strangers(map_size, window, shift) if shift else None, persistent=False)

    def forward(self, z_bhwd: Tensor) -> Tensor:
        height, width = z_bhwd.shape[1:3]
        if self.shift:
            z_bhwd = z_bhwd.roll((-self.shift, -self.shift), dims=(1, 2))
        z_bvld = to_windows(z_bhwd, self.window)
        batch, num_windows, length, _ = z_bvld.shape

        # Windows and heads share one axis: attention is four-dimensional and its bias repeats over the batch only.
        qkv = self.qkv(z_bvld).unflatten(-1, (3, self.num_heads, -1)).permute(3, 0, 1, 4, 2, 5).flatten(2, 3)
        bias = self.attention_bias(num_windows).flatten(0, 1).to(qkv.dtype).expand(batch, -1, -1, -1)
        z = F.scaled_dot_product_attention(*qkv.unbind(0), attn_mask=bias)
        z_bvld = z.view(batch, num_windows, self.num_heads, length, -1).transpose(2, 3).flatten(-2)

        z_bhwd = from_windows(self.out(z_bvld), height, width, self.window)
        return z_bhwd.roll((self.shift, self.shift), dims=(1, 2)) if self.shift else z_bhwd

    def attention_bias(self, num_windows: int) -> Tensor:
        """What is added to the attention logits: (V, A, L, L)."""
        bias_vall = self.relative_bias[self.relative_index_ll].permute(2, 0, 1).expand(num_windows, -1, -1, -1)
        if self.strangers_vll is None:
            return bias_vall
        return bias_vall.masked_fill(self.strangers_vll.unsqueeze(1), -torch.inf)


class DropPath(nn.Dropout):
    """Stochastic depth: in training, drops a residual branch for whole samples and scales up the others."""

    def forward(self, z_bhwd: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return z_bhwd
        return z_bhwd * super().forward(z_bhwd.new_ones(len(z_bhwd), 1, 1, 1))


class SwinBlock(nn.Module):
    """Window attention, then feed-forward; both pre-norm with a residual. A window as large as the map never shifts."""

    def __init__(self, settings: SwinMAEModel, level: int, map_size: int, drop_path: float, *, shifted: bool):
        super().__init__()
        dim, num_heads = settings.embed_dim * 2**level, settings.num_heads[level]
        window = min(settings.window_size, map_size)
        shift = window // 2 if shifted and window < map_size else 0
        hidden = int(dim * settings.mlp_ratio)
        self.norm_attention = nn.LayerNorm(dim)
        self.attention = WindowAttention(dim, num_heads, map_size, window, shift)
        self.norm_feed_forward = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(settings.dropout), nn.Linear(hidden, dim)
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, z_bhwd: Tensor) -> Tensor:
        z_bhwd = z_bhwd + self.drop_path(self.dropout(self.attention(self.norm_attention(z_bhwd))))
        return z_bhwd + self.drop_path(self.dropout(self.feed_forward(self.norm_feed_forward(z_bhwd))))


class PatchMerging(nn.Module):
    """Joins each 2 × 2 patches into one of twice the width: (B, H, W, D) → (B, H/2, W/2, 2D)."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, z_bhwd: Tensor) -> Tensor:
        quarters = [z_bhwd[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduce(self.norm(torch.cat(quarters, dim=-1)))


class PatchExpanding(nn.Module):
    """Splits each patch into 2 × 2 of half the width: (B, H, W, D) → (B, 2H, 2W, D/2)."""

    def __init__(self, dim: int):
        super().__init__()
        self.expand = nn.Linear(dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(dim // 2)

    def forward(self, z_bhwd: Tensor) -> Tensor:
        batch, height, width, dim = z_bhwd.shape
        z = self.expand(z_bhwd).view(batch, height, width, 2, 2, dim // 2).permute(0, 1, 3, 2, 4, 5)
        return self.norm(z.reshape(batch, 2 * height, 2 * width, dim // 2))


class SwinMAE(MaskedModel):
    """Masked autoencoder of square images.

    Raises ConfigError where the image does not divide into mask units, where a stage cannot halve its map, or where a
    map larger than the attention window does not divide into windows. Seed before constructing: weights are drawn as
    in Swin (truncated normal of .02, zero biases), where the Swin-MAE code draws Xavier weights: docs/experiments.md
    compares the two.

    Under `norm_target` the errors of `inpaint` tell of texture only, since the level and contrast of each patch are
    given.
    """

    def __init__(self, settings: SwinMAEModel, *, image_size: int, in_channels: int = 3):
        _refuse_bad_sizes(settings, image_size)
        num_units = (image_size // (settings.patch_size * settings.mask_unit)) ** 2
        super().__init__((num_units,), settings.mask_ratio)
        self.settings = settings
        self.image_size = image_size
        self.in_channels = in_channels
        self.num_units = num_units

        dim, patch = settings.embed_dim, settings.patch_size
        self.embed = nn.Conv2d(in_channels, dim, kernel_size=patch, stride=patch)
        self.norm_embed = nn.LayerNorm(dim)
        self.mask_token = nn.Parameter(torch.empty(dim))
        self.encoder = _encoder(settings, map_size=image_size // patch)
        self.decoder = _decoder(settings, map_size=image_size // patch)
        self.norm_decoder = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, patch * patch * in_channels)
        self.apply(_initialise)
        nn.init.normal_(self.mask_token, std=WEIGHT_STD)

    def forward(
        self, image_bchw: Tensor, mask_bn: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> MaskedOutput:
        """Hide mask units, predict their pixels, and compare.

        image_bchw: float (B, in_channels, image_size, image_size); NaN is missing. It is computed in the type of the
        weights.
        mask_bn: bool (B, num_units), units row by row, True hides; drawn from `generator` where not given.
        Returns the loss (of normalised patches under `norm_target`), the reconstruction (B, C, H, W) in the units of
        the image, the mask, and how many values the loss averages. Under `norm_target` each reconstructed patch is
        given its true mean and variance.
        """
        if image_bchw.shape[1:] != (self.in_channels, self.image_size, self.image_size):
            expected = f"(B, {self.in_channels}, {self.image_size}, {self.image_size})"
            raise ValueError(f"expected images {expected}, got {tuple(image_bchw.shape)}")
        image_bchw = image_bchw.to(self.dtype)
        if mask_bn is None:
            mask_bn = self.draw_mask(len(image_bchw), generator=generator)
        observed_bchw = ~image_bchw.isnan()
        image_bchw = image_bchw.masked_fill(~observed_bchw, 0.0)
        prediction_bhwp = at_least_float32(self.decode(self.encode(image_bchw, mask_bn)))

        target_bhwp, observed_bhwp = self.patchify(image_bchw), self.patchify(observed_bchw)
        hidden_bhw1 = self.hidden_patches(mask_bn).unsqueeze(-1)
        if self.settings.norm_target:
            mean_bhw1, scale_bhw1 = patch_statistics(target_bhwp, observed_bhwp)
            target_bhwp = (target_bhwp - mean_bhw1) / scale_bhw1
        loss, count = masked_mse(prediction_bhwp, target_bhwp, hidden_bhw1 & observed_bhwp)
        if self.settings.norm_target:
            prediction_bhwp = prediction_bhwp * scale_bhw1 + mean_bhw1
        return MaskedOutput(loss, self.unpatchify(prediction_bhwp), mask_bn, count)

    def encode(self, image_bchw: Tensor, mask_bn: Tensor | None = None) -> Tensor:
        """Images without NaN to the deepest map (B, H', W', D'); the mask token stands in for hidden patches."""
        z_bhwd = self.norm_embed(self.embed(image_bchw).permute(0, 2, 3, 1))
        if mask_bn is not None:
            z_bhwd = torch.where(self.hidden_patches(mask_bn).unsqueeze(-1), self.mask_token.to(z_bhwd.dtype), z_bhwd)
        return run_blocks(self.encoder, z_bhwd, recompute=self.gradient_checkpointing)

    def decode(self, z_bhwd: Tensor) -> Tensor:
        """The deepest map to predicted patches (B, H, W, patch_size² · in_channels)."""
        z_bhwd = run_blocks(self.decoder, z_bhwd, recompute=self.gradient_checkpointing)
        return self.head(self.norm_decoder(z_bhwd))

    def hidden_values(self, mask_bn: Tensor) -> Tensor:
        """Hidden units (B, N) to hidden pixels of every plane, bool (B, 1, H, W)."""
        return _enlarge(self.hidden_patches(mask_bn), self.settings.patch_size).unsqueeze(1)

    def hidden_patches(self, mask_bn: Tensor) -> Tensor:
        """Hidden units (B, N) to hidden patches, bool (B, H, W)."""
        units_per_side = self.image_size // (self.settings.patch_size * self.settings.mask_unit)
        return _enlarge(mask_bn.view(-1, units_per_side, units_per_side), self.settings.mask_unit)

    def patchify(self, image_bchw: Tensor) -> Tensor:
        """Images (B, C, H, W) to patches (B, H', W', patch_size² · C)."""
        patch = self.settings.patch_size
        rows = image_bchw.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # b c h' p w' p
        return rows.permute(0, 2, 4, 3, 5, 1).flatten(3)

    def unpatchify(self, image_bhwp: Tensor) -> Tensor:
        """Patches (B, H', W', patch_size² · C) to images (B, C, H, W)."""
        patch = self.settings.patch_size
        grid = image_bhwp.unflatten(3, (patch, patch, self.in_channels))  # b h' w' p p c
        return grid.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def patch_statistics(target_bhwp: Tensor, observed_bhwp: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (B, H, W, 1) of each patch over its observed values (unbiased, as in MAE)."""
    count_bhw1 = observed_bhwp.sum(-1, keepdim=True)
    mean_bhw1 = (target_bhwp * observed_bhwp).sum(-1, keepdim=True) / count_bhw1.clamp(min=1)
    squared_bhwp = ((target_bhwp - mean_bhw1) * observed_bhwp).square()
    variance_bhw1 = squared_bhwp.sum(-1, keepdim=True) / (count_bhw1 - 1).clamp(min=1)
    return mean_bhw1, (variance_bhw1 + TARGET_VARIANCE_FLOOR).sqrt()


def to_windows(z_bhwd: Tensor, window: int) -> Tensor:
    """Cut a map into windows: (B, H, W, D) → (B, V, window², D)."""
    z = z_bhwd.unflatten(2, (-1, window)).unflatten(1, (-1, window))  # b rows window columns window d
    return z.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def from_windows(z_bvld: Tensor, height: int, width: int, window: int) -> Tensor:
    """Put windows back together: (B, V, window², D) → (B, H, W, D)."""
    z = z_bvld.view(len(z_bvld), height // window, width // window, window, window, -1)
    return z.transpose(2, 3).reshape(len(z_bvld), height, width, -1)


def _relative_index(window: int) -> Tensor:
    """Row of the bias table for each pair of patches in a window: int64 (L, L)."""
    place_l2 = torch.cartesian_prod(torch.arange(window), torch.arange(window))
    offset_ll2 = place_l2[:, None] - place_l2[None, :] + window - 1
    return offset_ll2[..., 0] * (2 * window - 1) + offset_ll2[..., 1]


def _strangers(map_size: int, window: int, shift: int) -> Tensor:
    """Pairs of patches that share a window only because the map was rolled: bool (V, L, L)."""
    position = torch.arange(map_size)
    band = (position >= map_size - window).long() + (position >= map_size - shift).long()
    region_hw = 3 * band[:, None] + band[None, :]
    region_vl = to_windows(region_hw[None, :, :, None], window)[0, :, :, 0]
    return region_vl[:, :, None] != region_vl[:, None, :]


def _enlarge(mask_bhw: Tensor, factor: int) -> Tensor:
    """Repeat every element of the last two axes `factor` times in both directions."""
    return mask_bhw.repeat_interleave(factor, -2).repeat_interleave(factor, -1)


def _stage(settings: SwinMAEModel, level: int, depth: int, map_size: int) -> list[nn.Module]:
    """The blocks of one stage, every second one shifted.

    Stochastic depth rises linearly over the encoder; decoder blocks take the rates of the encoder stage they mirror.
    """
    rates = torch.linspace(0.0, settings.drop_path, sum(settings.depths)).split(settings.depths)[level].tolist()
    return [
        SwinBlock(settings, level, map_size >> level, rates[min(i, len(rates) - 1)], shifted=i % 2 == 1)
        for i in range(depth)
    ]


def _encoder(settings: SwinMAEModel, map_size: int) -> nn.Sequential:
    """Stages of blocks with patch merging between them."""
    layers: list[nn.Module] = []
    for level, depth in enumerate(settings.depths):
        if level:
            layers.append(PatchMerging(settings.embed_dim * 2 ** (level - 1)))
        layers += _stage(settings, level, depth, map_size)
    return nn.Sequential(*layers)


def _decoder(settings: SwinMAEModel, map_size: int) -> nn.Sequential:
    """Patch expanding, then a stage of blocks, for each level from the deepest up."""
    layers: list[nn.Module] = []
    for level, depth in zip(reversed(range(len(settings.depths) - 1)), settings.decoder_depths, strict=True):
        layers.append(PatchExpanding(settings.embed_dim * 2 ** (level + 1)))
        layers += _stage(settings, level, depth, map_size)
    return nn.Sequential(*layers)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=WEIGHT_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _refuse_bad_sizes(settings: SwinMAEModel, image_size: int) -> None:
    unit = settings.patch_size * settings.mask_unit
    deepest = settings.patch_size * 2 ** (len(settings.depths) - 1)
    faults = [
        ConfigFault("scalogram.image_size", f"{image_size} does not divide into {name} of {step} pixels")
        for name, step in (("mask units", unit), ("patches of the deepest stage", deepest))
        if image_size % step
    ]
    if image_size < 2 * unit:
        faults.append(ConfigFault("model.mask_unit", f"an image of {image_size} holds no two units of {unit} pixels"))
    for level in range(len(settings.depths)):
        size, window = image_size // settings.patch_size >> level, settings.window_size
        if size > window and size % window:
            problem = f"{window} does not divide the {size} patches per side of stage {level}"
            faults.append(ConfigFault("model.window_size", problem))
    if faults:
        raise ConfigError("Swin-MAE", faults)
