"""Attention between channels, masks of channels, and the predicted variance of PatchTST."""

import pytest
import torch
from torch.distributions import Normal, StudentT
from torch.utils.flop_counter import FlopCounterMode

from core.config.compose import load_config
from core.config.schema import PatchTSTModel
from core.errors import ConfigError
from core.models.patchtst import PatchTST
from tests.core.models.gradients import assert_another_gradient_for_the_same_loss
from tests.core.models.reference_names import renamed
from tests.support import REPO_ROOT

BATCH, WINDOW, CHANNELS, PATCH = 3, 48, 5, 8
NUM_PATCHES = WINDOW // PATCH
KINDS = ("patches", "channels", "newest")


def build(channels=CHANNELS, **changes) -> PatchTST:
    torch.manual_seed(0)
    sizes = {"patch_length": PATCH, "d_model": 16, "num_heads": 4, "num_layers": 2, "d_ff": 24}
    settings = PatchTSTModel(**{**sizes, "channel_attention": "all", **changes})
    return PatchTST(settings, num_channels=channels, window=WINDOW)


def windows(batch=BATCH, channels=CHANNELS, seed=1):
    return torch.randn(batch, WINDOW, channels, generator=torch.Generator().manual_seed(seed))


each_attention = pytest.mark.parametrize("attention", ["all", "groups"])


# ------------------------------------------------------------------------------------------------------ the attention
@pytest.mark.parametrize("changes", [{}, {"pre_norm": True, "norm": "layer"}])
def test_the_encoder_equals_that_of_transformers(changes):
    """Theirs has one set of weights for both attentions, and neither mask tokens nor embeddings of channels."""
    transformers = pytest.importorskip("transformers")
    model = build(**changes).eval()
    s = model.settings
    config = transformers.PatchTSTConfig(
        num_input_channels=CHANNELS, context_length=WINDOW, patch_length=PATCH, patch_stride=PATCH,
        num_hidden_layers=s.num_layers, d_model=s.d_model, ffn_dim=s.d_ff, num_attention_heads=s.num_heads,
        norm_type=f"{s.norm}norm", pre_norm=s.pre_norm, positional_encoding_type="random", scaling=None,
        channel_attention=True,
    )  # fmt: skip
    theirs = transformers.PatchTSTForPretraining(config).eval()
    weights = renamed(dict(model.named_parameters()), model)
    inner = "batchnorm." if s.norm == "batch" else ""
    with torch.no_grad():
        model.channel_c1d.zero_()
        model.mask_token_d.copy_(model.embed.bias)
        for number, layer in enumerate(model.layers):
            layer.channel_attention.attention.load_state_dict(layer.attention.state_dict())
            for kind in ("weight", "bias"):
                weight = torch.rand(s.d_model)
                getattr(layer.norm_channels, kind).copy_(weight)
                weights[f"model.encoder.layers.{number}.norm_sublayer2.{inner}{kind}"] = weight
    unknown = theirs.load_state_dict(weights, strict=False).missing_keys
    assert all("running" in name or "num_batches" in name for name in unknown)
    x_bcnp = model.patchify(windows())
    nothing = torch.zeros(BATCH, CHANNELS, NUM_PATCHES, dtype=torch.bool)
    with torch.no_grad():
        expected = theirs.model.encoder(patch_input=x_bcnp).last_hidden_state
        torch.testing.assert_close(model.encode(x_bcnp, nothing), expected, atol=1e-5, rtol=1e-4)


@each_attention
def test_a_channel_depends_on_the_others_and_windows_do_not(attention):
    model, x = build(channel_attention=attention).eval(), windows()
    mask = torch.zeros(BATCH, CHANNELS, NUM_PATCHES, dtype=torch.bool)
    mask[:, 0] = True
    before = model(x, mask).reconstruction
    other = x.clone()
    other[0, :, 1] += 1
    after = model(other, mask).reconstruction
    assert (after[0, :, 0] - before[0, :, 0]).abs().min() > 1e-6
    torch.testing.assert_close(after[1:], before[1:])


@each_attention
def test_the_newest_token_is_that_of_all_tokens(attention):
    model = build(channel_attention=attention, norm="layer", pre_norm=True).eval()
    x_bcnp, mask = model.patchify(windows()), torch.zeros(BATCH, CHANNELS, NUM_PATCHES, dtype=torch.bool)
    mask[:, 2] = True
    with torch.no_grad():
        torch.testing.assert_close(model.encode_newest(x_bcnp, mask), model.encode(x_bcnp, mask)[:, :, -1:])


def test_the_cost_of_groups_grows_linearly_with_the_number_of_channels():
    def operations(attention, channels):
        model, x = build(channels, channel_attention=attention, channel_groups=4).eval(), windows(1, channels)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(x)
        return counter.get_total_flops()

    assert operations("groups", 128) < 1.01 * 4 * operations("groups", 32)
    assert operations("all", 128) > 1.2 * 4 * operations("all", 32)


# -------------------------------------------------------------------------------------------------------------- masks
def test_kinds_of_masks():
    generator = torch.Generator().manual_seed(0)
    mask = build(masks=KINDS).draw_mask(300, generator=generator)
    newest = (mask.sum((1, 2)) == CHANNELS) & mask[:, :, -1].all(1)
    channels = mask.any(2).sum(1) == 2  # 40 % of five
    patches = (mask.sum(2) == 3).all(1)  # 40 % of six, rounded up
    assert (newest.int() + channels.int() + patches.int()).eq(1).all()
    assert all(70 < each.sum() < 130 for each in (newest, channels, patches))
    assert torch.equal(mask, build(masks=KINDS).draw_mask(300, generator=torch.Generator().manual_seed(0)))
    assert mask[channels].all(2).sum() == 2 * channels.sum()


def test_a_single_channel_is_never_masked_completely():
    mask = build(1, masks=("channels",)).draw_mask(20)
    assert (mask.sum(2) == 3).all()


# ----------------------------------------------------------------------------------------------------------- forecast
def test_a_forecast_uses_other_channels_and_nothing_of_the_own_one():
    model, x = build().eval(), windows()
    expected, error = model.forecast(x)
    own = x.clone()
    own[:, :, 3] += torch.randn(WINDOW)
    changed, changed_error = model.forecast(own)
    torch.testing.assert_close(changed[..., 3], expected[..., 3])
    assert (changed[..., 0] - expected[..., 0]).abs().max() > 1e-6
    torch.testing.assert_close(changed_error[..., 3], (own[:, -PATCH:, 3] - expected[..., 3]).square())
    assert error.shape == (BATCH, PATCH, CHANNELS)


def test_all_values_are_predicted_from_other_channels():
    model, x = build().eval(), windows()
    assert sum(mask.int() for mask, _ in model.passes()).eq(1).all()
    expected, _ = model.inpaint(x)
    own = x.clone()
    own[:, :, 3] += torch.randn(WINDOW)
    torch.testing.assert_close(model.inpaint(own)[0][..., 3], expected[..., 3])


def test_the_forecast_of_a_single_channel_uses_its_past():
    model, x = build(1).eval(), windows(channels=1)
    expected, _ = model.forecast(x)
    past, newest = x.clone(), x.clone()
    past[:, 0] += 1
    newest[:, -1] += 1
    assert not torch.equal(model.forecast(past)[0], expected)
    assert torch.equal(model.forecast(newest)[0], expected)


# ----------------------------------------------------------------------------------------------------------- variance
@pytest.mark.parametrize("output", ["gaussian", "student_t"])
def test_the_loss_of_a_variance_is_the_squared_error_with_another_gradient(output):
    point, distribution = build(norm="layer"), build(norm="layer", output=output)
    assert_another_gradient_for_the_same_loss(point, distribution, windows(), point.draw_mask(BATCH))


# The noise of each distribution, of variance 1, and the mean deviance of such noise.
NOISE = {"gaussian": (Normal(0.0, 1.0), 1.0), "student_t": (StudentT(4.0, 0.0, 2**-0.5), 1.402)}


@pytest.mark.nightly
@pytest.mark.parametrize("output", NOISE)
def test_a_variance_is_learned_and_standardises_the_error(output):
    """Channels of noise with standard deviations of 0.2 and 2 have about the same errors."""
    torch.manual_seed(0)
    noise, deviance = NOISE[output]
    model = build(2, output=output, masks=KINDS, norm="layer", pre_norm=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scale_c = torch.tensor([0.2, 2.0])
    for _ in range(200):
        optimizer.zero_grad()
        model(noise.sample((32, WINDOW, 2)) * scale_c).loss.backward()
        optimizer.step()
    _, error = model.forecast(noise.sample((256, WINDOW, 2)) * scale_c)
    assert error.mean((0, 1)) == pytest.approx([deviance] * 2, rel=0.2)


def test_the_forecast_standardises_as_inpainting_does():
    """Both predict a channel from the others, so the newest patch has the same errors."""
    model, x = build(output="student_t").eval(), windows()
    x[0, -1, 0] = float("nan")
    torch.testing.assert_close(model.forecast(x)[1], model.inpaint(x)[1][:, -PATCH:], equal_nan=True)


# ------------------------------------------------------------------------------------------------------ configuration
@pytest.mark.parametrize(
    "overrides, key",
    [
        (["model.masks=[channels]"], "model.masks"),
        (["model.channel_attention=all", "model.drop_masked_tokens=true"], "model.drop_masked_tokens"),
        (["model.channel_attention=all", "model.instance_norm=true"], "model.instance_norm"),
        (["model.masks=[newest]", "model.drop_masked_tokens=true"], "model.drop_masked_tokens"),
        (["model.masks=[]"], "model.masks"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides, key):
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        load_config("configs/patchtst_ssl.yaml", overrides, root=REPO_ROOT, environment={})
