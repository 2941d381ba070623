import logging
import math
import re

import pytest
import torch

from core.errors import DataError, LandfallError
from tests.trainers.objectives import (
    NUM_WINDOWS,
    OUT_OF_MEMORY,
    Cramped,
    assert_same,
    config_of,
    gradients,
    inputs_with_gaps,
    model_of,
    objective_of,
)


@pytest.fixture
def config(workspace):
    def compose(*overrides: str):
        return config_of(workspace, *overrides)

    return compose


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("micro", [8, 16])
def test_the_gradient_does_not_depend_on_the_micro_batch(config, norm, micro):
    settings = config(f"model.norm={norm}", "model.norm_windows=8")
    whole, micro_batched = model_of(settings), model_of(settings)
    index_b = torch.randperm(NUM_WINDOWS, generator=torch.Generator().manual_seed(3))
    loss = objective_of(whole, settings, NUM_WINDOWS).backward(inputs_with_gaps(), index_b, "masks", 0, 0)
    loss_in_micro_batches = objective_of(micro_batched, settings, micro).backward(
        inputs_with_gaps(), index_b, "masks", 0, 0
    )
    assert loss_in_micro_batches.item() == pytest.approx(loss.item(), rel=1e-5)
    assert_same(gradients(whole), gradients(micro_batched))
    assert_same(dict(whole.named_buffers()), dict(micro_batched.named_buffers()))


@pytest.mark.parametrize("micro", [1, 5, 32])
def test_validation_does_not_depend_on_the_micro_batch(config, micro):
    settings = config()
    model = model_of(settings)
    whole = objective_of(model, settings, NUM_WINDOWS).mean_loss(inputs_with_gaps())
    assert objective_of(model, settings, micro).mean_loss(inputs_with_gaps()) == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_out_of_memory_repeats_the_step_with_smaller_micro_batches(config, norm, caplog):
    settings = config(f"model.norm={norm}", "model.norm_windows=8")
    whole, cramped = model_of(settings), Cramped(model_of(settings), most=8)
    index_b = torch.arange(NUM_WINDOWS)
    loss = objective_of(whole, settings, NUM_WINDOWS).backward(inputs_with_gaps(), index_b, "masks", 0, 0)
    objective = objective_of(cramped, settings, NUM_WINDOWS)
    assert objective.backward(inputs_with_gaps(), index_b, "masks", 0, 0).item() == pytest.approx(loss.item(), rel=1e-5)
    assert objective.micro == 8
    assert_same(gradients(whole), gradients(cramped.inner))
    assert_same(dict(whole.named_buffers()), dict(cramped.inner.named_buffers()))
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [re.search(r"micro-batch is now (\d+)", message)[1] for message in messages] == ["16", "8"]
    assert all(OUT_OF_MEMORY in message for message in messages)


def test_a_retry_starts_from_the_random_state_before_the_failure(config):
    """Dropout in the retry starts from the random state before the failed attempt."""
    settings = config("model.dropout=0.3", "model.norm=layer")
    roomy, cramped = model_of(settings), Cramped(model_of(settings), most=8)
    torch.manual_seed(9)
    objective_of(roomy, settings, 8).backward(inputs_with_gaps(), torch.arange(16), "masks", 0, 0)
    torch.manual_seed(9)
    objective_of(cramped, settings, 16).backward(inputs_with_gaps(), torch.arange(16), "masks", 0, 0)
    assert_same(gradients(roomy), gradients(cramped.inner))


def test_smaller_groups_of_batch_normalisation_cause_a_warning(config, caplog):
    settings = config("model.norm=batch", "model.norm_windows=8")
    objective = objective_of(Cramped(model_of(settings), most=4), settings, 8)
    objective.backward(inputs_with_gaps(), torch.arange(8), "masks", 0, 0)
    assert "4 windows, not 8" in caplog.text


def test_validation_continues_with_smaller_micro_batches(config):
    settings = config("model.norm=layer")
    model = model_of(settings)
    whole = objective_of(model, settings, NUM_WINDOWS).mean_loss(inputs_with_gaps())
    objective = objective_of(Cramped(model, most=4), settings, NUM_WINDOWS)
    assert objective.mean_loss(inputs_with_gaps()) == pytest.approx(whole, rel=1e-5)
    assert objective.micro == 4


def test_one_window_that_does_not_fit_is_an_error_with_a_hint(config):
    settings = config()
    objective = objective_of(Cramped(model_of(settings), most=0), settings, 4)
    with pytest.raises(LandfallError, match="one window: CUDA out of memory") as caught:
        objective.backward(inputs_with_gaps(), torch.arange(4), "masks", 0, 0)
    assert "training.gradient_checkpointing=true" in caught.value.hint


def test_other_errors_are_not_treated_as_out_of_memory(config):
    settings = config()
    model = model_of(settings)
    model.forward = lambda *_: (_ for _ in ()).throw(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        objective_of(model, settings, 4).backward(inputs_with_gaps(), torch.arange(4), "masks", 0, 0)


def test_a_micro_batch_is_weighted_by_its_number_of_values(config):
    settings = config("model.norm=layer")
    model, index_b = model_of(settings), torch.arange(NUM_WINDOWS)
    objective = objective_of(model, settings, 4)
    loss = objective.backward(inputs_with_gaps(), index_b, "masks", 0, 0).item()
    with torch.no_grad():
        mask_b = objective.draw_masks(NUM_WINDOWS, "masks", 0, 0)
        micro_batches = zip(index_b.split(4), mask_b.split(4), strict=True)
        outputs = [model(inputs_with_gaps().batch(micro_b), micro_mask_b) for micro_b, micro_mask_b in micro_batches]
    values = sum(output.count.item() for output in outputs)
    assert loss == pytest.approx(sum(o.loss.item() * o.count.item() for o in outputs) / values, rel=1e-5)
    assert loss != pytest.approx(sum(o.loss.item() for o in outputs) / len(outputs), rel=1e-4), (
        "the gaps must make a difference"
    )


def test_a_step_without_observed_values_changes_nothing(config):
    settings = config("model.norm=layer")
    objective = objective_of(model_of(settings), settings, 2)
    inputs = inputs_with_gaps()
    inputs.windows.series.values_nc.fill_(math.nan)
    assert objective.backward(inputs, torch.arange(4), "masks", 0, 0).item() == 0.0
    assert all(torch.equal(gradient, torch.zeros_like(gradient)) for gradient in gradients(objective.model).values())


def test_validation_without_observed_values_is_an_error(config):
    """Its loss would be 0, which no later epoch could improve."""
    settings = config("model.norm=layer")
    inputs = inputs_with_gaps()
    inputs.windows.series.values_nc.fill_(math.nan)
    with pytest.raises(DataError, match=f"{NUM_WINDOWS} windows of the validation split"):
        objective_of(model_of(settings), settings, 4).mean_loss(inputs)


def test_the_last_step_can_be_rolled_back(config):
    """Also after a later step, and after batch statistics have changed."""
    settings = config("model.norm=batch", "model.dropout=0.3")
    model = model_of(settings)
    objective = objective_of(model, settings, 8)
    before = {name: values.clone() for name, values in model.state_dict().items()}
    torch.manual_seed(4)
    rng = torch.get_rng_state()
    objective.backward(inputs_with_gaps(), torch.arange(8), "masks", 0, 0)
    undo = objective.undo
    objective.backward(inputs_with_gaps(), torch.arange(8, 16), "masks", 0, 1)
    assert not torch.equal(torch.get_rng_state(), rng)
    undo()
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(gradient is None for gradient in gradients(model).values())
