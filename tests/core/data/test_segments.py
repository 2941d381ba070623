"""Segments against plain loops, for random recordings and ranges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from core.data import cleaning
from core.data.ingest import ingest
from core.data.segments import Segments, recording_at
from tests.core.data.datasets import make_config, write_ramp


@pytest.mark.parametrize("seed", range(20))
def test_segments_agree_with_a_loop_over_rows(seed):
    rng = np.random.default_rng(seed)
    lengths_r = rng.integers(1, 30, rng.integers(1, 6))
    offsets_r = np.concatenate([[0], np.cumsum(lengths_r)])
    rows_k2 = []
    for first, stop in pairwise(offsets_r):
        bounds = np.sort(rng.choice(np.arange(first, stop + 1), 2 * rng.integers(1, 3), replace=True)).reshape(-1, 2)
        rows_k2 += bounds.tolist()
    segments = Segments.of(np.array(rows_k2), offsets_r)
    kept = [(first, stop) for first, stop in rows_k2 if first < stop]
    assert segments.rows_k2.tolist() == [list(bounds) for bounds in kept]
    assert segments.lengths_k.tolist() == [stop - first for first, stop in kept]
    recording = [next(r for r in range(len(lengths_r)) if first < offsets_r[r + 1]) for first, _ in kept]
    assert segments.recording_k.tolist() == recording
    assert segments.recordings == sorted(set(recording))
    local = [[int(row - offsets_r[index]) for row in bounds] for bounds, index in zip(kept, recording, strict=True)]
    assert segments.local_k2.tolist() == local
    for number, (first, stop) in enumerate(kept):
        assert set(segments.at(np.arange(first, stop)).tolist()) == {number}
    every_row = np.arange(offsets_r[-1])
    assert recording_at(offsets_r, every_row).tolist() == np.repeat(np.arange(len(lengths_r)), lengths_r).tolist()


def test_a_file_is_cleaned_once_and_its_gaps_are_found_once(tmp_path, monkeypatch):
    write_ramp(tmp_path, "a.csv", 100, gap_at=30)
    calls, gaps = [], cleaning._gaps
    monkeypatch.setattr(cleaning, "_gaps", lambda *arguments: calls.append(1) or gaps(*arguments))
    reading = ingest(tmp_path / "data/a.csv", root=tmp_path, config=make_config(), scratch=None)
    assert reading.recordings[0].segments_s2.tolist() == [[0, 30], [30, 100]]
    assert (reading.metrics["gap_count"], len(calls)) == (1, 1)
