import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import Normal, StudentT

from core.config.schema import PatchTSTModel, SwinMAEModel
from core.models.masking import (
    LOG_VARIANCE_RANGE,
    complementary_masks,
    evaluating,
    likelihood_loss,
    masked_mse,
    num_masked,
    random_mask,
    standardised_error,
)
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE


@pytest.mark.parametrize(
    "num_units, ratio, expected",
    [(16, 0.4, 7), (10, 0.7, 7), (16, 0.75, 12), (2, 0.01, 1), (4, 0.99, 3), (100, 0.001, 1)],
)
def test_number_of_masked_units(num_units, ratio, expected):
    assert num_masked(num_units, ratio) == expected


def test_a_single_unit_cannot_be_masked():
    for make in (lambda: random_mask((3,), 1, 0.5), lambda: complementary_masks(1, 0.5)):
        with pytest.raises(ValueError, match="1 unit"):
            make()


def test_every_row_has_the_same_number_of_masked_units():
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
def test_passes_mask_every_unit_once(num_units, ratio):
    masks = complementary_masks(num_units, ratio)
    sizes = masks.sum(1)
    assert (masks.sum(0) == 1).all()
    assert sizes.max() - sizes.min() <= 1
    assert len(masks) >= 2
    assert sizes.min() >= 1
    assert sizes.max() <= max(num_masked(num_units, ratio), (num_units + 1) // 2)
    assert torch.equal(masks, complementary_masks(num_units, ratio))


def test_assignments_of_units_to_passes_are_equally_likely():
    """Over many seeds, two units are in the same pass equally often, whatever their distance."""
    masks = torch.stack([complementary_masks(16, 0.75, seed=seed) for seed in range(2000)])
    pass_sn = masks.int().argmax(1)
    together = [(pass_sn[:, 0] == pass_sn[:, other]).float().mean().item() for other in range(1, 16)]
    assert together == pytest.approx([7 / 15] * 15, abs=0.05)
    assert masks[:, 0].float().mean(0) == pytest.approx(0.5, abs=0.05)


def test_the_default_passes_of_four_by_four_units_are_irregular():
    """A regular pattern masks the same columns in every row."""
    rows = complementary_masks(16, 0.75)[0].view(4, 4)
    assert len(rows.unique(dim=0)) > 2
    assert len(rows.T.unique(dim=0)) > 2


def test_loss_counts_chosen_values_only():
    prediction, target = torch.tensor([1.0, 2.0, 9.0]), torch.tensor([0.0, 0.0, 0.0])
    assert masked_mse(prediction, target, torch.tensor([True, True, False])) == (2.5, 2)
    assert masked_mse(prediction, target, torch.zeros(3, dtype=torch.bool)) == (0, 0)


def test_float16_values_are_averaged_in_float32():
    prediction, target = torch.full((2, 100_000), 3.0), torch.zeros(2, 100_000)
    for dtype in (torch.bfloat16, torch.float16):
        loss, count = masked_mse(prediction.to(dtype), target.to(dtype), torch.ones_like(target, dtype=torch.bool))
        assert loss.dtype == count.dtype == torch.float32
        assert (loss, count) == (9, 200_000)
    loss, count = masked_mse(prediction.double(), target, torch.ones_like(target, dtype=torch.bool))
    assert loss.dtype == torch.float64
    assert count.dtype == torch.float32


# ----------------------------------------------------------------------------------------------------- of both models
def patchtst(**changes):
    torch.manual_seed(0)
    small = {"d_model": 16, "d_ff": 32, "num_layers": 2, **changes}
    return PatchTST(PatchTSTModel(**small), num_channels=2, window=80), torch.randn(6, 80, 2)


def swinmae(**changes):
    torch.manual_seed(0)
    small = {"patch_size": 2, "embed_dim": 8, "num_heads": (1, 2, 4), **changes}
    return SwinMAE(SwinMAEModel(**small), image_size=32), torch.randn(6, 3, 32, 32)


BOTH = pytest.mark.parametrize("build", [patchtst, swinmae])


@BOTH
def test_a_mask_drawn_before_equals_the_one_that_forward_draws(build):
    model, x = build()
    mask = model.draw_mask(6, generator=torch.Generator().manual_seed(3))
    assert torch.equal(mask, model(x, generator=torch.Generator().manual_seed(3)).mask)
    assert mask.dtype == torch.bool
    torch.manual_seed(4)
    mask = model.draw_mask(6)
    torch.manual_seed(4)
    assert torch.equal(mask, model(x).mask)
    out = model.eval()(x[2:4], mask[2:4])
    assert torch.equal(out.mask, mask[2:4])
    assert torch.equal(out.reconstruction, model(x[2:4], **{model_mask_name(model): mask[2:4]}).reconstruction)


def model_mask_name(model):
    return "mask_bcn" if isinstance(model, PatchTST) else "mask_bn"


@pytest.mark.parametrize("drop_masked_tokens", [False, True])
@BOTH
def test_one_mask_for_all_samples_equals_the_same_mask_of_each(build, drop_masked_tokens):
    model, x = build(drop_masked_tokens=drop_masked_tokens)
    model.eval()
    mask = model.draw_mask(1, generator=torch.Generator().manual_seed(3))
    for_all, of_each = model(x, mask), model(x, mask.expand(len(x), *mask.shape[1:]))
    assert torch.equal(for_all.reconstruction, of_each.reconstruction)
    assert torch.equal(for_all.loss, of_each.loss)
    assert for_all.count == of_each.count


@BOTH
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_micro_batches_weighted_by_count_give_the_loss_of_the_batch(build, micro):
    model, x = build()
    model.eval()
    x[1] = torch.nan
    x[2].view(-1)[::3] = torch.nan
    mask = model.draw_mask(len(x))
    whole = model(x, mask)
    assert whole.count.dtype == torch.float32
    assert whole.count == (model.masked_values(mask) & ~x.isnan()).sum()
    parts = [model(*part) for part in zip(x.split(micro), mask.split(micro), strict=True)]
    assert sum(part.count for part in parts) == whole.count
    torch.testing.assert_close(sum(part.loss * part.count for part in parts) / whole.count, whole.loss)
    assert model(x[1:2], mask[1:2]).count == model(x[1:2], mask[1:2]).loss == 0


@BOTH
def test_float64_weights_compute_in_float64(build):
    model, x = build()
    x[0].view(-1)[:5] = torch.nan
    mask = model.draw_mask(len(x))
    single = model(x, mask)
    model.double()
    out = model(x, mask)
    out.loss.backward()
    assert out.loss.dtype == out.reconstruction.dtype == torch.float64
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float64}
    torch.testing.assert_close(out.loss, single.loss.double(), atol=1e-5, rtol=1e-5)
    assert model.inpaint(x)[1].dtype == torch.float64

    # No operation rounds to float32: a change far below its precision changes the loss.
    model.eval()
    step = 1e-10 * torch.randn_like(x, dtype=torch.float64)
    loss = [model(x.double() + sign * step, mask).loss for sign in (-1, 0, 1)]
    torch.testing.assert_close(loss[2] - loss[1], loss[1] - loss[0], rtol=1e-3, atol=0)
    assert loss[2] != loss[1]


@BOTH
def test_the_type_of_the_input_does_not_matter(build):
    model, x = build()
    model.eval()
    mask = model.draw_mask(len(x))
    expected = model(x, mask)
    out = model(x.double(), mask)
    assert out.loss.dtype == out.reconstruction.dtype == model.inpaint(x.double())[1].dtype == torch.float32
    assert torch.equal(out.loss, expected.loss)


@pytest.mark.parametrize("ratio, num_passes", [(0.75, 2), (0.5, 2), (0.3, 4), (0.25, 4), (0.01, 16)])
def test_the_number_of_passes_is_minimal(ratio, num_passes):
    assert len(complementary_masks(16, ratio)) == num_passes


def test_the_loss_of_a_single_masked_value():
    loss, count = masked_mse(torch.tensor([3.0, 9.0]), torch.tensor([1.0, 0.0]), torch.tensor([True, False]))
    assert (loss.item(), count.item()) == (4.0, 1.0)


def test_passes_have_not_changed_since_earlier_scores():
    """Checkpoints do not contain the passes; other passes would change scores under an existing threshold."""
    assert complementary_masks(10, 0.3).int().tolist() == [
        [1, 0, 0, 0, 0, 0, 1, 1, 0, 0],
        [0, 1, 0, 1, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
        [0, 0, 1, 0, 1, 0, 0, 0, 0, 0],
    ]
    assert not torch.equal(complementary_masks(10, 0.3), complementary_masks(10, 0.3, seed=1))


@BOTH
def test_the_error_is_the_squared_distance_to_the_input(build):
    model, x = build()
    x[0].view(-1)[:5] = torch.nan
    reconstruction, error = model.inpaint(x)
    assert torch.equal(error.isnan(), x.isnan())
    seen = ~x.isnan()
    assert torch.equal(error[seen], (reconstruction[seen] - x[seen]) ** 2)


@BOTH
def test_evaluating_restores_the_mode_of_every_module(build):
    model, _ = build()
    frozen = next(model.children())
    frozen.eval()
    modes = [module.training for module in model.modules()]
    assert set(modes) == {True, False}
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(KeyError), evaluating(model):
        raise KeyError
    assert [module.training for module in model.modules()] == modes


@BOTH
def test_a_mask_is_on_the_requested_device_or_that_of_the_model(build):
    model, _ = build()
    assert model.draw_mask(2, device="meta").device.type == "meta"
    assert model.to("meta").draw_mask(2).device.type == "meta"


@BOTH
def test_gradient_checkpointing_is_off_by_default_and_passes_are_not_in_the_state(build):
    model, _ = build()
    assert not model.gradient_checkpointing
    assert "passes_qn" not in model.state_dict()


# ------------------------------------------------------------------------------------------------------ distributions
def predictions():
    """Predictions, their log variance, and targets up to 100 standard deviations away."""
    generator = torch.Generator().manual_seed(0)
    mean, log_variance, normal = torch.randn(3, 500, dtype=torch.float64, generator=generator)
    distance = normal * torch.logspace(-3, 2, 500, dtype=torch.float64)
    return mean, log_variance, mean + distance * (0.5 * log_variance).exp()


# The scale of Student's t with four degrees of freedom and the variance v is √(v / 2).
DENSITIES = {
    "gaussian": lambda mean, log_variance: Normal(mean, (0.5 * log_variance).exp()),
    "student_t": lambda mean, log_variance: StudentT(4.0, mean, (0.5 * log_variance).exp() / 2**0.5),
}
each_distribution = pytest.mark.parametrize("output", DENSITIES)


@each_distribution
def test_the_gradient_is_that_of_the_weighted_likelihood(output):
    mean, log_variance, target = predictions()
    chosen = torch.arange(500) % 3 > 0

    def gradients(loss_of):
        inputs = [each.clone().requires_grad_() for each in (mean, log_variance)]
        return torch.autograd.grad(loss_of(*inputs), inputs)

    def expected(mean, log_variance):
        weight = (0.5 * log_variance).exp().detach()
        return -(DENSITIES[output](mean, log_variance).log_prob(target) * weight)[chosen].mean()

    def found(mean, log_variance):
        squared_error = torch.tensor(7.0, dtype=torch.float64)
        loss = likelihood_loss(squared_error, mean, log_variance, target, chosen, output=output)
        assert loss.item() == 7.0
        return loss

    for each, wanted in zip(gradients(found), gradients(expected), strict=True):
        torch.testing.assert_close(each, wanted)


@each_distribution
def test_a_standardised_error_is_the_deviance(output):
    mean, log_variance, target = predictions()
    deviation = (0.5 * log_variance).exp().numpy()
    reference = {
        "gaussian": scipy.stats.norm(mean, deviation),
        "student_t": scipy.stats.t(4, mean, deviation / np.sqrt(2)),
    }[output]
    found = standardised_error(mean, log_variance, target, output=output)
    np.testing.assert_allclose(found, 2 * (reference.logpdf(mean) - reference.logpdf(target)), rtol=1e-7, atol=1e-10)


@each_distribution
@pytest.mark.parametrize("log_variance", LOG_VARIANCE_RANGE)
@pytest.mark.parametrize("distance", [0.0, 1e6])
def test_extreme_errors_have_finite_gradients(output, log_variance, distance):
    inputs = [torch.tensor([each]).requires_grad_() for each in (0.0, log_variance)]
    target, chosen = torch.tensor([distance]), torch.tensor([True])
    likelihood_loss(torch.tensor(0.0), *inputs, target, chosen, output=output).backward()
    assert all(each.grad.isfinite() for each in inputs)
    assert standardised_error(*inputs, target, output=output).isfinite()


@BOTH
@each_distribution
def test_models_return_the_deviance_of_their_predictions(build, output):
    model, x = build(output=output)
    x[0].view(-1)[:5] = torch.nan
    reconstruction, error = model.inpaint(x)
    model.eval()
    with torch.no_grad():
        passes = [(model.masked_values(mask), model(x, mask)) for mask, _ in model.passes()]
    log_variance = sum(values * of_pass.log_variance for values, of_pass in passes)
    seen = ~x.isnan()
    density = DENSITIES[output](reconstruction[seen], log_variance[seen])
    expected = 2 * (density.log_prob(reconstruction[seen]) - density.log_prob(x[seen]))
    torch.testing.assert_close(error[seen], expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(error.isnan(), x.isnan())
