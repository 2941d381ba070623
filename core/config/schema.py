"""The schema of a Landfall configuration: every key, its type, its default and what it means.

`docs/configuration.md` is generated from these descriptions. Hardware and processes are in `core.config.execution`,
the two models in `core.config.models`, control charts in `core.config.charts`, kinds of values in `core.config.fields`.
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


# ------------------------------------------------------------------------------------------------------------ logging
class Logging(Section):
    log_dir: str = Field(description="Folder of the run logs; each run makes a sub-folder named by its run id.")
    checkpoint_path: str = Field(description="File of the best model; `.last.pt` beside it holds the resumable state.")
    artifacts_dir: str = Field("artifacts", description="Folder of loss, score and notebook artifacts.")
    tensorboard: bool = Field(True, description="Write TensorBoard events beside metrics.jsonl.")
    every_steps: Count = Field(10, description="Steps between two step records in the run log.")
    progress: Literal["auto", "bar", "lines", "off"] = Field(
        "auto", description="Progress display; `auto` is a bar on a terminal or notebook, a line every 30 s elsewhere."
    )


# --------------------------------------------------------------------------------------------------------------- data
class Part(Section):
    """One part of the data: which files, and which stretch of each."""

    files: tuple[str, ...] = Field(
        (), description="Globs relative to `data.root`; label files (`*.labels.*`) are never read as sensors."
    )
    by: Literal["time", "recording"] = Field(
        "time",
        description="`time`: start and stop cut every recording. `recording`: they cut the sorted list of files, and "
        "each `.npz` set by its own list of records.",
    )
    start: Bound = Field(
        0.0, ge=0, description="Start of the stretch: a float is a fraction (0 to 1), an integer a row or record."
    )
    stop: Bound = Field(1.0, ge=0, description="End of the stretch, exclusive; same units as `start`.")

    @model_validator(mode="before")
    @classmethod
    def _one_means_the_end(cls, values: Any) -> Any:
        """`stop: 1` of a time stretch means all of it: a part of a single row helps nobody."""
        if isinstance(values, dict) and values.get("stop") == 1 and values.get("by", "time") == "time":
            return {**values, "stop": 1.0}
        return values

    def contradictions(self) -> Iterator[Contradiction]:
        bounds = {"start": self.start, "stop": self.stop}
        beyond = {name: bound for name, bound in bounds.items() if isinstance(bound, float) and bound > 1.0}
        for name, bound in beyond.items():
            yield Contradiction(f"{name} = {bound} is no fraction of 0 to 1; write {int(bound)} for a row number")
        if not beyond and type(self.start) is type(self.stop) and self.stop <= self.start:
            yield Contradiction(f"stop = {self.stop} is not after start = {self.start}", ("stop", "start"))


class Parts(Section):
    train: Part = Field(Part(), description="What the model and the scaling learn from.")
    validation: Part = Field(Part(), description="Early stopping and the choice of the best epoch.")
    calibration: Part = Field(Part(), description="Normal data that sets the threshold; never trained on.")
    test: Part = Field(Part(), description="What is scored and, where label files exist, judged.")


class Scaling(Section):
    method: Literal["robust", "zscore", "none"] = Field(
        "robust", description="`robust`: median and interquartile range; `zscore`: mean and standard deviation."
    )
    floor: float = Field(
        1.0,
        ge=0.0,
        description="Smallest allowed robust scale, as a share of the scale of the channel's central 98 %: a channel "
        "that rests most of the time and moves between recipe steps would otherwise explode.",
    )
    clip: Positive = Field(20.0, description="Scaled values are clipped to ± this many scales.")


class Data(Section):
    root: str = Field(".", description="Folder the globs of all parts start from, relative to the repository root.")
    timestamp: str = Field("auto", description="Time column; `auto` finds timestamp, time, datetime or date, any case.")
    channels: tuple[str, ...] = Field((), description="Columns to use, in order; empty takes every numeric column.")
    exclude: tuple[str, ...] = Field((), description="Columns to leave out.")
    context_channels: tuple[str, ...] = Field(
        (),
        description="Process sensors: channels that describe the operating context, such as set points or a recipe "
        "step. Residuals are compared with those of similar contexts; empty finds the context from all channels.",
    )
    sampling_rate_hz: Positive | None = Field(
        None, description="Vibration: samples per second where neither a sidecar JSON nor time stamps tell."
    )
    resample_hz: Positive | None = Field(
        None, description="Vibration: files of another rate are resampled to this one; empty refuses rates that differ."
    )
    gap_factor: Positive = Field(
        10.0, description="A step longer than this many median steps is a gap; windows never cross one."
    )
    remove_mean: bool = Field(False, description="Vibration: subtract each window's mean (the DC offset, gravity).")
    window: CountOrAuto = Field(
        256,
        description="Samples in a window; `auto` takes the longest of 256, 128 and 64 rows of which a split holds "
        "three, of vibration a second but at most 2048 samples, or a whole record where records are short.",
    )
    stride: CountOrAuto = Field(
        64,
        description="Samples between the starts of two training windows; `auto` is 1/8 of a window, of vibration 1/4, "
        "and less where that leaves few windows.",
    )
    score_stride: CountOrAuto = Field(
        32,
        description="Samples between the starts of two scored windows; `auto` is 1/4 of a window. Process sensors take "
        "at most the length of a patch without `scoring.look_ahead`: only the newest patch of a window is scored then.",
    )
    guard: int = Field(-1, ge=-1, description="Rows dropped where two parts share a file; -1 drops one window.")
    scaling: Scaling = Field(Scaling(), description="Scaling fitted on the training part only.")
    parts: Parts = Field(Parts(), description="Which data trains, validates, calibrates and tests.")
    store_dir: str = Field(
        "cache/recordings",
        description="Folder that keeps what was read from each file as memory-mapped float32, so that a file is parsed "
        "once; empty reads every file anew.",
    )
    store_gb: Positive = Field(20.0, description="Above this size the store forgets what was not used for longest.")


class HardLimits(Section):
    """Limits beyond which a file is dropped."""

    invalid_timestamp_ratio: Fraction = Field(0.01, description="Share of rows whose time stamp cannot be read.")
    missing_ratio: Fraction = Field(0.5, description="Share of missing values over all channels.")
    non_monotonic_ratio: Fraction = Field(0.05, description="Share of steps that go back in time.")
    duplicate_ratio: Fraction = Field(0.2, description="Share of rows that repeat a time stamp.")
    constant_channel_ratio: Fraction = Field(0.9, description="Share of channels that never change.")
    sampling_rate_tolerance: Fraction = Field(
        0.05, description="Relative difference between the declared sampling rate and the one of the time stamps."
    )
    rms_min: float = Field(0.0, ge=0.0, description="Vibration: smallest plausible RMS of an axis without its mean.")
    rms_max: Positive = Field(1e6, description="Vibration: largest plausible RMS of an axis without its mean.")


class WarnLimits(Section):
    """Limits beyond which a file is kept with a warning."""

    missing_ratio: Fraction = Field(0.05, description="Share of missing values in one channel.")
    gap_count: int = Field(0, ge=0, description="Gaps in the time stamps.")
    stuck_ratio: Fraction = Field(0.5, description="Longest run of one repeated value, as a share of the file.")
    jump_sigma: Positive = Field(
        30.0, description="Step between neighbours, in robust standard deviations of the channel's own steps."
    )
    clipping_ratio: Fraction = Field(0.05, description="Share of samples at the exact minimum or maximum of a channel.")
    flat_ratio: Fraction = Field(0.3, description="Vibration: share of samples that repeat their neighbour.")


class Quality(Section):
    enabled: bool = Field(True, description="Check every file before training and scoring.")
    report_dir: str = Field(description="Folder of the per-file JSON reports.")
    hard: HardLimits = Field(HardLimits(), description="Limits that drop a file.")
    warn: WarnLimits = Field(WarnLimits(), description="Limits that add a warning.")


class Scalogram(Section):
    frequencies: Count = Field(64, description="Rows of the transform: wavelet centre frequencies, log-spaced.")
    frequency_min_hz: PositiveOrAuto = Field(
        10.0, description="Lowest centre frequency; `auto` has four cycles in a window."
    )
    frequency_max_hz: Positive | None = Field(
        None, description="Highest centre frequency; empty takes 0.4 of the sampling rate."
    )
    omega0: Positive = Field(6.0, description="Centre angular frequency of the Morlet mother wavelet.")
    image_size: Count = Field(64, description="Height and width of the image the model sees.")


# --------------------------------------------------------------------------------------------------- training, scoring
class EarlyStopping(Section):
    patience: int = Field(0, ge=0, description="Epochs without improvement before stopping; 0 never stops early.")
    min_delta: float = Field(0.0, ge=0.0, description="Smallest drop of the validation loss that counts.")


class Training(Section):
    epochs: Count = Field(10, description="Passes over the training windows.")
    batch_size: CountOrAuto = Field(
        32, description="Windows computed at once on each device; `auto` measures which size fits and is fastest."
    )
    accumulate: CountOrAuto = Field(
        "auto",
        description="Batches whose gradients add up to one optimizer step; `auto` is 1, or under `batch_size: auto` "
        "what reaches `effective_batch`.",
    )
    effective_batch: CountOrAuto = Field(
        "auto",
        description="Windows per optimizer step under `batch_size: auto`; `auto` takes the largest power of two up to "
        "the hardware tier's batch that leaves the run `min_steps`.",
    )
    min_steps: Count = Field(1000, description="Fewest optimizer steps an automatic effective batch leaves a run.")
    gradient_checkpointing: SwitchOrAuto = Field(
        "auto",
        description="Recompute activations in the backward pass to save memory; `auto` follows the hardware tier.",
    )
    windows_per_epoch: TotalOrAuto = Field(
        0,
        description="Windows drawn per epoch without repetition; 0 takes all, `auto` as many as make 175,000 patches "
        "of all channels, or 448 images.",
    )
    learning_rate: Positive = Field(1e-3, description="Peak learning rate.")
    min_learning_rate: float = Field(0.0, ge=0.0, description="Learning rate at the end of the cosine.")
    warmup_ratio: Fraction = Field(0.1, description="Share of all steps that warm up linearly.")
    weight_decay: float = Field(0.05, ge=0.0, description="AdamW weight decay; biases and norms are exempt.")
    betas: tuple[Ratio, Ratio] = Field((0.9, 0.95), description="AdamW moment decay rates.")
    early_stopping: EarlyStopping = Field(EarlyStopping(), description="When to stop before the last epoch.")
    recoveries: int = Field(
        5,
        ge=0,
        description="How often a run may undo a step whose loss or gradient is not finite and go on: computing more "
        "precisely where the hardware can, else without the step and at half the learning rate.",
    )
    resume: str = Field(
        "never",
        description="`never` trains a new run. `unfinished` resumes the newest valid checkpoint if its run was "
        "interrupted and it fits, and trains a new run otherwise. `auto` resumes the newest valid checkpoint and "
        "refuses one that does not fit or whose run is finished. A file name resumes that checkpoint.",
    )
    start_from: str = Field(
        "",
        description="Checkpoint whose weights a new run starts from, such as one that learned from the sensors of "
        "other machines (`landfall pool`); empty starts anew. Nothing else of it is taken, and a run that resumes "
        "goes on without it.",
    )
    allow_changes: bool = Field(
        False,
        description="Go on from a checkpoint although configuration or data have changed since; without it that is "
        "refused, with the differences.",
    )
    checkpoint_every_minutes: float = Field(
        10.0,
        ge=0.0,
        description="Time between two savings of the training state inside an epoch; 0 saves at the end of epochs and "
        "when training is stopped.",
    )
    keep: Count = Field(
        2, description="Training states to keep: where the last one is damaged, `auto` goes on from the one before it."
    )


# The largest rate of false alarms that is still a tail.
_MOST_OF_A_TAIL = 0.1


class Threshold(Section):
    method: Literal["conformal", "pot"] = Field(
        "conformal",
        description="`conformal`: a quantile of the calibration scores, which supposes nothing of them. `pot`, peaks "
        "over threshold: their tail extrapolated, for rates that are too rare for as many scores as there are.",
    )
    false_alarm_rate: Ratio = Field(0.02, description="Share of normal scores that may be alarms, at most.")
    false_events_per_day: float | None = Field(
        1.0,
        gt=0.0,
        description="False events per day of recorded time, at most, where recordings have a time; the threshold keeps "
        "this and `false_alarm_rate`. Calibration data shorter than one event takes then has no event at all. null: "
        "no limit.",
    )
    min_calibration: Count = Field(50, description="Fewest calibration scores a threshold may rest on.")

    def contradictions(self) -> Iterator[Contradiction]:
        if self.method == "pot" and self.false_alarm_rate > _MOST_OF_A_TAIL:
            yield Contradiction(
                f"method = pot is for rates of up to {_MOST_OF_A_TAIL}, false_alarm_rate = {self.false_alarm_rate} is "
                "no tail; method = conformal serves any",
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
        description="Whether the model may predict a row of process sensors from later rows of its window too, so that "
        "a score is complete only a window later. false, as a monitor works, predicts each patch from the rows before "
        "it; a score is complete at the end of its patch.",
    )
    operating_context: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Process sensors: whether residuals are compared with those of similar operating contexts. `auto` "
        "does so for a process that repeats itself, such as a recipe.",
    )
    smoothing_span: Count = Field(
        1,
        description="Span of the causal exponentially weighted means in a score: over rows, of vibration over the "
        "windows of a file; 1 looks at each alone.",
    )
    charts: Charts = Field(Charts(), description="Constants of the control charts.")
    threshold: Threshold = Field(Threshold(), description="How the alarm threshold is calibrated.")
    allow_training_rows: bool = Field(
        False,
        description="Accept calibration rows that the model was trained on, with a warning. The model errs less on "
        "them, so the threshold is too low and false alarms are more than asked for; without it that is refused.",
    )
    event_gap: int = Field(1, ge=0, description="Alarms at most this many scores apart join one event.")
    event_release: float = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="An event that began above the threshold goes on while the score is above this share of it; 1 ends "
        "it with the alarm.",
    )
    event_min_length: Count = Field(1, description="Fewest alarms in an event; shorter ones are dropped.")
    event_min_seconds: float = Field(
        0.0, ge=0.0, description="Shortest event, from its first score to its last; a single score lasts 0 seconds."
    )


# --------------------------------------------------------------------------------------------------------------- whole
class Config(Execution):
    """What both streams share."""

    stream: Stream
    logging: Logging = Field(description="Where a run writes and how it shows progress.")
    data: Data = Field(Data(), description="Files, windows and parts.")
    dqvl: Quality = Field(description="Data quality validation layer.")
    training: Training = Field(Training(), description="Optimisation.")
    scoring: Scoring = Field(Scoring(), description="Scores, thresholds and events.")

    @property
    def score_stride(self) -> int:
        """Samples between the starts of two windows as they are scored."""
        return self.data.score_stride

    @property
    def score_context(self) -> int:
        """Samples at the start of a scored window that are not scored, but only looked back on."""
        return 0


class PatchTSTConfig(Config):
    """Stream `patchtst`: PatchTST-SSL on multivariate process sensors."""

    stream: Literal["patchtst"] = Field("patchtst", description="Which model and data this configuration is for.")
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
                f"data.window = {window} is not two or more whole patches of {length}; {fitting} would be",
                ("data.window", "model.patch_length"),
            )


class SwinMAEConfig(Config):
    """Stream `swinmae`: Swin-MAE on scalograms of vibration."""

    stream: Literal["swinmae"] = Field("swinmae", description="Which model and data this configuration is for.")
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
                    f"scalogram.image_size = {size} does not divide into {name} of {step} pixels",
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
