"""Swin-MAE with `drop_masked_tokens`, compared with the encoder of complete maps and with attention in plain loops."""

import pytest
import torch

from core.config.compose import config_from_dict
from core.config.schema import SwinMAEModel
from core.errors import ConfigError
from core.models.swinmae import PatchMerging, SwinMAE
from core.models.visible_windows import chunk_windows, z_curve
from tests.support import most_nightly

TINY = {"patch_size": 2, "mask_unit": 4, "embed_dim": 8, "num_heads": (1, 2, 4), "window_size": 4, "image_size": 32}
FOUR = {"mask_unit": 8, "depths": (2, 2, 3, 2), "num_heads": (1, 2, 4, 4), "decoder_depths": (1, 1, 1)}
CASES = {
    "windows as large as units": {},
    "windows smaller than units": {"window_size": 2},
    "windows larger than units": {"window_size": 8},
    "windows across units": {"image_size": 40, "window_size": 5},
    "units of several patches of the deepest stage": {"image_size": 64, "mask_unit": 8},
    "four stages, the last smaller than a window": {"image_size": 112, "window_size": 7, **FOUR},
    "odd counts": {"mask_unit": 6, "image_size": 60, "window_size": 5, "depths": (3, 4), "num_heads": (2, 2),
                   "decoder_depths": (3,)},
}  # fmt: skip


def build(drop_masked_tokens=True, seed=0, **changes) -> SwinMAE:
    """A model with large weights, so that attention and positions have an effect."""
    settings = {**TINY, **changes}
    image_size = settings.pop("image_size")
    torch.manual_seed(seed)
    model = SwinMAE(SwinMAEModel(drop_masked_tokens=drop_masked_tokens, **settings), image_size=image_size)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=2.0 if name.endswith("relative_bias") else 0.2)
    return model


def images(model, batch=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, model.image_size, model.image_size, generator=generator)


def a_mask(model, batch=3):
    return model.draw_mask(batch, generator=torch.Generator().manual_seed(5))


def encoder_gradients(model, z):
    model.zero_grad()
    (z**3).mean().backward()
    return {name: p.grad for name, p in model.named_parameters() if name.startswith(("embed", "norm_embed", "encoder"))}


# ---------------------------------------------------------------------------------------------- against other encoders
@pytest.mark.parametrize("case", CASES)
def test_without_masked_units_both_paths_are_equal(case):
    model = build(**CASES[case])
    x = images(model)
    nothing = torch.zeros(3, model.num_units, dtype=torch.bool)
    whole, visible = model.encode(x), model.encode(x, nothing, num_masked=0)
    torch.testing.assert_close(visible, whole, atol=1e-5, rtol=0)
    expected = encoder_gradients(model, whole)
    for name, gradient in encoder_gradients(model, visible).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("hides", most_nightly(["the usual share", "one unit", "all but one unit"], but=1))
def test_equals_attention_in_plain_loops(case, hides):
    model = build(**CASES[case]).eval()
    x = images(model, batch=2)
    num_masked = {"one unit": 1, "the usual share": model.num_masked}.get(hides, model.num_units - 1)
    mask = torch.rand(2, model.num_units, generator=torch.Generator().manual_seed(3)).argsort(-1) < num_masked
    result = model.encode(x, mask, num_masked=num_masked)
    for b in range(2):
        torch.testing.assert_close(result[b], by_hand(model, x[b : b + 1], mask[b : b + 1]), atol=1e-4, rtol=1e-4)


def by_hand(model, image, mask):
    """The deepest map (H', W', D'), computed for each visible patch in plain loops."""
    whole = model.norm_embed(model.embed(image).permute(0, 2, 3, 1))[0]
    tokens = {tuple(place): whole[tuple(place)] for place in (~model.masked_patches(mask)[0]).nonzero().tolist()}
    for layer in model.encoder:
        tokens = merge_by_hand(layer, tokens) if isinstance(layer, PatchMerging) else block_by_hand(layer, tokens)
    side = model.image_size // model.settings.patch_size >> len(model.settings.depths) - 1
    rows = [tokens.get((row, column), model.mask_token) for row in range(side) for column in range(side)]
    return torch.stack(rows).view(side, side, -1)


def merge_by_hand(merging, tokens):
    joined = {}
    for row, column in tokens:
        if row % 2 == column % 2 == 0:
            four = [tokens[row, column], tokens[row + 1, column], tokens[row, column + 1], tokens[row + 1, column + 1]]
            joined[row // 2, column // 2] = merging.reduce(merging.norm(torch.cat(four)))
    return joined


def block_by_hand(block, tokens):
    attention = block.attention
    groups = {}
    for row, column in tokens:
        window = ((row - attention.shift) // attention.window, (column - attention.shift) // attention.window)
        groups.setdefault(window, []).append((row, column))
    result = {}
    for places in groups.values():
        z = torch.stack([tokens[place] for place in places])
        q, k, v = attention.qkv(block.norm_attention(z)).unflatten(-1, (3, attention.num_heads, -1)).permute(1, 2, 0, 3)
        offset = torch.tensor(places)[:, None] - torch.tensor(places)[None] + attention.window - 1
        bias = attention.relative_bias[offset[..., 0] * (2 * attention.window - 1) + offset[..., 1]].permute(2, 0, 1)
        weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias).softmax(-1)
        z = z + attention.out((weights @ v).transpose(0, 1).flatten(1))
        z = z + block.feed_forward(block.norm_feed_forward(z))
        result.update(zip(places, z, strict=True))
    return result


# ---------------------------------------------------------------------------------------------------------- properties
@pytest.mark.parametrize("num_masked", [None, 8])  # 12 units are masked
def test_masked_pixels_do_not_affect_the_encoder(num_masked):
    model = build().eval()
    x, mask = images(model), a_mask(model)
    changed = torch.where(model.masked_values(mask), 7.0, x)
    encoded = model.encode(x, mask, num_masked=num_masked)
    assert torch.equal(model.encode(changed, mask, num_masked=num_masked), encoded)


@pytest.mark.parametrize("case", CASES)
def test_each_image_of_a_batch_has_its_own_mask(case):
    model = build(**CASES[case]).eval()
    x, mask = images(model), a_mask(model)
    assert not torch.equal(mask[0], mask[1])
    together = model(x, mask).reconstruction
    alone = [model(x[b : b + 1], mask[b : b + 1]).reconstruction for b in range(len(x))]
    torch.testing.assert_close(torch.cat(alone), together, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("num_masked", [1, 8, 15])
def test_num_masked_declares_the_size_of_a_mask(num_masked):
    model = build().eval()
    x, mask = images(model), torch.zeros(3, model.num_units, dtype=torch.bool)
    mask[:, :num_masked] = True
    last = x.clone()
    last[..., -1, -1] += 1.0  # in the first unit that is not used if too many count as masked
    assert not torch.equal(
        model.encode(x, mask, num_masked=num_masked), model.encode(last, mask, num_masked=num_masked)
    )
    assert torch.equal(model.encode(x, mask, num_masked=12), model.encode(last, mask, num_masked=12)) == (
        num_masked < 12
    )


@pytest.mark.parametrize("case", CASES)
def test_every_parameter_has_a_gradient(case):
    model = build(**CASES[case])
    model(images(model), a_mask(model)).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_encoder_weights_load_in_both_forms():
    ours, theirs = build(drop_masked_tokens=True).state_dict(), build(drop_masked_tokens=False).state_dict()
    assert {name: value.shape for name, value in ours.items() if name != "mask_token"} == {
        name: value.shape for name, value in theirs.items() if name != "mask_token"
    }
    assert (len(ours["mask_token"]), len(theirs["mask_token"])) == (32, 8)


@pytest.mark.parametrize("side, levels", [(1, 0), (5, 0), (4, 2), (8, 2), (6, 1)])
def test_squares_of_every_level_are_consecutive_on_a_z_curve(side, levels):
    place = z_curve(side, levels)
    assert len({tuple(p) for p in place.tolist()}) == side**2
    for level in range(levels + 1):
        square = place.unflatten(0, (-1, 4**level)) // 2**level
        assert (square == square[:, :1]).all()


@pytest.mark.parametrize("num_tokens, chunk", [(768, 48), (832, 52), (192, 48), (144, 144), (64 * 7, 56)])
def test_tokens_are_chunked_only_if_that_saves_work(num_tokens, chunk):
    place = torch.stack((torch.arange(num_tokens) // 56, torch.arange(num_tokens) % 56), -1)
    chunks = chunk_windows(place.expand(2, -1, -1), window=7, shift=3)
    reach = chunk if chunk == num_tokens else 3 * chunk
    assert chunks.pair_bkqs.shape == (2, num_tokens // chunk, chunk, reach)


@pytest.mark.parametrize(
    "model, words",
    [
        ({"mask_unit": 2}, "mask_unit = 2 .* 4 .* 3 stages"),
        ({"depths": [2], "num_heads": [3], "decoder_depths": []}, "drop_masked_tokens .*two stages"),
    ],
)
def test_settings_that_cannot_drop_masked_tokens_are_rejected(model, words):
    values = {
        "stream": "swinmae",
        "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt"},
        "dqvl": {"report_dir": "artifacts/dqvl/x"},
        "model": model,
    }
    assert config_from_dict(values, source="a test").model.drop_masked_tokens is False
    with pytest.raises(ConfigError, match=words):
        config_from_dict({**values, "model": {**model, "drop_masked_tokens": True}}, source="a test")
