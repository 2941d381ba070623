"""Writes the model of a checkpoint as an ONNX file, for machines without PyTorch:
`python -m inference.export_model patchtst [key=value …]`.

The file is written only if ONNX Runtime computes the same predictions and errors as PyTorch for windows of the
validation split.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.checkpoint import exported_path
from core.cli import add_checkpoint_argument, add_config_arguments, root_of, run_command, with_config
from core.config.compose import LoadedConfig, with_values
from core.config.schema import STREAMS
from core.errors import EXIT_OK, OutputError, UsageError, first_line
from core.lock import Lock
from core.reproducibility import prepare_process
from core.secrets.redaction import redacted
from core.switching import finish
from core.workspace import atomic_file, json_text, relative, utc_now

if TYPE_CHECKING:
    import numpy as np

    from core.config.schema import AnyConfig
    from core.data.windows import WindowSet
    from inference.scoring import ScoringModel

log = logging.getLogger(__name__)

# Number of windows that are compared, evenly spaced over the validation split, and the largest difference that is
# accepted, in scaled units. Above 1 the difference is relative.
WINDOWS, TOLERANCE = 256, 1e-4
OPSET = 20


def export_model(loaded: LoadedConfig, *, root: Path) -> dict[str, Any]:
    """Writes the ONNX file next to the checkpoint. Returns its path, its size, the digest of the checkpoint, the number
    of windows compared, and the largest difference.

    Raises CheckpointError and DataError as scoring does, UsageError without the packages, and OutputError if the
    results differ; then nothing is written.
    """
    from inference.detector.stored import load_splits, open_model
    from inference.detector_graph import TorchPredictor
    from inference.predictor import OnnxPredictor

    on_cpu = with_values(loaded.config, {"device.prefer": "cpu", "precision": "32"}, source="export on the CPU")
    loaded = replace(loaded, config=on_cpu)
    config, scoring = open_model(loaded, root=root)
    values_btc = _validation_values(load_splits(config, scoring, ("validation",), root=root).splits["validation"])
    batch_size = config.scoring.batch_size
    by_torch = TorchPredictor(scoring, batch_size).expected_and_errors(values_btc)
    path = exported_path(scoring.path)
    with atomic_file(path) as part:
        # An example of a single window would fix the batch size.
        _write(part, scoring, values_btc[:1].repeat(2, axis=0), _facts(config, scoring))
        by_onnx = OnnxPredictor(part, num_threads=1, batch_size=batch_size).expected_and_errors(values_btc)
        found = max(_difference(*each) for each in zip(by_onnx, by_torch, strict=True))
        if not found <= TOLERANCE:
            raise OutputError(
                f"the exported model differs from {scoring.path.name} by {found:.1e} on {len(values_btc)} windows of "
                f"validation; {TOLERANCE:g} is accepted",
                hint="nothing was written; other versions of onnxscript and onnxruntime may help",
            )
    log.info("%s: differs by at most %.1e on %d windows of validation", relative(path, root), found, len(values_btc))
    return {
        "file": relative(path, root), "bytes": path.stat().st_size, "checkpoint_sha256": scoring.sha256,
        "windows": len(values_btc), "largest_difference": found,
    }  # fmt: skip


def _validation_values(windows: WindowSet) -> np.ndarray:
    """Windows in the units of the data files: float32 (B, T, C)."""
    from core.data.inputs import evenly_spaced

    unscaled = replace(windows, series=replace(windows.series, scaler=None))
    return unscaled.batch(evenly_spaced(len(windows), WINDOWS)).numpy()


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative for values above 1; infinite if a value is NaN in only one of them."""
    import numpy as np

    if (np.isnan(found) != np.isnan(expected)).any():
        return np.inf
    return float(np.nanmax(np.abs(found - expected) / np.maximum(np.abs(expected), 1.0), initial=0.0))


def _write(path: Path, scoring: ScoringModel, values_btc: np.ndarray, facts: dict[str, Any]) -> None:
    """Raises UsageError without the packages that write ONNX, and OutputError for a graph that ONNX cannot express."""
    try:
        import onnx
        import onnxscript
    except ImportError as error:
        hint = "python -m pip install onnx onnxscript onnxruntime"
        raise UsageError(f"the export needs the package {error.name}", hint=hint) from error
    import torch

    from inference.detector_graph import DetectorGraph
    from inference.predictor import ERROR, EXPECTED, INPUT, METADATA

    def stable_sort(values: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
        """ONNX sorts by TopK, which keeps the order of equal values; torch has no translation for a stable sort."""
        op = onnxscript.opset20
        length = op.Reshape(op.Gather(op.Shape(values), dim), [1])
        return op.TopK(op.Cast(values, to=onnx.TensorProto.INT64), length, axis=dim, largest=int(descending))

    for name in ("onnxscript", "onnx_ir", "torch.onnx"):
        logging.getLogger(name).setLevel(logging.ERROR)
    facts["versions"] |= {"torch": torch.__version__, "onnx": onnx.__version__, "onnxscript": onnxscript.__version__}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                DetectorGraph(scoring).eval(), (torch.from_numpy(values_btc),), input_names=[INPUT],
                output_names=[EXPECTED, ERROR], dynamic_shapes=({0: torch.export.Dim("windows")},), opset_version=OPSET,
                custom_translation_table={torch.ops.aten.sort.stable: stable_sort}, dynamo=True, verbose=False,
            )  # fmt: skip
    except Exception as error:
        raise OutputError(f"ONNX cannot express the model: {first_line(error)}", hint="--debug shows where") from error
    program.model.metadata_props[METADATA] = json.dumps(redacted(facts))
    program.save(path, external_data=False)


def _facts(config: AnyConfig, scoring: ScoringModel) -> dict[str, Any]:
    from inference.predictor import FORMAT_VERSION
    from landfall import __version__

    trained = scoring.config
    masks = (
        f"the newest {trained.model.patch_length} rows" if scoring.stream == "patchtst"
        else [mask_1n[0].nonzero().flatten().tolist() for mask_1n, _ in scoring.model.passes()]
    )  # fmt: skip
    return {
        "format_version": FORMAT_VERSION,
        "stream": scoring.stream,
        "channels": list(scoring.channels),
        "units": {"values": "as in the data files, NaN is missing", "expected": "scaled", "error": "scaled, squared"},
        "window": trained.data.window,
        "score_stride": config.score_stride,
        "sampling_rate_hz": scoring.sampling_rate_hz,
        "scaler": scoring.scaler.to_dict(),
        "masks": masks,
        "checkpoint_sha256": scoring.sha256,
        "run_id": scoring.run_id,
        "exported_at": utc_now(),
        "config": trained.model_dump(mode="json"),
        "versions": {"landfall": __version__, "opset": OPSET},
    }


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall export-model",
        description="Writes the model of a checkpoint as an ONNX file next to it, for `landfall watch --runtime onnx`.",
    )
    parser.add_argument("stream", choices=STREAMS, help="stream of the model")
    add_checkpoint_argument(parser)
    add_config_arguments(parser, example="scoring.batch_size=16")
    return run_command(with_config(_export), parser, argv)


def _export(arguments: argparse.Namespace, loaded: LoadedConfig) -> int:
    if arguments.owns_process:
        prepare_process(loaded.config)
    root = root_of(arguments)
    loaded = loaded.with_checkpoint(arguments.checkpoint)
    with Lock(command="landfall export-model") as lock:
        lock.take(root / loaded.config.logging.checkpoint_path, key="--checkpoint")
        finish(root)
        report = export_model(loaded, root=root)
    sys.stdout.write(json_text(report))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
