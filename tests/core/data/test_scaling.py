import json
import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.data import Scaling
from core.data import blocks, scaling
from core.data.scaling import CONSTANT_SHARE, OUTLIER_FACTOR, Scaler
from core.data.windows import Series

ROBUST, ZSCORE = Scaling(), Scaling(method="zscore")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def column(values) -> np.ndarray:
    return np.asarray(values, dtype=np.float32).reshape(-1, 1)


def fit(*columns, settings: Scaling = ROBUST) -> Scaler:
    values_tc = np.concatenate([column(values) for values in columns], axis=1)
    return Scaler.fit([values_tc], [f"c{i}" for i in range(values_tc.shape[1])], settings)


def scaled(scaler: Scaler, values_tc: np.ndarray) -> np.ndarray:
    series = Series.of([], values_tc, scaler)
    return series.scaled_(series.values_nc.clone().unsqueeze(0))[0].numpy()


@pytest.mark.parametrize("level, spread", [(0.0, 1.0), (101_325.0, 0.5), (-2e6, 30.0)])
def test_scaling_has_float64_accuracy(rng, level, spread):
    values_tc = column(rng.normal(level, spread, 5000))
    scaler = fit(values_tc)
    exact_tc = (values_tc.astype(np.float64) - scaler.center) / scaler.scale
    assert np.abs(scaled(scaler, values_tc) - exact_tc).max() < 2e-6


@pytest.mark.parametrize("settings", [ROBUST, ZSCORE])
def test_a_normal_channel_gets_zero_mean_and_unit_spread(rng, settings):
    values_tc = column(rng.normal(50.0, 4.0, 20_000))
    scaler = fit(values_tc, settings=settings)
    scaled_tc = scaled(scaler, values_tc)
    assert scaler.scale[0] == pytest.approx(4.0, rel=0.03)
    assert scaled_tc.mean() == pytest.approx(0.0, abs=0.03)
    assert scaled_tc.std() == pytest.approx(1.0, rel=0.03)
    assert scaled_tc.dtype == np.float32


def test_statistics_are_those_of_numpy(rng):
    values = rng.gamma(2.0, size=500).astype(np.float32)
    robust, zscore = fit(values, settings=Scaling(floor=0.0)), fit(values, settings=ZSCORE)
    low, middle, high = np.percentile(values.astype(np.float64), [25, 50, 75])
    assert (robust.center[0], robust.scale[0]) == pytest.approx((middle, (high - low) / 1.349))
    assert (zscore.center[0], zscore.scale[0]) == pytest.approx((values.mean(), values.std()), rel=1e-6)


def test_an_interquartile_range_of_zero_does_not_explode():
    resting = np.zeros(1000)
    resting[400:600] = np.linspace(1.0, 300.0, 200)  # a recipe step, a fifth of the time
    scaler = fit(resting)
    assert np.abs(scaled(scaler, column(resting))).max() < 10.0
    assert "central 98 %" in scaler.floored["c0"]


def test_rare_bursts_are_scaled_by_their_deviation():
    bursts = np.zeros(1000)
    for row in (100, 500, 900):
        bursts[row : row + 3] = 0.1, 5.0, 0.1
    scaler = fit(bursts)
    assert scaler.scale[0] == pytest.approx(bursts.std(), rel=1e-6)
    assert "98 %" in scaler.floored["c0"]


def test_one_bit_of_quantisation_noise_is_not_a_signal():
    flicker = np.full(1000, 20.0)
    flicker[500] += 2**-10
    scaler = fit(flicker)
    assert scaler.scale[0] == pytest.approx(2**-10)
    assert "resolution" in scaler.floored["c0"]
    assert np.abs(scaled(scaler, column(flicker))).max() <= 1.0


@pytest.mark.parametrize("settings", [ROBUST, ZSCORE])
@pytest.mark.parametrize("level", [0.1, -273.15, 1e6])
def test_a_constant_channel_is_zero_and_a_change_of_it_moderate(settings, level):
    constant = np.full(1000, level, dtype=np.float32)
    scaler = fit(constant, settings=settings)
    assert np.abs(scaled(scaler, column(constant))).max() == 0.0
    assert scaler.scale[0] == pytest.approx(CONSTANT_SHARE * abs(level))
    assert scaled(scaler, column([level * 1.01])) == pytest.approx(np.sign(level) * 10.0, rel=1e-3)
    assert "constant" in scaler.floored["c0"]


@pytest.mark.parametrize("settings", [ROBUST, ZSCORE])
@pytest.mark.parametrize("values", [np.zeros(100), np.full(100, np.nan)])
def test_a_dead_or_missing_channel_has_scale_one_without_warnings(settings, values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler = fit(values, settings=settings)
    assert (scaler.center, scaler.scale) == ((0.0,), (1.0,))
    assert "scale 1" in scaler.floored["c0"]


def test_missing_values_are_ignored_and_stay_missing(rng):
    values = rng.normal(size=1000).astype(np.float32)
    holed = values.copy()
    holed[::3] = np.nan
    scaler = fit(holed)
    assert scaler == fit(holed[~np.isnan(holed)])
    assert np.array_equal(np.isnan(scaled(scaler, column(holed))), np.isnan(column(holed)))


def test_differences_are_not_taken_across_spans():
    parts = [column(np.full(50, 1.0)), column(np.full(50, 1.0 + 2**-8))]
    joined = Scaler.fit([np.concatenate(parts)], ["c0"], ROBUST)
    apart = Scaler.fit(parts, ["c0"], ROBUST)
    assert joined.scale[0] == 2**-8, "the step between them taken for the channel's resolution"
    assert apart.scale[0] == pytest.approx(2**-8 / 1.349)


def test_outliers_are_clipped(rng):
    scaler = fit(rng.normal(size=1000), settings=Scaling(clip=5.0))
    assert scaled(scaler, column([1e6, -1e6, 0.0])).ravel()[:2].tolist() == [5.0, -5.0]


def test_values_stay_without_scaling(rng):
    values_tc = column(rng.normal(size=100))
    assert np.array_equal(scaled(fit(values_tc, settings=Scaling(method="none")), values_tc), values_tc)


def test_a_scaler_survives_json(rng):
    scaler = fit(rng.normal(size=100), np.zeros(100))
    assert Scaler.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler
    assert Scaler.from_dict(scaler.to_dict()) == scaler


# ------------------------------------------------------------------------------------------------------- hostile values
@pytest.mark.parametrize("settings", [ROBUST, ZSCORE])
@pytest.mark.parametrize("spike", [1e30, -3.4e38])
def test_implausible_spikes_are_ignored(rng, settings, spike):
    values = rng.normal(50.0, 4.0, 5000)
    spiked = values.copy()
    spiked[::50] = spike  # more than the outermost percentile, and far more than a deviation bears
    scaler = fit(spiked, settings=settings)
    assert scaler.center[0] == pytest.approx(50.0, rel=0.01)
    assert scaler.scale[0] == pytest.approx(4.0, rel=0.05)
    assert scaler.floored["c0"].startswith("100 values")
    scaled_t = scaled(scaler, column(spiked)).ravel()
    assert scaled_t[::50].tolist() == [np.sign(spike) * 20.0] * 100
    assert scaled_t[1::50].std() == pytest.approx(1.0, rel=0.2)


def test_a_change_of_a_constant_channel_with_a_spike_is_visible():
    """Its one spike is neither its resolution nor its deviation."""
    spiked = np.full(1000, 20.0)
    spiked[500] = 1e30
    scaler = fit(spiked)
    assert scaler.scale[0] == pytest.approx(CONSTANT_SHARE * 20.0)
    assert scaled(scaler, column([20.2])).item() == pytest.approx(10.0, rel=1e-3)
    assert re.search("constant in training.*; 1 values", scaler.floored["c0"])


def test_values_over_twelve_decades_are_valid():
    """A vacuum gauge, from base pressure to air."""
    pressures = np.full(1000, 2e-9)
    pressures[900:] = 1000.0
    assert fit(pressures).scale[0] > 100.0


def test_a_channel_that_is_99_percent_missing_is_scaled_by_its_values(rng):
    values = rng.normal(50.0, 4.0, 10_000)
    sparse = np.where(np.arange(10_000) % 100 == 0, values, np.nan)
    scaler = fit(sparse)
    assert scaler.center[0] == pytest.approx(50.0, rel=0.05)
    assert scaler.scale[0] == pytest.approx(4.0, rel=0.3)
    equal = fit(np.where(np.arange(10_000) % 5000 == 0, 7.0, np.nan))
    assert equal.scale[0] == pytest.approx(CONSTANT_SHARE * 7.0)


@pytest.mark.parametrize("settings", [ROBUST, ZSCORE])
@pytest.mark.parametrize("size", [1e-45, 1e-40, 3.4e38])
def test_the_ends_of_float32_give_a_scale_of_float32(settings, size):
    values_tc = column(np.where(np.arange(100) % 2, size, -size))
    for chosen_tc in (values_tc, values_tc[::2]):
        scaler = fit(chosen_tc, settings=settings)
        assert 0.0 < np.float32(scaler.scale[0]) < np.inf
        assert np.isfinite(scaled(scaler, values_tc)).all()


VALUES = st.one_of(
    st.just(np.nan),
    st.sampled_from([0.0, -0.0, 1.0, 20.0, 1e30, -1e30, 3.4028235e38, -3.4028235e38, 1e-45, 1e-38]),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@pytest.mark.slow
@given(
    parts=st.integers(1, 9).flatmap(
        lambda channels: st.lists(
            st.lists(st.lists(VALUES, min_size=channels, max_size=channels), min_size=1, max_size=12),
            min_size=1,
            max_size=3,
        )
    ),
    method=st.sampled_from(["robust", "zscore", "none"]),
    floor=st.sampled_from([0.0, 1.0]),
)
def test_any_values_are_scaled_within_the_clip(parts, method, floor):
    """In training and later: finite values stay finite, missing ones stay missing, and the result is deterministic."""
    settings = Scaling(method=method, floor=floor)
    parts_tc = [np.array(part, dtype=np.float32) for part in parts]
    channels = [f"c{i}" for i in range(parts_tc[0].shape[1])]
    scaler = Scaler.fit(parts_tc, channels, settings)
    assert scaler == Scaler.fit(parts_tc, channels, settings)
    assert scaler == Scaler.from_dict(json.loads(json.dumps(scaler.to_dict(), allow_nan=False)))
    extremes_tc = np.array([[0.0], [1e30], [-3.4028235e38], [3.4028235e38], [1e-45]], dtype=np.float32)
    later_tc = np.repeat(extremes_tc, len(channels), axis=1)
    for values_tc in (*parts_tc, later_tc):
        scaled_tc = scaled(scaler, values_tc)
        assert np.array_equal(np.isnan(scaled_tc), np.isnan(values_tc))
        assert np.nanmax(np.abs(scaled_tc), initial=0.0) <= settings.clip
        assert np.array_equal(scaled_tc, scaled(scaler, values_tc), equal_nan=True)


def test_a_deviation_below_one_is_not_widened(rng):
    values_tc = column(rng.normal(5.0, 0.01, 1000))
    scaler = fit(values_tc, settings=ZSCORE)
    assert scaler.scale[0] == pytest.approx(values_tc.astype(np.float64).std(), rel=1e-12)
    assert not scaler.floored


@pytest.mark.parametrize("settings", [ROBUST, ZSCORE])
def test_data_larger_than_memory_is_scaled_the_same(rng, settings, monkeypatch, tmp_path):
    """Steps of 1 within the spans and of 0.1 between them, with ends at and inside the borders of blocks."""
    lengths = (10, 11, 1, 19, 40, 7)
    spans = [number / 10 + rng.integers(0, 9, (n, 2)).astype(np.float32) for number, n in enumerate(lengths)]
    for number, span in enumerate(spans):
        span[0] = span[-1] = number / 10  # the smallest steps of all are those from one span to the next
    whole = Scaler.fit(spans, ["a", "b"], settings)
    steps = np.concatenate([np.diff(span, axis=0).ravel() for span in spans])
    spikes = [np.where(np.arange(len(span))[:, None] == 3, np.float32(1e30), span) for span in spans]
    with_spikes = Scaler.fit(spikes, ["a", "b"], settings)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 40)
    monkeypatch.setattr(blocks, "IN_MEMORY", 0)
    in_blocks = Scaler.fit(spans, ["a", "b"], settings, tmp_path)
    assert (in_blocks.center, in_blocks.scale) == (pytest.approx(whole.center), pytest.approx(whole.scale))
    assert Scaler.fit(spikes, ["a", "b"], settings, tmp_path).center == pytest.approx(with_spikes.center)
    resolution = scaling._resolution(np.concatenate(spans)[:, 0], np.inf, np.cumsum(lengths) - 1)
    assert resolution == pytest.approx(np.abs(steps[steps != 0]).min(), rel=1e-5)
    assert list(tmp_path.iterdir()) == []


def test_the_floor_is_the_range_of_the_central_98_percent_of_a_normal_channel(rng):
    values = np.where(np.arange(2000) % 5 == 0, rng.gamma(2.0, 10.0, 2000), 0.0).astype(np.float32)
    values[::100] *= -1
    lowest, low, middle, high, highest = np.percentile(values.astype(np.float64), [1, 25, 50, 75, 99])
    assert low == middle == high == 0.0 > lowest
    for floor in (0.5, 2.0):
        scaler = fit(values, settings=Scaling(floor=floor))
        assert scaler.scale[0] == pytest.approx(floor * (highest - lowest) / 4.653, rel=1e-12)
        assert scaler.floored.keys() == {"c0"}
        assert "98 %" in scaler.floored["c0"]


def test_a_deviation_as_large_as_the_resolution_is_a_signal():
    """Steps of 1 and a deviation of exactly 1: the range of the central 98 % is used."""
    values = np.array([-2.0, -1.0, *[0.0] * 6, 1.0, 2.0])
    assert values.std() == 1.0
    scaler = fit(values, settings=Scaling(floor=1.0))
    assert scaler.scale[0] == pytest.approx(np.diff(np.percentile(values, [1, 99])).item() / 4.653, rel=1e-12)
    assert scaler.floored.keys() == {"c0"}
    assert "98 %" in scaler.floored["c0"]


@pytest.mark.parametrize("usual", [1e-3, 1.0, 300.0])
def test_a_value_twelve_decades_beyond_the_median_is_implausible(usual):
    """The median is that of the magnitudes without zeros: here of 101 values, 50 of them outliers."""
    for times, num_outliers in ((0.99 * OUTLIER_FACTOR, 0), (1.01 * OUTLIER_FACTOR, 50)):
        values = np.r_[np.zeros(40), np.full(51, usual), np.full(50, -usual * times)]
        assert scaling._statistics(values.astype(np.float32), np.array([140]), ROBUST)[-1] == num_outliers
    assert OUTLIER_FACTOR == 1e12


def test_a_constant_channel_with_a_missing_block_keeps_its_level(monkeypatch):
    values = np.full(40, -20.0)
    values[:20] = np.nan
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 40)
    assert fit(values).scale[0] == pytest.approx(CONSTANT_SHARE * 20.0)


def test_channels_with_the_same_reason_are_logged_together(caplog):
    caplog.set_level("INFO")
    fit(np.zeros(100), np.full(100, 20.0), np.arange(100), np.full(100, np.nan)).log_floors()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["c0, c3", "c1"]


def test_a_floor_equal_to_the_scale_changes_nothing():
    """Half of the values at 0, half at 10: the central 50 % are as wide as the central 98 %."""
    values = np.r_[np.zeros(500), np.arange(1, 10), np.full(500, 10.0)]
    scaler = fit(values, settings=Scaling(floor=4.653 / 1.349))
    assert (scaler.scale[0], scaler.floored) == (10.0 / 1.349, {})
