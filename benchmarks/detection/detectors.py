"""Landfall, with and without its model, and simple methods on the same rows: score tables of one unit."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarks.detection.unit import place
from core.config.compose import LoadedConfig, load_config, local_config_file, with_values
from core.config.schema import AnyConfig, Stream
from core.data.dataset import StreamData
from core.data.segments import lengths_of, rows_of
from core.data.splits import SplitName
from core.data.windows import WindowSet
from core.workspace import write_json
from inference.charts.reference_rows import CONSTANT_SHARE
from inference.detector.split_scores import SplitScores
from inference.groups import Group, Membership, groups, recordings_in, reference_of, scored_per_recording
from inference.running import Ewma
from inference.scoring import ScoringModel

log = logging.getLogger(__name__)

LANDFALL = "Landfall"
MODEL_ALONE = "model alone"
CHARTS_ALONE = "charts alone"
# The chance level in every table: scores that do not depend on the data.
CHANCE = "chance (EWMA of noise)"
# Values are clipped to ± this many standard deviations: the sum of squares of many channels must be a finite float32.
_CLIP = 1e9


@dataclass(frozen=True)
class Scored:
    """One detector on one unit: score tables (`inference.detector.score_table`) of normal rows and of test rows.
    chart_mean, margin: as in `inference.false_alarms.CalibrationSample`."""

    detector: str
    normal: pd.DataFrame
    test: pd.DataFrame
    train_seconds: float
    score_seconds: float
    chart_mean: float = 1.0
    margin: float = 1.0


def load(
    stream: Stream, overrides: tuple[str, ...], *, root: Path, work: Path, name: str, start_from: Path | None = None
) -> LoadedConfig:
    """The configuration of a unit; its outputs are in `work`."""
    folder = work / name.replace("/", "_")
    own = (
        place("logging.checkpoint_path", f"{folder}.pt"),
        place("logging.log_dir", folder / "runs"),
        place("logging.artifacts_dir", folder),
        place("data.store_dir", work / "store"),
        "dqvl.enabled=false",
        "logging.tensorboard=false",
        "logging.progress=off",
        "training.resume=never",
        "training.promote=always",
    )
    initial = (place("training.start_from", start_from),) if start_from is not None else ()
    return load_config(local_config_file(stream), [*own, *overrides, *initial], root=root)


@dataclass(frozen=True)
class Trained:
    """A model that is ready to score, its scoring configuration, and the duration of its training."""

    scoring: ScoringModel
    config: AnyConfig
    seconds: float


def trained(loaded: LoadedConfig, *, root: Path, reuse: bool = False) -> Trained:
    """Trains, and loads the checkpoint as scoring does. reuse: uses an existing checkpoint if an earlier run trained it
    with the same configuration."""
    import torch

    from core.checkpoint import describe
    from core.config.hardware import load_tiers, size_as_trained
    from core.devices.manager import DeviceManager
    from inference.scoring import load_scoring_model
    from trainers.run import train

    path = root / loaded.config.logging.checkpoint_path
    note, settings = path.with_suffix(".training.json"), _training_settings(loaded.config)
    known = json.loads(note.read_text(encoding="utf-8")) if reuse and path.is_file() and note.is_file() else {}
    seconds = known.get("seconds", 0.0)
    if known.get("settings") != settings:
        start = time.perf_counter()
        train(loaded, root=root)
        seconds = time.perf_counter() - start
        write_json(note, {"settings": settings, "seconds": seconds})
    config = size_as_trained(loaded, describe(path)["config"], load_tiers(root))
    plan = DeviceManager(config).plan(processes=1)
    torch.set_num_threads(plan.threads)
    return Trained(load_scoring_model(path, plan, config=config), config, seconds)


def _training_settings(config: AnyConfig) -> dict[str, Any]:
    """Everything that affects what a model learns, as JSON."""
    plain = config.model_dump(mode="json")
    return json.loads(json.dumps({name: plain[name] for name in plain if name not in ("scoring", "logging")}))


def scored(model: Trained, data: StreamData, weights: Mapping[str, float | Literal["auto"]]) -> Iterator[Scored]:
    """Scores with the detectors that scoring would fit. weights: the weight of the model in the score, one per
    detector."""
    from core.devices import memory
    from inference.detector.fitting import fit_with_scores, weight_choice
    from inference.model_errors import model_errors, reference_errors

    normal, test = reference_of(data.splits), data.splits["test"]
    with memory.applied(model.scoring.plan):
        start = time.perf_counter()
        errors = reference_errors(model.config, model.scoring, normal)
        test_errors = model_errors(model.config, model.scoring, test, "test")
        model_seconds = time.perf_counter() - start
        for name, weight in weights.items():
            start = time.perf_counter()
            config = with_weight(model.config, weight)
            if weight == "auto":
                errors_of = partial(model_errors, config, model.scoring, label="injected faults")
                choice = weight_choice(config, normal, errors, errors_of)
                log.info("weight of the model: %g; %s", choice.weight, choice.reason)
                weight = choice.weight
            detector, score_s = fit_with_scores(config, model.scoring.sha256, normal, errors, model_weight=weight)
            scores = detector.score(test_errors, test)
            seconds = model_seconds + time.perf_counter() - start
            calibration = errors["calibration"]
            of_normal = SplitScores(
                score_s, score_s[:, np.newaxis], np.zeros(len(score_s), dtype=np.int64), calibration.row_s,
                calibration.rows_per_entry,
            )  # fmt: skip
            tables = (
                table_of(own, data.splits[which].segments.rows_k2, data)
                for which, own in (("calibration", of_normal), ("test", scores))
            )
            yield Scored(name, *tables, model.seconds, seconds, detector.sample.chart_mean, detector.sample.margin)


def with_weight(config: AnyConfig, weight: float | Literal["auto"]) -> AnyConfig:
    """The configuration with another weight of the model in the score, and with any number of calibration scores."""
    values = {"scoring.model_weight": weight, "scoring.threshold.min_calibration": 1}
    return with_values(config, values, source="a weight of the model")


def table_of(scores: SplitScores, segments_k2: np.ndarray, data: StreamData) -> pd.DataFrame:
    from inference.detector.score_table import score_table

    windows = replace(data.splits["test"], segments_k2=segments_k2)
    return score_table(scores, windows, channels=data.channels, threshold=np.inf)


# ------------------------------------------------------------------------------------------------------ simple methods
@dataclass(frozen=True)
class Rows:
    """Rows in standard deviations of the normal rows, float64 (n, C), and the number of each row's segment, ascending:
    moving averages restart at each segment."""

    z_nc: np.ndarray
    segment_n: np.ndarray

    def smooth(self, values_nc: np.ndarray, span: int) -> np.ndarray:
        """Exponentially weighted means of values of these rows."""
        return Ewma(span, values_nc.shape[1])(values_nc, self.segment_n)


Simple = Callable[[Rows, Rows], tuple[np.ndarray, np.ndarray]]
"""A function of normal rows and rows to score that returns the scores of both."""


def groups_of(splits: Mapping[SplitName, WindowSet]) -> list[tuple[np.ndarray, Membership]]:
    """The groups of a data set: the reference segments (K, 2) of each, and a function that computes which rows of given
    segments belong to it, bool (S,). One group if a recording of `test` has too few reference rows for its own."""
    reference = reference_of(splits).values()
    own_past = scored_per_recording(reference)
    tested = recordings_in(splits["test"]) if "test" in splits else ()
    found = groups(reference, own_past if set(tested) <= set(own_past) else ())
    return [(group.reference_k2, partial(_rows_held, group)) for group in found]


def _rows_held(group: Group, segments_k2: np.ndarray) -> np.ndarray:
    return np.repeat(group.holds(segments_k2), lengths_of(segments_k2))


def simple_methods(data: StreamData) -> Iterator[Scored]:
    """Baselines on the rows of process sensors: fitted to all rows that are not scored."""
    normal_k2, test_k2 = _normal_rows(data), data.splits["test"].segments.rows_k2
    values_nc = data.splits["test"].series.rows_nc
    of_data = groups_of(data.splits)
    for detector, method in SIMPLE.items():
        start = time.perf_counter()
        normal_s, test_s = (np.full(len(rows_of(each)), np.nan) for each in (normal_k2, test_k2))
        for own_k2, of_group in of_data:
            mine = of_group(test_k2)
            z = _standardised(values_nc[rows_of(own_k2)], values_nc[rows_of(test_k2)[mine]])
            segments = _segments_of(own_k2), _segments_of(test_k2)[mine]
            normal_s[of_group(normal_k2)], test_s[mine] = method(*map(Rows, z, segments))
        seconds = time.perf_counter() - start
        tables = [table_of(_as_scores(*each), each[1], data) for each in ((normal_s, normal_k2), (test_s, test_k2))]
        yield Scored(detector, *tables, 0.0, seconds)


def _standardised(normal_nc: np.ndarray, new_nc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays in standard deviations of the normal rows; missing values, and channels without normal values, are
    0."""
    unknown_c = np.isnan(normal_nc).all(axis=0)
    normal_nc, new_nc = (np.where(unknown_c, 0.0, each.astype(np.float64)) for each in (normal_nc, new_nc))
    mean_c, std_c = np.nanmean(normal_nc, axis=0), np.nanstd(normal_nc, axis=0)
    level_c = np.abs(mean_c)
    std_c = np.where(std_c > 1e-9 * level_c, std_c, CONSTANT_SHARE * np.where(level_c > 0, level_c, 1.0))
    z = (np.nan_to_num((each - mean_c) / std_c) for each in (normal_nc, new_nc))
    return tuple(each.clip(-_CLIP, _CLIP) for each in z)


def _normal_rows(data: StreamData) -> np.ndarray:
    segments_k2 = np.concatenate([split.segments.rows_k2 for name, split in data.splits.items() if name != "test"])
    return segments_k2[np.argsort(segments_k2[:, 0])]


def _as_scores(score_s: np.ndarray, segments_k2: np.ndarray) -> SplitScores:
    score_s = score_s.astype(np.float32)
    return SplitScores(score_s, score_s[:, np.newaxis], np.zeros(len(score_s), dtype=np.int64), rows_of(segments_k2), 1)


def _segments_of(segments_k2: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(segments_k2)), lengths_of(segments_k2))


def _squares(normal: Rows, new: Rows) -> tuple[np.ndarray, np.ndarray]:
    return tuple(each.smooth((each.z_nc**2).mean(axis=1, keepdims=True), 10)[:, 0] for each in (normal, new))


def _t2(normal: Rows, new: Rows, span: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Hotelling's T² of the exponentially weighted mean (Lowry et al., Technometrics 1992)."""
    smooth_normal, smooth_new = (each.smooth(each.z_nc, span) for each in (normal, new))
    inverse = np.linalg.pinv(np.cov(smooth_normal.T) + 1e-6 * np.eye(normal.z_nc.shape[1]))
    return tuple(np.einsum("nc,cd,nd->n", z, inverse, z) for z in (smooth_normal, smooth_new))


def _largest(normal: Rows, new: Rows, span: int) -> tuple[np.ndarray, np.ndarray]:
    smooth_normal, smooth_new = (each.smooth(each.z_nc, span) for each in (normal, new))
    spread_c = np.maximum(smooth_normal.std(axis=0), 1e-3)
    return tuple((np.abs(z) / spread_c).max(axis=1) for z in (smooth_normal, smooth_new))


def _principal(normal_nc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loadings of the components that explain 90 % of the variance (C, K), and their variances."""
    variance_c, vector_cc = np.linalg.eigh(np.atleast_2d(np.cov(normal_nc.T)))
    order = np.argsort(variance_c)[::-1]
    kept = int(np.searchsorted(np.cumsum(variance_c[order]) / max(variance_c.sum(), 1e-12), 0.9)) + 1
    return vector_cc[:, order[:kept]], np.maximum(variance_c[order[:kept]], 1e-9)


def _q(normal: Rows, new: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Q (SPE): the residual of the principal components, smoothed over 10 rows (Jackson and Mudholkar, 1979)."""
    loading_ck, _ = _principal(normal.z_nc)
    left = [(each, each.z_nc - each.z_nc @ loading_ck @ loading_ck.T) for each in (normal, new)]
    return tuple(each.smooth((rest_nc**2).sum(axis=1, keepdims=True), 10)[:, 0] for each, rest_nc in left)


def _t2_and_q(normal: Rows, new: Rows) -> tuple[np.ndarray, np.ndarray]:
    """T² of the principal components and Q of the residual, each divided by its 99th percentile over normal rows."""
    loading_ck, variance_k = _principal(normal.z_nc)
    both = []
    for component in ("t2", "q"):
        statistic = [
            ((z @ loading_ck) ** 2 / variance_k).sum(axis=1)
            if component == "t2"
            else ((z - z @ loading_ck @ loading_ck.T) ** 2).sum(axis=1)
            for z in (normal.z_nc, new.z_nc)
        ]
        both.append([each / max(np.quantile(statistic[0], 0.99), 1e-9) for each in statistic])
    return both[0][0] + both[1][0], both[0][1] + both[1][1]


def _forest(normal: Rows, new: Rows) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(n_estimators=100, random_state=0).fit(normal.z_nc)
    return tuple(-forest.score_samples(each.z_nc) for each in (normal, new))


def _noise(normal: Rows, new: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The chance level: squares of smoothed white noise, independent of the data."""
    rng = np.random.default_rng(0)
    return tuple(each.smooth(rng.normal(size=(len(each.z_nc), 1)), 10)[:, 0] ** 2 for each in (normal, new))


SIMPLE: dict[str, Simple] = {
    "z² + EWMA-10": _squares,
    "EWMA-30 T²": _t2,
    "EWMA-10 largest |z|": partial(_largest, span=10),
    "EWMA-30 largest |z|": partial(_largest, span=30),
    "PCA Q + EWMA-10": _q,
    "T² and Q": _t2_and_q,
    "isolation forest": _forest,
    CHANCE: _noise,
}


# ------------------------------------------------------------------------------------------------- simple, of vibration
def simple_vibration(data: StreamData, span: int) -> Iterator[Scored]:
    """Baselines on windows: the two-sided distance of the RMS, and the nearest neighbours of the log spectrum. Each is
    plain, and averaged over the windows of a file like Landfall's charts. span: span of this mean, in windows."""
    from sklearn.neighbors import NearestNeighbors

    def both(detector: str, score: Mapping[str, np.ndarray], seconds: float) -> Iterator[Scored]:
        smooth = {
            name: Ewma(span, 1)(score[name][:, np.newaxis], data.splits[name].file_of())[:, 0]
            for name in ("calibration", "test")
        }
        yield _of_windows(detector, score, data, seconds)
        yield _of_windows(f"{detector}, EWMA-{span}", smooth, data, seconds)

    splits = {name: _waves(data.splits[name]) for name in ("train", "calibration", "test")}

    def rms(waves: np.ndarray) -> np.ndarray:
        return np.log(waves.std(axis=1) + 1e-9).mean(axis=-1)

    def spectra(waves: np.ndarray) -> np.ndarray:
        power = np.abs(np.fft.rfft(waves * np.hanning(waves.shape[1])[:, np.newaxis], axis=1))
        bands = np.array_split(np.log(power + 1e-6), 64, axis=1)
        return np.concatenate([band.mean(axis=1) for band in bands], axis=1)

    level = rms(splits["train"])
    start = time.perf_counter()
    two_sided = {name: np.abs(rms(waves) - level.mean()) / max(level.std(), 1e-6) for name, waves in splits.items()}
    yield from both("RMS, two-sided", two_sided, time.perf_counter() - start)
    start = time.perf_counter()
    neighbours = NearestNeighbors(n_neighbors=min(3, len(level))).fit(spectra(splits["train"]))
    distance = {name: neighbours.kneighbors(spectra(waves))[0].mean(axis=1) for name, waves in splits.items()}
    yield from both("log spectrum, 3 nearest", distance, time.perf_counter() - start)
    rng = np.random.default_rng(0)
    noise = {name: rng.normal(size=len(waves)) ** 2 for name, waves in splits.items()}
    yield _of_windows(CHANCE, noise, data, 0.0)


def _waves(windows: WindowSet) -> np.ndarray:
    """All windows (W, T, C) minus their mean; missing values are 0."""
    rows = windows.starts_w[:, np.newaxis] + np.arange(windows.window)
    waves = windows.series.rows_nc[rows].astype(np.float64)
    count_w1c = np.maximum((~np.isnan(waves)).sum(axis=1, keepdims=True), 1)
    return np.nan_to_num(waves - np.nansum(waves, axis=1, keepdims=True) / count_w1c)


def _of_windows(detector: str, scores: Mapping[str, np.ndarray], data: StreamData, seconds: float) -> Scored:
    tables = {}
    for name in ("calibration", "test"):
        score_s, windows = scores[name].astype(np.float32), data.splits[name]
        last_s = windows.starts_w + windows.window - 1
        own = SplitScores(
            score_s, score_s[:, np.newaxis], np.zeros(len(score_s), dtype=np.int64), last_s, windows.window
        )
        tables[name] = table_of(own, windows.segments.rows_k2, data)
    return Scored(detector, tables["calibration"], tables["test"], 0.0, seconds)
