"""Window attention between the visible patches of a feature map, so that a Swin encoder can drop the masked ones.

Windows contain different numbers of visible patches. Here, tokens are sorted by window and split into chunks of equal
size, which may start and end within a window. A chunk has at least window² - 1 tokens, so all tokens of a window are in
one chunk or in two consecutive ones. Each chunk attends to itself and its two neighbours. All shapes follow from the
number of visible units, so no synchronisation with the device is necessary. In a stage with few tokens, all tokens of
an image are one chunk. Huang, You, Zheng, Wang, Qian, Yamasaki (Green Hierarchical Vision Transformer for Masked Image
Modeling, NeurIPS 2022) instead search for the smallest number of equal groups of windows in every step.

Patch merging never merges masked and visible patches, since a mask unit consists of complete patches of the deepest
stage. The tokens of a unit are ordered along a Z-curve (Morton, 1966), so that at every stage the four tokens that are
merged are consecutive.

Shape suffixes: b batch, n mask unit, u visible unit, t token of a visible patch, k chunk of tokens, q token of a chunk,
s token that those may attend to, d width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# More than any feature map has. Row and column of a window are combined to one number for sorting.
MAX_WINDOWS_PER_SIDE = 1 << 20


class WindowChunks(NamedTuple):
    """Chunks for attention between tokens of the same window in one stage. If all images have the same mask, B is 1.

    sorted_r: int64 (B · T), indices of the tokens sorted by window; None if a single chunk contains all tokens.
    unsorted_r: the inverse permutation.
    pair_bkqs: int64 (B, K, Q, S), row in the table of relative positions for two tokens of the same window; one past
    the end of the table for tokens of different windows.
    """

    sorted_r: Tensor | None
    unsorted_r: Tensor | None
    pair_bkqs: Tensor

    def sort(self, z_btd: Tensor) -> Tensor:
        return z_btd if self.sorted_r is None else _take_rows(z_btd, self.sorted_r)

    def unsort(self, z_btd: Tensor) -> Tensor:
        return z_btd if self.unsorted_r is None else _take_rows(z_btd, self.unsorted_r)

    def bias(self, table_ra: Tensor) -> Tensor:
        """The term that is added to the attention logits, from the table of relative positions: (A, B, K, Q, S)."""
        # One row per head makes the result contiguous; on a CPU this is three times as fast as table_ra[pair].
        table_ar = F.pad(table_ra.t(), (0, 1), value=-torch.inf)
        return table_ar.index_select(1, self.pair_bkqs.flatten()).view(-1, *self.pair_bkqs.shape)


class VisibleMap(NamedTuple):
    """The visible patches of a feature map: input and output of a block, instead of a complete map.

    z_btd: (B, T, D), units in ascending order, tokens of a unit along a Z-curve.
    stages: chunks for each shift of a block, of this stage and the following ones.
    """

    z_btd: Tensor
    stages: tuple[dict[int, WindowChunks], ...]

    @property
    def device(self) -> torch.device:
        return self.z_btd.device


def visible_units(mask_bn: Tensor, num_visible: int) -> Tensor:
    """Indices of the first `num_visible` visible units: int64 (B, U), ascending."""
    return mask_bn.byte().argsort(dim=-1, stable=True)[:, :num_visible]


def z_curve(side: int, levels: int) -> Tensor:
    """Row and column of the patches of a unit in memory order: int64 (side², 2).

    Squares of 2**levels patches per side are ordered row by row. Within each square, the quarters are ordered column by
    column, as in PatchMerging, and so on for the quarters of a quarter.
    """
    step = 2**levels
    place_t2 = torch.cartesian_prod(torch.arange(0, side, step), torch.arange(0, side, step))
    quarter_42 = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
    for _ in range(levels):
        step //= 2
        place_t2 = (place_t2[:, None] + step * quarter_42).flatten(0, 1)
    return place_t2


def chunk_windows(place_bt2: Tensor, *, window: int, shift: int) -> WindowChunks:
    """Chunks of the tokens at the given positions: int64 (B, T, 2), row and column.

    Shifted windows begin `shift` patches from the border; the remaining patches at the borders are smaller windows.
    Swin rolls the map and prevents attention across its former borders, which is equivalent.
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
    window_bks, position_bks = with_neighbours(window_bkq), with_neighbours(position_bkq)
    pair_bkqs = position_bkq.unsqueeze(-1) - position_bks.unsqueeze(-2) + (window - 1) * (span + 1)
    pair_bkqs = pair_bkqs.masked_fill(window_bkq.unsqueeze(-1) != window_bks.unsqueeze(-2), span**2)
    return WindowChunks(sorted_r, unsorted_r, pair_bkqs)


def with_neighbours(z_bkq: Tensor) -> Tensor:
    """Concatenates each chunk with its previous and its next one: (B, K, Q, …) → (B, K, 3Q, …).

    The first and the last chunk are neighbours. A single chunk is returned unchanged.
    """
    if z_bkq.shape[1] == 1:
        return z_bkq
    return torch.cat((z_bkq.roll(1, 1), z_bkq, z_bkq.roll(-1, 1)), 2)


def _chunk_size(num_tokens: int, window: int) -> int:
    """The smallest divisor of `num_tokens` that is at least window² - 1, so that a window is in at most two chunks;
    `num_tokens` if it would be more than a quarter of them."""
    reach = window**2 - 1
    for chunk in range(max(reach, 1), num_tokens // 4 + 1):
        if num_tokens % chunk == 0:
            return chunk
    return num_tokens


def _take_rows(z_btd: Tensor, index_r: Tensor) -> Tensor:
    if len(index_r) == z_btd.shape[1]:  # the same indices for every image
        return z_btd.index_select(1, index_r)
    return z_btd.flatten(0, 1).index_select(0, index_r).view_as(z_btd)
