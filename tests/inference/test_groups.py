"""Recordings with their own reference data share one threshold."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.detection.detectors import groups_of
from inference.detector.group_scales import fit_group_scales
from inference.detector.split_scores import SplitScores
from inference.groups import OWN_ROWS, reference_of, scored_per_recording
from tests.inference.charts.plants import Splits, plant


def halves(num_scores: int, recordings: int) -> np.ndarray:
    """The second halves of the given number of equally long recordings."""
    return np.tile(np.repeat([False, True], num_scores // recordings // 2), recordings)


def scores(score_s: np.ndarray) -> SplitScores:
    score_s = score_s.astype(np.float32)
    num_scores = len(score_s)
    return SplitScores(score_s, score_s[:, np.newaxis], np.zeros(num_scores, int), np.arange(num_scores), 1)


def two_recordings(normal_rows: int):
    own = {0: (0, normal_rows), 1: (0, normal_rows)}
    test = {0: (normal_rows, normal_rows + 300), 1: (normal_rows, normal_rows + 300)}
    return Splits([plant(normal_rows + 300, seed=0)] * 2).of(calibration=own, test=test)


def test_a_group_of_one_recording_needs_enough_reference_rows():
    assert len(groups_of(two_recordings(OWN_ROWS))) == 2
    assert len(groups_of(two_recordings(OWN_ROWS - 1))) == 1


def test_reference_scores_are_equally_large_in_every_group():
    """The second recording varies ten times as much as the first."""
    rng = np.random.default_rng(0)
    restless = np.array([1.0, 10.0])
    calibration_s = np.repeat(restless, 1000) * rng.gamma(4, size=2000)
    test = scores(np.repeat(restless, 300) * rng.gamma(4, size=600))
    splits = two_recordings(1000)
    calibration_s, scales, _ = fit_group_scales(
        calibration_s, halves(2000, 2), splits["calibration"], ("machine_0", "machine_1")
    )
    test = scales.normalised(test, splits["test"])
    threshold = np.quantile(calibration_s, 0.9)
    for half in (test.score_s[:300], test.score_s[300:]):
        assert (half > threshold).mean() == pytest.approx(0.1, abs=0.06)
    np.testing.assert_array_equal(test.score_s, test.channel_error_sc[:, 0])


def test_a_single_group_is_not_scaled():
    calibration_s, test = np.arange(100.0), scores(np.arange(300.0))
    splits = two_recordings(50)
    same, scales, _ = fit_group_scales(calibration_s, halves(100, 2), splits["calibration"], ())
    assert same is calibration_s
    assert scales.normalised(test, splits["test"]) is test


def test_the_scale_of_a_recording_does_not_depend_on_other_recordings():
    """Two recordings have reference rows and later rows; which of them is scored does not matter."""
    own = {0: (0, OWN_ROWS), 1: (0, OWN_ROWS)}
    machines = Splits([plant(OWN_ROWS + 300, seed=0)] * 2)
    for scored in ({1: (OWN_ROWS, OWN_ROWS + 300)}, {0: (OWN_ROWS, OWN_ROWS + 300)}):
        groups = groups_of(machines.of(calibration=own, test=scored))
        assert [normal_k2.tolist() for normal_k2, _ in groups] == [
            [[0, OWN_ROWS]], [[OWN_ROWS + 300, 2 * OWN_ROWS + 300]]
        ]  # fmt: skip


def test_a_recording_without_later_rows_is_not_a_group():
    machines = Splits([plant(OWN_ROWS + 300, seed=0), plant(OWN_ROWS, seed=1)])
    splits = machines.of(calibration={0: (0, OWN_ROWS), 1: (0, OWN_ROWS)}, test={0: (OWN_ROWS, OWN_ROWS + 300)})
    assert scored_per_recording(reference_of(splits).values()) == ("machine_0",)


def test_each_half_is_scaled_by_the_other_half():
    """The second half of each recording varies twice as much as the first, which its own scale would hide."""
    rng = np.random.default_rng(0)
    louder = np.concatenate([np.repeat([level, 2 * level], 500) for level in (1.0, 5.0)])
    calibration_s = louder * rng.gamma(4, size=2000)
    second_s = halves(2000, 2)
    normalised_s, _, _ = fit_group_scales(
        calibration_s, second_s, two_recordings(1000)["calibration"], ("machine_0", "machine_1")
    )
    ratio = np.sqrt(np.mean(normalised_s[second_s] ** 2) / np.mean(normalised_s[~second_s] ** 2))
    assert ratio > 2


def test_recordings_that_differ_only_by_chance_have_one_scale():
    rng = np.random.default_rng(0)
    machines = Splits([plant(700, seed=seed) for seed in range(20)])
    splits = machines.of(calibration=dict.fromkeys(range(20), (300, 400)))
    alone = tuple(f"machine_{number}" for number in range(20))
    calibration_s = rng.gamma(4, size=2000)
    _, scales, _ = fit_group_scales(calibration_s, halves(2000, 20), splits["calibration"], alone)
    own = [np.sqrt(np.mean(calibration_s[first : first + 100] ** 2)) for first in range(0, 2000, 100)]
    assert np.std(np.log(list(scales.scale.values()))) < 0.6 * np.std(np.log(own))


def test_unscored_recordings_do_not_affect_the_scale_of_others():
    splits = two_recordings(1000)
    calibration_s = np.repeat([1.0, 50.0], 1000)
    normalised_s, scales, _ = fit_group_scales(calibration_s, halves(2000, 2), splits["calibration"], ("machine_0",))
    assert scales.usual == pytest.approx(1.0)
    assert np.isnan(normalised_s[1000:]).all()
    _, unknown, _ = fit_group_scales(calibration_s, halves(2000, 2), splits["calibration"], ("machine_7",))
    assert unknown.scale == {"machine_7": 1.0}


def many_machines(number: int):
    """Recordings with 100 calibration rows each, their file ids, and their calibration scores."""
    splits = Splits([plant(700, seed=seed) for seed in range(number)]).of(
        calibration=dict.fromkeys(range(number), (300, 400))
    )
    names = tuple(f"machine_{index}" for index in range(number))
    return splits["calibration"], names, np.random.default_rng(0).gamma(4, size=(number, 100))


def test_a_recording_that_changes_within_the_calibration_data_sets_no_threshold():
    """Recording 3 changes in its second half; recording 7 is always ten times as large, which its scale corrects."""
    calibration, names, score_rs = many_machines(20)
    score_rs[3, 50:] *= 10
    score_rs[7] *= 10
    normalised_s, _, changed = fit_group_scales(score_rs.ravel(), halves(2000, 20), calibration, names)
    assert changed == ("machine_3",)
    normalised_rs = normalised_s.reshape(20, 100)
    assert np.isnan(normalised_rs[3]).all()
    assert not np.isnan(np.delete(normalised_rs, 3, axis=0)).any()


def test_recordings_that_change_as_much_as_all_others_set_the_threshold():
    calibration, names, score_rs = many_machines(20)
    score_rs[:, 50:] *= np.linspace(0.5, 4, 20)[:, np.newaxis]
    assert fit_group_scales(score_rs.ravel(), halves(2000, 20), calibration, names)[2] == ()


def test_few_recordings_do_not_show_which_of_them_has_changed():
    calibration, names, score_rs = many_machines(9)
    score_rs[3, 50:] *= 10
    normalised_s, _, changed = fit_group_scales(score_rs.ravel(), halves(900, 9), calibration, names)
    assert changed == ()
    assert not np.isnan(normalised_s).any()
