"""PatchTST compared with the implementation of transformers, and properties that scoring relies on."""

import pytest
import torch

from core.config.schema import PatchTSTModel
from core.errors import ConfigError
from core.models import patchtst
from core.models.masking import random_mask
from core.models.patchtst import PLAIN_LENGTH, PatchTST, attend
from tests.core.models.reference_names import renamed

BATCH, WINDOW, CHANNELS, PATCH = 3, 48, 2, 8
NUM_PATCHES = WINDOW // PATCH


def settings(**changes) -> PatchTSTModel:
    small = {"patch_length": PATCH, "d_model": 16, "num_heads": 4, "num_layers": 2, "d_ff": 24}
    return PatchTSTModel(**{**small, **changes})


def build(seed=0, **changes) -> PatchTST:
    torch.manual_seed(seed)
    return PatchTST(settings(**changes), num_channels=CHANNELS, window=WINDOW)


def windows(batch=BATCH, seed=1, window=WINDOW, channels=CHANNELS):
    return torch.randn(batch, window, channels, generator=torch.Generator().manual_seed(seed))


def a_mask(batch=BATCH, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return random_mask((batch, CHANNELS), NUM_PATCHES, 0.4, generator=generator)


# -------------------------------------------------------------------------------------------- against transformers
def reference(model: PatchTST):
    """transformers' model with the same settings and weights."""
    from transformers import PatchTSTConfig, PatchTSTForPretraining

    s = model.settings
    config = PatchTSTConfig(
        num_input_channels=model.num_channels, context_length=model.window, patch_length=s.patch_length,
        patch_stride=s.patch_length, num_hidden_layers=s.num_layers, d_model=s.d_model, ffn_dim=s.d_ff,
        num_attention_heads=s.num_heads, norm_type=f"{s.norm}norm", pre_norm=s.pre_norm,
        positional_encoding_type="random", scaling="std" if s.instance_norm else None, random_mask_ratio=s.mask_ratio,
    )  # fmt: skip
    config.minimum_scale = patchtst.INSTANCE_VARIANCE_FLOOR
    other = PatchTSTForPretraining(config)
    weights = renamed(dict(model.named_parameters()), model)
    assert weights.keys() == dict(other.named_parameters()).keys()
    other.load_state_dict(weights, strict=False)  # all but the BatchNorm statistics, which have equal initial values
    return other


def force_mask(monkeypatch, mask_bcn):
    from transformers.models.patchtst import modeling_patchtst

    def masking(inputs, **_):
        return inputs.masked_fill(mask_bcn[..., None], 0), mask_bcn

    monkeypatch.setattr(modeling_patchtst, "random_masking", masking)


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("instance_norm", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_same_as_transformers(monkeypatch, norm, pre_norm, instance_norm, training):
    ours = build(norm=norm, pre_norm=pre_norm, instance_norm=instance_norm).train(training)
    theirs = reference(ours).train(training)
    x, mask = windows(), a_mask()
    force_mask(monkeypatch, mask)

    out = ours(x, mask_bcn=mask)
    # Our instance statistics exclude masked patches; transformers gets them as not observed.
    seen = ~ours.unpatchify(mask[..., None].expand(-1, -1, -1, PATCH))
    expected = theirs(past_values=x, past_observed_mask=seen.float())
    _, loc, scale = theirs.model.scaler(x, seen.float())
    torch.testing.assert_close(out.loss, expected.loss, atol=1e-5, rtol=0)
    expected_btc = ours.unpatchify(expected.prediction_output) * scale + loc
    torch.testing.assert_close(out.reconstruction, expected_btc, atol=1e-5, rtol=0)

    out.loss.backward()
    expected.loss.backward()
    gradients = renamed({name: p.grad for name, p in ours.named_parameters()}, ours)
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-5, rtol=1e-4)


# ------------------------------------------------------------------------------------------------------- properties
@pytest.mark.parametrize("length", [2, PLAIN_LENGTH, PLAIN_LENGTH + 1])
def test_attention_equals_the_fused_kernel(length):
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(3, 2, 4, length, 8, generator=generator.manual_seed(0)) for _ in range(2))
    ours.requires_grad_(), theirs.requires_grad_()
    out, expected = attend(*ours), torch.nn.functional.scaled_dot_product_attention(*theirs)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
    (out**2).sum().backward(), (expected**2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


def test_every_channel_has_the_same_number_of_masked_patches():
    out = build()(windows(), generator=torch.Generator().manual_seed(0))
    assert out.mask.shape == (BATCH, CHANNELS, NUM_PATCHES)
    assert (out.mask.sum(-1) == 3).all()
    assert out.reconstruction.shape == (BATCH, WINDOW, CHANNELS)
    assert out.loss.dtype == out.reconstruction.dtype == torch.float32


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
@pytest.mark.parametrize("instance_norm", [False, True])
def test_masked_values_do_not_affect_predictions(instance_norm, drop_masked_tokens):
    model, x, mask = (
        build(instance_norm=instance_norm, drop_masked_tokens=drop_masked_tokens).eval(),
        windows(),
        a_mask(),
    )
    hidden = model.unpatchify(mask[..., None].expand(-1, -1, -1, PATCH))
    torch.testing.assert_close(
        model(x, mask_bcn=mask).reconstruction, model(x + 7 * hidden, mask_bcn=mask).reconstruction, atol=0, rtol=0
    )


@pytest.mark.parametrize("pre_norm", [False, True])
def test_the_encoder_processes_visible_patches_only(pre_norm):
    """Each channel of each window separately, with its visible patches selected in a loop."""
    model, x, mask = build(norm="layer", pre_norm=pre_norm, drop_masked_tokens=True).eval(), windows(), a_mask()
    patches = model.patchify(x)
    predicted = model.patchify(model(x, mask).reconstruction)
    for b in range(BATCH):
        for c in range(CHANNELS):
            seen = ~mask[b, c]
            z = model.embed(patches[b, c, seen]) + model.position_nd[seen]
            for layer in model.layers:
                z = layer(z[None, None])[0, 0]
            tokens = model.decoder.hidden_d.repeat(NUM_PATCHES, 1)
            tokens[seen] = model.decoder.narrow(z)
            tokens = tokens + model.decoder.position_nd
            for layer in model.decoder.layers:
                tokens = layer(tokens[None, None])[0, 0]
            torch.testing.assert_close(predicted[b, c], model.head(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_masked", [1, 2, 4])
def test_num_masked_declares_the_size_of_a_mask(num_masked):
    model, x = build(norm="layer", drop_masked_tokens=True).eval(), windows()
    mask = torch.zeros(BATCH, CHANNELS, NUM_PATCHES, dtype=torch.bool)
    mask[..., :num_masked] = True
    declared = model(x, mask, num_masked=num_masked).reconstruction
    last = x.clone()
    last[:, -PATCH:] += 1.0  # the last patch is the first that is not used if too many count as masked
    assert not torch.allclose(declared, model(last, mask, num_masked=num_masked).reconstruction)


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
def test_loss_ignores_visible_and_missing_values(drop_masked_tokens):
    model, x, mask = build(drop_masked_tokens=drop_masked_tokens).eval(), windows(), a_mask()
    x[0, 3:12, 0] = torch.nan
    x[1] = torch.nan
    out = model(x, mask_bcn=mask)
    chosen = model.unpatchify(mask[..., None].expand(-1, -1, -1, PATCH)) & ~x.isnan()
    torch.testing.assert_close(out.loss, (out.reconstruction - x)[chosen].square().mean())


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("instance_norm", [False, True])
@pytest.mark.parametrize("missing", ["patch", "channel", "all"])
def test_missing_values_never_make_nan(norm, instance_norm, missing, drop_masked_tokens):
    model, x = build(norm=norm, instance_norm=instance_norm, drop_masked_tokens=drop_masked_tokens), windows()
    x[{"patch": (0, slice(8, 16), 0), "channel": (slice(None), slice(None), 1), "all": ()}[missing]] = torch.nan
    out = model(x, mask_bcn=a_mask())
    out.loss.backward()
    assert out.loss.isfinite()
    assert out.reconstruction.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    _, error = model.inpaint(x)
    assert torch.equal(error.isnan(), x.isnan())


def test_a_missing_value_counts_as_zero_in_the_input():
    model, x, mask = build().eval(), windows(), torch.zeros(BATCH, CHANNELS, NUM_PATCHES, dtype=torch.bool)
    mask[..., 2] = True
    with_gap, with_zero = x.clone(), x.clone()
    with_gap[:, 3:6], with_zero[:, 3:6] = torch.nan, 0.0
    assert torch.equal(model(with_gap, mask_bcn=mask).reconstruction, model(with_zero, mask_bcn=mask).reconstruction)


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
@pytest.mark.parametrize("instance_norm", [False, True])
def test_inpaint_is_deterministic_and_independent_of_the_batch(instance_norm, drop_masked_tokens):
    model, x = build(dropout=0.3, instance_norm=instance_norm, drop_masked_tokens=drop_masked_tokens), windows(6)
    model(x)  # changes the BatchNorm statistics
    model.layers[0].eval()
    first, second = model.inpaint(x), model.inpaint(x)
    assert model.training
    assert not model.layers[0].training
    assert torch.equal(first[1], second[1])
    torch.testing.assert_close(model.inpaint(x.flip(0))[1].flip(0), first[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.inpaint(x[2:3])[1], first[1][2:3], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
def test_inpaint_predicts_each_patch_while_it_is_masked(drop_masked_tokens):
    model, x = build(drop_masked_tokens=drop_masked_tokens).eval(), windows(1)
    reconstruction, error = model.inpaint(x)
    torch.testing.assert_close(error, (reconstruction - x).square())
    for n in range(NUM_PATCHES):
        changed = x.clone()
        changed[:, n * PATCH : (n + 1) * PATCH] += 5.0
        again, _ = model.inpaint(changed)
        same = torch.isclose(again, reconstruction, atol=1e-6).view(NUM_PATCHES, PATCH, CHANNELS).all(dim=(1, 2))
        assert same[n]
        assert not same.all()  # other patches do depend on it


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
@pytest.mark.parametrize("micro", [8, 16])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_micro_batches_give_the_same_step(micro, norm, drop_masked_tokens):
    whole, parts = (build(norm=norm, drop_masked_tokens=drop_masked_tokens) for _ in range(2))
    x, mask = windows(32), a_mask(32)
    x[5, :30] = torch.nan
    for _ in range(2):
        expected = whole(x, mask)
        expected.loss.backward()
        outputs = [parts(*part) for part in zip(x.split(micro), mask.split(micro), strict=True)]
        for out in outputs:
            (out.loss * out.count / expected.count).backward()
    torch.testing.assert_close(
        torch.cat([out.reconstruction for out in outputs]), expected.reconstruction, atol=1e-6, rtol=0
    )
    for ours, theirs in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(dict(parts.named_buffers()), dict(whole.named_buffers()), atol=1e-6, rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("drop_masked_tokens", [False, True])
def test_learns_sinusoids(drop_masked_tokens):
    torch.manual_seed(0)
    model = PatchTST(settings(d_model=32, d_ff=64, drop_masked_tokens=drop_masked_tokens), num_channels=2, window=64)
    phase = torch.rand(32, 1, 2) * 6.28
    x = torch.sin(torch.arange(64.0)[None, :, None] * torch.tensor([0.3, 0.5]) + phase)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = model(x, generator=generator).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.2 * sum(losses[:5])
    assert model.inpaint(x)[1].mean() < 0.15


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_bfloat16_autocast(norm, drop_masked_tokens):
    model, x, mask = build(norm=norm, drop_masked_tokens=drop_masked_tokens), windows(), a_mask()
    expected = model(x, mask_bcn=mask).loss
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x, mask_bcn=mask)
        out.loss.backward()
    assert out.loss.dtype == out.reconstruction.dtype == torch.float32
    torch.testing.assert_close(out.loss, expected, atol=0.05, rtol=0.05)


def test_sizes_that_do_not_fit_are_rejected():
    with pytest.raises(ConfigError) as caught:
        PatchTST(settings(), num_channels=1, window=50)
    assert [fault.key for fault in caught.value.faults] == ["data.window"]
    with pytest.raises(ValueError, match="expected"):
        build()(windows(window=40))


# ------------------------------------------------------------------------------------------------------------- forecast
FORECASTS = [{}, {"instance_norm": True}, {"pre_norm": True, "norm": "layer"}, {"drop_masked_tokens": True}]


@pytest.mark.parametrize("settings", FORECASTS, ids=str)
def test_a_forecast_equals_a_pass_that_masks_only_the_newest_patch(settings):
    model, x = forecasting(settings)
    x[0, 3, 1] = x[1, -2, 0] = torch.nan
    mask = torch.zeros(len(x), model.num_channels, model.num_patches, dtype=torch.bool)
    mask[..., -1] = True
    with torch.no_grad():
        whole = model.eval()(x, mask, num_masked=1).reconstruction[:, -model.settings.patch_length :]
    expected, error = model.train().forecast(x)
    torch.testing.assert_close(expected, whole, rtol=1e-4, atol=1e-5)
    newest = x[:, -model.settings.patch_length :]
    torch.testing.assert_close(error, (whole - newest).square(), rtol=1e-3, atol=1e-5, equal_nan=True)
    assert torch.equal(error.isnan(), newest.isnan())
    assert model.training


@pytest.mark.parametrize("settings", FORECASTS, ids=str)
def test_a_forecast_does_not_depend_on_what_it_predicts(settings):
    model, x = forecasting(settings)
    changed = x.clone()
    changed[:, -model.settings.patch_length :] += 7.0
    assert torch.equal(model.forecast(changed)[0], model.forecast(x)[0])


def forecasting(settings):
    torch.manual_seed(0)
    sizes = {"patch_length": 8, "d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32}
    return PatchTST(PatchTSTModel(**{**sizes, **settings}), num_channels=3, window=64), torch.randn(4, 64, 3)
