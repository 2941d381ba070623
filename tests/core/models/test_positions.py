"""Initial positions: all differ, and those of a map encode row and column."""

import pytest
import torch

from core.models.positions import STD, map_sinusoids, sinusoids


@pytest.mark.parametrize("count, width", [(2, 8), (42, 64), (7, 768)])
def test_positions_differ_and_have_equal_spread(count, width):
    position = sinusoids(count, width)
    assert position.shape == (count, width)
    torch.testing.assert_close(position.std(), torch.tensor(STD))
    assert torch.pdist(position).min() > 0.1


def test_half_of_the_width_encodes_the_row_half_the_column():
    position = map_sinusoids(5, 12)
    assert position.shape == (5, 5, 12)
    assert torch.equal(position[..., :6], position[:, :1, :6].expand(-1, 5, -1))
    assert torch.equal(position[..., 6:], position[:1, :, 6:].expand(5, -1, -1))
    assert torch.pdist(position.flatten(0, 1)).min() > 0.1
