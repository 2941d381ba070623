"""The pictures of the worst events: real scoring of the small workspace, and the data of the pictures."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from core.config.compose import load_config
from core.config.schema import STREAMS
from inference.events import panels
from inference.events.panels import write_panels
from inference.events.views import LONGEST_VIEW, shown_lines
from inference.run_scoring_example import ScoringResult, score_stream
from tests.inference.events.scored_tables import scored_over
from tests.support.small_workspace import CONFIGS, build_small_workspace
from trainers.run import train


class Drawn(NamedTuple):
    """A workspace with scored streams, and the figures of each stream by event."""

    root: Path
    results: Mapping[str, ScoringResult]
    figures: Mapping[str, list[Figure]]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    root = build_small_workspace(tmp_path_factory.mktemp("workspace"))
    folder = root / "artifacts/scores"
    folder.mkdir(parents=True)
    results, figures = {}, {}
    for stream in STREAMS:
        for name in (f"{stream}_event_999.png", f"{stream}_event_by_hand.png"):
            (folder / name).write_bytes(b"of an earlier scoring")
        loaded = load_config(CONFIGS[stream], ["logging.progress=off", "max_threads=1"], root=root, environment={})
        train(loaded, root=root, run_id="run")
        figures[stream] = []
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            patch.setattr(panels, "_TITLE_LETTERS", 40)  # so that every title has several lines
            for name in ("_channels_figure", "_axes_figure"):
                patch.setattr(panels, name, keeping(getattr(panels, name), figures[stream]))
            results[stream] = score_stream(loaded, root=root)
    return Drawn(root, results, figures)


def keeping(draw, kept):
    def drawing(*arguments):
        kept.append(draw(*arguments))
        return kept[-1]

    return drawing


@pytest.mark.nightly
@pytest.mark.parametrize("stream", STREAMS)
def test_each_of_the_worst_events_has_a_picture_and_old_ones_are_removed(drawn, stream):
    result = drawn.results[stream]
    worst = result.events.sort_values("severity", ascending=False, kind="stable")[: panels.DRAWN_EVENTS]
    output = result.summary["panels"]
    assert [panel["event_id"] for panel in output] == worst["event_id"].tolist()
    assert [panel["sentence"] for panel in output] == worst["sentence"].tolist()
    names = [f"artifacts/scores/{stream}_event_{event}.png" for event in worst["event_id"]]
    assert [panel["png"] for panel in output] == names
    assert all((drawn.root / name).read_bytes().startswith(b"\x89PNG") for name in names)
    found = {path.name for path in (drawn.root / "artifacts/scores").glob(f"{stream}_event_*.png")}
    assert found == {Path(name).name for name in names} | {f"{stream}_event_by_hand.png"}


def test_a_process_panel_shows_measured_and_predicted_values(drawn):
    figure, event = drawn.figures["patchtst"][0], drawn.results["patchtst"].summary["panels"][0]
    assert "\n" in figure.get_suptitle()
    assert event["sentence"] in figure.get_suptitle().replace("\n", " ")
    *signals, errors = figure.axes
    top = drawn.results["patchtst"].events.set_index("event_id").loc[event["event_id"]]
    assert [axes.get_title(loc="left") for axes in signals] == top["top_channels"].split("; ")
    assert signals[0].get_title(loc="left") == "r"
    seen, expected = signals[0].get_lines()
    file = pd.read_csv(drawn.root / "data/fdc/test_1.csv")
    rows = len(seen.get_ydata())
    assert any(
        np.allclose(seen.get_ydata(), file["r"][at : at + rows], rtol=1e-5) for at in range(len(file) - rows + 1)
    )
    gap = np.abs(expected.get_ydata() - seen.get_ydata())
    assert np.nanmax(gap) > 3.0
    assert np.nanmedian(gap) < 1.5
    assert {"score", "threshold", "r"} <= {line.get_label() for line in errors.get_lines()}
    assert errors.get_yscale() == "log"


def test_a_vibration_panel_shows_waveform_and_maps_over_hertz_and_milliseconds(drawn):
    figure = drawn.figures["swinmae"][0]
    rows = np.array(figure.axes[:12]).reshape(3, 4)
    assert rows[0, 0].get_ylabel() == "axis z"
    wave = rows[0, 0].get_lines()[0]
    assert len(wave.get_ydata()) == 128
    loud = np.load(drawn.root / "data/vib/test_loud.npy")[:, 2]
    assert wave.get_ydata()[0] in loud
    for axes in rows[:, 1:].flat:
        assert axes.get_yscale() == "log"
        low, high = axes.get_ylim()
        assert 25 < low < 31  # four cycles in a window of 128 samples, half a row below
        assert 350 < high < 500
    assert [axes.get_xlabel() for axes in rows[-1]] == ["time (ms)"] * 4
    assert rows[0, 0].get_xlim()[1] == pytest.approx(128, abs=1)
    seen, expected, difference = (np.asarray(axes.collections[0].get_array()) for axes in rows[0, 1:])
    np.testing.assert_allclose(difference, seen - expected)
    assert np.median(difference) > 3.0  # louder than a model of quiet data expects


def test_no_event_means_no_picture(tmp_path, make_table):
    table = make_table({"file_0": np.full(100, 0.5)})
    (tmp_path / "patchtst_event_1.png").write_bytes(b"old")
    scored, events = scored_over(table)
    assert write_panels(tmp_path, scored, events, root=tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_dollar_signs_in_names_are_drawn_literally(tmp_path, make_table):
    table = make_table({"DB1$T_1_2 and DB2$P_1_2": [0.5] * 50 + [2.0] * 3 + [0.5] * 47})
    scored, events = scored_over(table)
    events["sentence"] = "mostly DB1$T_1_2 (60 %), DB2$P_1_2 (40 %)"
    assert len(write_panels(tmp_path, scored, events, root=tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("stamped", [True, False])
def test_a_long_event_is_shown_around_its_peak_and_lines_break_at_segments(tmp_path, make_table, stamped):
    score = np.where(np.arange(1000) > 20, 2.0, 0.5)
    score[[300, 301]] = 9.0, np.nan
    scored, events = scored_over(make_table({"file_0": score}, stamped=stamped))
    start, stop = shown_lines(scored, 21, 999)
    assert stop - start == LONGEST_VIEW * 16
    assert start < 300 < stop
    (output, *_) = write_panels(tmp_path, scored, events, root=tmp_path)
    assert (tmp_path / output["png"]).is_file()
    short, _ = scored_over(make_table({"file_0": np.where(np.arange(120) == 62, 2.0, 0.5)}, stamped=stamped))
    assert shown_lines(short, 62, 62) == (54, 71)
    line = panels._channels_figure(short, 62, 62, [2]).axes[0].get_lines()[0]
    assert np.flatnonzero(np.isnan(line.get_ydata())).tolist() == [6]
    assert shown_lines(short, 0, 2) == (0, 11)
