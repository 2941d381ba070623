"""Packs the outputs of a run into one file that another machine can import."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError

import numpy as np

from core import checkpoint
from core.config.schema import REPORT_DIRS, AnyConfig
from core.data.scaling import scaler_path
from core.names import run_folder
from core.promotion import WEIGHTS_FILE
from core.reading import parse_json
from core.runlog import loss_csv_path, loss_png_path
from core.workspace import atomic_file

log = logging.getLogger(__name__)


def write_bundle(path: Path | str, config: AnyConfig, *, root: Path) -> Path:
    """Packs a stream's checkpoints, detector, losses, scaler, scores, events, quality reports and run log into a zip.

    The configuration may name other folders, such as those of a drive on Colab. The names in the zip follow the
    contract: `checkpoints/<stream>_ssl.pt`, `runs/<stream>_ssl/<run-id>/…`, `artifacts/…`.
    Raises CheckpointError if the stream was not trained.
    """
    path = Path(path)
    best = root / config.logging.checkpoint_path
    run_id = checkpoint.verify(best)["run_id"]
    with atomic_file(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in _files(best, config, run_id, root):
            if file.is_file():
                archive.write(file, name)
    return path


def _files(best: Path, config: AnyConfig, run_id: str, root: Path) -> Iterator[tuple[str, Path]]:
    """Names in the bundle with their files, which may be missing."""
    stream, artifacts = config.stream, root / config.logging.artifacts_dir
    for model, name in (
        (best, f"checkpoints/{stream}_ssl.pt"),
        (checkpoint.last_path(best), f"checkpoints/{stream}_ssl.last.pt"),
    ):
        yield name, model
        yield name.removesuffix(".pt") + ".json", checkpoint.sidecar_path(model)
    detector = checkpoint.detector_path(best)
    if detector.is_file() and not _is_for(detector, checkpoint.describe(best)["sha256"]):
        log.warning("%s is left out, because it belongs to other weights; score again to make a new one", detector.name)
    else:
        yield f"checkpoints/{stream}_ssl.detector.npz", detector
    for file in (loss_csv_path(root, config), loss_png_path(root, config)):
        yield f"artifacts/loss/{file.name}", file
    yield f"artifacts/scaler_{stream}.json", scaler_path(root, config)
    for file in sorted((artifacts / "scores").glob(f"{stream}_*")):
        yield f"artifacts/scores/{file.name}", file
    for file in sorted((artifacts / "scores" / f"{stream}_events").glob("*.json")):
        yield f"artifacts/scores/{stream}_events/{file.name}", file
    for file in sorted((root / config.dqvl.report_dir).glob("*.json")):
        yield f"{REPORT_DIRS[stream]}/{file.name}", file
    own = Path(WEIGHTS_FILE)  # of the run: the same as the promoted model, which is in the bundle
    for file in sorted(run_folder(root / config.logging.log_dir, run_id).glob("*")):
        if file.name in (own.name, checkpoint.sidecar_path(own).name, checkpoint.detector_path(own).name):
            continue
        yield f"runs/{stream}_ssl/{run_id}/{file.name}", file


def _is_for(detector: Path, sha256: str) -> bool:
    """Whether the header of a detector names these weights (`inference.detector.detector` writes its header)."""
    try:
        with np.load(detector, allow_pickle=False) as held:
            return parse_json(held["header"].tobytes()).get("checkpoint_sha256") == sha256
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile, TokenError):
        return False
