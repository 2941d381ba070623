"""A simulated bearing rig: three accelerometer axes at 6,400 Hz, from the geometry of a deep-groove ball bearing.

Speed and load follow a profile, as on a variable-speed drive under a load programme. Shaft harmonics, noise and impacts
depend on both. A defect strikes once per passage of a ball; each impact excites the structural resonances, is weighted
by the load at the position of the defect, and reaches the three axes through a coupling matrix.

Suffixes: t time, a axis, h harmonic, f frequency.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.config.bearing import Bearing

SAMPLING_RATE_HZ = 6400
AXES = ("x", "y", "z")
_RESONANCES = ((2150.0, 0.035, 1.0), (1280.0, 0.05, 0.45))  # frequency Hz, damping, weight
# Rows: radial-x, radial-y and axial motion; columns: the sensor's x, y, z.
_COUPLING = np.array([[1.0, 0.18, 0.10], [0.15, 0.92, 0.12], [0.22, 0.20, 0.75]])
_PINK_TILT = 0.35
_REFERENCE_RPM = 1800.0
# Standard deviations of set points between recordings: relative for the speed, absolute for the load.
_RPM_TOLERANCE, _LOAD_TOLERANCE = 0.003, 0.02

Profile = tuple[tuple[float, float, float], ...]
"""Set points (second, rpm, load between 0 and 1) in order of time; linear between them, constant outside."""


# A 6205 at the reference speed.
BEARING = Bearing(balls=9, ball_mm=7.94, pitch_mm=39.04, shaft_hz=_REFERENCE_RPM / 60)


@dataclass(frozen=True)
class Run:
    """Parameters of one recording; the fault grows to `size` within half a second of `fault_start_s`."""

    seconds: float
    profile: Profile
    fault: str | None = None
    size: float = 0.0
    fault_start_s: float = 0.0


@dataclass(frozen=True)
class Operation:
    """The operating point at each sample, float64 (T,) each: shaft speed, load (0 to 1), and the turns of the shaft,
    counted from the position of the residual imbalance."""

    rpm_t: np.ndarray
    load_t: np.ndarray
    turn_t: np.ndarray

    @property
    def speed_t(self) -> np.ndarray:
        """Speed relative to 1800 rpm."""
        return self.rpm_t / _REFERENCE_RPM


def simulate(rng: np.random.Generator, run: Run) -> tuple[np.ndarray, Operation]:
    """Simulated acceleration in g, float32 (T, 3), and its operating points."""
    samples = int(run.seconds * SAMPLING_RATE_HZ)
    time_t = np.arange(samples) / SAMPLING_RATE_HZ
    at = _operation(rng, run, time_t)
    motion_at = _shaft(rng, at)
    # Rolling noise grows with speed and load; so do the impacts of healthy balls.
    motion_at += 0.035 * np.stack([_floor_noise(rng, samples) for _ in AXES]) * (0.8 + 0.4 * at.load_t) * at.speed_t
    passes_t = _impacts(rng, at.turn_t, BEARING.bpfo, jitter=0.06) * rng.uniform(0.2, 1, samples) * at.speed_t
    motion_at += 0.02 * _ring(passes_t * (0.7 + 0.6 * at.load_t)) * np.array([[1.0], [0.7], [0.4]])
    if run.fault is not None:
        grown_t = run.size * np.clip((time_t - run.fault_start_s) / 0.5, 0, 1)
        motion_at += FAULTS[run.fault](rng, at) * grown_t
    sensor_ta = (_COUPLING @ motion_at).T + 0.004 * rng.standard_normal((samples, len(AXES)))
    return sensor_ta.astype(np.float32), at


def _operation(rng: np.random.Generator, run: Run, time_t: np.ndarray) -> Operation:
    """The profile, with small deviations of the set points and a speed that varies by half a percent."""
    second, rpm, load = (np.array(column) for column in zip(*run.profile, strict=True))
    swing_t = 0.005 * np.sin(2 * np.pi * (time_t * rng.uniform(0.2, 0.5) + rng.random()))
    offset = _RPM_TOLERANCE * rng.standard_normal()
    rpm_t = np.interp(time_t, second, rpm) * (1 + offset + swing_t)
    load_t = np.clip(np.interp(time_t, second, load) + _LOAD_TOLERANCE * rng.standard_normal(), 0, 1)
    return Operation(rpm_t, load_t, rng.random() + np.cumsum(rpm_t / 60) / SAMPLING_RATE_HZ)


def _shaft(rng: np.random.Generator, at: Operation) -> np.ndarray:
    """Shaft harmonics (3, T): residual imbalance grows with the square of the speed, and the load adds to the first
    harmonic; radial y follows x by a quarter turn."""
    order_h = np.arange(1, 7)
    size_h = 0.06 * np.array([1.0, 0.5, 0.28, 0.16, 0.1, 0.06]) * rng.uniform(0.85, 1.15, 6)
    phase_h = np.append(0.0, rng.random(5))
    size_ht = size_h[:, None] * np.where(order_h[:, None] == 1, (0.8 + 0.4 * at.load_t) * at.speed_t**2, at.speed_t)
    angle_ht = 2 * np.pi * (np.outer(order_h, at.turn_t) + phase_h[:, None])
    radial_x, radial_y = (size_ht * np.cos(angle_ht)).sum(0), (size_ht * np.sin(angle_ht)).sum(0)
    return np.stack([radial_x, 0.8 * radial_y, 0.3 * radial_x])


def _floor_noise(rng: np.random.Generator, samples: int) -> np.ndarray:
    """Noise of unit variance, tilted towards low frequencies and lifted at the resonances."""
    hertz_f = np.fft.rfftfreq(samples, 1 / SAMPLING_RATE_HZ)
    gain_f = (np.maximum(hertz_f, 20) / 500) ** -_PINK_TILT
    for resonance, damping, weight in _RESONANCES:
        gain_f += 1.5 * weight / (1 + ((hertz_f - resonance) / (4 * damping * resonance)) ** 2)
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(samples)) * gain_f, samples)
    return noise / noise.std()


def _impacts(rng: np.random.Generator, turn_t: np.ndarray, per_turn: float, *, jitter: float) -> np.ndarray:
    """A train of impacts (T,), `per_turn` per turn; balls slip, so that the times vary slightly."""
    number = np.arange(np.ceil(turn_t[0] * per_turn), np.floor(turn_t[-1] * per_turn))
    turn_of_impact = np.sort((number + jitter * rng.standard_normal(len(number))) / per_turn)
    train_t = np.zeros(len(turn_t))
    place = np.searchsorted(turn_t, turn_of_impact).clip(0, len(turn_t) - 1)
    np.add.at(train_t, place, rng.uniform(0.7, 1.3, len(number)))
    return train_t


def _ring(train_t: np.ndarray) -> np.ndarray:
    """The response of the structure to a train of impacts (T,): decaying resonances, (T,)."""
    second = np.arange(int(0.05 * SAMPLING_RATE_HZ)) / SAMPLING_RATE_HZ
    response = sum(
        weight * np.exp(-2 * np.pi * damping * hertz * second) * np.sin(2 * np.pi * hertz * second)
        for hertz, damping, weight in _RESONANCES
    )
    size = 1 << (len(train_t) + len(response) - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(train_t, size) * np.fft.rfft(response, size), size)[: len(train_t)]


# -------------------------------------------------------------------------------------------------------------- faults
def _load_zone(angle_turns: np.ndarray) -> np.ndarray:
    """Share of the load at a position of the bearing: all of it below the shaft, none above."""
    return np.clip(0.5 + np.cos(2 * np.pi * angle_turns), 0, None) / 1.5


def _spread(signal_t: np.ndarray, x: float, y: float, z: float) -> np.ndarray:
    return np.outer((x, y, z), signal_t)


def _outer_race(rng: np.random.Generator, at: Operation) -> np.ndarray:
    """The defect is in the load zone: all impacts are equally strong."""
    impacts_t = _impacts(rng, at.turn_t, BEARING.bpfo, jitter=0.015)
    return _spread(_ring(impacts_t) * (0.6 + 0.4 * at.load_t), 0.30, 0.22, 0.10)


def _inner_race(rng: np.random.Generator, at: Operation) -> np.ndarray:
    """The defect turns with the shaft, in and out of the load zone."""
    impacts_t = _impacts(rng, at.turn_t, BEARING.bpfi, jitter=0.015) * _load_zone(at.turn_t)
    return _spread(_ring(impacts_t), 0.34, 0.28, 0.12)


def _ball(rng: np.random.Generator, at: Operation) -> np.ndarray:
    """A defective ball strikes both races in each of its turns, and passes through the load zone with the cage."""
    impacts_t = _impacts(rng, at.turn_t, 2 * BEARING.bsf, jitter=0.03) * _load_zone(at.turn_t * BEARING.ftf)
    return _spread(_ring(impacts_t), 0.30, 0.26, 0.18)


def _cage(rng: np.random.Generator, at: Operation) -> np.ndarray:
    """In a worn cage the balls move together: weak impacts at its frequency, and noise modulated by it."""
    swell_t = _load_zone(at.turn_t * BEARING.ftf)
    impacts_t = _impacts(rng, at.turn_t, BEARING.ftf, jitter=0.04)
    noise_t = swell_t * _floor_noise(rng, len(at.turn_t))
    return _spread(_ring(impacts_t), 0.5, 0.4, 0.4) + 0.05 * _spread(noise_t, 1, 0.8, 0.6)


def _imbalance(rng: np.random.Generator, at: Operation) -> np.ndarray:
    """The first harmonic grows with the square of the speed. It is in phase with the residual imbalance, as for a
    growing deposit: with another phase it could reduce the vibration."""
    angle_t = 2 * np.pi * at.turn_t
    return 0.11 * at.speed_t**2 * np.stack([np.cos(angle_t), 0.9 * np.sin(angle_t), 0.15 * np.cos(angle_t)])


def _looseness(rng: np.random.Generator, at: Operation) -> np.ndarray:
    """Half orders and many harmonics, and a rattle once per turn."""
    order_h = np.array([0.5, 1.5, 2, 2.5, 3, 4, 5, 6])
    angle_ht = 2 * np.pi * (np.outer(order_h, at.turn_t) + rng.random((8, 1)))
    harmonics_t = (0.035 / np.sqrt(order_h)) @ np.cos(angle_ht)
    rattle_t = _ring(_impacts(rng, at.turn_t, 1.0, jitter=0.03))
    return _spread(harmonics_t, 0.7, 1.0, 0.35) + _spread(rattle_t, 0.12, 0.2, 0.1)


FAULTS: dict[str, Callable[[np.random.Generator, Operation], np.ndarray]] = {
    "outer_race": _outer_race,
    "inner_race": _inner_race,
    "ball": _ball,
    "cage": _cage,
    "imbalance": _imbalance,
    "looseness": _looseness,
}
