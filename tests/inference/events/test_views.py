"""Views of events: stored values of the scoring pass in physical units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from core.data.scaling import Scaler
from core.data.windows import WindowSet
from inference.detector.split_scores import SplitScores
from inference.entries import SplitErrors
from inference.events.views import ScoredSplit, rows_view, window_view
from inference.model_errors import split_errors
from inference.scoring import ScoringModel
from tests.inference.simple_models import LoudnessModel, OthersModel, coupled, scoring_with, windows_over


def scored(scoring: ScoringModel, windows: WindowSet, errors: SplitErrors) -> ScoredSplit:
    """The scores are simulated: only predictions matter here."""
    entries = len(errors.row_s)
    names = pd.Categorical.from_codes(np.zeros(entries, dtype=np.int64), ["file_0"])
    table = pd.DataFrame({"recording": names, "score": np.ones(entries), "seconds": np.arange(entries) * 1.0})
    scores = SplitScores(
        table["score"].to_numpy(), errors.error_sc, np.zeros(entries, dtype=np.int32), errors.row_s,
        errors.rows_per_entry,
    )  # fmt: skip
    return ScoredSplit(scoring, windows, scores, table, errors.expected_sc)


def test_predictions_of_rows_are_averaged_over_windows_in_physical_units():
    values = coupled(400, 0)
    values[210, 3] = np.nan
    scaler = Scaler("robust", tuple("abcdef"), (5.0,) * 6, (20.0,) * 6, 1e9, {})
    windows = windows_over([values], window=32, stride=8)
    windows = replace(windows, series=replace(windows.series, scaler=scaler))
    scoring = scoring_with(PlaceModelOfOthers(), channels=6)
    errors = split_errors(scoring, windows, batch_size=7, keep_expected=True)
    view = rows_view(scored(scoring, windows, errors), 200, 239)
    sums_nc, count_n = np.zeros((400, 6)), np.zeros(400)
    for index, start in enumerate(windows.starts_w.tolist()):
        x_btc = windows.batch(torch.tensor([index]))
        sums_nc[start : start + 32] += scoring.model.inpaint(x_btc.double())[0][0].numpy()
        count_n[start : start + 32] += 1
    expected_nc = (sums_nc / count_n[:, None])[view.start : view.stop] * 20.0 + 5.0
    np.testing.assert_allclose(view.expected_nc, expected_nc, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(view.seen_nc, values[view.start : view.stop].astype(np.float32))


class PlaceModelOfOthers(OthersModel):
    """A prediction that depends on the window, so that the mean over windows can be checked."""

    def inpaint(self, x_btc: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        predicted, _ = super().inpaint(x_btc)
        predicted = predicted + 0.01 * torch.arange(x_btc.shape[1]).unsqueeze(1)
        return predicted, (predicted - x_btc).square()


def test_rows_outside_windows_have_no_prediction():
    windows = windows_over([coupled(64, 0), coupled(20, 1)], window=32, stride=32)
    scoring = scoring_with(OthersModel(), channels=6)
    errors = split_errors(scoring, windows, batch_size=8, keep_expected=True)
    view = rows_view(scored(scoring, windows, errors), 60, 69)
    assert np.isnan(view.expected_nc).all(axis=1).tolist() == [row >= 64 for row in range(view.start, view.stop)]
    assert split_errors(scoring, windows, batch_size=8).expected_sc is None


def test_each_vibration_window_is_predicted_once(monkeypatch):
    windows = windows_over([np.ones((64, 2))], window=16, stride=16)
    scoring = scoring_with(LoudnessModel(), "swinmae", channels=2)
    made = []
    monkeypatch.setattr("inference.events.views.expected_levels", lambda *which: made.append(which) or object())
    errors = split_errors(scoring, windows, batch_size=8)
    shown = scored(scoring, windows, errors)
    levels = [window_view(shown, 1, 2).levels for _ in range(3)]
    assert len(made) == 1
    assert levels[0] is levels[2]
