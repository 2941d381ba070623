"""From windows to one score per row: averaging, normalising, smoothing, and the effect of a fault."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from core.data import blocks
from core.data.segments import window_starts
from core.data.windows import WindowSet
from inference.detector import split_scores
from inference.detector.score_table import ranked_recordings, score_table, write_scores
from inference.detector.split_scores import BASELINE_FLOOR, LARGEST_RAISE, channel_baseline, score_split
from inference.entries import SplitErrors
from inference.model_errors import split_errors
from tests.inference.simple_models import (
    PATCH,
    LoudnessModel,
    OthersModel,
    PastModel,
    PlaceModel,
    coupled,
    scoring_with,
    windows_over,
)


class CrampedPlaceModel(PlaceModel):
    """Memory for a limited number of windows."""

    def inpaint(self, x_btc):
        if len(x_btc) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return super().inpaint(x_btc)


# --------------------------------------------------------------------------------------------------------------- errors
def test_out_of_memory_reduces_the_batch_and_keeps_the_scores(caplog):
    windows = windows_over([coupled(50, 1)], window=10, stride=2)
    roomy = split_errors(scoring_with(PlaceModel(), channels=6), windows, batch_size=16)
    cramped = split_errors(scoring_with(CrampedPlaceModel(), channels=6), windows, batch_size=16)
    np.testing.assert_array_equal(cramped.error_sc, roomy.error_sc)
    assert [re.findall(r"\b(?:8|4|2)\b", record.getMessage()) for record in caplog.records] == [["8"], ["4"], ["2"]]


def test_overlapping_windows_are_averaged_per_row():
    windows = windows_over([np.zeros((50, 3)), np.zeros((23, 3))], window=10, stride=4)
    errors = split_errors(scoring_with(PlaceModel()), windows, batch_size=4)
    places: dict[int, list[int]] = {row: [] for row in range(73)}
    for start in windows.starts_w.tolist():
        for place in range(10):
            places[start + place].append(place)
    expected_n = np.array([np.mean(places[row]) for row in range(73)], dtype=np.float32)
    np.testing.assert_allclose(errors.error_sc, np.tile(expected_n[:, None], 3), rtol=1e-6)
    assert errors.segment_s.tolist() == [0] * 50 + [1] * 23
    again = split_errors(scoring_with(PlaceModel()), windows, batch_size=64)
    np.testing.assert_array_equal(again.error_sc, errors.error_sc)


def test_without_a_look_ahead_no_later_row_changes_the_error_of_a_patch():
    values_tc = coupled(200, seed=0)
    scoring = scoring_with(PastModel(), channels=6)
    errors, changed = (
        split_errors(scoring, windows_over([each], window=32, stride=16), batch_size=4, look_ahead=False).error_sc
        for each in (values_tc, np.concatenate([values_tc[:128], values_tc[128:] + 5]))
    )
    assert np.isnan(errors[:16]).all()
    assert np.isfinite(errors[16:]).all()
    np.testing.assert_array_equal(changed[:128], errors[:128])
    assert (changed[128:144] != errors[128:144]).all()


def test_a_split_is_forecast_from_the_rows_before_it():
    """Its windows may start on earlier rows, which a monitor has seen; errors are those of the split only."""
    values_tc = coupled(200, seed=0)
    whole = windows_over([values_tc], window=32, stride=16)
    split_k2 = np.array([[80, 100], [120, 200]])
    starts_w = window_starts(split_k2 - np.array([32 - PATCH, 0]), 32, 16, cover_end=True)
    split = WindowSet(whole.series, starts_w, 32, split_k2)
    scoring = scoring_with(PastModel(), channels=6)
    errors = split_errors(scoring, split, batch_size=4, look_ahead=False, keep_expected=True)
    assert errors.row_s.tolist() == [*range(80, 100), *range(120, 200)]
    expected_c = values_tc[64:80].mean(axis=0)
    np.testing.assert_allclose(errors.expected_sc[0], expected_c, rtol=1e-4)
    np.testing.assert_allclose(errors.error_sc[0], (values_tc[80] - expected_c) ** 2, rtol=1e-3, atol=1e-6)
    assert np.isfinite(errors.error_sc).all()


def test_rows_without_a_window_have_no_score_and_missing_values_stay_missing():
    values_tc = coupled(60, seed=0, channels=3)
    values_tc[25, 1] = np.nan
    values_tc[40] = np.nan
    windows = windows_over([values_tc], window=10, stride=5, segments=[(3, 8), (12, 60)])
    errors = split_errors(scoring_with(OthersModel()), windows, batch_size=8)
    assert errors.row_s.tolist() == [*range(3, 8), *range(12, 60)]
    assert np.isnan(errors.error_sc[:5]).all()
    assert np.argwhere(np.isnan(errors.error_sc[5:])).tolist() == [[13, 1], [28, 0], [28, 1], [28, 2]]
    scores = score_split(errors, channel_baseline({"calibration": errors}), smoothing_span=5)
    assert np.flatnonzero(np.isnan(scores.score_s)).tolist() == [0, 1, 2, 3, 4, 33]
    assert (scores.top_channel_s[np.isnan(scores.score_s)] == -1).all()
    assert scores.top_channel_s[18] != 1


def test_vibration_has_one_score_per_window_at_its_last_row():
    quiet, loud = np.ones((40, 2)), np.tile([[1.0, 3.0]], (40, 1))
    windows = windows_over([quiet, loud], window=16, stride=8)
    errors = split_errors(scoring_with(LoudnessModel(), "swinmae", channels=2), windows, batch_size=3)
    assert errors.row_s.tolist() == [15, 23, 31, 39, 55, 63, 71, 79]
    assert errors.segment_s.tolist() == [0] * 4 + [1] * 4
    scores = score_split(errors, np.array([1.0, 1.0]), smoothing_span=1)
    np.testing.assert_allclose(scores.score_s, [1.0] * 4 + [5.0] * 4)
    assert scores.top_channel_s.tolist() == [0] * 4 + [1] * 4
    assert scores.rows_per_entry == 16


# --------------------------------------------------------------------------------------------------------------- scores
def errors_of(error_sc: Sequence[Sequence[float]]) -> SplitErrors:
    values_sc = np.array(error_sc, dtype=np.float32)
    return SplitErrors(values_sc, np.arange(len(values_sc)), np.zeros(len(values_sc), dtype=np.int64), 1)


def test_channels_are_normalised_by_their_own_calibration_error():
    calibration = errors_of([[1.0, 100.0, 0.0, np.nan], [3.0, 300.0, 1e-9, np.nan], [np.nan, 200.0, 0.0, np.nan]])
    baseline_c = channel_baseline({"calibration": calibration})
    np.testing.assert_allclose(baseline_c, [2.0, 200.0, BASELINE_FLOOR, np.nan])
    scores = score_split(
        errors_of([[2.0, 200.0, BASELINE_FLOOR, 7.0], [8.0, 200.0, np.nan, 9.0]]), baseline_c, smoothing_span=1
    )
    np.testing.assert_allclose(scores.score_s, [1.0, 2.5], rtol=1e-6)
    assert scores.top_channel_s.tolist()[1] == 0


def test_a_quiet_channel_with_a_rare_state_counts_less():
    train_sc, calibration_sc = np.full((1000, 1), 0.1), np.full((300, 1), 0.1)
    train_sc[:5] = 50.0
    rare = channel_baseline({"train": errors_of(train_sc), "calibration": errors_of(calibration_sc)})
    assert rare == pytest.approx(np.sqrt(5 * 50**2 / 1300 / 3), rel=1e-2)
    assert channel_baseline({"calibration": errors_of(calibration_sc)}) == pytest.approx(0.1)


def test_the_split_with_the_largest_error_sets_the_baseline():
    seen, unseen = errors_of(np.full((900, 1), 0.1)), errors_of(np.full((100, 1), 0.4))
    assert channel_baseline({"train": seen, "calibration": unseen}) == pytest.approx(0.4)


def test_the_model_raises_the_score_of_the_charts_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(split_scores, "_LEVEL_SPANS", 1e12)  # so that its long-run mean stays 1
    nan = np.nan
    errors = errors_of([[2.88, nan], [1e9, 4.0], [nan, nan], [1.0, 1.0], [0.2, 0.2], [4.0, 4.0]])
    chart_sc = np.array([[1, 3], [0, nan], [5, nan], [nan, nan], [8, 8], [0.8, 1.0]], dtype=np.float32)
    scores = score_split(errors, np.array([2.0, 2.0]), smoothing_span=1, chart_sc=chart_sc, model_weight=1 / 3)
    first = 2 * np.sqrt(1.44)  # the model's component to the power w / (1 - w) = 1/2
    second, last = 1e-6 * LARGEST_RAISE, 0.9 * np.sqrt(2)
    np.testing.assert_allclose(scores.score_s, [first, second, 5.0, 0.5, 8.0, last], rtol=1e-6)
    share = np.log(1.2) / np.log(2.4)
    np.testing.assert_allclose(scores.model_share_s, [share, 1.0, 0.0, 1.0, 0.0, 1.0], rtol=1e-6)
    # A channel has its shares in the model (1 and 0) and in the charts (1/4 and 3/4), by the shares of both.
    shares = np.array([share + (1 - share) / 4, (1 - share) * 3 / 4])
    np.testing.assert_allclose(scores.channel_error_sc[0], 2 * first * shares, rtol=1e-6)
    np.testing.assert_allclose(np.nanmean(scores.channel_error_sc, axis=1), scores.score_s, rtol=1e-6)


@pytest.mark.parametrize("model_weight", [0.03, 0.5, 0.97])
def test_the_model_never_hides_what_the_charts_find(model_weight):
    rng = np.random.default_rng(0)
    errors, chart_sc = errors_of(np.exp(rng.normal(size=(500, 2)))), np.exp(rng.normal(size=(500, 2)))
    scores = score_split(errors, np.ones(2), smoothing_span=1, chart_sc=chart_sc, model_weight=model_weight)
    of_charts = chart_sc.mean(axis=1)
    assert (scores.score_s >= of_charts * (1 - 1e-6)).all()
    assert (scores.score_s <= of_charts * LARGEST_RAISE * (1 + 1e-6)).all()
    assert (scores.score_s > of_charts * 1.01).any()


def raised(error_n: np.ndarray) -> np.ndarray:
    """By how much the model raises scores of 1: (n,). error_n: errors of one channel with the baseline 1."""
    chart_sc = np.ones((len(error_n), 1))
    errors = errors_of(error_n[:, np.newaxis])
    return score_split(errors, np.ones(1), smoothing_span=10, chart_sc=chart_sc, model_weight=0.5).score_s


def test_the_model_raises_no_scores_where_all_rows_have_become_hard_to_predict():
    noise_n = np.random.default_rng(0).exponential(size=40_000)
    noise_n[20_000:] *= 4.0
    raise_n = raised(noise_n)
    assert raise_n[20_050:20_500].mean() > 1.45
    assert raise_n[35_000:].mean() == pytest.approx(raise_n[15_000:20_000].mean(), rel=0.05)
    again_n = noise_n.copy()
    again_n[39_000:39_500] *= 4.0
    assert raised(again_n)[39_050:39_500].mean() > 1.45


def test_a_fault_of_minutes_hardly_changes_the_long_run_mean_of_the_model():
    noise_n = np.random.default_rng(0).exponential(size=8000)
    faulty_n = noise_n.copy()
    faulty_n[2000:2200] = 1e6
    before, after = raised(noise_n), raised(faulty_n)
    assert after[2000:2200].min() == pytest.approx(LARGEST_RAISE)
    later = slice(4000, 8000)
    assert after[later].mean() > 0.97 * before[later].mean()


def test_a_channel_that_is_not_scored_does_not_change_the_score():
    errors = errors_of([[2.0, 50.0], [4.0, 3.0]])
    baseline_c = channel_baseline({"calibration": errors_of([[1.0, 1.0]])}, np.array([True, False]))
    assert np.isnan(baseline_c).tolist() == [False, True]
    scores = score_split(errors, baseline_c, smoothing_span=1)
    np.testing.assert_allclose(scores.score_s, [2.0, 4.0])
    assert scores.top_channel_s.tolist() == [0, 0]


def test_scores_larger_than_memory_are_computed_in_pieces(monkeypatch, tmp_path):
    windows = windows_over([coupled(500, seed=1), coupled(300, seed=2)], window=32, stride=8)

    def scores(room: Path | None):
        apart = replace(windows, series=replace(windows.series, scratch=room))
        errors = split_errors(scoring_with(OthersModel(), channels=6), apart, batch_size=16)
        return score_split(errors, channel_baseline({"calibration": errors}), smoothing_span=5)

    roomy = scores(None)
    monkeypatch.setattr(blocks, "IN_MEMORY", 0)
    monkeypatch.setattr(split_scores, "_VALUES_AT_A_TIME", 6 * 37)
    cramped = scores(tmp_path)
    for array in (cramped.channel_error_sc, cramped.row_s):
        assert isinstance(array, np.memmap)
    assert not list(tmp_path.iterdir())
    np.testing.assert_allclose(cramped.score_s, roomy.score_s, rtol=1e-6)
    np.testing.assert_allclose(cramped.channel_error_sc, roomy.channel_error_sc, rtol=1e-6)
    assert cramped.top_channel_s.tolist() == roomy.top_channel_s.tolist()
    assert cramped.row_s.tolist() == roomy.row_s.tolist()


def test_smoothing_is_causal():
    error_sc = np.ones((200, 2), dtype=np.float32)
    error_sc[120:] = 50.0
    scores = score_split(errors_of(error_sc), np.ones(2), smoothing_span=10)
    np.testing.assert_allclose(scores.score_s[:120], 1.0, rtol=1e-5)
    assert 1.0 < scores.score_s[120] < scores.score_s[125] < 50.0


def test_a_level_shift_of_one_channel_raises_the_score_and_names_the_channel():
    test_tc = coupled(800, seed=2)
    test_tc[400:450, 4] += 1.0
    calibration, test = (
        split_errors(scoring_with(OthersModel(), channels=6), windows_over([x], window=32, stride=8), batch_size=16)
        for x in (coupled(800, seed=1), test_tc)
    )
    scores = score_split(test, channel_baseline({"calibration": calibration}), smoothing_span=5)
    shifted_s = np.zeros(800, dtype=bool)
    shifted_s[405:450] = True
    normal_s = ~shifted_s
    normal_s[395:470] = False
    assert scores.score_s[shifted_s].min() > 5 * np.median(scores.score_s[normal_s])
    assert scores.score_s[shifted_s].min() > scores.score_s[normal_s].max()
    assert set(scores.top_channel_s[shifted_s]) == {4}
    assert np.median(scores.score_s[normal_s]) == pytest.approx(1.0, abs=0.2)


# ---------------------------------------------------------------------------------------------------------------- table
def test_the_table_contains_recording_time_and_label():
    windows = windows_over([np.ones((20, 2)), np.ones((20, 2)), np.ones((20, 2))], window=10, stride=10)
    errors = split_errors(scoring_with(LoudnessModel(), channels=2), windows, batch_size=8)
    scores = score_split(errors, np.array([1.0, 2.0]), smoothing_span=1)
    table = score_table(scores, windows, channels=("a", "b"), threshold=0.7)
    assert table["recording"].astype(str).tolist() == ["file_0"] * 20 + ["file_1"] * 20 + ["file_2"] * 20
    assert table["row"].tolist() == [*range(20)] * 3
    assert table["seconds"].tolist() == [float(second) for second in range(20)] * 3
    assert table["time"].notna().tolist() == [True] * 20 + [False] * 40
    assert str(table["time"].dtype) == "datetime64[ns]"
    assert (str(table["label"].dtype), str(table["score"].dtype)) == ("Int8", "float32")
    assert table["label"].isna().tolist() == [True] * 20 + [False] * 40
    assert table["label"][20:].tolist() == [0] * 20 + [1] * 20
    assert table["alarm"].all()
    assert set(table["top_channel"]) == {"a"}


def test_a_table_written_in_row_groups_is_read_completely(monkeypatch, tmp_path):
    windows = windows_over([coupled(50, seed=0), coupled(30, seed=1)], window=10, stride=5)
    scores = score_split(split_errors(scoring_with(OthersModel()), windows, batch_size=8), np.ones(6), smoothing_span=1)
    names = tuple(f"c{channel}" for channel in range(6))
    table = score_table(scores, windows, channels=names, threshold=0.7)
    table.to_parquet(tmp_path / "at_once.parquet", index=False)
    monkeypatch.setattr("inference.detector.score_table._LINES_AT_A_TIME", 7)
    write_scores(table, tmp_path / "in_groups.parquet")
    found, expected = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("in_groups", "at_once"))
    pd.testing.assert_frame_equal(found, expected)


def test_a_window_is_anomalous_if_half_of_its_rows_are(monkeypatch):
    label_n = np.zeros(40, dtype=np.int8)
    label_n[12:20] = 1
    monkeypatch.setattr("inference.detector.score_table.labels_of", lambda recording: label_n)
    windows = windows_over([np.ones((40, 1))], window=8, stride=4)
    errors = split_errors(scoring_with(LoudnessModel(), "swinmae", channels=1), windows, batch_size=8)
    scores = score_split(errors, np.array([1.0]), smoothing_span=1)
    table = score_table(scores, windows, channels=("x",), threshold=2.0)
    assert dict(zip(table["row"], table["label"], strict=True)) == {
        7: 0, 11: 0, 15: 1, 19: 1, 23: 1, 27: 0, 31: 0, 35: 0, 39: 0
    }  # fmt: skip


def test_recordings_are_ranked_from_the_least_normal_one():
    names = ["a.csv", "b.csv", "c.csv"]
    scores = pd.DataFrame(
        {
            "recording": pd.Categorical([name for name in names for _ in range(3)]),
            "score": [1.0, 1.0, 9.0, 3.0, 4.0, 4.0, np.nan, np.nan, np.nan],
            "threshold": 2.0,
            "alarm": [False, False, True, True, True, True, False, False, False],
        }
    )
    found = ranked_recordings(scores, pd.DataFrame({"recording": ["a.csv", "b.csv", "b.csv"]}))
    assert found["recording"].tolist() == ["b.csv", "a.csv", "c.csv"]
    assert found["median"].tolist()[:2] == [2.0, 0.5]
    assert found["highest"].tolist()[:2] == [2.0, 4.5]
    assert found["alarms"].round(2).tolist() == [1.0, 0.33, 0.0]
    assert found["events"].tolist() == [2, 1, 0]
