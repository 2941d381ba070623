"""Blocks of shifted-window attention for complete feature maps, or for the visible patches of a map only.

Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021.

Shape suffixes: b batch, h/w rows and columns of patches, d width, v attention window, l patch within a window, t token
of a visible patch, a head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.config.schema import SwinMAEModel
from core.models.visible_windows import VisibleMap, WindowChunks, with_neighbours

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
        batch, num_chunks, size, _ = chunks.pair_bkqs.shape
        qkv = self.qkv(chunks.sort(z_btd)).view(batch, num_chunks, size, 3, self.num_heads, -1)
        q, k, v = qkv.permute(3, 4, 0, 1, 2, 5).flatten(1, 2).unbind(0)  # heads and batch, chunk, token, d
        bias = chunks.bias(self.relative_bias.to(qkv.dtype)).flatten(0, 1)
        z = F.scaled_dot_product_attention(q, with_neighbours(k, 1), with_neighbours(v, 1), attn_mask=bias)
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


def to_windows(z_bhwd: Tensor, window: int) -> Tensor:
    """Splits a map into windows: (B, H, W, D) → (B, V, window², D)."""
    z = z_bhwd.unflatten(2, (-1, window)).unflatten(1, (-1, window))  # b rows window columns window d
    return z.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def from_windows(z_bvld: Tensor, height: int, width: int, window: int) -> Tensor:
    """Joins windows to a map: (B, V, window², D) → (B, H, W, D)."""
    z = z_bvld.view(len(z_bvld), height // window, width // window, window, window, -1)
    return z.transpose(2, 3).reshape(len(z_bvld), height, width, -1)


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
