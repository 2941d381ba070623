"""The default recipe: values of `auto` for windows, patches, strides and the windows of an epoch.

They are chosen without labels, from the gap-free rows of the splits of normal data, the channels and, for vibration,
the sampling rate. `landfall train`, `make validate`, the notebooks and the benchmark use it; a checkpoint contains the
chosen values, and scoring reads them from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config.compose import with_values
from core.config.data import Split
from core.config.schema import AnyConfig, Scalogram, Stream

AUTO = "auto"
# Every key that may be `auto` until the data is known.
KEYS = (
    "data.window",
    "data.stride",
    "data.score_stride",
    "model.patch_length",
    "model.channel_attention",
    "training.windows_per_epoch",
    "scalogram.frequency_min_hz",
)
# Those of them that a model of other data does not decide.
_OF_THE_DATA = ("data.stride", "training.windows_per_epoch")
# Candidate windows of process sensors, in rows: the longest that fits three times into a split is used. A short one
# must fit into a split, and three times into a segment of the split `train`: with runs of 110 rows and windows of 64,
# the model has no error for the first half of each run.
_WINDOWS, _SHORT_WINDOWS, _WINDOWS_PER_SPLIT = (256, 128, 64), (64, 32, 16), 3
# Patches of process sensors: 16 to a window, but neither shorter nor longer than these.
_PATCHES, _SHORTEST_PATCH, _LONGEST_PATCH = 16, 8, 16
# A window of vibration lasts about a second, but has at most the second number of samples: with less noise, fainter
# impacts of bearings show (dev/LOG.md). It is shorter, down to the first number, if a split would have fewer windows
# than a threshold needs scores. A record shorter than two windows is one window, or two if there are few records.
_VIBRATION_WINDOWS = (2048, 65_536)
# The shortest window of vibration, in columns of an image.
_SAMPLES_PER_COLUMN = 2
# The lowest wavelet has this many cycles in a window; its width is about one cycle (`scalogram.omega0` / 2π).
_CYCLES = 4
# The cost of attention between all channels grows with the square of their number; more channels were not measured.
_MAX_CHANNELS = 64
# Minimum number of training windows, and the longest stride as a share of a window.
_MIN_TRAINING_WINDOWS: Mapping[Stream, int] = {"patchtst": 2048, "swinmae": 128}
_STRIDES: Mapping[Stream, int] = {"patchtst": 8, "swinmae": 4}
# Maximum work of an epoch: patches of all channels, or images. 20 epochs take less than a minute on one core of a CPU
# of 2024.
# With three times as many patches, the predicted variance is too small for data that drifts (dev/LOG.md).
_PATCHES_PER_EPOCH, _IMAGES_PER_EPOCH, _MIN_WINDOWS_PER_EPOCH = 60_000, 544, 64
_SCORE_STRIDES = 4


@dataclass(frozen=True)
class History:
    """Facts about the data that the recipe depends on.

    splits: rows of each gap-free segment of the splits `train` and `validation`, and of `calibration` if it shares
    their recordings. guard: rows between two splits; -1 is one window. sampling_rate_hz: of vibration.
    """

    splits: Mapping[str, Sequence[int]]
    num_channels: int
    guard: int = 0
    sampling_rate_hz: float | None = None

    def shortest(self) -> tuple[int, str]:
        """The typical length of a segment in the split with the shortest ones, and that split."""
        return min((_typical_length(rows_s), name) for name, rows_s in self.splits.items())


def is_for_short_runs(window: int, rows_s: Sequence[int]) -> bool:
    """Whether a window was chosen for runs in which none of a usual length fits three times. A model with a usual
    window stays one of long recordings, even where segments are short, as in a calibration on few new rows."""
    return window < _WINDOWS[-1] and _typical_length(rows_s) < _WINDOWS_PER_SPLIT * _WINDOWS[-1]


def is_open(config: AnyConfig) -> bool:
    """Whether a key of the recipe still is `auto`."""
    return any(_get(config, key) == AUTO for key in KEYS)


def resolved(config: AnyConfig, history: History) -> tuple[AnyConfig, list[str]]:
    """The configuration without `auto` in the recipe, and the reason of each choice, `key = value: reason`.

    Raises ConfigError if the values contradict each other.
    """
    choose = _process if config.stream == "patchtst" else _vibration
    chosen = {key: each for key, each in choose(config, history).items() if _get(config, key) == AUTO}
    reasons = [f"{key} = {value}: {reason}" for key, (value, reason) in chosen.items()]
    return _with(config, {key: value for key, (value, _) in chosen.items()}), reasons


def smallest_window(config: AnyConfig) -> int:
    """Rows of the shortest window that the recipe may choose, or of `data.window` if that is set."""
    if config.data.window != AUTO:
        return config.data.window
    if config.stream == "swinmae":
        return _SAMPLES_PER_COLUMN * config.scalogram.image_size
    step = 1 if config.model.patch_length == AUTO else config.model.patch_length
    return max(_SHORT_WINDOWS[-1] // step, 2) * step


def usual_window(config: AnyConfig, rate_hz: float) -> int:
    """Samples of the window of vibration that the recipe chooses for long recordings, or `data.window` if that is
    set."""
    if config.data.window != AUTO:
        return config.data.window
    window = _VIBRATION_WINDOWS[-1]
    while window > 1.5 * rate_hz and window >= 2 * smallest_window(config):
        window //= 2
    return window


def as_trained(config: AnyConfig, trained: Mapping[str, Any], *, is_other_data: bool = False) -> AnyConfig:
    """The configuration with the values of a trained model instead of `auto`.

    trained: the configuration in a checkpoint; one of another stream is ignored. The score stride is not taken from it,
    because it depends on `scoring.look_ahead` of this configuration. is_other_data: it was trained on other data, whose
    stride, number of windows and division into splits are not taken either.
    """
    if trained["stream"] != config.stream:
        return config
    values = {} if is_other_data else _division_as_trained(config, trained)
    for key in KEYS:
        section, name = key.split(".")
        if is_other_data and key in _OF_THE_DATA:
            continue
        if _get(config, key) == AUTO and name in trained.get(section, {}):
            values[key] = trained[section][name]
    if config.data.score_stride == AUTO:
        patch = values.get("model.patch_length", getattr(config.model, "patch_length", None))
        values["data.score_stride"], _ = _score_stride(config, values.get("data.window", config.data.window), patch)
    return _with(config, values) if values else config


def _division_as_trained(config: AnyConfig, trained: Mapping[str, Any]) -> dict[str, str]:
    """How the splits that are `auto` were divided in training, if they have the same files: with new files, another
    division would put rows that the model has learned into the calibration split."""
    splits: Mapping[str, Split] = dict(config.data.splits)
    known: Mapping[str, Any] = trained.get("data", {}).get("splits", {})
    return {
        f"data.splits.{name}.by": known[name]["by"]
        for name, split in splits.items()
        if split.by == AUTO and name in known and tuple(known[name]["files"]) == split.files
    }


def lowest_frequency(settings: Scalogram, window: int, sampling_rate_hz: float) -> Scalogram:
    """The settings of a scalogram without `auto`."""
    if settings.frequency_min_hz != AUTO:
        return settings
    return settings.model_copy(update={"frequency_min_hz": _rounded(_CYCLES * sampling_rate_hz / window)})


# -------------------------------------------------------------------------------------------------------------- streams
_Choice = tuple[int | float | str, str]


def _process(config: AnyConfig, history: History) -> dict[str, _Choice]:
    window = _get(config, "data.window")
    why_window = ""
    if window == AUTO:
        window, why_window = _process_window(config.model.patch_length, history)
    patch, why_patch = config.model.patch_length, ""
    if patch == AUTO:
        wanted = min(max(window // _PATCHES, _SHORTEST_PATCH), _LONGEST_PATCH, max(window // 2, 1))
        patch = max(size for size in range(1, wanted + 1) if window % size == 0)
        why_patch = f"1/{_PATCHES} of a window of {window}, from {_SHORTEST_PATCH} to {_LONGEST_PATCH} rows"
    stride = _stride(config, window, history)
    patches_per_window = history.num_channels * window // patch
    windows_per_epoch = max(_PATCHES_PER_EPOCH // patches_per_window, _MIN_WINDOWS_PER_EPOCH)
    return {
        "data.window": (window, why_window),
        "model.patch_length": (patch, why_patch),
        "model.channel_attention": (
            "all" if history.num_channels <= _MAX_CHANNELS else "groups",
            f"{history.num_channels} channels; groups for more than {_MAX_CHANNELS}",
        ),
        "data.stride": stride,
        "data.score_stride": _score_stride(config, window, patch),
        "training.windows_per_epoch": (
            windows_per_epoch,
            f"{_PATCHES_PER_EPOCH:,} patches per epoch, {patches_per_window} per window; "
            f"at least {_MIN_WINDOWS_PER_EPOCH} windows",
        ),
    }


def _process_window(patch: int | str, history: History) -> tuple[int, str]:
    rows, name = history.shortest()
    step = 1 if patch == AUTO else patch
    reason = f"half of the rows of the split {name} are in segments of {rows} rows or more"
    for window in _WINDOWS:
        if _WINDOWS_PER_SPLIT * window <= rows:
            return window // step * step, f"{reason}, enough for {_WINDOWS_PER_SPLIT} windows"
    train_rows = _typical_length(history.splits["train"])
    for window in _SHORT_WINDOWS:
        fits = window + (window if history.guard < 0 else history.guard) <= rows
        if fits and _WINDOWS_PER_SPLIT * window <= train_rows:
            train = f", those of train in segments of {train_rows}" if name != "train" else ""
            reason += f"{train}, enough for {_WINDOWS_PER_SPLIT} windows of train"
            return max(window // step, 2) * step, reason
    return max(_SHORT_WINDOWS[-1] // step, 2) * step, reason


def _vibration(config: AnyConfig, history: History) -> dict[str, _Choice]:
    window, why = _get(config, "data.window"), ""
    rate_hz = history.sampling_rate_hz
    if window == AUTO:
        window, why = _vibration_window(config, history)
    return {
        "data.window": (window, why),
        "data.stride": _stride(config, window, history),
        "data.score_stride": _score_stride(config, window, None),
        "training.windows_per_epoch": (_IMAGES_PER_EPOCH, "images per epoch"),
        "scalogram.frequency_min_hz": (
            lowest_frequency(config.scalogram, window, rate_hz).frequency_min_hz,
            f"{_CYCLES} cycles per window",
        ),
    }


def _vibration_window(config: AnyConfig, history: History) -> tuple[int, str]:
    rate_hz, smallest = history.sampling_rate_hz, smallest_window(config)
    window = usual_window(config, rate_hz)
    why = f"about a second at {rate_hz:g} Hz, but at most {_VIBRATION_WINDOWS[-1]:,} samples"
    rows, _ = history.shortest()
    shares_recordings = history.guard < 0
    if rows < 2 * window and not shares_recordings:
        records = (each for rows_s in history.splits.values() for each in rows_s if 2 * each >= rows)
        window = min(records, default=rows)
        why = f"records of {window} samples or more are one window"
        least = _MIN_TRAINING_WINDOWS["swinmae"]
        if len(history.splits["train"]) < least and window >= 2 * smallest:
            window, why = window // 2, f"fewer than {least} records of {window} samples for training"
    fewest, name = min((sum(rows_s), name) for name, rows_s in history.splits.items())
    needed = config.scoring.threshold.min_calibration
    while window >= 2 * _VIBRATION_WINDOWS[0]:
        if shares_recordings and rows < 2 * window:
            why = f"segments of {rows} samples hold a guard and one window"
        elif fewest < needed * window:
            why = (
                f"the split {name} has {fewest / rate_hz:.3g} s, for {needed} windows without overlap; more data "
                "allows longer windows, which show fainter impacts of bearings"
            )
        else:
            break
        window //= 2
    if shares_recordings and rows < 2 * window:
        return max(rows // 2, smallest), f"segments of {rows} samples are a guard and one window"
    return window, why


def _stride(config: AnyConfig, window: int, history: History) -> _Choice:
    """The longest stride that leaves enough windows."""
    min_windows, stride = _MIN_TRAINING_WINDOWS[config.stream], max(window // _STRIDES[config.stream], 1)

    def num_windows() -> int:
        return sum((rows - window) // stride + 1 for rows in train if rows >= window)

    train = history.splits["train"]
    if not any(rows > window for rows in train):
        return stride, "one window per segment"
    while num_windows() < min_windows and stride > 1:
        stride //= 2
    return stride, f"results in {num_windows()} training windows"


def _score_stride(config: AnyConfig, window: int, patch: int | None) -> _Choice:
    if config.stream == "patchtst" and not config.scoring.look_ahead:
        return patch, "the patch length: each patch is predicted from the previous rows"
    return max(window // _SCORE_STRIDES, 1), f"1/{_SCORE_STRIDES} of a window"


def _typical_length(rows_s: Sequence[int]) -> int:
    """Half of the rows are in segments of at least this length; 0 without segments."""
    left = sum(rows_s) / 2
    for rows in sorted(rows_s, reverse=True):
        left -= rows
        if left <= 0:
            return rows
    return 0


def _rounded(value: float) -> float:
    """Rounded to two digits."""
    return float(f"{value:.2g}")


# --------------------------------------------------------------------------------------------------------------- values
def _get(config: AnyConfig, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section, None), name, None)


def _with(config: AnyConfig, values: Mapping[str, Any]) -> AnyConfig:
    return with_values(config, values, source="the recipe for this data")
