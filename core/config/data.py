"""Which data a run reads, how it is split and scaled, and the limits of its quality.

Part of `core.config.schema`. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from core.config.fields import Bound, Contradiction, Count, CountOrAuto, Fraction, Positive, PositiveOrAuto, Section
from core.config.models import LEVEL_ROWS


class Split(Section):
    """One split of the data: files, and a segment of each, or whole files."""

    files: tuple[str, ...] = Field(
        (), description="Globs relative to `data.root`; label files (`*.labels.*`) are never read as sensors."
    )
    by: Literal["time", "recording", "auto"] = Field(
        "time",
        description="`time`: `start` and `stop` select a segment of each recording. `recording`: they select files in "
        "the order of their time stamps or names, and records from each `.npz` file. `auto`: `recording` for many "
        "recordings of process sensors, for some that take the same course, as runs of a recipe do, and for recordings "
        "that are too short to be divided, else `time`.",
    )
    start: Bound = Field(
        0.0, ge=0, description="Start of the segment: a float is a fraction (0 to 1), an integer is a row or record."
    )
    stop: Bound = Field(1.0, ge=0, description="End of the segment, exclusive; same units as `start`.")

    @model_validator(mode="before")
    @classmethod
    def _one_means_the_end(cls, values: Any) -> Any:
        """`stop: 1` by time means the end of the recording; a split with a single row would be useless."""
        if isinstance(values, dict) and values.get("stop") == 1 and values.get("by", "time") != "recording":
            return {**values, "stop": 1.0}
        return values

    def contradictions(self) -> Iterator[Contradiction]:
        bounds = {"start": self.start, "stop": self.stop}
        beyond = {name: bound for name, bound in bounds.items() if isinstance(bound, float) and bound > 1.0}
        for name, bound in beyond.items():
            yield Contradiction(
                f"{name} = {bound} is not a fraction between 0 and 1; write {int(bound)} for a row number"
            )
        if not beyond and type(self.start) is type(self.stop) and self.stop <= self.start:
            yield Contradiction(f"stop = {self.stop} is not after start = {self.start}", ("stop", "start"))


class Splits(Section):
    train: Split = Field(Split(), description="Data that fits the weights and the scaling.")
    validation: Split = Field(Split(), description="Data for early stopping and the selection of the best epoch.")
    calibration: Split = Field(Split(), description="Normal data that sets the threshold; never used for training.")
    test: Split = Field(Split(), description="Data that is scored and, with label files, evaluated.")

    def __getitem__(self, name: str) -> Split:
        return getattr(self, name)

    @property
    def globs(self) -> tuple[str, ...]:
        """Those of all splits."""
        return tuple(glob for _, split in self for glob in split.files)


class Scaling(Section):
    method: Literal["robust", "zscore", "none"] = Field(
        "robust", description="`robust`: median and interquartile range; `zscore`: mean and standard deviation."
    )
    floor: float = Field(
        1.0,
        ge=0.0,
        description="Minimum robust scale, as a share of the scale of the channel's central 98 %. It prevents very "
        "large values of channels that are constant most of the time and change between recipe steps.",
    )
    clip: Positive = Field(20.0, description="Scaled values are clipped to ± this value.")


class Data(Section):
    root: str = Field(
        ".",
        description="Folder to which the globs of all splits are relative; itself relative to the workspace. `auto` is "
        "the workspace, or while its folder `data` has no files, the sample data in `samples`.",
    )
    timestamp: str = Field(
        "auto", description="Time column; `auto` finds timestamp, time, datetime or date, in any case."
    )
    channels: tuple[str, ...] = Field((), description="Columns to use, in order; empty uses every numeric column.")
    exclude: tuple[str, ...] = Field((), description="Columns to leave out.")
    context_channels: tuple[str, ...] = Field(
        (),
        description="Process sensors: channels that describe the operating context, such as set points or a recipe "
        "step. Residuals are compared with those of similar contexts; empty finds the context from all channels. "
        "Vibration: keys of the sidecars with the operating point of a recording, such as the shaft speed and the "
        "load. The control charts compare a recording with what is expected there.",
    )
    sampling_rate_hz: Positive | None = Field(
        None, description="Vibration: samples per second, if neither a sidecar nor time stamps contain it."
    )
    resample_hz: Positive | None = Field(
        None,
        description="Vibration: files with another rate are resampled to this one; empty: different rates are an "
        "error.",
    )
    gap_factor: Positive = Field(
        10.0, description="A time step longer than this many median time steps is a gap; windows never cross a gap."
    )
    remove_mean: bool = Field(False, description="Vibration: subtract each window's mean (the DC offset, gravity).")
    window: CountOrAuto = Field(
        256,
        description="Samples in a window. `auto` uses the largest of 256, 128 and 64 rows that fits three times into a "
        "split, for short segments one of 64, 32 and 16 that fits three times into those of train; for "
        "vibration about one second, less if the splits are short, or a complete record if records are short.",
    )
    stride: CountOrAuto = Field(
        64,
        description="Samples between the starts of two training windows. `auto` is 1/8 of a window, for vibration "
        "1/4, and less if that results in few windows.",
    )
    score_stride: CountOrAuto = Field(
        32,
        description="Samples between the starts of two scored windows; `auto` is 1/4 of a window. For process sensors "
        "at most the patch length, because only the newest patch of a window is scored without `scoring.look_ahead`.",
    )
    guard: int = Field(
        -1, ge=-1, description="Rows between two splits that share a file; -1 is the length of a window."
    )
    scaling: Scaling = Field(Scaling(), description="Scaling, fitted on the train split only.")
    splits: Splits = Field(Splits(), description="Data for training, validation, calibration and test.")
    store_dir: str = Field(
        "cache/recordings",
        description="Folder of the cache of parsed files (memory-mapped float32), so that a file is parsed once; "
        "empty: no cache.",
    )
    store_gb: Positive = Field(
        20.0, description="Maximum size of the cache in GB; the least recently used entries are removed."
    )


class HardLimits(Section):
    """Limits above which a file is not used."""

    invalid_timestamp_ratio: Fraction = Field(0.01, description="Share of rows whose time stamp cannot be read.")
    missing_ratio: Fraction = Field(0.5, description="Share of missing values over all channels.")
    non_monotonic_ratio: Fraction = Field(0.05, description="Share of time steps that are negative.")
    duplicate_ratio: Fraction = Field(0.2, description="Share of rows that repeat a time stamp.")
    constant_channel_ratio: Fraction = Field(0.9, description="Share of channels that never change.")
    sampling_rate_tolerance: Fraction = Field(
        0.05, description="Relative difference between the declared sampling rate and that of the time stamps."
    )
    rms_min: float = Field(0.0, ge=0.0, description="Vibration: smallest plausible RMS of an axis without its mean.")
    rms_max: Positive = Field(1e6, description="Vibration: largest plausible RMS of an axis without its mean.")


class WarnLimits(Section):
    """Limits above which a file is used with a warning."""

    missing_ratio: Fraction = Field(0.05, description="Share of missing values in one channel.")
    gap_count: int = Field(0, ge=0, description="Gaps in the time stamps.")
    stuck_ratio: Fraction = Field(0.5, description="Longest run of one repeated value, as a share of the file.")
    jump_sigma: Positive = Field(
        30.0, description="Difference of consecutive values, in robust standard deviations of these differences."
    )
    clipping_ratio: Fraction = Field(0.05, description="Share of samples at the exact minimum or maximum of a channel.")
    flat_ratio: Fraction = Field(0.3, description="Vibration: share of samples that equal the previous one.")


class Quality(Section):
    enabled: bool = Field(True, description="Check every file before training and scoring.")
    report_dir: str = Field(description="Folder of the JSON reports, one per file.")
    hard: HardLimits = Field(HardLimits(), description="Limits above which a file is not used.")
    warn: WarnLimits = Field(WarnLimits(), description="Limits above which there is a warning.")


class Scalogram(Section):
    frequencies: Count = Field(64, description="Rows of the transform: wavelet centre frequencies, log-spaced.")
    frequency_min_hz: PositiveOrAuto = Field(
        10.0, description="Lowest centre frequency; `auto`: four cycles per window."
    )
    frequency_max_hz: Positive | None = Field(
        None, description="Highest centre frequency; empty: 0.4 of the sampling rate."
    )
    omega0: Positive = Field(6.0, description="Centre angular frequency of the Morlet mother wavelet.")
    image_size: Count = Field(64, description="Height and width of the input image of the model.")
    envelope: bool = Field(
        False,
        description="Add a second picture, the scalogram of the squared envelope of the upper half of the frequencies: "
        "modulation, as of a damaged bearing, relative to the level, which the plain scalogram shows.",
    )
    level: Literal["kept", "separate"] = Field(
        "kept",
        description="`kept`: images contain the level; `separate`: the level of each axis and picture, the mean of the "
        "image, is subtracted and given to the model as one more value, which it predicts as well.",
    )

    @property
    def pictures(self) -> int:
        """Number of pictures of each axis."""
        return 2 if self.envelope else 1

    @property
    def level_rows(self) -> int:
        """Number of rows with the level below those of the image."""
        return LEVEL_ROWS if self.level == "separate" else 0
