"""Prefetched batches on a CPU, and series that are moved to a device."""

import gc
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from core.data import feed as feed_module
from core.data.feed import Feed
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from tests.trainers.trainings import fit, make_trainer

CPU = torch.device("cpu")
STEPS = [torch.tensor(index) for index in ([3, 1], [0, 4], [2], [5, 5, 1])]


@pytest.fixture
def windows() -> WindowSet:
    values_tc = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    recording = Recording("r", Path("r.csv"), values_tc, np.arange(60), ("a", "b"), None, "index")
    return WindowSet(Series.of([recording], values_tc), np.arange(0, 48, 8), 12)


class Gathered:
    """The batches that each thread gathered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.main: list[list[int]] = []
        self.ahead: list[list[int]] = []
        gather = Feed._gather

        def noted(feed: Feed, index_b: torch.Tensor) -> torch.Tensor:
            by_main = threading.current_thread() is threading.main_thread()
            (self.main if by_main else self.ahead).append(index_b.tolist())
            return gather(feed, index_b)

        monkeypatch.setattr(Feed, "_gather", noted)


@pytest.fixture
def gathered(monkeypatch) -> Gathered:
    monkeypatch.setattr(feed_module, "_fits", lambda series, device: False)
    return Gathered(monkeypatch)


def test_expected_batches_are_prefetched(windows, gathered):
    feed = Feed(windows, CPU)
    feed.expect(STEPS)
    for index_b in STEPS:
        assert torch.equal(feed.batch(index_b), windows.batch(index_b))
    assert (gathered.ahead, gathered.main) == ([index_b.tolist() for index_b in STEPS], [])


def test_an_unexpected_batch_is_also_correct(windows, gathered):
    feed = Feed(windows, CPU)
    feed.expect(STEPS)
    for index_b in (STEPS[0], STEPS[2], STEPS[1], STEPS[1]):
        assert torch.equal(feed.batch(index_b), windows.batch(index_b))
    assert STEPS[2].tolist() in gathered.main


def test_a_prefetched_batch_is_used_if_it_is_the_expected_one(windows, gathered):
    feed = Feed(windows, CPU)
    for step, index_b in enumerate(STEPS):
        feed.expect(STEPS[step : step + 2])
        feed.batch(index_b)
    assert (gathered.ahead, gathered.main) == ([index_b.tolist() for index_b in STEPS], [])


def test_an_error_of_the_thread_is_raised_by_the_request(windows, gathered):
    feed = Feed(windows, CPU)
    feed.expect([torch.tensor([99])])
    with pytest.raises(IndexError):
        feed.batch(torch.tensor([99]))


@pytest.mark.parametrize("limit_mb, fits", [(10.0, True), (1e-4, False)])
def test_a_series_moves_to_a_device_that_has_the_memory(windows, monkeypatch, caplog, limit_mb, fits):
    monkeypatch.setattr(feed_module, "cache_limit_mb", lambda kind: limit_mb)
    with caplog.at_level("INFO"):
        feed = Feed(windows, torch.device("meta"))
    assert (feed.windows.series.values_nc.device.type == "meta") is fits
    assert ("MiB" in caplog.text) is not fits
    assert feed.batch(STEPS[0]).device.type == "meta"


def test_splits_share_one_copy_of_a_series_on_a_device(windows, monkeypatch):
    limits = [10.0, 0.0]  # the second feed finds the copy of the first, and asks for no memory
    monkeypatch.setattr(feed_module, "cache_limit_mb", lambda kind: limits.pop(0))
    train, validation = (Feed(split, torch.device("meta")) for split in (windows, windows.subset(STEPS[0].numpy())))
    assert train.windows.series is validation.windows.series
    del train, validation
    gc.collect()
    assert not windows.series.is_on(torch.device("meta"))


def test_a_series_that_is_already_on_the_device_is_not_moved(windows):
    feed = Feed(windows, CPU)
    assert feed.windows.series.values_nc is windows.series.values_nc
    feed.expect(STEPS)
    assert torch.equal(feed.batch(STEPS[0]), windows.batch(STEPS[0]))


@pytest.mark.slow
def test_training_requests_only_expected_batches(workspace, monkeypatch):
    def losses() -> list[tuple[float, float]]:
        history = fit(make_trainer(workspace, "training.epochs=2", "training.accumulate=2")).history
        return [(epoch.train_loss, epoch.val_loss) for epoch in history]

    expected = losses()
    monkeypatch.setattr(feed_module, "_fits", lambda series, device: False)
    gathered = Gathered(monkeypatch)
    shutil.rmtree(workspace / "checkpoints")
    assert losses() == expected
    assert gathered.main == []
    assert len(gathered.ahead) > 8
