"""Swin-MAE: its encoder compared with the implementation of transformers, and properties that scoring relies on."""

import pytest
import torch
import torch.nn.functional as F

from core.config.schema import SwinMAEModel
from core.errors import ConfigError
from core.models.swinmae import DropPath, SwinMAE
from tests.core.models.gradients import assert_another_gradient_for_the_same_loss
from tests.support import most_nightly

IMAGE = 32
TINY = {"patch_size": 2, "mask_unit": 4, "embed_dim": 8, "num_heads": (1, 2, 4), "window_size": 4}
FORMS = {
    "all": {},
    "visible": {"drop_masked_tokens": True},
    "light": {"drop_masked_tokens": True, "decoder": "light", "decoder_depths": (1,)},
}
all_forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def build(seed=0, image_size=IMAGE, **changes) -> SwinMAE:
    torch.manual_seed(seed)
    return SwinMAE(SwinMAEModel(**{**TINY, **changes}), image_size=image_size)


def images(batch=3, seed=1, image_size=IMAGE):
    return torch.randn(batch, 3, image_size, image_size, generator=torch.Generator().manual_seed(seed))


def a_mask(model, batch=3):
    return model(images(batch, image_size=model.image_size), generator=torch.Generator().manual_seed(5)).mask


def hidden_pixels(model, mask):
    patches = model.masked_patches(mask)
    size = model.settings.patch_size
    return patches.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, None].expand(-1, 3, -1, -1)


# -------------------------------------------------------------------------------------------- against transformers
def reference(model: SwinMAE):
    """transformers' encoder with the same settings and weights."""
    from transformers import SwinConfig, SwinModel
    from transformers.models.swin.modeling_swin import SwinRelativePositionBias

    s = model.settings
    config = SwinConfig(
        image_size=model.image_size, patch_size=s.patch_size, num_channels=3, embed_dim=s.embed_dim,
        depths=list(s.depths), num_heads=list(s.num_heads), window_size=s.window_size, mlp_ratio=s.mlp_ratio,
        drop_path_rate=0.0,
    )  # fmt: skip
    other = SwinModel(config, add_pooling_layer=False, use_mask_token=True)
    for level, stage in enumerate(other.encoder.layers):
        map_size = model.image_size // s.patch_size >> level
        for block in stage.blocks:
            if map_size < s.window_size:  # transformers shrinks the window of such a map, but not its bias table
                bias = SwinRelativePositionBias(s.num_heads[level], (map_size, map_size))
                block.attention.relative_position_bias = bias
    weights = renamed(dict(model.named_parameters()), model)
    assert weights.keys() == {name for name, _ in other.named_parameters() if not name.startswith("layernorm.")}
    other.load_state_dict(weights, strict=False)  # all but the final norm, which is in our decoder
    return other


def renamed(ours: dict[str, torch.Tensor], model: SwinMAE) -> dict[str, torch.Tensor]:
    """Our encoder's parameters (or their gradients) under transformers' names."""
    theirs = {"embeddings.mask_token": ours["mask_token"][None, None]}
    for kind in ("weight", "bias"):
        theirs[f"embeddings.patch_embeddings.projection.{kind}"] = ours[f"embed.{kind}"]
        theirs[f"embeddings.norm.{kind}"] = ours[f"norm_embed.{kind}"]
    position = 0
    for level, depth in enumerate(model.settings.depths):
        for block in range(depth):
            to = f"encoder.layers.{level}.blocks.{block}"
            theirs.update(renamed_block(ours, f"encoder.{position + block}", to))
        position += depth
        if level + 1 < len(model.settings.depths):
            to = f"encoder.layers.{level}.downsample"
            theirs[f"{to}.reduction.weight"] = ours[f"encoder.{position}.reduce.weight"]
            for kind in ("weight", "bias"):
                theirs[f"{to}.norm.{kind}"] = ours[f"encoder.{position}.norm.{kind}"]
            position += 1
    return theirs


def renamed_block(ours, source, to) -> dict[str, torch.Tensor]:
    table = f"{to}.attention.relative_position_bias.relative_position_bias_table"
    theirs = {table: ours[f"{source}.attention.relative_bias"]}
    for kind in ("weight", "bias"):
        for name, part in zip("qkv", ours[f"{source}.attention.qkv.{kind}"].chunk(3), strict=True):
            theirs[f"{to}.attention.{name}_proj.{kind}"] = part
        theirs[f"{to}.attention.o_proj.{kind}"] = ours[f"{source}.attention.out.{kind}"]
        theirs[f"{to}.layernorm_before.{kind}"] = ours[f"{source}.norm_attention.{kind}"]
        theirs[f"{to}.layernorm_after.{kind}"] = ours[f"{source}.norm_feed_forward.{kind}"]
        theirs[f"{to}.mlp.fc1.{kind}"] = ours[f"{source}.feed_forward.0.{kind}"]
        theirs[f"{to}.mlp.fc2.{kind}"] = ours[f"{source}.feed_forward.3.{kind}"]
    return theirs


CASES = {
    "shifted windows in two stages, whole map in the third": {},
    "last map smaller than the window": {"window_size": 8},
    "odd window, deeper stages": {"image_size": 40, "window_size": 5, "mask_unit": 5, "depths": (3, 4, 1)},
    "one stage": {"depths": (4,), "num_heads": (2,), "decoder_depths": ()},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("masked", [False, True])
def test_encoder_same_as_transformers(case, masked):
    ours = build(**CASES[case])
    torch.nn.init.normal_(ours.mask_token)
    theirs = reference(ours)
    theirs.layernorm.weight.data.normal_()
    x = images(image_size=ours.image_size)
    mask = a_mask(ours) if masked else None

    latent = theirs.layernorm(ours.encode(x, mask)).flatten(1, 2)
    positions = ours.masked_patches(mask).flatten(1) if masked else None
    expected = theirs(x, bool_masked_pos=positions).last_hidden_state
    torch.testing.assert_close(latent, expected, atol=1e-5, rtol=0)

    (latent**3).mean().backward()
    theirs.layernorm.zero_grad()
    (expected**3).mean().backward()
    gradients = renamed(
        {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in ours.named_parameters()}, ours
    )
    for name, parameter in theirs.named_parameters():
        if not name.startswith("layernorm.") and parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-5, rtol=1e-3)


def test_light_decoder_without_its_blocks_is_simmim():
    """Blocks with zero branches return the deepest map; a layer to pixels follows, as in transformers."""
    from transformers import SwinForMaskedImageModeling

    ours = build(decoder="light", decoder_depths=(1,)).eval()
    positions, block = ours.decoder
    torch.nn.init.zeros_(positions.position_hwd)
    for last in (block.attention.out, block.feed_forward[3]):
        torch.nn.init.zeros_(last.weight)
    encoder = reference(ours)
    encoder.config.encoder_stride = ours.image_size // 4
    theirs = SwinForMaskedImageModeling(encoder.config).eval()
    theirs.swin.load_state_dict(encoder.state_dict())
    for kind in ("weight", "bias"):
        # Theirs puts planes before the pixels of a place, ours last: rows and columns of patches, of pixels, plane.
        parameter = getattr(ours.head, kind).detach()
        grid = parameter.unflatten(0, (4, 4, 2, 2, 3)).moveaxis(4, 0).transpose(2, 3).flatten(0, 4)
        getattr(theirs.decoder[0], kind).data = grid[:, :, None, None] if kind == "weight" else grid
    x, mask = images(), a_mask(ours)
    expected = theirs(x, bool_masked_pos=ours.masked_patches(mask).flatten(1)).reconstruction
    torch.testing.assert_close(ours(x, mask_bn=mask).reconstruction, expected, atol=1e-5, rtol=0)


# ------------------------------------------------------------------------------------------------------- properties
@all_forms
def test_masks_consist_of_equally_many_complete_units(form):
    model = build(**form)
    out = model(images(), generator=torch.Generator().manual_seed(0))
    assert out.mask.shape == (3, 16)
    assert (out.mask.sum(-1) == 12).all()
    assert out.reconstruction.shape == (3, 3, IMAGE, IMAGE)
    units = model.masked_patches(out.mask).view(3, 4, 4, 4, 4).float().mean((2, 4))
    assert torch.equal(units.flatten(1), out.mask.float())


def test_patchify_round_trip():
    model, x = build(), images()
    patches = model.patchify(x)
    assert torch.equal(model.unpatchify(patches), x)
    assert torch.equal(patches[0, 1, 2], x[0, :, 2:4, 4:6].permute(1, 2, 0).flatten())


@all_forms
def test_loss_ignores_visible_and_missing_pixels(form):
    model, x = build(**form).eval(), images()
    x[0, 1:] = torch.nan
    x[1, :, 5:9, 7:12] = torch.nan
    mask = a_mask(model)
    out = model(x, mask_bn=mask)
    chosen = hidden_pixels(model, mask) & ~x.isnan()
    torch.testing.assert_close(out.loss, (out.reconstruction - x).square()[chosen].mean(), rtol=1e-4, atol=0)


@all_forms
@pytest.mark.parametrize("missing", ["planes", "block", "all"])
def test_missing_pixels_never_make_nan(missing, form):
    model, x = build(**form), images()
    x[{"planes": (slice(None), slice(1, 3)), "block": (0, 0, slice(0, 9)), "all": ()}[missing]] = torch.nan
    out = model(x, generator=torch.Generator().manual_seed(0))
    out.loss.backward()
    assert out.loss.isfinite()
    assert out.reconstruction.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert torch.equal(model.inpaint(x)[1].isnan(), x.isnan())


@all_forms
def test_inpaint_is_deterministic_and_independent_of_the_batch(form):
    model, x = build(dropout=0.3, drop_path=0.5, **form), images(5)
    first, second = model.inpaint(x), model.inpaint(x)
    assert model.training
    assert torch.equal(first[1], second[1])
    torch.testing.assert_close(model.inpaint(x.flip(0))[1].flip(0), first[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.inpaint(x[2:3])[1], first[1][2:3], atol=1e-5, rtol=1e-5)


@all_forms
def test_inpaint_predicts_each_unit_while_it_is_masked(form):
    model, x = build(**form).eval(), images(1)
    reconstruction, error = model.inpaint(x)
    torch.testing.assert_close(error, (reconstruction - x).square())
    for n in range(model.num_units):
        row, column = 8 * (n // 4), 8 * (n % 4)
        changed = x.clone()
        changed[..., row : row + 8, column : column + 8] += 5.0
        again, _ = model.inpaint(changed)
        same = torch.isclose(again, reconstruction, atol=1e-6)
        assert same[..., row : row + 8, column : column + 8].all()
        assert not same.all()  # other units do depend on it


# ------------------------------------------------------------------------------------------------- variance and masks
@all_forms
@pytest.mark.parametrize("output", most_nightly(["gaussian", "student_t"], but=1))
def test_the_loss_of_a_variance_is_the_squared_error_with_another_gradient(output, form):
    point, distribution = (build(output=each, **form) for each in ("point", output))
    assert_another_gradient_for_the_same_loss(point, distribution, images(), a_mask(point))


@pytest.mark.nightly
def test_a_variance_is_learned_and_divides_the_error():
    """Noise with a deviation of 2 in the upper half of the image and .2 in the lower: errors are about 1 in both."""
    torch.manual_seed(0)
    settings = {**TWO_STAGES, **FORMS["light"], "output": "gaussian"}
    model = build(image_size=16, mask_unit=2, **settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scale_h1 = torch.tensor([2.0, 0.2]).repeat_interleave(8).unsqueeze(1)
    for _ in range(150):
        optimizer.zero_grad()
        model(torch.randn(16, 3, 16, 16) * scale_h1).loss.backward()
        optimizer.step()
    _, error = model.inpaint(torch.randn(128, 3, 16, 16) * scale_h1)
    halves = error.unflatten(2, (2, 8)).mean((0, 1, 3, 4))
    assert halves.sub(1).abs().max() < 0.3


@all_forms
@pytest.mark.parametrize("kind, axis", [("bands", 2), ("spans", 1)])
def test_bands_and_spans_are_masked_completely(kind, axis, form):
    model = build(masks=(kind,), **form)
    units = model(images(), generator=torch.Generator().manual_seed(0)).mask.view(3, 4, 4)
    assert (units.sum((1, 2)) == 12).all()
    assert torch.equal(units.all(axis), units.any(axis))


def test_one_axis_is_masked_completely():
    model = build(masks=("axes",))
    out = model(images(40), generator=torch.Generator().manual_seed(0))
    units, axes = out.mask.split([16, 3], dim=1)
    assert not units.any()
    assert (axes.sum(1) == 1).all()
    assert (axes.sum(0) > 5).all()
    assert torch.equal(model.masked_values(out.mask), axes[..., None, None].expand(-1, -1, 32, 32))
    assert out.count == 40 * 32 * 32


def test_the_loss_of_a_masked_axis_is_its_squared_error_and_ignores_its_values():
    model, x = build(masks=("units", "axes")).eval(), images(1)
    mask = torch.zeros(1, 19, dtype=torch.bool)
    mask[0, 17] = True
    out = model(x, mask)
    torch.testing.assert_close(out.loss, (out.reconstruction - x)[:, 1].square().mean())
    assert torch.equal(model(x + 5 * torch.eye(3)[1].view(1, 3, 1, 1), mask).reconstruction, out.reconstruction)
    visible = model(x + torch.eye(3)[0].view(1, 3, 1, 1), mask).reconstruction
    assert not torch.allclose(visible[:, 1], out.reconstruction[:, 1])


def test_units_axes_and_their_tokens_are_independent():
    """Without a masked axis, the model is the one without `axes`; a masked axis differs from an axis of zeros."""
    with_axes, without = build(masks=("units", "axes")).eval(), build().eval()
    without.load_state_dict({k: v for k, v in with_axes.state_dict().items() if k != "axis_token_ad"})
    x, mask = images(), a_mask(without)
    for_units = F.pad(mask, (0, 3))
    assert torch.equal(with_axes(x, for_units).reconstruction, without(x, mask).reconstruction)
    assert torch.equal(with_axes(x, for_units).loss, without(x, mask).loss)
    x[:, 2] = 0.0
    axis = torch.zeros(1, 19, dtype=torch.bool)
    axis[0, 18] = True
    nothing = torch.zeros(1, 19, dtype=torch.bool)
    assert not torch.allclose(with_axes(x, axis).reconstruction, with_axes(x, nothing).reconstruction)


def test_with_axes_each_axis_is_predicted_from_the_others_only():
    model, x = build(masks=("units", "bands", "axes")).eval(), images(1)
    reconstruction, error = model.inpaint(x)
    torch.testing.assert_close(error, (reconstruction - x).square())
    for axis in range(3):
        changed = x.clone()
        changed[:, axis] += 5.0
        same = torch.isclose(model.inpaint(changed)[0], reconstruction, atol=1e-6)
        assert same[:, axis].all()
        assert not same.all()


def test_only_axes_of_the_sensor_are_masked():
    settings = SwinMAEModel(**TINY, masks=("axes",))
    two, one = (SwinMAE(settings, image_size=32, num_axes=num_axes).eval() for num_axes in (2, 1))
    x = images()
    x[:, 2] = torch.nan
    mask = two.draw_mask(400, generator=torch.Generator().manual_seed(0))
    assert mask[:, 16:].sum(0).tolist() == pytest.approx([200, 200], abs=50)
    assert torch.equal(two.inpaint(x)[1].isnan(), x.isnan())
    assert one.draw_mask(2).shape == (2, 16)
    assert (one.draw_mask(2).sum(1) == 12).all()


@pytest.mark.nightly
def test_an_axis_is_learned_from_another():
    torch.manual_seed(0)
    model = build(image_size=16, mask_unit=2, **TWO_STAGES, masks=("axes",))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        x = torch.randn(16, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3).expand(-1, 3, -1, -1)
        optimizer.zero_grad()
        loss = model(x).loss
        loss.backward()
        optimizer.step()
    assert loss < 0.15  # the variance is 1


def test_each_image_has_a_mask_of_one_kind_drawn_at_random():
    units = build(masks=("bands", "spans")).draw_mask(64, generator=torch.Generator().manual_seed(0)).view(64, 4, 4)
    is_band, is_span = (torch.tensor([torch.equal(u.all(axis), u.any(axis)) for u in units]) for axis in (1, 0))
    assert (is_band ^ is_span).all()
    assert 16 < is_band.sum() < 48


@all_forms
def test_with_bands_a_frequency_is_predicted_from_other_frequencies_only(form):
    model, x = build(masks=("units", "bands"), **form).eval(), images(1)
    reconstruction, _ = model.inpaint(x)
    for band in range(4):
        rows = slice(8 * band, 8 * band + 8)
        changed = x.clone()
        changed[:, :, rows] += 5.0
        same = torch.isclose(model.inpaint(changed)[0], reconstruction, atol=1e-6)
        assert same[:, :, rows].all()
        assert not same.all()


# -------------------------------------------------------------------------------------------------------------- levels
def with_levels(seed=0, image_size=IMAGE, **changes) -> SwinMAE:
    torch.manual_seed(seed)
    return SwinMAE(SwinMAEModel(**{**TINY, **changes}), image_size=image_size, level_rows=1)


def images_with_levels(batch=3, image_size=IMAGE):
    levels = torch.randn(batch, 3, 1, 1, generator=torch.Generator().manual_seed(2))
    return torch.cat([images(batch, image_size=image_size), levels.expand(-1, -1, -1, image_size)], dim=2)


@all_forms
@pytest.mark.parametrize("output", ["point", "gaussian"])
def test_levels_are_predicted_while_they_are_masked_and_predict_the_image_where_they_are_visible(output, form):
    model, x = with_levels(output=output, **form).eval(), images_with_levels()
    x[1, 2] = torch.nan
    reconstruction, error = model.inpaint(x)
    assert reconstruction.shape == x.shape
    assert torch.equal(error.isnan(), x.isnan())
    (first, _), (second, _) = model.passes()
    assert [mask[0, -1].item() for mask in (first, second)] == [True, False]
    changed = x.clone()
    changed[:, 0, -1] += 3.0
    again, _ = model.inpaint(changed)
    assert torch.equal(again[:, :, -1], reconstruction[:, :, -1])
    for mask, is_same in ((first, True), (second, False)):
        pixels = hidden_pixels(model, mask).expand(3, -1, -1, -1)
        assert torch.equal(again[:, :, :-1][pixels], reconstruction[:, :, :-1][pixels]) is is_same


@all_forms
def test_a_level_counts_as_a_row_of_pixels_in_the_loss(form):
    model, x = with_levels(**form).eval(), images_with_levels(1)
    mask = next(iter(model.passes()))[0]
    out = model(x, mask, num_masked=8)
    assert out.count == 3 * (32 * 32 / 2 + 32)
    chosen = model.masked_values(mask).expand_as(x)
    torch.testing.assert_close(out.loss, (out.reconstruction - x)[chosen].square().mean())


def test_levels_are_masked_in_half_of_the_windows_and_units_as_without_levels():
    model, generator = with_levels(), torch.Generator().manual_seed(0)
    mask = model.draw_mask(400, generator=generator)
    assert torch.equal(mask[:, :16], build().draw_mask(400, generator=torch.Generator().manual_seed(0)))
    assert 150 < mask[:, 16].sum() < 250


def test_the_level_of_a_masked_axis_is_masked_with_it():
    model, x = with_levels(masks=("units", "axes")).eval(), images_with_levels()
    reconstruction, _ = model.inpaint(x)
    for axis in range(3):
        changed = x.clone()
        changed[:, axis] += 5.0
        same = torch.isclose(model.inpaint(changed)[0], reconstruction, atol=1e-6)
        assert same[:, axis].all()
        assert not same[:, :, -1].all()  # levels of other axes do depend on it


@pytest.mark.nightly
def test_a_level_is_learned_from_the_image():
    torch.manual_seed(0)
    model = with_levels(image_size=16, mask_unit=2, **{**TWO_STAGES, **FORMS["light"]})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(300):
        x = torch.randn(16, 1, 1, 1).expand(-1, 3, 17, 16)
        optimizer.zero_grad()
        model(x).loss.backward()
        optimizer.step()
    _, error = model.inpaint(x)
    assert error[:, :, -1].mean() < 0.3  # the variance is 1


def test_drop_path_drops_whole_samples_and_keeps_the_mean():
    torch.manual_seed(0)
    z = torch.ones(2000, 2, 2, 1)
    dropped = DropPath(0.25)(z).flatten(1)
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert (dropped == dropped[:, :1]).all()
    torch.testing.assert_close(dropped.mean(), torch.tensor(1.0), atol=0.05, rtol=0)
    assert torch.equal(DropPath(0.25).eval()(z), z)


# Units of one deepest patch, as `drop_masked_tokens` requires.
TWO_STAGES = {"depths": (2, 2), "num_heads": (1, 2), "decoder_depths": (2,), "window_size": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes, steps",
    [
        pytest.param({}, 70, marks=pytest.mark.nightly),
        pytest.param({**TWO_STAGES, **FORMS["visible"]}, 120, marks=pytest.mark.nightly),
        ({**TWO_STAGES, **FORMS["light"]}, 120),
    ],
    ids=FORMS,
)
def test_learns_stripes(changes, steps):
    torch.manual_seed(0)
    model = build(image_size=16, mask_unit=2, **changes)
    phase = torch.rand(8, 1, 1, 1) * 6.28
    x = torch.sin(torch.arange(16.0)[:, None] * 0.6 + torch.arange(16.0) * 0.3 + phase).expand(-1, 3, -1, -1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x, generator=generator).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.25 * sum(losses[:5])


@all_forms
def test_bfloat16_autocast(form):
    model, x = build(**form), images()
    mask = a_mask(model)
    expected = model(x, mask_bn=mask).loss
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x, mask_bn=mask)
        out.loss.backward()
    assert out.loss.dtype == out.reconstruction.dtype == torch.float32
    torch.testing.assert_close(out.loss, expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    "image_size, changes, key",
    [
        (30, {}, "scalogram.image_size"),
        (8, {}, "model.mask_unit"),
        (32, {"window_size": 7}, "model.window_size"),
    ],
)
def test_sizes_that_do_not_fit_are_rejected(image_size, changes, key):
    with pytest.raises(ConfigError) as caught:
        build(image_size=image_size, **changes)
    assert key in [fault.key for fault in caught.value.faults]


def test_another_image_size_is_rejected():
    with pytest.raises(ValueError, match="expected"):
        build()(images(image_size=16))
