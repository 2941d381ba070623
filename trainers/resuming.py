"""Whether a checkpoint can be gone on with: what it was trained on, against what the run that resumes it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.checkpoint import last_path
from core.config.compose import flatten
from core.errors import CheckpointError

# Configuration that may differ between a checkpoint and the run that resumes it without changing what is learned.
_FREE_TO_CHANGE = (
    *("logging.", "device.", "distributed.", "hardware.", "dqvl.", "scoring.", "data.score_stride"),
    *("devices", "precision", "deterministic", "cudnn_benchmark", "max_threads", "timeout_hours", "pythonhashseed"),
    *("log_device_info", "profile_runtime", "model.size", "training.resume", "training.gradient_checkpointing"),
    # The windows of a step are the checkpoint's; these say how they are computed, or were chosen.
    *("training.batch_size", "training.accumulate", "training.effective_batch", "training.min_steps"),
)  # fmt: skip


def check_fit(
    path: Path, state: Mapping[str, Any], *, config: Mapping[str, Any], windows: list[int], effective: int
) -> None:
    """Holds the training state at `path` against the run that would go on with it.

    config: of the run; windows: its numbers for training and validation; effective: the windows of its steps.
    Raises CheckpointError where configuration, data or steps differ, or where there is a model but no training state.
    """
    if "optimizer" not in state:
        hint = f"resume from {last_path(path).name}"
        raise CheckpointError(path, "holds a model but no training state", hint=hint)
    differing = _differences(state["config"], config)
    if differing:
        raise CheckpointError(
            path,
            f"was trained with another configuration: {'; '.join(differing)}",
            hint="go back to that configuration, or start anew with --resume never",
        )
    if state["windows"] != windows:
        raise CheckpointError(
            path,
            f"its data gave {state['windows']} windows (training, validation), now gives {windows}",
            hint="bring its data back, or start anew with --resume never",
        )
    if state["effective_batch"] != effective:
        raise CheckpointError(
            path,
            f"its steps took {state['effective_batch']} windows, now they would take {effective}",
            hint=f"set training.effective_batch={state['effective_batch']}, or start anew with --resume never",
        )


def _differences(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    old, new = dict(flatten(saved)), dict(flatten(current))
    keys = [key for key in sorted(old | new) if not key.startswith(_FREE_TO_CHANGE)]
    return [f"{key} was {old.get(key)}, is {new.get(key)}" for key in keys if old.get(key) != new.get(key)]
