"""Skill: 0 for the mean training input, 1 for a perfect prediction, on chosen values only."""

import pytest
import torch

from core.models.skill import Skill, error_sums

CHANNELS = ("x", "y", "z")


def images(batch=6, seed=0):
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) + 1.0


def skill_of(x, prediction, mean, chosen=None):
    chosen = torch.ones(len(x), 1, *x.shape[2:], dtype=torch.bool) if chosen is None else chosen
    return Skill.of(error_sums(x, prediction, mean, chosen, channel_axis=1), CHANNELS)


def test_the_mean_input_has_no_skill_and_a_perfect_prediction_has_one():
    x = images()
    mean = x.mean(0)
    assert skill_of(x, mean.expand_as(x), mean).total == 0.0
    assert skill_of(x, x, mean) == Skill(1.0, {"x": 1.0, "y": 1.0, "z": 1.0})


def test_the_mean_of_each_channel_is_worse_than_the_mean_input():
    """A comparison with one mean per channel would overestimate the skill."""
    picture = torch.arange(64.0).view(8, 8).expand(3, 8, 8)
    x = picture + images()
    flat = x.mean(dim=(0, 2, 3), keepdim=True).expand_as(x)
    assert skill_of(x, flat, x.mean(0)).total < -10


def test_skill_uses_chosen_and_observed_values_only():
    x, mean = images(), torch.zeros(3, 8, 8)
    chosen = torch.zeros(len(x), 1, 8, 8, dtype=torch.bool)
    chosen[..., :4] = True
    prediction = torch.where(chosen, 0.5 * x, 1e6)
    x[:, 1, :, 1] = torch.nan
    sums_cs = error_sums(x, prediction, mean, chosen, channel_axis=1)
    assert sums_cs[:, 2].tolist() == [6 * 32, 6 * 24, 6 * 32]
    assert Skill.of(sums_cs, CHANNELS).total == pytest.approx(0.75)


def test_a_plane_without_values_has_no_skill():
    x = images()
    mean = x.mean(0)
    x[:, 2] = torch.nan
    found = skill_of(x, 0.5 * (x + mean), mean)
    assert found.channels["z"] is None
    assert found.total == pytest.approx(0.75)
    assert skill_of(mean.expand_as(x), x, mean).total is None


def test_windows_of_process_sensors():
    x = torch.randn(5, 16, 2, generator=torch.Generator().manual_seed(1))
    mean = x.mean(0)
    sums_cs = error_sums(x, 0.5 * (x + mean), mean, torch.ones_like(x, dtype=torch.bool), channel_axis=2)
    assert Skill.of(sums_cs, ("a", "b")).channels == pytest.approx({"a": 0.75, "b": 0.75})
