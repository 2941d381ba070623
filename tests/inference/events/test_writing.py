"""The documents of the worst events after a real scoring, compared with the scored files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.config.schema import STREAMS
from inference.events.writing import (
    DESCRIBED_EVENTS,
    MAX_COLUMNS,
    MAX_POINTS,
    MAX_ROWS,
    _pooled,
    write_event_documents,
)
from inference.run_scoring_example import ScoringResult, score_stream
from tests.dashboard.documents import validate
from tests.inference.events.scored_tables import scored_over
from tests.inference.trained_workspace import configuration


@pytest.fixture(scope="module")
def root(trained_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("documents") / "workspace"
    shutil.copytree(trained_once, root)
    for stream in STREAMS:
        old = root / f"artifacts/scores/{stream}_events/999.json"
        old.parent.mkdir(parents=True)
        old.write_text("of an earlier scoring")
    return root


@pytest.fixture(scope="module")
def results(root: Path) -> dict[str, ScoringResult]:
    return {stream: score_stream(configuration(stream, root), root=root) for stream in STREAMS}


def documents(root: Path, stream: str) -> dict[int, dict]:
    found = (root / f"artifacts/scores/{stream}_events").iterdir()
    return {int(path.stem): json.loads(path.read_text(), parse_constant=pytest.fail) for path in found}


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
def test_each_of_the_worst_events_has_a_document_and_old_ones_are_removed(root, results, stream):
    events = results[stream].events.sort_values("severity", ascending=False, kind="stable")[: DESCRIBED_EVENTS[stream]]
    found = documents(root, stream)
    assert set(found) == set(events["event_id"])
    for event in events.itertuples():
        document = found[event.event_id]
        validate(document, "event")
        assert (document["recording"], document["start_s"]) == (event.recording, event.start_seconds)
        assert [channel["name"] for channel in document["channels"]] == event.top_channels.split("; ")
        printed = [float(share.rstrip("%")) for share in event.top_shares.split("; ")]
        assert [100 * channel["share"] for channel in document["channels"]] == pytest.approx(printed, abs=0.51)


def test_process_channels_show_file_values_around_the_event(root, results):
    worst = results["patchtst"].events.sort_values("severity").iloc[-1]
    assert worst["recording"].endswith("test_1.csv")
    channel = documents(root, "patchtst")[worst["event_id"]]["channels"][0]
    assert channel["name"] == "r"
    file = pd.read_csv(root / "data/fdc/test_1.csv", parse_dates=["timestamp"])
    second_t = (file["timestamp"] - file["timestamp"][0]).dt.total_seconds()
    seen = pd.Series(channel["seen"], index=channel["t"], dtype=float).dropna()
    np.testing.assert_allclose(seen, file["r"].to_numpy()[np.searchsorted(second_t, seen.index)], rtol=1e-3, atol=1e-3)
    assert channel["t"][0] < worst["start_seconds"] <= worst["end_seconds"] < channel["t"][-1]
    expected = np.array(channel["expected"], dtype=float)
    assert np.nanmax(np.abs(expected - np.array(channel["seen"], dtype=float))) > 3.0


def test_an_event_names_its_component_and_shows_its_prediction(root, results):
    result = results["patchtst"]
    for number, document in documents(root, "patchtst").items():
        event = result.events.set_index("event_id").loc[number]
        assert document["component"] == document["expected_by"]
        assert 0.5 <= document["component_share"] <= 1.0
        curve = document["score"]
        assert curve["threshold"] == result.threshold.value
        assert curve["t"][0] <= event["start_seconds"] <= event["end_seconds"] <= curve["t"][-1]
        score = pd.Series(curve["score"], index=curve["t"], dtype=float)
        peak = score.loc[event["start_seconds"] : event["end_seconds"]].max()
        assert peak == pytest.approx(event["peak_score"], rel=1e-3)
    vibration = documents(root, "swinmae").values()
    assert {document["expected_by"] for document in vibration} == {"model"}


def test_a_vibration_event_has_waveform_and_scalograms(root, results):
    worst = results["swinmae"].events.sort_values("severity").iloc[-1]
    document = documents(root, "swinmae")[worst["event_id"]]
    wave, scalogram = document["channels"][0], document["scalograms"][0]
    assert (wave["name"], scalogram["axis"]) == ("z", "z")
    begin, end = document["window_s"]
    assert end - begin == pytest.approx(0.128)
    assert len(wave["t"]) == len(wave["seen"]) > 128, "the window and its surroundings"
    loud_t = np.load(root / "data/vib/test_loud.npy")[:, 2]
    first = round(wave["t"][0] * 1000)
    np.testing.assert_allclose(wave["seen"], loud_t[first : first + len(wave["t"])], rtol=1e-3, atol=1e-3)
    seen, expected, error = (np.array(scalogram[name]) for name in ("seen", "expected", "error"))
    assert seen.shape == (len(scalogram["frequencies_hz"]), len(scalogram["t"])) == (32, 32)
    np.testing.assert_allclose(error, seen - expected, atol=0.16)
    assert (np.diff(scalogram["frequencies_hz"]) > 0).all()
    assert scalogram["frequencies_hz"][-1] < 500
    assert wave["t"][0] <= begin < scalogram["t"][0] < scalogram["t"][-1] < end
    envelope = document["envelopes"][0]
    assert envelope["axis"] == "z"
    assert len(envelope["frequencies_hz"]) == len(envelope["event"])
    assert document["bearing"] == [], "no geometry is configured"


def test_a_long_event_is_thinned_and_gaps_stay(tmp_path, make_table):
    score = np.where(np.arange(6000) > 20, 2.0, 0.5)
    score[3000] = 9.0
    scored, events = scored_over(make_table({"file_0": score}), window=256)
    write_event_documents(tmp_path, scored, events)
    channel = json.loads((tmp_path / "1.json").read_text())["channels"][0]
    assert len(channel["t"]) <= MAX_POINTS < 12 * 256
    assert 9.0 * 6 in channel["error"]
    short, events = scored_over(make_table({"file_0": np.where(np.arange(120) == 62, 2.0, 0.5)}))
    write_event_documents(tmp_path, short, events)
    channel = json.loads((tmp_path / "1.json").read_text())["channels"][0]
    assert [channel["seen"][at] is None for at in (5, 6, 7)] == [False, True, False]


def test_a_map_larger_than_a_screen_becomes_means_of_its_cells():
    values_hw = np.random.default_rng(3).normal(size=(2 * MAX_ROWS, 3 * MAX_COLUMNS))
    pooled_hw = _pooled(values_hw)
    assert pooled_hw.shape == (MAX_ROWS, MAX_COLUMNS)
    assert pooled_hw[0, 0] == pytest.approx(values_hw[:2, :3].mean())
    assert pooled_hw[-1, -1] == pytest.approx(values_hw[-2:, -3:].mean())
