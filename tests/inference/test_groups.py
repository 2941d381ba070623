"""Recordings with a past of their own: which they are, and that one threshold serves all of them."""

from __future__ import annotations

import numpy as np
import pytest

from inference.groups import OWN_ROWS, fit_levels, groups_of
from inference.part_scores import PartScores
from tests.inference.plants import Parts, plant


def scores(score_s: np.ndarray) -> PartScores:
    score_s = score_s.astype(np.float32)
    num_scores = len(score_s)
    return PartScores(score_s, score_s[:, np.newaxis], np.zeros(num_scores, int), np.arange(num_scores), 1)


def two_recordings(normal_rows: int):
    own = {0: (0, normal_rows), 1: (0, normal_rows)}
    test = {0: (normal_rows, normal_rows + 300), 1: (normal_rows, normal_rows + 300)}
    return Parts([plant(normal_rows + 300, seed=0)] * 2).of(calibration=own, test=test)


def test_a_recording_needs_enough_normal_rows_to_be_a_group_of_its_own():
    assert len(groups_of(two_recordings(OWN_ROWS))) == 2
    assert len(groups_of(two_recordings(OWN_ROWS - 1))) == 1


def test_a_normal_score_is_as_large_in_every_group():
    """The second recording is ten times as restless as the first."""
    rng = np.random.default_rng(0)
    restless = np.array([1.0, 10.0])
    calibration = scores(np.repeat(restless, 1000) * rng.gamma(4, size=2000))
    test = scores(np.repeat(restless, 300) * rng.gamma(4, size=600))
    parts = two_recordings(1000)
    calibration, levels = fit_levels(calibration, parts["calibration"], ("machine_0", "machine_1"))
    test = levels.alike(test, parts["test"])
    threshold = np.quantile(calibration.score_s, 0.9)
    for half in (test.score_s[:300], test.score_s[300:]):
        assert (half > threshold).mean() == pytest.approx(0.1, abs=0.06)
    np.testing.assert_array_equal(test.score_s, test.channel_error_sc[:, 0])


def test_one_group_is_left_as_it_is():
    calibration, test = scores(np.arange(100.0)), scores(np.arange(300.0))
    parts = two_recordings(50)
    same, levels = fit_levels(calibration, parts["calibration"], ())
    assert same is calibration
    assert levels.alike(test, parts["test"]) is test


def test_a_recording_scored_alone_among_several_is_judged_by_its_own_past():
    own = {0: (0, OWN_ROWS), 1: (0, OWN_ROWS)}
    parts = Parts([plant(OWN_ROWS + 300, seed=0)] * 2).of(calibration=own, test={1: (OWN_ROWS, OWN_ROWS + 300)})
    ((normal_k2, _),) = groups_of(parts)
    assert normal_k2.tolist() == [[OWN_ROWS + 300, 2 * OWN_ROWS + 300]]


def test_what_nobody_scores_has_no_say_in_the_level_of_others():
    parts = two_recordings(1000)
    calibration = scores(np.repeat([1.0, 50.0], 1000))
    alike, levels = fit_levels(calibration, parts["calibration"], ("machine_0",))
    assert levels.usual == pytest.approx(1.0)
    assert np.isnan(alike.score_s[1000:]).all()
    _, unknown = fit_levels(calibration, parts["calibration"], ("machine_7",))
    assert unknown.level == {"machine_7": 1.0}
