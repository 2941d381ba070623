"""Swin-MAE: masked reconstruction of images with a hierarchical encoder and decoder of shifted-window attention.

Xu, Dai, Liu, Song: Swin MAE: Masked Autoencoders for Small Datasets, 2022 (arXiv 2212.13805).
Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021.

Units of patches are replaced by a learned token after the patch embedding. A Swin encoder, a mirrored Swin decoder
without skip connections and a linear head predict their pixels. As in the code of the paper, there are no absolute
positions and no norm between encoder and decoder.

With `decoder: light`, all blocks of the decoder are on the deepest feature map, and the head predicts all pixels of a
position of that map: SimMIM (Xie et al., CVPR 2022, arXiv 2111.09886) with blocks before its head. The decoder adds
positions, as in He et al. (Masked Autoencoders Are Scalable Vision Learners, CVPR 2022).

Masks in training are random units, as in the paper, or complete frequency bands, time spans, or axes of the sensor
(`masks`). The patches of all axes have one embedding, so the pixels of a masked axis are set to zero before it, and a
learned token is added. Unless `output` is `point`, a second head predicts the variance of each pixel.

With `level_rows`, the images are relative to their level, which is given as rows below those of the image. An embedding
of the levels of all planes is added to the patches, or a learned token where the levels are masked, and a linear layer
predicts them from the mean of the last feature map. They are masked in half of the training windows.

With `drop_masked_tokens`, the encoder processes visible patches only, which is faster. The learned token replaces the
masked patches in the deepest feature map, before the decoder. `visible_windows.py` maps visible patches to windows.

Shape suffixes: b batch, c channel, h/w rows and columns (of pixels or patches), d width, n mask unit, u visible unit,
t token of a visible patch, p values of a patch, v attention window, l patch within a window, a head.
A missing pixel is NaN, for example in the plane of an axis that the sensor does not have. It is zero in the input and
excluded from loss and error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.config.models import NUM_PLANES, Output
from core.config.schema import SwinMAEModel
from core.errors import ConfigError, ConfigFault
from core.models.blocks import run_blocks
from core.models.masking import (
    MaskedModel,
    MaskedOutput,
    at_least_float32,
    complementary_masks,
    likelihood_loss,
    log_variance_of,
    masked_mse,
    one_of,
    random_mask,
)
from core.models.positions import map_sinusoids
from core.models.visible_windows import (
    VisibleMap,
    WindowChunks,
    chunk_windows,
    visible_units,
    with_neighbours,
    z_curve,
)

WEIGHT_STD = 0.02


class WindowAttention(nn.Module):
    """Multi-head attention within square windows of a map, with a learned bias per relative position.

    With a shift, the map is rolled first, so that windows cross the borders of the unshifted windows. A mask prevents
    attention between patches that are neighbours only because of the roll. `among_visible` uses the same weights for
    maps that contain visible patches only.
    """

    def __init__(self, dim: int, num_heads: int, map_size: int, window: int, shift: int):
        super().__init__()
        self.num_heads, self.window, self.shift = num_heads, window, shift
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.relative_bias = nn.Parameter(torch.empty((2 * window - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.relative_bias, std=WEIGHT_STD)
        self.register_buffer("relative_index_ll", _relative_index(window), persistent=False)
        self.register_buffer(
            "shift_mask_vll", _shift_mask(map_size, window, shift) if shift else None, persistent=False
        )

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
        """The term that is added to the attention logits: (V, A, L, L)."""
        bias_vall = self.relative_bias[self.relative_index_ll].permute(2, 0, 1).expand(num_windows, -1, -1, -1)
        if self.shift_mask_vll is None:
            return bias_vall
        return bias_vall.masked_fill(self.shift_mask_vll.unsqueeze(1), -torch.inf)

    def among_visible(self, z_btd: Tensor, chunks: WindowChunks) -> Tensor:
        """Attention between visible patches of the same window: (B, T, D) → (B, T, D)."""
        batch, (num_chunks, size) = z_btd.shape[0], chunks.pair_bkqs.shape[1:3]
        qkv = self.qkv(chunks.sort(z_btd)).view(batch, num_chunks, size, 3, self.num_heads, -1)
        q, k, v = qkv.permute(3, 4, 0, 1, 2, 5).flatten(1, 2).unbind(0)  # heads and batch, chunk, token, d
        bias = chunks.bias(self.relative_bias.to(qkv.dtype)).expand(-1, batch, -1, -1, -1).flatten(0, 1)
        z = F.scaled_dot_product_attention(q, with_neighbours(k), with_neighbours(v), attn_mask=bias)
        z_btd = z.reshape(self.num_heads, *z_btd.shape[:2], -1).permute(1, 2, 0, 3).flatten(2)
        return chunks.unsort(self.out(z_btd))


class DropPath(nn.Dropout):
    """Stochastic depth: in training, drops a residual branch for complete samples and scales up the others."""

    def forward(self, z: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return z
        return z * super().forward(z.new_ones(len(z), *[1] * (z.dim() - 1)))


class SwinBlock(nn.Module):
    """Window attention, then feed-forward; both pre-norm with a residual. A window as large as the map is not shifted.

    Input and output are a map (B, H, W, D), or a VisibleMap.
    """

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

    def forward(self, z: Tensor | VisibleMap) -> Tensor | VisibleMap:
        if isinstance(z, VisibleMap):
            attention = partial(self.attention.among_visible, chunks=z.stages[0][self.attention.shift])
            return z._replace(z_btd=self._residuals(z.z_btd, attention))
        return self._residuals(z, self.attention)

    def _residuals(self, z: Tensor, attention: Callable[[Tensor], Tensor]) -> Tensor:
        z = z + self.drop_path(self.dropout(attention(self.norm_attention(z))))
        return z + self.drop_path(self.dropout(self.feed_forward(self.norm_feed_forward(z))))


class PatchMerging(nn.Module):
    """Merges 2 × 2 patches into one of twice the width: (B, H, W, D) → (B, H/2, W/2, 2D)."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, z: Tensor | VisibleMap) -> Tensor | VisibleMap:
        if isinstance(z, VisibleMap):
            return VisibleMap(self.reduce(self.norm(z.z_btd.unflatten(1, (-1, 4)).flatten(2))), z.stages[1:])
        quarters = [z[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
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


class Positions(nn.Module):
    """Adds learned positions to a feature map: (B, H, W, D) → (B, H, W, D)."""

    def __init__(self, side: int, width: int):
        super().__init__()
        self.position_hwd = nn.Parameter(map_sinusoids(side, width))

    def forward(self, z_bhwd: Tensor) -> Tensor:
        return z_bhwd + self.position_hwd


class Levels(nn.Module):
    """The levels of the planes of an image: their embedding, and their prediction."""

    def __init__(self, num_planes: int, dim: int, decoder_dim: int, *, output: Output):
        super().__init__()
        self.embed = nn.Linear(num_planes, dim)
        self.mask_token = nn.Parameter(WEIGHT_STD * torch.randn(dim))
        self.head = nn.Linear(decoder_dim, num_planes)
        self.variance_head = nn.Linear(decoder_dim, num_planes) if output != "point" else None

    def forward(self, level_bc: Tensor, masked_b1: Tensor) -> Tensor:
        """What is added to the patches of an image: (B, D)."""
        embedded_bd = self.embed(level_bc)
        return torch.where(masked_b1, self.mask_token.to(embedded_bd.dtype), embedded_bd)

    def predict(self, z_bhwd: Tensor) -> tuple[Tensor, Tensor | None]:
        """Levels (B, C) and the logarithm of their variance, from the last feature map."""
        z_bd = z_bhwd.mean(dim=(1, 2))
        log_variance_bc = None if self.variance_head is None else log_variance_of(self.variance_head(z_bd))
        return at_least_float32(self.head(z_bd)), log_variance_bc


class SwinMAE(MaskedModel):
    """Masked autoencoder of square images.

    Raises ConfigError if the image cannot be divided into mask units, if a stage cannot halve its map, or if a map that
    is larger than the attention window cannot be divided into windows. Set the seed before. Initial weights are those
    of Swin (truncated normal of .02, zero biases), not the Xavier weights of the Swin-MAE code; dev/LOG.md compares
    both.
    """

    channel_axis = 1

    def __init__(
        self,
        settings: SwinMAEModel,
        *,
        image_size: int,
        in_channels: int = NUM_PLANES,
        num_axes: int = NUM_PLANES,
        level_rows: int = 0,
    ):
        _refuse_bad_sizes(settings, image_size)
        units_per_side = image_size // (settings.patch_size * settings.mask_unit)
        num_units = units_per_side**2
        super().__init__((num_units,), settings.mask_ratio, settings.output)
        self.units_per_side = units_per_side
        self.settings = settings
        self.image_size = image_size
        self.in_channels, self.level_rows = in_channels, level_rows
        self.num_units = num_units

        dim, patch = settings.embed_dim, settings.patch_size
        self.embed = nn.Conv2d(in_channels, dim, kernel_size=patch, stride=patch)
        self.norm_embed = nn.LayerNorm(dim)
        self.drops_masked = settings.drop_masked_tokens
        deepest = len(settings.depths) - 1
        # Replaces masked patches before the encoder or, with drop_masked_tokens, after it.
        self.mask_token = nn.Parameter(torch.empty(dim * 2**deepest if self.drops_masked else dim))
        # A single axis cannot be predicted from others.
        self.num_axes = num_axes if "axes" in settings.masks and num_axes > 1 else 0
        self.axis_token_ad = nn.Parameter(WEIGHT_STD * torch.randn(self.num_axes, dim)) if self.num_axes else None
        self.encoder = _encoder(settings, map_size=image_size // patch)
        self.decoder = _DECODERS[settings.decoder](settings, map_size=image_size // patch)
        # Patches per side of one position of the last feature map of the decoder.
        self.head_patches = 2**deepest if settings.decoder == "light" else 1
        self.norm_decoder = nn.LayerNorm(dim * self.head_patches)
        num_pixels = (patch * self.head_patches) ** 2 * in_channels
        self.head = nn.Linear(dim * self.head_patches, num_pixels)
        self.variance_head = nn.Linear(dim * self.head_patches, num_pixels) if settings.output != "point" else None
        decoder_dim = dim * self.head_patches
        self.levels = Levels(in_channels, dim, decoder_dim, output=settings.output) if level_rows else None
        band_masks_qr = complementary_masks(self.units_per_side, settings.mask_ratio)
        self._band_sizes = (band_masks_qr.sum(-1) * self.units_per_side).tolist()
        band_masks_qn = band_masks_qr.repeat_interleave(self.units_per_side, -1)
        self.register_buffer("band_masks_qn", band_masks_qn, persistent=False)
        place_t2 = z_curve(settings.mask_unit, deepest) if self.drops_masked else None
        self.register_buffer("place_t2", place_t2, persistent=False)
        self.apply(_initialise)
        nn.init.normal_(self.mask_token, std=WEIGHT_STD)

    def forward(
        self,
        image_bchw: Tensor,
        mask_bn: Tensor | None = None,
        *,
        num_masked: int | None = None,
        generator: torch.Generator | None = None,
    ) -> MaskedOutput:
        """Masks units, predicts their pixels, and computes the loss.

        image_bchw: float (B, in_channels, image_size, image_size); NaN is missing. Converted to the data type of the
        weights. With `level_rows`, as many rows with the level of each plane follow.
        mask_bn: bool (B, num_units), units row by row, True is masked; (1, num_units) for one mask of all images, which
        is faster. With `masks: axes`, an entry for each axis follows, with `level_rows` one for all levels. Default:
        drawn from `generator`.
        num_masked: number of masked units of `mask_bn` in each image; default: that of `mask_ratio`. With
        `drop_masked_tokens`, the encoder gets num_units - num_masked units: if the mask has fewer masked units, some
        visible ones are not used; if it has more, some masked ones are used as zeros.
        Returns the loss, the reconstruction (B, C, H, W), the mask, and the number of values in the loss.
        """
        height = self.image_size + self.level_rows
        if image_bchw.shape[1:] != (self.in_channels, height, self.image_size):
            expected = f"(B, {self.in_channels}, {height}, {self.image_size})"
            raise ValueError(f"expected images {expected}, got {tuple(image_bchw.shape)}")
        image_bchw = image_bchw.to(self.dtype)
        if mask_bn is None:
            mask_bn = self.draw_mask(len(image_bchw), generator=generator)
        observed_bchw = ~image_bchw.isnan()
        chosen_bchw = observed_bchw & self.masked_values(mask_bn)
        image_bchw = image_bchw.masked_fill(~observed_bchw, 0.0)
        levels_bd = None
        if self.levels is not None:
            rows = [self.image_size, self.level_rows]
            (image_bchw, target_bcrw), (chosen_bchw, chosen_bcrw) = (
                each.split(rows, dim=2) for each in (image_bchw, chosen_bchw)
            )
            levels_bd = self._embed_levels(target_bcrw[:, :, 0, 0], mask_bn)
        z_bhwd = self.decode(self.encode(image_bchw, mask_bn, num_masked=num_masked, levels_bd=levels_bd))
        prediction_bhwp = at_least_float32(self._patches(self.head(z_bhwd)))
        log_variance_bhwp = None
        if self.variance_head is not None:
            log_variance_bhwp = log_variance_of(self._patches(self.variance_head(z_bhwd)))

        target_bhwp, chosen_bhwp = self.patchify(image_bchw), self.patchify(chosen_bchw)
        values = (prediction_bhwp, log_variance_bhwp, target_bhwp, chosen_bhwp)
        if self.levels is not None:
            level_bcrw, level_log_variance_bcrw = map(self._as_rows, self.levels.predict(z_bhwd))
            of_levels = (level_bcrw, level_log_variance_bcrw, target_bcrw, chosen_bcrw)
            values = tuple(map(_joined, values, of_levels))
        prediction, log_variance, target, chosen = values
        loss, count = masked_mse(prediction, target, chosen)
        if log_variance is not None and torch.is_grad_enabled():
            loss = likelihood_loss(loss, prediction, log_variance, target, chosen, output=self.output)
        reconstruction = self.unpatchify(prediction_bhwp)
        variance = None if log_variance_bhwp is None else self.unpatchify(log_variance_bhwp)
        if self.levels is not None:
            reconstruction = torch.cat([reconstruction, level_bcrw], dim=2)
            variance = None if variance is None else torch.cat([variance, level_log_variance_bcrw], dim=2)
        return MaskedOutput(loss, reconstruction, mask_bn, count, variance)

    def _embed_levels(self, level_bc: Tensor, mask_bn: Tensor) -> Tensor:
        """What is added to the patches for the levels of the planes; those of masked axes are zero: (B, D)."""
        if self.num_axes:
            level_bc = level_bc.masked_fill(self._masked_planes(mask_bn)[..., 0, 0], 0.0)
        return self.levels(level_bc, mask_bn[:, -1:])

    def _as_rows(self, level_bc: Tensor | None) -> Tensor | None:
        """Levels as rows of an image: (B, C) → (B, C, level_rows, W)."""
        if level_bc is None:
            return None
        return level_bc[..., None, None].expand(-1, -1, self.level_rows, self.image_size)

    def draw_mask(
        self, batch_size: int, *, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """A random mask for each image, bool (B, num_units), as for `forward`: of one of the kinds in `masks`, drawn at
        random."""
        where = {"generator": generator, "device": device or self.passes_qn.device}
        kinds = [kind for kind in self.settings.masks if kind != "axes"]
        drawn = [F.pad(MASKS[kind](self, batch_size, **where), (0, self.num_axes)) for kind in kinds]
        if self.num_axes:
            axis_ba = random_mask((batch_size,), self.num_axes, 1 / self.num_axes, **where)
            drawn.append(F.pad(axis_ba, (self.num_units, 0)))
        mask_bn = one_of(drawn or [_mask_units(self, batch_size, **where)], generator)
        if self.levels is None:
            return mask_bn
        return torch.cat([mask_bn, random_mask((batch_size,), 2, 0.5, **where)[:, :1]], dim=1)

    def passes(self) -> Iterator[tuple[Tensor, int | None]]:
        """With `masks: axes`, one axis after the other; with `bands`, complementary sets of complete frequency bands.
        Otherwise a tone would be predicted from other axes or times of the same window. The levels are masked in the
        first pass; with `axes`, that of an axis is masked with it."""
        for number, (mask_1n, size) in enumerate(self._passes_of_images()):
            if self.levels is not None:
                masks_levels = torch.full_like(mask_1n[:, :1], number == 0 and not self.num_axes)
                mask_1n = torch.cat([mask_1n, masks_levels], dim=1)
            yield mask_1n, size

    def _passes_of_images(self) -> Iterator[tuple[Tensor, int | None]]:
        if self.num_axes:
            axes_an = torch.arange(-self.num_units, self.num_axes, device=self.passes_qn.device)
            yield from ((axes_an.eq(axis).unsqueeze(0), None) for axis in range(self.num_axes))
        elif "bands" in self.settings.masks:
            bands = zip(self.band_masks_qn, self._band_sizes, strict=True)
            yield from ((mask_n.unsqueeze(0), size) for mask_n, size in bands)
        else:
            yield from super().passes()

    def encode(
        self,
        image_bchw: Tensor,
        mask_bn: Tensor | None = None,
        *,
        num_masked: int | None = None,
        levels_bd: Tensor | None = None,
    ) -> Tensor:
        """Images without NaN to the deepest feature map (B, H', W', D'); the mask token replaces masked patches.

        Without a mask, all patches pass through the encoder, also with `drop_masked_tokens`. levels_bd: added to each
        patch.
        """
        if mask_bn is not None and self.drops_masked:
            num_visible = self.num_units - (self.num_masked if num_masked is None else num_masked)
            image_bchw = image_bchw.masked_fill(self._masked_pixels(mask_bn), 0.0)
            return self._encode_visible(image_bchw, mask_bn, num_visible, levels_bd)
        if mask_bn is not None and self.axis_token_ad is not None:
            image_bchw = image_bchw.masked_fill(self._masked_planes(mask_bn), 0.0)
        z_bhwd = self.embed(image_bchw).permute(0, 2, 3, 1)
        if mask_bn is not None and self.axis_token_ad is not None:
            token_bd = self._masked_axes(mask_bn).to(z_bhwd.dtype) @ self.axis_token_ad.to(z_bhwd.dtype)
            z_bhwd = z_bhwd + token_bd[:, None, None]
        if levels_bd is not None:
            z_bhwd = z_bhwd + levels_bd[:, None, None]
        z_bhwd = self.norm_embed(z_bhwd)
        if mask_bn is not None:
            z_bhwd = torch.where(self.masked_patches(mask_bn).unsqueeze(-1), self.mask_token.to(z_bhwd.dtype), z_bhwd)
        return run_blocks(self.encoder, z_bhwd, recompute=self.gradient_checkpointing)

    def _encode_visible(
        self, image_bchw: Tensor, mask_bn: Tensor, num_visible: int, levels_bd: Tensor | None
    ) -> Tensor:
        """The deepest feature map; the encoder processes the first `num_visible` visible units.

        `num_visible` is an argument, so that shapes are known without synchronising with the device.
        """
        unit_bu = visible_units(mask_bn, num_visible)
        stages, place_bt2 = self._stages(unit_bu)
        seen = VisibleMap(self._embed_units(image_bchw, unit_bu, levels_bd), stages)
        z_btd = run_blocks(self.encoder, seen, recompute=self.gradient_checkpointing).z_btd

        side = self.image_size // self.settings.patch_size >> len(stages) - 1
        at_bt1 = place_bt2[..., :1] * side + place_bt2[..., 1:]
        map_bnd = self.mask_token.to(z_btd.dtype).expand(z_btd.shape[0], side**2, -1)
        return map_bnd.scatter(1, at_bt1.expand_as(z_btd), z_btd).unflatten(1, (side, side))

    def _stages(self, unit_bu: Tensor) -> tuple[tuple[dict[int, WindowChunks], ...], Tensor]:
        """Attention chunks of the patches of units (B, U), for each stage and shift of a block.

        Also returns row and column of the tokens of the deepest stage: int64 (B, T', 2).
        """
        unit = self.settings.mask_unit
        per_side = self.image_size // (self.settings.patch_size * unit)
        corner_bu2 = torch.stack((unit_bu // per_side, unit_bu % per_side), dim=-1) * unit
        place_bt2 = (corner_bu2.unsqueeze(2) + self.place_t2).flatten(1, 2)
        stages: list[dict[int, WindowChunks]] = [{}]
        for layer in self.encoder:
            if isinstance(layer, PatchMerging):
                place_bt2 = place_bt2[:, ::4] // 2
                stages.append({})
            elif layer.attention.shift not in stages[-1]:
                window, shift = layer.attention.window, layer.attention.shift
                stages[-1][shift] = chunk_windows(place_bt2, window=window, shift=shift)
        return tuple(stages), place_bt2

    def _embed_units(self, image_bchw: Tensor, unit_bu: Tensor, levels_bd: Tensor | None) -> Tensor:
        """Embeds the patches of the given units only: (B, T, D)."""
        pixels = self.settings.patch_size * self.settings.mask_unit
        grid = image_bchw.unflatten(3, (-1, pixels)).unflatten(2, (-1, pixels))  # b c rows p columns p
        image_bncpp = grid.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
        batch = image_bchw.shape[0]
        image = image_bncpp[torch.arange(batch, device=unit_bu.device).unsqueeze(1), unit_bu].flatten(0, 1)
        row_t, column_t = self.place_t2.unbind(-1)
        z = self.embed(image).flatten(2)[..., row_t * self.settings.mask_unit + column_t]
        if levels_bd is not None:
            z = z + levels_bd.repeat_interleave(unit_bu.shape[1], 0).unsqueeze(-1)
        return self.norm_embed(z.transpose(1, 2)).view(batch, -1, z.shape[1])

    def decode(self, z_bhwd: Tensor) -> Tensor:
        """The deepest feature map (B, H', W', D') to the last feature map of the decoder, normalised."""
        return self.norm_decoder(run_blocks(self.decoder, z_bhwd, recompute=self.gradient_checkpointing))

    def _patches(self, values_bhwd: Tensor) -> Tensor:
        """Output of a head for each position of the last feature map to patches (B, H, W, patch_size² · C)."""
        # b h w, rows and columns of patches within a position, p
        grid = values_bhwd.unflatten(3, (self.head_patches, self.head_patches, -1))
        return grid.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    @property
    def blocks(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]

    def masked_values(self, mask_bn: Tensor) -> Tensor:
        """Masked units (B, N) to masked pixels and levels, bool (B, 1, H + level_rows, W), or (B, C, …) with `masks:
        axes`."""
        masked_b1hw = self._masked_pixels(mask_bn)
        if self.levels is not None:
            level_b1rw = mask_bn[:, -1:, None, None].expand(-1, -1, self.level_rows, self.image_size)
            masked_b1hw = torch.cat([masked_b1hw, level_b1rw], dim=2)
        return masked_b1hw | self._masked_planes(mask_bn) if self.num_axes else masked_b1hw

    def _masked_pixels(self, mask_bn: Tensor) -> Tensor:
        """Masked units (B, N) to masked pixels, bool (B, 1, H, W)."""
        return _enlarge(self.masked_patches(mask_bn), self.settings.patch_size).unsqueeze(1)

    def _masked_axes(self, mask_bn: Tensor) -> Tensor:
        return mask_bn[:, self.num_units : self.num_units + self.num_axes]

    def _masked_planes(self, mask_bn: Tensor) -> Tensor:
        """The planes of masked axes, bool (B, C, 1, 1)."""
        masked_ba = F.pad(self._masked_axes(mask_bn), (0, NUM_PLANES - self.num_axes))
        return masked_ba.repeat(1, self.in_channels // NUM_PLANES)[..., None, None]

    def masked_patches(self, mask_bn: Tensor) -> Tensor:
        """Masked units (B, N) to masked patches, bool (B, H, W)."""
        units_bhw = mask_bn[:, : self.num_units].unflatten(1, (self.units_per_side, self.units_per_side))
        return _enlarge(units_bhw, self.settings.mask_unit)

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


def _mask_units(model: SwinMAE, batch_size: int, **where: Any) -> Tensor:
    return random_mask((batch_size,), model.num_units, model.mask_ratio, **where)


def _mask_bands(model: SwinMAE, batch_size: int, **where: Any) -> Tensor:
    mask_br = random_mask((batch_size,), model.units_per_side, model.mask_ratio, **where)
    return mask_br.repeat_interleave(model.units_per_side, -1)


def _mask_spans(model: SwinMAE, batch_size: int, **where: Any) -> Tensor:
    mask_bw = random_mask((batch_size,), model.units_per_side, model.mask_ratio, **where)
    return mask_bw.repeat(1, model.units_per_side)


MASKS: dict[str, Callable[..., Tensor]] = {"units": _mask_units, "bands": _mask_bands, "spans": _mask_spans}


def _joined(of_image: Tensor | None, of_levels: Tensor | None) -> Tensor | None:
    """All values of an image and its levels: (B, …) each → (B, N)."""
    if of_image is None or of_levels is None:
        return None
    return torch.cat([of_image.flatten(1), of_levels.flatten(1)], dim=1)


def to_windows(z_bhwd: Tensor, window: int) -> Tensor:
    """Splits a map into windows: (B, H, W, D) → (B, V, window², D)."""
    z = z_bhwd.unflatten(2, (-1, window)).unflatten(1, (-1, window))  # b rows window columns window d
    return z.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def from_windows(z_bvld: Tensor, height: int, width: int, window: int) -> Tensor:
    """Joins windows to a map: (B, V, window², D) → (B, H, W, D)."""
    z = z_bvld.view(z_bvld.shape[0], height // window, width // window, window, window, -1)
    return z.transpose(2, 3).reshape(z_bvld.shape[0], height, width, -1)


def _relative_index(window: int) -> Tensor:
    """Row of the bias table for each pair of patches in a window: int64 (L, L)."""
    place_l2 = torch.cartesian_prod(torch.arange(window), torch.arange(window))
    offset_ll2 = place_l2[:, None] - place_l2[None, :] + window - 1
    return offset_ll2[..., 0] * (2 * window - 1) + offset_ll2[..., 1]


def _shift_mask(map_size: int, window: int, shift: int) -> Tensor:
    """Pairs of patches that share a window only because the map was rolled: bool (V, L, L)."""
    position = torch.arange(map_size)
    band = (position >= map_size - window).long() + (position >= map_size - shift).long()
    region_hw = 3 * band[:, None] + band[None, :]
    region_vl = to_windows(region_hw[None, :, :, None], window)[0, :, :, 0]
    return region_vl[:, :, None] != region_vl[:, None, :]


def _enlarge(mask_bhw: Tensor, factor: int) -> Tensor:
    """Repeats every element of the last two axes `factor` times in both directions."""
    return mask_bhw.repeat_interleave(factor, -2).repeat_interleave(factor, -1)


def _stage(settings: SwinMAEModel, level: int, depth: int, map_size: int) -> list[nn.Module]:
    """The blocks of one stage; every second one is shifted.

    The rate of stochastic depth increases linearly over the encoder. Blocks of the decoder have the rates of the
    encoder stage that they mirror.
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


def _mirror(settings: SwinMAEModel, map_size: int) -> nn.Sequential:
    """Patch expanding and a stage of blocks for each level, deepest first."""
    layers: list[nn.Module] = []
    for level, depth in zip(reversed(range(len(settings.depths) - 1)), settings.decoder_depths, strict=True):
        layers.append(PatchExpanding(settings.embed_dim * 2 ** (level + 1)))
        layers += _stage(settings, level, depth, map_size)
    return nn.Sequential(*layers)


def _light(settings: SwinMAEModel, map_size: int) -> nn.Sequential:
    """Positions, then blocks on the deepest feature map."""
    (depth,), level = settings.decoder_depths, len(settings.depths) - 1
    positions = Positions(map_size >> level, settings.embed_dim * 2**level)
    return nn.Sequential(positions, *_stage(settings, level, depth, map_size))


_DECODERS = {"mirror": _mirror, "light": _light}


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
        faults.append(
            ConfigFault("model.mask_unit", f"an image of {image_size} pixels has fewer than two units of {unit} pixels")
        )
    for level in range(len(settings.depths)):
        size, window = image_size // settings.patch_size >> level, settings.window_size
        if size > window and size % window:
            problem = f"{window} does not divide the {size} patches per side of stage {level}"
            faults.append(ConfigFault("model.window_size", problem))
    if faults:
        raise ConfigError("Swin-MAE", faults)
