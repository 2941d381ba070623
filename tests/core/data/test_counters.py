import logging

import numpy as np
import pandas as pd
import pytest

from core.data.dataset import load_stream_data
from core.data.splits import TRAINING_SPLITS
from tests.core.data.test_splits import local


@pytest.mark.parametrize(
    ("meter_of", "is_named"),
    [
        (lambda row_n: 7000 + row_n / 360, True),
        (lambda row_n: (7000 + row_n / 360).round(1), True),
        (lambda row_n: row_n // 500, False),  # the steps of a recipe
        (lambda row_n: row_n % 1500, False),
        (lambda row_n: np.full(len(row_n), 7.0), False),
    ],
    ids=["exact", "rounded", "steps", "reset", "constant"],
)
def test_a_meter_among_the_channels_is_named_where_it_is_learned(tmp_path, caplog, meter_of, is_named):
    folder = tmp_path / "data/fdc"
    folder.mkdir(parents=True)
    row_n = np.arange(3000)
    values = {"flow": np.random.default_rng(0).normal(size=3000), "meter": meter_of(row_n)}
    frame = pd.DataFrame({"timestamp": pd.Timestamp("2026-01-01") + pd.to_timedelta(row_n, "s"), **values})
    frame.to_csv(folder / "train_1.csv", index=False)
    caplog.set_level(logging.WARNING)
    load_stream_data(local(tmp_path), root=tmp_path, splits=TRAINING_SPLITS)
    assert ("data.exclude=[meter]" in caplog.text) == is_named
