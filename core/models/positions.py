"""Initial values of learned positions: sines and cosines (Vaswani et al., Attention Is All You Need, NeurIPS 2017).

With initial values near zero, a model needs about a thousand steps to learn which patches are neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Standard deviation: about half that of an embedded patch.
STD = 0.5


def sinusoids(num_positions: int, width: int) -> Tensor:
    """Sines and cosines with geometrically spaced wavelengths, centred: (N, D)."""
    wavelengths_d = 10_000.0 ** (torch.arange(width) // 2 * 2 / width)
    phase_nd = torch.arange(num_positions).unsqueeze(1) / wavelengths_d
    waves_nd = torch.where(torch.arange(width) % 2 == 0, phase_nd.sin(), phase_nd.cos())
    return (waves_nd - waves_nd.mean()) / waves_nd.std() * STD


def map_sinusoids(side: int, width: int) -> Tensor:
    """Positions of a square map (side, side, D): the first half of the width encodes the row, the second the column."""
    row_hd, column_wd = sinusoids(side, width // 2), sinusoids(side, width - width // 2)
    return torch.cat((row_hd[:, None].expand(-1, side, -1), column_wd.expand(side, -1, -1)), dim=-1)
