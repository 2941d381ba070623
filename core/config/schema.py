"""The schema of a Landfall configuration: every key, with its type, default and meaning.

`docs/configuration.md` is generated from these descriptions. Hardware and processes are in `core.config.execution`,
models in `core.config.models`, control charts in `core.config.charts`, types of values in `core.config.fields`.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from core.config.charts import Charts
from core.config.execution import Execution
from core.config.fields import (
    Bound,
    Contradiction,
    Count,
    CountOrAuto,
    Fraction,
    Positive,
    PositiveOrAuto,
    Ratio,
    Section,
    SwitchOrAuto,
    TotalOrAuto,
)
from core.config.models import PatchTSTModel, SwinMAEModel

Stream = Literal["patchtst", "swinmae"]
STREAMS: tuple[Stream, ...] = ("patchtst", "swinmae")
# Folders of the quality reports under the contract of a workspace.
REPORT_DIRS: dict[Stream, str] = {"patchtst": "artifacts/dqvl/fdc", "swinmae": "artifacts/dqvl/vib"}


# ------------------------------------------------------------------------------------------------------------ logging
class Logging(Section):
    log_dir: str = Field(description="Folder of the run logs; each run has a sub-folder with its run id.")
    checkpoint_path: str = Field(
        description="File of the best model; the state to resume is next to it, in `.last.pt`."
    )
    artifacts_dir: str = Field("artifacts", description="Folder of loss, score and notebook artifacts.")
    tensorboard: bool = Field(True, description="Write TensorBoard events next to metrics.jsonl.")
    every_steps: Count = Field(10, description="Number of steps between two records in the run log.")
    progress: Literal["auto", "bar", "lines", "off"] = Field(
        "auto", description="Progress display; `auto`: a bar in a terminal or notebook, otherwise a line every 30 s."
    )


# --------------------------------------------------------------------------------------------------------------- data
class Part(Section):
    """One split of the data: files, and a segment of each."""

    files: tuple[str, ...] = Field(
        (), description="Globs relative to `data.root`; label files (`*.labels.*`) are never read as sensors."
    )
    by: Literal["time", "recording"] = Field(
        "time",
        description="`time`: `start` and `stop` select a segment of each recording. `recording`: they select files "
        "from the sorted list, and records from each `.npz` file.",
    )
    start: Bound = Field(
        0.0, ge=0, description="Start of the segment: a float is a fraction (0 to 1), an integer is a row or record."
    )
    stop: Bound = Field(1.0, ge=0, description="End of the segment, exclusive; same units as `start`.")

    @model_validator(mode="before")
    @classmethod
    def _one_means_the_end(cls, values: Any) -> Any:
        """`stop: 1` with `by: time` means the end of the recording; a split with a single row would be useless."""
        if isinstance(values, dict) and values.get("stop") == 1 and values.get("by", "time") == "time":
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


class Parts(Section):
    train: Part = Field(Part(), description="Data that fits the weights and the scaling.")
    validation: Part = Field(Part(), description="Data for early stopping and the selection of the best epoch.")
    calibration: Part = Field(Part(), description="Normal data that sets the threshold; never used for training.")
    test: Part = Field(Part(), description="Data that is scored and, with label files, evaluated.")


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
        "step. Residuals are compared with those of similar contexts; empty finds the context from all channels.",
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
        description="Samples in a window. `auto` uses the largest of 256, 128 and 64 rows of which a split contains "
        "three; for vibration one second, at most 2048 samples, or a complete record if records are short.",
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
    parts: Parts = Field(Parts(), description="Data for training, validation, calibration and test.")
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


# --------------------------------------------------------------------------------------------------- training, scoring
class EarlyStopping(Section):
    patience: int = Field(0, ge=0, description="Epochs without improvement before stopping; 0 never stops early.")
    min_delta: float = Field(
        0.0, ge=0.0, description="Minimum decrease of the validation loss that counts as an improvement."
    )


class Training(Section):
    epochs: Count = Field(10, description="Passes over the training windows.")
    batch_size: CountOrAuto = Field(
        32,
        description="Micro-batch size: windows computed together on each device; `auto` measures the fastest size "
        "that fits.",
    )
    accumulate: CountOrAuto = Field(
        "auto",
        description="Micro-batches per optimizer step (gradient accumulation); `auto` is 1, or with `batch_size: "
        "auto` the number that results in `effective_batch`.",
    )
    effective_batch: CountOrAuto = Field(
        "auto",
        description="Global batch size: windows per optimizer step with `batch_size: auto`. `auto` uses the largest "
        "power of two, up to the batch size of the hardware tier, with which the run has `min_steps` steps.",
    )
    min_steps: Count = Field(
        1000, description="Minimum number of optimizer steps of a run with an automatic global batch size."
    )
    gradient_checkpointing: SwitchOrAuto = Field(
        "auto",
        description="Recompute activations in the backward pass to save memory; `auto` follows the hardware tier.",
    )
    windows_per_epoch: TotalOrAuto = Field(
        0,
        description="Windows per epoch, drawn without repetition. 0 uses all; `auto` uses as many as contain 175,000 "
        "patches of all channels, or 448 images.",
    )
    learning_rate: Positive = Field(1e-3, description="Peak learning rate.")
    min_learning_rate: float = Field(0.0, ge=0.0, description="Learning rate at the end of the cosine schedule.")
    warmup_ratio: Fraction = Field(0.1, description="Share of all steps with linear warm-up.")
    weight_decay: float = Field(0.05, ge=0.0, description="AdamW weight decay; biases and norms are exempt.")
    betas: tuple[Ratio, Ratio] = Field((0.9, 0.95), description="AdamW moment decay rates.")
    early_stopping: EarlyStopping = Field(EarlyStopping(), description="When to stop before the last epoch.")
    recoveries: int = Field(
        5,
        ge=0,
        description="How many steps with a non-finite loss or gradient a run may roll back. It then continues with a "
        "higher precision if the hardware supports one; otherwise without the step, at half the learning rate.",
    )
    resume: str = Field(
        "never",
        description="`never` trains a new run. `unfinished` resumes the newest valid checkpoint if its run was "
        "interrupted and it fits, and trains a new run otherwise. `auto` resumes the newest valid checkpoint and "
        "refuses one that does not fit or whose run is finished. A file name resumes that checkpoint.",
    )
    start_from: str = Field(
        "",
        description="Checkpoint with initial weights for a new run, such as a model of other machines (`landfall "
        "pool`); empty: random weights. Only the weights are used, and a run that resumes does not load them again.",
    )
    allow_changes: bool = Field(
        False,
        description="Resume a checkpoint although configuration or data have changed since; otherwise that is an "
        "error, which lists the differences.",
    )
    checkpoint_every_minutes: float = Field(
        10.0,
        ge=0.0,
        description="Minutes between two checkpoints within an epoch; 0 saves only at the end of epochs and when "
        "training is stopped.",
    )
    keep: Count = Field(
        2, description="Number of training states to keep: if the last one is damaged, `auto` resumes the previous one."
    )
    keep_runs: int = Field(
        20,
        ge=0,
        description="Runs whose best weights are kept, the newest; the promoted run's always are. 0 keeps all.",
    )
    promote: Literal["better", "always", "never"] = Field(
        "better",
        description="When a finished run becomes the model of its stream: `better` unless a promoted model of the same "
        "data has a lower validation loss. `landfall promote` chooses by hand.",
    )


# The largest false alarm rate that extrapolation of the tail supports.
_MOST_OF_A_TAIL = 0.1


class Threshold(Section):
    method: Literal["conformal", "pot"] = Field(
        "conformal",
        description="`conformal`: a quantile of the calibration scores, without assumptions. `pot` (peaks over "
        "threshold): extrapolates the tail of the scores, for rates that are too small for the number of scores.",
    )
    false_alarm_rate: Ratio = Field(0.02, description="Maximum share of normal scores that may be alarms.")
    false_events_per_day: float | None = Field(
        1.0,
        gt=0.0,
        description="Maximum number of false events per day of recorded time, if recordings have times. The threshold "
        "satisfies this limit and `false_alarm_rate`. If the calibration data is too short for one event, the "
        "threshold leaves no event in it. null: no limit.",
    )
    min_calibration: Count = Field(50, description="Minimum number of calibration scores for a threshold.")

    def contradictions(self) -> Iterator[Contradiction]:
        if self.method == "pot" and self.false_alarm_rate > _MOST_OF_A_TAIL:
            yield Contradiction(
                f"method = pot supports rates of up to {_MOST_OF_A_TAIL}, not false_alarm_rate = "
                f"{self.false_alarm_rate}; method = conformal supports any",
                ("false_alarm_rate", "method"),
            )


class Scoring(Section):
    batch_size: Count = Field(64, description="Windows per scoring pass.")
    model_weight: float = Field(
        1.0,
        ge=0.0,
        le=1.0,
        description="Weight of the model in a score; the rest is the weight of the control charts. 0 uses the charts "
        "only, 1 the model only.",
    )
    look_ahead: bool = Field(
        False,
        description="Process sensors: whether the model may also use later rows of a window to predict a row; a score "
        "is then complete one window later. `false` predicts each patch from previous rows, as a monitor must; a "
        "score is complete at the end of its patch.",
    )
    operating_context: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Process sensors: whether residuals are compared with those of similar operating contexts. `auto` "
        "does so for a process that repeats itself, such as a recipe.",
    )
    smoothing_span: Count = Field(
        1,
        description="Span of the causal exponentially weighted means in a score: in rows, for vibration in the "
        "windows of a file; 1 does not smooth.",
    )
    charts: Charts = Field(Charts(), description="Constants of the control charts.")
    threshold: Threshold = Field(Threshold(), description="How the alarm threshold is calibrated.")
    allow_training_rows: bool = Field(
        False,
        description="Accept calibration rows that the model was trained on, with a warning; otherwise that is an "
        "error. The errors of the model are smaller on them, so the threshold is too low and there are more false "
        "alarms.",
    )
    event_gap: int = Field(1, ge=0, description="Alarms at most this many scores apart are one event.")
    event_release: float = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="An event continues while the score is above this share of the threshold; 1 ends it with the "
        "alarm.",
    )
    event_min_length: Count = Field(1, description="Minimum number of alarms in an event; shorter events are dropped.")
    event_min_seconds: float = Field(
        0.0,
        ge=0.0,
        description="Minimum duration of an event, from its first score to its last; a single score lasts 0 seconds.",
    )


# --------------------------------------------------------------------------------------------------------------- whole
class Config(Execution):
    """Keys of both streams."""

    stream: Stream
    enabled: SwitchOrAuto = Field(
        "auto",
        description="Whether commands for both streams (`landfall pipeline`, `validate`, `export`, `check`) include "
        "this one. `auto` does unless the folders of its data have no files while the other stream has data.",
    )
    logging: Logging = Field(description="Output folders and progress display.")
    data: Data = Field(Data(), description="Files, windows and splits.")
    dqvl: Quality = Field(description="Data quality and label validation (DQVL).")
    training: Training = Field(Training(), description="Optimisation.")
    scoring: Scoring = Field(Scoring(), description="Scores, thresholds and events.")

    @property
    def score_stride(self) -> int:
        """Samples between the starts of two windows as they are scored."""
        return self.data.score_stride

    @property
    def score_context(self) -> int:
        """Samples at the start of a scored window that are context only, and not scored."""
        return 0


class PatchTSTConfig(Config):
    """Stream `patchtst`: PatchTST-SSL on multivariate process sensors."""

    stream: Literal["patchtst"] = Field("patchtst", description="Model and data of this configuration.")
    model: PatchTSTModel = Field(PatchTSTModel(), description="PatchTST-SSL.")

    @property
    def score_stride(self) -> int:
        stride = self.data.score_stride
        return stride if self.scoring.look_ahead else min(stride, self.model.patch_length)

    @property
    def score_context(self) -> int:
        return 0 if self.scoring.look_ahead else self.data.window - self.model.patch_length

    def contradictions(self) -> Iterator[Contradiction]:
        yield from super().contradictions()
        window, length = self.data.window, self.model.patch_length
        if "auto" in (window, length):
            return
        if window < 2 * length or window % length:
            fitting = max(window // length, 2) * length
            yield Contradiction(
                f"data.window = {window} is not a multiple (two or more) of the patch length {length}; {fitting} "
                f"would be",
                ("data.window", "model.patch_length"),
            )


class SwinMAEConfig(Config):
    """Stream `swinmae`: Swin-MAE on scalograms of vibration."""

    stream: Literal["swinmae"] = Field("swinmae", description="Model and data of this configuration.")
    scalogram: Scalogram = Field(Scalogram(), description="Morlet wavelet transform of each window.")
    model: SwinMAEModel = Field(SwinMAEModel(), description="Swin-MAE.")

    def contradictions(self) -> Iterator[Contradiction]:
        yield from super().contradictions()
        size, model = self.scalogram.image_size, self.model
        if self.data.window != "auto" and self.data.window < 2 * size:
            yield Contradiction(
                f"data.window = {self.data.window} is less than two samples for each of the {size} columns of an image",
                ("data.window", "scalogram.image_size"),
            )
        for name, step in (
            ("mask units", model.patch_size * model.mask_unit),
            ("patches of the deepest stage", model.patch_size * 2 ** (len(model.depths) - 1)),
        ):
            if size % step:
                yield Contradiction(
                    f"scalogram.image_size = {size} is not a multiple of the {step} pixels of {name}",
                    ("scalogram.image_size", "model.patch_size", "model.mask_unit", "model.depths"),
                )


AnyConfig = PatchTSTConfig | SwinMAEConfig
SCHEMAS: dict[Stream, type[Config]] = {"patchtst": PatchTSTConfig, "swinmae": SwinMAEConfig}
# What a run writes to and deletes in. A configuration from outside of `configs/` may only name places in the workspace.
OUTPUT_KEYS = (
    "logging.log_dir",
    "logging.checkpoint_path",
    "logging.artifacts_dir",
    "dqvl.report_dir",
    "data.store_dir",
)
