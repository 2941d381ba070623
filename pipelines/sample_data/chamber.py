"""A simulated etch chamber: coupled process channels, sampled every second, one recipe after the other, with faults.

The physics is simplified to what a detector must learn: set points by recipe step, first-order lags, controllers that
move one channel to keep another constant, and drift that is slow, shared and harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

WAFER_SECONDS = 210
MAIN_ETCH = slice(55, 140)  # seconds of a wafer
_SETTLING = 5 * WAFER_SECONDS
# Set points by recipe step: duration s, pressure mTorr, source W, bias W, CF4, CHF3, O2, Ar sccm, backside helium Torr
RECIPE = np.array(
    [
        (25, 5, 0, 0, 0, 0, 0, 50, 0),  # transfer
        (30, 30, 0, 0, 40, 20, 5, 150, 10),  # stabilise
        (85, 30, 900, 220, 40, 20, 5, 150, 10),  # main etch
        (35, 40, 700, 120, 30, 10, 15, 150, 10),  # over-etch
        (20, 20, 200, 0, 0, 0, 60, 100, 6),  # de-chuck plasma
        (15, 8, 0, 0, 0, 0, 0, 200, 0),  # purge
    ],
    dtype=np.float64,
)


@dataclass(frozen=True)
class Fault:
    """A fault of `kind` in the rows [start, stop) of a recording; `size` is in multiples of the noise of the
    channel."""

    kind: str
    start: int
    stop: int
    size: float


def simulate(
    rng: np.random.Generator, rows: int, *, age: float, faults: tuple[Fault, ...] = ()
) -> dict[str, np.ndarray]:
    """Channels by name, each float64 (rows,). `age` (0 to 1): drift of the chamber."""
    # A recording starts during production: lags and drifts are in steady state.
    chamber = {name: signal[_SETTLING:] for name, signal in _healthy(rng, rows + _SETTLING, age).items()}
    for fault in faults:
        FAULTS[fault.kind](chamber, slice(fault.start, fault.stop), fault.size, rng)
    return chamber


def _healthy(rng: np.random.Generator, rows: int, age: float) -> dict[str, np.ndarray]:
    wafers = -(-rows // WAFER_SECONDS)
    pressure_sp, source_sp, bias_sp, cf4_sp, chf3_sp, o2_sp, ar_sp, he_sp = _set_points(rows, wafers)

    def wafer_to_wafer(share: float) -> np.ndarray:
        return 1 + share * np.repeat(rng.standard_normal(wafers), WAFER_SECONDS)[:rows]

    def noise(share: float) -> np.ndarray:
        return share * rng.standard_normal(rows)

    wall = age + 0.15 * np.arange(rows) / rows + 0.05 * _process_noise(rng, rows, 900)
    plasma = _process_noise(rng, rows, 12)
    gas = {
        name: _lag(set_point, 2) * wafer_to_wafer(0.004) * (1 + 0.002 * _process_noise(rng, rows, 8))
        for name, set_point in (("cf4", cf4_sp), ("chf3", chf3_sp), ("o2", o2_sp), ("ar", ar_sp))
    }
    total_flow = sum(gas.values())
    deviation = 0.25 * _process_noise(rng, rows, 6)
    pressure = _lag(pressure_sp, 4) + deviation
    valve = 8 + 9.0 * total_flow / (pressure + 12) + 1.6 * deviation + 2.0 * wall
    source = _lag(source_sp, 1.5) * (1 + 0.002 * plasma)
    bias = _lag(bias_sp, 1.5) * (1 + 0.003 * _process_noise(rng, rows, 10))
    mismatch = 0.6 * plasma + 3 * (source_sp - _lag(source_sp, 3)) / 900 + 0.3 * wall
    endpoint = _endpoint(rng, rows, wafers)
    heat = _lag(source + 1.5 * bias, 120)
    helium = _lag(he_sp, 3)
    light_f = source * (0.9 - 0.35 * endpoint) * gas["cf4"] / 40
    bias_voltage = 1.9 * bias / np.sqrt(1 + pressure / 30) * wafer_to_wafer(0.005)
    return {
        "chamber_pressure_mTorr": pressure + noise(0.05),
        "throttle_valve_pct": valve + noise(0.08),
        "foreline_pressure_mTorr": 40 + 0.55 * _lag(total_flow, 6) + noise(0.6),
        "turbo_current_A": 2.1 + 0.004 * _lag(total_flow, 10) + 0.1 * wall + noise(0.01),
        "rf_forward_W": source + noise(1.2),
        "rf_reflected_W": 1.5 + source * (0.004 + 0.004 * mismatch**2) + np.abs(noise(0.3)),
        "match_c1_pct": 42 + 6 * source / 900 + 1.2 * mismatch + 1.5 * wall + noise(0.05),
        "match_c2_pct": 58 - 4 * source / 900 - 0.9 * mismatch + 0.05 * (pressure - 30) + noise(0.05),
        "bias_forward_W": bias + noise(0.5),
        "bias_reflected_W": 0.8 + bias * 0.006 * (1 + 0.3 * plasma**2) + np.abs(noise(0.15)),
        "bias_voltage_V": bias_voltage + 4 * plasma * (bias > 20) + noise(1),
        "cf4_flow_sccm": gas["cf4"] + noise(0.05),
        "chf3_flow_sccm": gas["chf3"] + noise(0.04),
        "o2_flow_sccm": gas["o2"] + noise(0.04),
        "ar_flow_sccm": gas["ar"] + noise(0.15),
        "electrode_temp_C": 40 + 0.012 * heat + 0.2 * _process_noise(rng, rows, 60) + noise(0.03),
        "wall_temp_C": 65 + 0.004 * _lag(heat, 300) + 0.5 * wall + noise(0.03),
        "chiller_flow_lpm": 14 + 0.06 * _process_noise(rng, rows, 30) + noise(0.02),
        "chiller_return_C": 20 + 0.006 * _lag(heat, 45) + noise(0.02),
        "he_backside_Torr": helium + 0.02 * _process_noise(rng, rows, 5) + noise(0.01),
        "he_flow_sccm": 0.4 + 0.22 * helium * wafer_to_wafer(0.05) + 1.2 * np.abs(he_sp - helium) + noise(0.02),
        "esc_voltage_V": _lag(np.where(he_sp > 0, 1800, 0), 2) + noise(2),
        "esc_current_uA": 5 + 0.02 * heat + 25 * (he_sp > 0) * wafer_to_wafer(0.03) + noise(0.4),
        "oes_co_483nm_au": source * (0.15 + 0.9 * endpoint) * (1 + 0.015 * plasma) * (1 - 0.12 * wall) + 20 + noise(2),
        "oes_f_704nm_au": light_f * (1 - 0.08 * wall) + 30 + 6 * plasma + noise(2),
        "oes_cn_387nm_au": source * 0.3 * (0.4 + 0.6 * endpoint) * (1 + 0.01 * plasma) + 15 + noise(1.5),
        "rf_match_temp_C": 32 + 0.008 * _lag(source, 200) + noise(0.04),
    }  # fmt: skip


def _set_points(rows: int, wafers: int) -> np.ndarray:
    """float64 (8, rows): the set points of the recipe, repeated for each wafer."""
    one_wafer = np.repeat(RECIPE[:, 1:], RECIPE[:, 0].astype(int), axis=0)
    return np.tile(one_wafer, (wafers, 1))[:rows].T


def _endpoint(rng: np.random.Generator, rows: int, wafers: int) -> np.ndarray:
    """1 while the film is etched, falling to 0 when it is removed, at a time that differs from wafer to wafer."""
    cleared = MAIN_ETCH.stop - 12 + 3 * rng.standard_normal((wafers, 1))
    return (1 / (1 + np.exp((np.arange(WAFER_SECONDS) - cleared) / 2.5))).ravel()[:rows]


def _lag(signal: np.ndarray, seconds: float) -> np.ndarray:
    """First-order lag: convolution with an exponential, starting from the signal's mean over the first recipe."""
    taps = int(8 * seconds) + 1
    kernel = np.exp(-np.arange(taps) / seconds)
    start = signal[:WAFER_SECONDS].mean() if seconds > 20 else signal[0]
    padded = np.concatenate([np.full(taps - 1, start), signal])
    return _convolve(padded, kernel / kernel.sum())[taps - 1 : taps - 1 + len(signal)]


def _process_noise(rng: np.random.Generator, rows: int, seconds: float) -> np.ndarray:
    """First-order autoregressive noise of unit variance with this correlation time."""
    taps = int(8 * seconds) + 1
    kernel = np.exp(-np.arange(taps) / seconds)
    white = rng.standard_normal(rows + taps - 1)
    return _convolve(white, kernel / np.sqrt((kernel**2).sum()))[taps - 1 : taps - 1 + rows]


def _convolve(signal: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    size = 1 << (len(signal) + len(kernel) - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(signal, size) * np.fft.rfft(kernel, size), size)


# -------------------------------------------------------------------------------------------------------------- faults
Chamber = dict[str, np.ndarray]


def _step_noise(signal: np.ndarray) -> float:
    """The noise of the channel: median absolute difference of consecutive values, as a standard deviation."""
    return float(1.4826 * np.median(np.abs(np.diff(signal))) / np.sqrt(2)) + 1e-6


def _spikes(chamber: Chamber, rows: slice, size: float, rng: np.random.Generator) -> None:
    place = rows.start + rng.choice(rows.stop - rows.start, max(2, (rows.stop - rows.start) // 4), replace=False)
    for name, sign in (("bias_voltage_V", -1), ("bias_reflected_W", 1), ("esc_current_uA", 1)):
        chamber[name][place] += sign * 3 * size * _step_noise(chamber[name]) * rng.uniform(0.7, 1.3, len(place))


def _level_shift(chamber: Chamber, rows: slice, size: float, rng: np.random.Generator) -> None:
    """Helium leaks at the wafer's edge: more flow for a little less pressure, and a warmer electrode."""
    clamped = chamber["he_backside_Torr"][rows] > 5
    chamber["he_flow_sccm"][rows] += clamped * size * 3 * _step_noise(chamber["he_flow_sccm"])
    chamber["he_backside_Torr"][rows] -= clamped * size * 1.5 * _step_noise(chamber["he_backside_Torr"])
    chamber["electrode_temp_C"][rows] += _lag(clamped * 0.12 * size, 30)


def _drift(chamber: Chamber, rows: slice, size: float, rng: np.random.Generator) -> None:
    """Coating of the window: the light fades and the match drifts, faster than the chamber ages."""
    ramp = np.linspace(0, 1, rows.stop - rows.start)
    chamber["oes_f_704nm_au"][rows] *= 1 - 0.025 * size * ramp
    chamber["oes_co_483nm_au"][rows] *= 1 - 0.035 * size * ramp
    chamber["match_c1_pct"][rows] += 0.35 * size * ramp


def _stuck(chamber: Chamber, rows: slice, size: float, rng: np.random.Generator) -> None:
    chamber["chiller_flow_lpm"][rows] = chamber["chiller_flow_lpm"][rows.start]
    chamber["chiller_return_C"][rows] = chamber["chiller_return_C"][rows.start]


def _coupling_break(chamber: Chamber, rows: slice, size: float, rng: np.random.Generator) -> None:
    """The valve repeats its values of two wafers ago, while the pressure drifts: each channel alone looks normal."""
    past = slice(rows.start - 2 * WAFER_SECONDS, rows.stop - 2 * WAFER_SECONDS)
    chamber["throttle_valve_pct"][rows] = chamber["throttle_valve_pct"][past].copy()
    chamber["chamber_pressure_mTorr"][rows] += 0.12 * size * _process_noise(rng, rows.stop - rows.start, 15)


def _oscillation(chamber: Chamber, rows: slice, size: float, rng: np.random.Generator) -> None:
    """The pressure controller oscillates: valve and pressure are a quarter period apart."""
    second = np.arange(rows.stop - rows.start)
    phase = 2 * np.pi * second / rng.uniform(9, 14)
    chamber["throttle_valve_pct"][rows] += 0.35 * size * np.sin(phase)
    chamber["chamber_pressure_mTorr"][rows] -= 0.12 * size * np.sin(phase - np.pi / 2)


def _rf_instability(chamber: Chamber, rows: slice, size: float, rng: np.random.Generator) -> None:
    """The plasma flickers in bursts: reflected power, an oscillating match and unstable light."""
    length = rows.stop - rows.start
    burst = np.clip(_process_noise(rng, length, 4), 0, None) * (chamber["rf_forward_W"][rows] > 100)
    chamber["rf_reflected_W"][rows] += 0.9 * size * burst
    chamber["match_c1_pct"][rows] += 0.25 * size * burst * rng.standard_normal(length)
    chamber["match_c2_pct"][rows] -= 0.2 * size * burst * rng.standard_normal(length)
    chamber["oes_f_704nm_au"][rows] -= 4 * size * burst


FAULTS: dict[str, Callable[[Chamber, slice, float, np.random.Generator], None]] = {
    "spike": _spikes,
    "level_shift": _level_shift,
    "drift": _drift,
    "stuck_sensor": _stuck,
    "coupling_break": _coupling_break,
    "oscillation": _oscillation,
    "rf_instability": _rf_instability,
}
