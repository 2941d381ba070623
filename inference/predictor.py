"""The model for monitoring: with PyTorch (`inference.detector_graph`), or without it from an ONNX file.

This module does not import torch. An ONNX file (https://onnx.ai) holds the graph of `inference.detector_graph` and
its description as JSON under one key of its metadata; `inference.export_model` writes it next to the checkpoint.

Shape suffixes: b window, t row, p row of the newest patch, c channel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from core.checkpoint import describe, exported_path
from core.config.compose import LoadedConfig, config_from_dict
from core.config.hardware import load_tiers, size_as_trained
from core.config.overrides import differences
from core.config.schema import AnyConfig
from core.data.scaling import Scaler
from core.errors import CheckpointError, OutputError, UsageError, first_line
from core.host import thread_limit, usable_cores
from core.reading import parse_json

# Key of the description in the metadata of an ONNX file, and its version.
METADATA, FORMAT_VERSION = "landfall", 2
# Names in the graph.
INPUT, EXPECTED, ERROR = "values", "expected", "error"

# Settings that determine the input of the model: they must be the same in scoring as in training.
_MUST_AGREE = ("model.", "scalogram.", "data.scaling.", "data.window", "data.remove_mean")


class Predictor(Protocol):
    """A model that computes errors of windows. sha256: digest of its checkpoint."""

    sha256: str
    channels: tuple[str, ...]

    def errors(self, values_btc: np.ndarray) -> np.ndarray:
        """values_btc: float32 (B, T, C), in the units of the data files; NaN is missing. Returns float32 errors: for
        process sensors (B, P, C), of the newest patch of each window, predicted from the rows before it; for vibration
        (B, C)."""


class OnnxPredictor:
    """The model of an ONNX file on the CPU. num_threads: threads of ONNX Runtime. batch_size: maximum number of windows
    in a call.

    facts: the description that `inference.export_model` wrote.
    Raises UsageError without ONNX Runtime, OutputError for a file that is missing, damaged or of another version.
    """

    def __init__(self, path: Path, *, num_threads: int, batch_size: int):
        try:
            import onnxruntime
        except ImportError as error:
            hint = "python -m pip install onnxruntime"
            raise UsageError("the runtime onnx needs the package onnxruntime", hint=hint) from error
        hint = "`landfall export-model` writes it"
        if not path.is_file():
            raise OutputError(f"there is no {path}", hint=hint)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.log_severity_level = 3
        # Threads that wait would otherwise use the cores of other processes.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            facts = parse_json(self._session.get_modelmeta().custom_metadata_map[METADATA])
            version = facts["format_version"]
        except Exception as error:  # ONNX Runtime has no common class for errors of a file
            raise OutputError(f"{path} is not an exported model: {first_line(error)}", hint=hint) from error
        if version != FORMAT_VERSION:
            problem = f"{path} has format version {version}, this Landfall reads {FORMAT_VERSION}"
            raise OutputError(problem, hint=hint)
        self._path, self._batch_size, self.facts = path, batch_size, facts

    @property
    def sha256(self) -> str:
        return self.facts["checkpoint_sha256"]

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(self.facts["channels"])

    @property
    def scaler(self) -> Scaler:
        return Scaler.from_dict(self.facts["scaler"])

    def errors(self, values_btc: np.ndarray) -> np.ndarray:
        return np.concatenate([self._run([ERROR], part_btc)[0] for part_btc in self._parts(values_btc)])

    def expected_and_errors(self, values_btc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The predictions, in scaled units, and the errors."""
        found = [self._run([EXPECTED, ERROR], part_btc) for part_btc in self._parts(values_btc)]
        return tuple(np.concatenate(each) for each in zip(*found, strict=True))

    def _parts(self, values_btc: np.ndarray) -> list[np.ndarray]:
        return np.array_split(values_btc, max(1, -(-len(values_btc) // self._batch_size)))

    def _run(self, names: list[str], values_btc: np.ndarray) -> list[np.ndarray]:
        try:
            return self._session.run(names, {INPUT: values_btc})
        except Exception as error:  # of no common class either
            reason = first_line(error)
            raise OutputError(f"{self._path} cannot compute windows of {values_btc.shape}: {reason}") from error


def open_exported(loaded: LoadedConfig, *, root: Path) -> tuple[AnyConfig, OnnxPredictor]:
    """The configuration with the size of its model, and the model that was exported from its checkpoint. The checkpoint
    itself may be absent.

    Raises as `OnnxPredictor`; OutputError if the file was exported from another model than the checkpoint is now,
    CheckpointError for another configuration than that of the training.
    """
    settings, checkpoint = loaded.config, root / loaded.config.logging.checkpoint_path
    path = exported_path(checkpoint)
    num_threads, _ = thread_limit(usable_cores(), max_threads=settings.max_threads)
    model = OnnxPredictor(path, num_threads=num_threads, batch_size=settings.scoring.batch_size)
    if checkpoint.is_file() and describe(checkpoint)["sha256"] != model.sha256:
        hint = f"`landfall export-model {settings.stream}`"
        raise OutputError(f"{path} was exported from another model than {checkpoint.name} is now", hint=hint)
    config = size_as_trained(loaded, model.facts["config"], load_tiers(root))
    refuse_other_input(path, config_from_dict(model.facts["config"], source=str(path)), config)
    return config, model


def refuse_other_input(path: Path, trained: AnyConfig, config: AnyConfig) -> None:
    """Raises CheckpointError if the input of the model of `path` would differ from its training input. The error names
    every key of `config` that causes this."""
    if trained.stream != config.stream:
        raise CheckpointError(
            path, f"is a {trained.stream} model, the configuration is for {config.stream}", hint="pass another one"
        )
    changes = differences(*(each.model_dump(mode="json") for each in (trained, config)))
    differing = [
        f"{key} {change}" for key, change in changes.items() if key.startswith(_MUST_AGREE) and key != "model.size"
    ]
    if differing:
        raise CheckpointError(
            path,
            f"was trained with another configuration: {'; '.join(differing)}",
            hint="score with the configuration of the training, or train again",
        )
