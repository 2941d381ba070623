import pytest
import torch

from core.models.masking import complementary_masks, masked_mse, num_hidden, random_mask


@pytest.mark.parametrize(
    "num_units, ratio, expected", [(16, 0.4, 7), (10, 0.7, 7), (16, 0.75, 12), (2, 0.01, 1), (4, 0.99, 3)]
)
def test_hidden_count(num_units, ratio, expected):
    assert num_hidden(num_units, ratio) == expected


def test_a_single_unit_cannot_be_masked():
    for make in (lambda: random_mask((3,), 1, 0.5), lambda: complementary_masks(1, 0.5)):
        with pytest.raises(ValueError, match="one must"):
            make()


def test_every_row_hides_equally_many():
    mask = random_mask((5, 7), 16, 0.4, generator=torch.Generator().manual_seed(1))
    assert mask.shape == (5, 7, 16)
    assert mask.dtype == torch.bool
    assert (mask.sum(-1) == 7).all()
    assert len(mask.flatten(0, 1).unique(dim=0)) > 30  # rows differ


def test_masks_follow_the_generator_and_are_uniform():
    draw = [random_mask((4000,), 8, 0.25, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*draw)
    torch.testing.assert_close(draw[0].float().mean(0), torch.full((8,), 0.25), atol=0.03, rtol=0)


@pytest.mark.parametrize("num_units", [2, 3, 7, 16, 49, 196])
@pytest.mark.parametrize("ratio", [0.05, 0.4, 0.5, 0.75, 0.9])
def test_passes_hide_every_unit_once(num_units, ratio):
    masks = complementary_masks(num_units, ratio)
    sizes = masks.sum(1)
    assert (masks.sum(0) == 1).all()
    assert sizes.max() - sizes.min() <= 1
    assert len(masks) >= 2
    assert sizes.min() >= 1
    assert sizes.max() <= max(num_hidden(num_units, ratio), (num_units + 1) // 2)
    assert torch.equal(masks, complementary_masks(num_units, ratio))


def test_passes_are_spread_without_a_rhythm():
    masks = complementary_masks(300, 1 / 3)
    assert not (masks[:, :-2] & masks[:, 1:-1] & masks[:, 2:]).any()  # never three neighbours
    gaps = masks[0].nonzero().flatten().diff()
    assert gaps.max() <= 5
    assert len(gaps.unique()) > 2


def test_loss_counts_chosen_values_only():
    prediction, target = torch.tensor([1.0, 2.0, 9.0]), torch.tensor([0.0, 0.0, 0.0])
    assert masked_mse(prediction, target, torch.tensor([True, True, False])) == 2.5
    assert masked_mse(prediction, target, torch.zeros(3, dtype=torch.bool)) == 0
    assert masked_mse(prediction.bfloat16(), target, torch.ones(3, dtype=torch.bool)).dtype == torch.float32
