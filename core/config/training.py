"""How a model is trained, resumed and kept.

Part of `core.config.schema`. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from core.config.fields import Count, CountOrAuto, Fraction, Positive, Ratio, Section, SwitchOrAuto, TotalOrAuto


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
        description="Windows per epoch, drawn without repetition. 0 uses all; `auto` uses as many as contain 60,000 "
        "patches of all channels, or 544 images. Unless it is 0, the windows of the validation loss overlap less: they "
        "start at least an eighth of a window apart.",
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

    @field_validator("resume")
    @classmethod
    def _names_a_checkpoint(cls, resume: str) -> str:
        if not resume.strip():
            raise ValueError("is empty; write auto, never, unfinished or a checkpoint")
        return resume
