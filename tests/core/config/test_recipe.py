"""The recipe is chosen from the data, and a checkpoint replaces `auto`."""

from __future__ import annotations

import pytest

from core.config.compose import load_config, local_config_file
from core.config.recipe import History, as_trained, is_for_short_runs, is_open, resolved
from core.config.schema import AnyConfig
from tests.support import REPO_ROOT


def local(stream: str, *overrides: str) -> AnyConfig:
    return load_config(local_config_file(stream), overrides, root=REPO_ROOT, environment={}).config


def process(train: list[int], validation: list[int], *overrides: str, channels: int = 20, guard: int = -1):
    return resolved(
        local("patchtst", *overrides), History({"train": train, "validation": validation}, channels, guard)
    )[0]


def vibration(rows: int, rate_hz: float, *, count: int = 4, overrides: tuple[str, ...] = ()):
    history = History({"train": [rows] * count, "validation": [rows] * count}, 3, sampling_rate_hz=rate_hz)
    return resolved(local("swinmae", *overrides), history)[0]


@pytest.mark.parametrize(
    ("rows", "guard", "window", "patch"),
    [(100_000, -1, 256, 16), (500, -1, 128, 8), (200, -1, 64, 8), (65, 0, 64, 8), (65, -1, 32, 8), (20, 0, 16, 8)],
)
def test_a_window_fits_into_the_shortest_split(rows, guard, window, patch):
    config = process([5 * rows], [rows], guard=guard)
    assert (config.data.window, config.model.patch_length) == (window, patch)


def test_the_majority_of_rows_decides_not_the_shortest_segment():
    assert process([30_000, 10], [9_000, 3]).data.window == 256


def test_most_rows_of_a_run_follow_a_complete_window():
    assert process([110] * 300, [110] * 70, guard=0).data.window == 32
    assert process([200] * 300, [200] * 70, guard=0).data.window == 64
    assert process([20] * 300, [20] * 70, guard=0).data.window == 16


def test_short_histories_have_more_overlap_and_many_channels_fewer_windows():
    long, short = process([100_000], [20_000]), process([1_000], [300])
    assert long.data.stride == 32
    assert short.data.stride < short.data.window // 8
    assert process([100_000], [20_000], channels=40).training.windows_per_epoch == pytest.approx(
        long.training.windows_per_epoch / 2, abs=1
    )
    assert process([100_000], [20_000], channels=5_000).training.windows_per_epoch == 64


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("data.window=512",), (512, 16)),
        (("data.window=100",), (100, 5)),
        (("data.window=32", "model.patch_length=4"), (32, 4)),
        (("model.patch_length=12",), (252, 12)),
    ],
)
def test_set_values_stay_and_automatic_ones_fit_them(overrides, expected):
    config = process([100_000], [20_000], *overrides)
    assert (config.data.window, config.model.patch_length) == expected
    assert not is_open(config)


def test_a_score_without_look_ahead_has_a_window_for_each_patch():
    assert process([100_000], [20_000], "scoring.look_ahead=true").data.score_stride == 64
    assert process([100_000], [20_000], "scoring.look_ahead=false").data.score_stride == 16


@pytest.mark.parametrize(
    ("rows", "rate_hz", "count", "window", "lowest_hz"),
    [
        (96_000, 48_000, 4, 6000, 32.0), (5_000, 1_000, 4, 1024, 3.9), (200, 200, 4, 200, 4.0),
        (2_560, 25_600, 128, 2560, 40.0), (2_560, 25_600, 127, 1280, 80.0), (25_600, 25_600, 128, 25_600, 4.0),
        (1_000_000, 12_800, 1, 16_384, 3.1), (1_000_000, 192_000, 4, 65_536, 12.0),
    ],
)  # fmt: skip
def test_a_window_of_vibration_is_a_second_or_a_record(rows, rate_hz, count, window, lowest_hz):
    config = vibration(rows, rate_hz, count=count)
    assert config.data.window == window
    assert config.scalogram.frequency_min_hz == lowest_hz


@pytest.mark.parametrize(("seconds", "window"), [(64, 16_384), (63, 8_192), (20, 4_096), (4, 2_048)])
def test_each_split_has_as_many_windows_as_a_threshold_needs_scores(seconds, window):
    history = History({"train": [10**6], "validation": [seconds * 12_800]}, 1, sampling_rate_hz=12_800)
    config, reasons = resolved(local("swinmae"), history)
    assert config.data.window == window
    assert ("more data allows longer windows" in reasons[0]) == (window < 16_384)


def test_a_window_and_its_guard_fit_into_segments_of_a_shared_recording():
    history = History({"train": [70_000] * 90, "validation": [15_000] * 90}, 1, guard=-1, sampling_rate_hz=12_800)
    config, reasons = resolved(local("swinmae"), history)
    assert config.data.window == 4_096
    assert "segments of 15000 samples hold a guard and one window" in reasons[0]


def test_a_window_leaves_out_only_records_of_less_than_half_the_usual_length():
    history = History({"train": [24_000] * 100 + [20_000] * 99 + [9_000]}, 1, sampling_rate_hz=25_600)
    assert resolved(local("swinmae"), history)[0].data.window == 20_000


def test_every_choice_has_its_reason():
    config = local("patchtst")
    _, reasons = resolved(config, History({"train": [9_000], "validation": [3_000]}, 8))
    assert [reason.split(" = ")[0] for reason in reasons] == [
        "data.window", "model.patch_length", "model.channel_attention", "data.stride",
        "data.score_stride", "training.windows_per_epoch",
    ]  # fmt: skip
    assert all(reason.split(": ")[1] for reason in reasons)


@pytest.mark.parametrize("channels, attention", [(1, "all"), (64, "all"), (65, "groups")])
def test_many_channels_attend_through_groups(channels, attention):
    config, _ = resolved(local("patchtst"), History({"train": [9_000], "validation": [3_000]}, channels))
    assert config.model.channel_attention == attention


def test_published_configurations_have_no_automatic_values():
    for stream in ("patchtst", "swinmae"):
        config = load_config(f"configs/{stream}_ssl.yaml", [], root=REPO_ROOT, environment={}).config
        assert not is_open(config)


def test_scoring_uses_the_recipe_of_training_with_its_own_stride():
    trained = process([500], [150], "scoring.look_ahead=true").model_dump(mode="json")
    found = as_trained(local("patchtst", "scoring.look_ahead=false"), trained)
    assert (found.data.window, found.model.patch_length, found.data.score_stride) == (64, 8, 8)
    assert found.data.stride == trained["data"]["stride"]
    assert as_trained(local("patchtst", "data.window=128"), trained).data.window == 128
    assert is_open(as_trained(local("swinmae"), trained))


def test_a_model_of_other_data_decides_shapes_but_no_number_of_windows():
    trained = process([500], [150]).model_dump(mode="json")
    found = as_trained(local("patchtst"), trained, is_other_data=True)
    assert (found.data.window, found.model.patch_length, found.model.channel_attention) == (64, 8, "all")
    assert (found.data.stride, found.training.windows_per_epoch) == ("auto", "auto")


@pytest.mark.parametrize(
    ("window", "rows_s", "is_short"),
    [
        (32, [110] * 300, True),
        (32, [5000, 110], False),
        (64, [150], False),  # a calibration of a long recording on few new rows
    ],
)
def test_short_runs_are_known_by_window_and_segments(window, rows_s, is_short):
    assert is_for_short_runs(window, rows_s) == is_short
