"""Values of 1e38 and more are missing, in every kind of file, and smaller values do not overflow."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import pytest

from core.data import blocks as blocks_module
from core.data import medians
from core.data.dataset import TRAINING_SPLITS, load_stream_data
from core.data.quality_metrics import channel_metrics
from core.data.sentinels import SENTINEL, Sentinels
from tests.core.data.bad_file_cases import config_for
from tests.core.data.bad_files import cells, data

FLT_MAX = float(np.finfo(np.float32).max)
BELOW = float(np.nextafter(np.float32(SENTINEL), np.float32(0)))


def test_sentinels_are_counted_per_channel_with_their_first_rows():
    block = np.zeros((10, 3), dtype=np.float32)
    block[2:9, 1] = [FLT_MAX, -FLT_MAX, np.inf, -np.inf, 1.1e38, -2e38, 3e38]
    block[4, 2] = BELOW
    sentinels = Sentinels(3)
    sentinels.remove_(block, 2)
    sentinels.remove_(np.full((1, 3), [0, 0, FLT_MAX], dtype=np.float32), 12)
    assert sentinels.count_c.tolist() == [0, 7, 1]
    assert np.flatnonzero(np.isnan(block[:, 1])).tolist() == list(range(2, 9))
    assert block[4, 2] == np.float32(BELOW)
    one, other = sentinels.notes({0: "a", 1: "b", 2: "c"})
    assert all(word in one for word in ("'b'", "7 ", "rows 4, 5, 6, 7, 8 and more"))
    assert all(word in other for word in ("'c'", "1 ", "row 12"))


@pytest.mark.parametrize("text", ["3.4028235e38", "-3.4028235e38", "1e38", "inf", "9" * 400, "-" + "9" * 400])
def test_training_data_with_a_sentinel_loads_and_names_the_row(tmp_path, text, caplog):
    data(cells(lambda n, v: text if n == 40 else v))(tmp_path / "f.csv")
    splits = {
        name: {"files": ["f.csv"], "start": start, "stop": stop}
        for name, start, stop in (("train", 0.0, 0.5), ("validation", 0.5, 0.7), ("calibration", 0.7, 0.8),
                                  ("test", 0.8, 1.0))
    }  # fmt: skip
    config = config_for("patchtst", "f.csv", window=32, stride=1, guard=0)
    config = config.model_copy(
        update={"data": config.data.model_copy(update={"splits": type(config.data.splits).model_validate(splits)})}
    )
    with caplog.at_level(logging.INFO), warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_stream_data(config, root=tmp_path, splits=TRAINING_SPLITS)
    values_btc = loaded.splits["train"].batch(np.s_[:])
    assert int(values_btc.isnan().sum()) == 32  # one cell, in as many windows as there are rows in one
    assert values_btc.nan_to_num().abs().max() < 10
    assert all(word in caplog.text for word in ("f.csv", "'a'", "row 42"))
    assert loaded.reports[0].metrics["channels"]["a"]["missing_ratio"] == 1 / 400


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        [BELOW, -BELOW] * 200,
        [0.0] * 399 + [BELOW],
        [0.0, 1e-30] * 100 + [BELOW, -BELOW] + [0.0] * 100,
        np.repeat([BELOW, -BELOW], 20).tolist() * 10,
    ],
)
def test_metrics_of_the_largest_values_are_finite(values, in_blocks, monkeypatch):
    if in_blocks:
        monkeypatch.setattr(blocks_module, "BLOCK_BYTES", 256)
        monkeypatch.setattr(medians, "_FEW", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = channel_metrics(np.array(values, dtype=np.float32), np.empty(0, dtype=np.int64))
    assert all(np.isfinite(value) for value in metrics.values() if value is not None)
    assert metrics["largest_jump_sigma"] is not None
