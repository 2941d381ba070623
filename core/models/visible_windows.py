"""Window attention among the visible patches of a map: what lets a Swin encoder leave out the hidden ones.

Windows hold unequal numbers of visible patches. Huang, You, Zheng, Wang, Qian, Yamasaki: Green Hierarchical Vision
Transformer for Masked Image Modeling, NeurIPS 2022, look in every step for the fewest equal groups that windows fit
in. Here tokens are sorted by window and cut into chunks of equal size, without regard to where a window ends. A window
that begins in one chunk ends in the next at the latest, so a token finds all of its window in its own chunk and those
on either side. Every shape follows from the number of visible units: nothing waits for the device. Where a stage has
few tokens, all of an image are one chunk.

Patch merging never joins hidden and visible patches, since a mask unit is whole patches of the deepest stage. The
tokens of a unit lie along a Z-curve (Morton, 1966), so that at every stage the four that merge are neighbours.

Shape suffixes: b batch, n mask unit, u visible unit, t token of a visible patch, k chunk of tokens, q token of a chunk,
s token that those may attend to, d width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# More than any map has: the row and the column of a window make one number to sort by.
MAX_WINDOWS_PER_SIDE = 1 << 20


class WindowChunks(NamedTuple):
    """How the tokens of a stage attend to those of their own window, each image by its own mask.

    sorted_r: int64 (B · T), the rows of tokens by window, or None where one chunk holds all, in any order.
    unsorted_r: its inverse.
    pair_bkqs: int64 (B, K, Q, S), the row of the table of relative positions for two tokens of one window, and one
    past its end for tokens of two.
    """

    sorted_r: Tensor | None
    unsorted_r: Tensor | None
    pair_bkqs: Tensor

    def sort(self, z_btd: Tensor) -> Tensor:
        return z_btd if self.sorted_r is None else _take_rows(z_btd, self.sorted_r)

    def unsort(self, z_btd: Tensor) -> Tensor:
        return z_btd if self.unsorted_r is None else _take_rows(z_btd, self.unsorted_r)

    def bias(self, table_ra: Tensor) -> Tensor:
        """A table of relative positions and heads to what is added to the attention logits: (A, B, K, Q, S)."""
        # A row for each head, so that the result is contiguous: on a CPU three times as fast as table_ra[pair].
        table_ar = F.pad(table_ra.t(), (0, 1), value=-torch.inf)
        return table_ar.index_select(1, self.pair_bkqs.flatten()).view(-1, *self.pair_bkqs.shape)


class VisibleMap(NamedTuple):
    """A map of which only the visible patches exist: what a block takes and gives in place of a whole map.

    z_btd: (B, T, D), units in ascending order, a Z-curve in each.
    stages: chunks by the shift of the block, of this stage and of those that follow.
    """

    z_btd: Tensor
    stages: tuple[dict[int, WindowChunks], ...]

    @property
    def device(self) -> torch.device:
        return self.z_btd.device


def visible_units(mask_bn: Tensor, num_visible: int) -> Tensor:
    """The first `num_visible` units that are not hidden: int64 (B, U), ascending."""
    return mask_bn.byte().argsort(dim=-1, stable=True)[:, :num_visible]


def z_curve(side: int, levels: int) -> Tensor:
    """Row and column of the patches of a unit in memory order: int64 (side², 2).

    Squares of 2**levels patches per side follow each other row by row. In each the quarters go down the columns, as
    PatchMerging joins them, and so do the quarters of a quarter.
    """
    step = 2**levels
    place_t2 = torch.cartesian_prod(torch.arange(0, side, step), torch.arange(0, side, step))
    quarter_42 = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
    for _ in range(levels):
        step //= 2
        place_t2 = (place_t2[:, None] + step * quarter_42).flatten(0, 1)
    return place_t2


def chunk_windows(place_bt2: Tensor, *, window: int, shift: int) -> WindowChunks:
    """Chunks of the tokens at some places: int64 (B, T, 2), row and column.

    Shifted windows begin `shift` patches from the border, and what they leave of the map is windows of their own. Swin
    makes these whole by rolling the map and then forbids attention across what were its borders, which is the same.
    """
    window_bt2 = (place_bt2 + (window - shift)) // window
    window_bt = window_bt2[..., 0] * MAX_WINDOWS_PER_SIDE + window_bt2[..., 1]
    span = 2 * window - 1
    position_bt = place_bt2[..., 0] * span + place_bt2[..., 1]

    batch, num_tokens = window_bt.shape
    chunk = _chunk_size(num_tokens, window)
    if chunk == num_tokens:
        sorted_r = unsorted_r = None
    else:
        order_bt = window_bt.argsort(dim=1, stable=True)
        window_bt, position_bt = window_bt.gather(1, order_bt), position_bt.gather(1, order_bt)
        first_b1 = num_tokens * torch.arange(batch, device=order_bt.device).unsqueeze(1)
        sorted_r, unsorted_r = (order_bt + first_b1).flatten(), (order_bt.argsort(dim=1) + first_b1).flatten()

    window_bkq, position_bkq = (values.unflatten(1, (-1, chunk)) for values in (window_bt, position_bt))
    window_bks, position_bks = with_neighbours(window_bkq, 1), with_neighbours(position_bkq, 1)
    pair_bkqs = position_bkq.unsqueeze(-1) - position_bks.unsqueeze(-2) + (window - 1) * (span + 1)
    pair_bkqs = pair_bkqs.masked_fill(window_bkq.unsqueeze(-1) != window_bks.unsqueeze(-2), span**2)
    return WindowChunks(sorted_r, unsorted_r, pair_bkqs)


def with_neighbours(z: Tensor, dim: int) -> Tensor:
    """Chunks (K, Q) from axis `dim` on, each after the one before it and before the next: (K, 3Q).

    The first and the last are neighbours. A single chunk stays by itself.
    """
    if z.shape[dim] == 1:
        return z
    return torch.cat((z.roll(1, dim), z, z.roll(-1, dim)), dim + 1)


def _chunk_size(num_tokens: int, window: int) -> int:
    """The smallest part of `num_tokens` whose neighbours reach the other end of a window, where that saves anything."""
    reach = window**2 - 1
    for chunk in range(max(reach, 1), num_tokens // 4 + 1):
        if num_tokens % chunk == 0:
            return chunk
    return num_tokens


def _take_rows(z_btd: Tensor, index_r: Tensor) -> Tensor:
    return z_btd.flatten(0, 1).index_select(0, index_r).view_as(z_btd)
