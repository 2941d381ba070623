"""Initial weights from a checkpoint: a model that was trained on other data."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch import nn

from core import checkpoint
from core.config.schema import AnyConfig
from core.errors import CheckpointError
from trainers.resuming import config_changes

log = logging.getLogger(__name__)

# Configuration that decides the shape of a weight.
_SHAPES = ("model.", "data.window", "scalogram.image_size")
# What a model knows of single channels, one row for each.
OF_CHANNELS = "channel_c1d"


def start_from(path: Path, model: nn.Module, config: AnyConfig) -> dict[str, Any]:
    """Loads the weights of the checkpoint at `path` into `model`, and nothing else: scaling, schedule, masks and the
    order of windows are the new run's. Embeddings of channels stay as they are if their number differs: they are
    learned again for the channels of this data. Returns the origin, for the run's record.

    Raises CheckpointError if it is damaged, or of another stream or another shape of model.
    """
    state, described = checkpoint.load_described(path)
    if state["stream"] != config.stream:
        raise CheckpointError(
            path, f"is a model of the stream {state['stream']}, not {config.stream}", hint="name one of this stream"
        )
    weights, own = dict(state["model"]), model.state_dict()
    if OF_CHANNELS in weights and OF_CHANNELS in own and len(weights[OF_CHANNELS]) != len(own[OF_CHANNELS]):
        weights[OF_CHANNELS] = own[OF_CHANNELS]
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        current = config.model_dump(mode="json")
        differing = [change for change in config_changes(state["config"], current) if change.startswith(_SHAPES)]
        misfit = "; ".join(differing) or str(error).splitlines()[-1].strip()
        hint = "set the same here (model.size=auto takes its size), or train without training.start_from"
        raise CheckpointError(path, f"has weights of another model: {misfit}", hint=hint) from error
    log.info("starting from the weights of %s: run %s, epoch %d", path.name, state["run_id"], state["epoch"])
    return {"file": path.name, "run_id": state["run_id"], "epoch": state["epoch"], "sha256": described["sha256"]}
