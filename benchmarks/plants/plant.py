"""A simulated pump with five sensors, one row per second, and ten kinds of faults in its test data.

The signals follow one load: flow and current immediately, the pressure after seconds, the level and the temperature
later. Sizes of the faults are in units of the sensors; `SIGMA` is the standard deviation of each sensor that the load
does not explain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

SENSORS = ("flow_m3h", "pressure_bar", "current_a", "temperature_c", "level_pct")
SIGMA = {"flow_m3h": 0.15, "pressure_bar": 0.03, "current_a": 0.1, "temperature_c": 0.05, "level_pct": 0.3}
ROWS, FAULT_ROWS = 5000, 400

FaultName = Literal[
    "coupled step", "drift", "stuck", "noise", "oscillation", "decoupling", "delay", "missing", "exchange", "slow leak"
]
Signals = dict[str, np.ndarray]


class Plant(NamedTuple):
    """train, test: sensors by name, float64 (rows,). start, stop: rows of the fault in `test`, stop exclusive."""

    fault: FaultName
    seed: int
    train: Signals
    test: Signals
    start: int
    stop: int
    sensors: tuple[str, ...]


def make_plant(fault: FaultName, seed: int, rows: int = ROWS) -> Plant:
    """A plant with `rows` rows of normal operation for training, and as many test rows with a fault. The same arguments
    give the same plant."""
    rng = np.random.default_rng([seed, list(FAULTS).index(fault)])
    train, test = signals(rng, rows), signals(rng, rows)
    start = int(rng.integers(int(0.3 * rows), int(0.8 * rows)))
    stop = min(start + FAULT_ROWS, rows)
    change, sensors = FAULTS[fault]
    change(test, slice(start, stop), rng)
    return Plant(fault, seed, train, test, start, stop, sensors)


def signals(rng: np.random.Generator, rows: int) -> Signals:
    """Normal operation of a pump whose load changes every few minutes."""
    load_t = load(rng, rows)
    clean = {
        "flow_m3h": 40 + 10 * load_t,
        "pressure_bar": 6 + 1.5 * lagged(load_t, 3) - 0.2 * load_t**2,
        "current_a": 12 + 4 * load_t,
        "temperature_c": 50 + 12 * lagged(load_t, 200),
        "level_pct": 55 - 8 * lagged(load_t, 20),
    }
    return {name: values_t + SIGMA[name] * rng.normal(size=rows) for name, values_t in clean.items()}


def load(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Set points that stay constant for some minutes, and a slow disturbance around them."""
    set_point_t = np.empty(rows)
    row = 0
    while row < rows:
        hold = int(rng.integers(120, 420))
        set_point_t[row : row + hold] = rng.uniform(-1, 1)
        row += hold
    return lagged(set_point_t, 8) + 0.3 * lagged(rng.normal(size=rows), 30) * np.sqrt(30)


def lagged(values_t: np.ndarray, seconds: float) -> np.ndarray:
    """A first-order lag."""
    keep, level, found_t = np.exp(-1 / seconds), float(values_t[0]), np.empty_like(values_t)
    for row, value in enumerate(values_t):
        level = keep * level + (1 - keep) * value
        found_t[row] = level
    return found_t


# --------------------------------------------------------------------------------------------------------------- faults
def _coupled_step(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    """A worn impeller: flow and pressure fall together."""
    test["flow_m3h"][rows] -= 0.9
    test["pressure_bar"][rows] -= 0.18


def _drift(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    test["temperature_c"][rows] += np.linspace(0, 3.0, _length(rows))


def _stuck(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    test["current_a"][rows] = test["current_a"][rows.start]


def _noise(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    test["pressure_bar"][rows] += 6 * SIGMA["pressure_bar"] * rng.normal(size=_length(rows))


def _oscillation(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    test["flow_m3h"][rows] += 0.9 * np.sin(2 * np.pi * np.arange(_length(rows)) / 20)


def _decoupling(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    """The current follows another load than the pump's."""
    test["current_a"][rows] = 12 + 4 * load(rng, _length(rows)) + SIGMA["current_a"] * rng.normal(size=_length(rows))


def _delay(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    test["flow_m3h"][rows] = test["flow_m3h"][rows.start - 20 : rows.stop - 20].copy()


def _missing(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    """A loose contact: most values of a sensor are missing."""
    test["level_pct"][rows] = np.where(rng.random(_length(rows)) < 0.8, np.nan, test["level_pct"][rows])


def _exchange(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    flow_t = test["flow_m3h"][rows].copy()
    test["flow_m3h"][rows], test["level_pct"][rows] = test["level_pct"][rows], flow_t


def _slow_leak(test: Signals, rows: slice, rng: np.random.Generator) -> None:
    leak_t = np.linspace(0, 1, _length(rows))
    test["flow_m3h"][rows] -= 1.5 * leak_t
    test["level_pct"][rows] -= 4.0 * leak_t


def _length(rows: slice) -> int:
    return rows.stop - rows.start


Change = Callable[[Signals, slice, np.random.Generator], None]
# The function that applies each fault, and the sensors that it changes.
FAULTS: dict[FaultName, tuple[Change, tuple[str, ...]]] = {
    "coupled step": (_coupled_step, ("flow_m3h", "pressure_bar")),
    "drift": (_drift, ("temperature_c",)),
    "stuck": (_stuck, ("current_a",)),
    "noise": (_noise, ("pressure_bar",)),
    "oscillation": (_oscillation, ("flow_m3h",)),
    "decoupling": (_decoupling, ("current_a",)),
    "delay": (_delay, ("flow_m3h",)),
    "missing": (_missing, ("level_pct",)),
    "exchange": (_exchange, ("flow_m3h", "level_pct")),
    "slow leak": (_slow_leak, ("flow_m3h", "level_pct")),
}
