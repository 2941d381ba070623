"""The inputs of scores. A later command can report whether the scores are current, and if not, which inputs changed.

This module does not import torch: current scores are recognised without loading a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from core.checkpoint import detector_path
from core.config.compose import flatten
from core.config.schema import AnyConfig
from core.data.annotations import labelled_spans
from core.data.files import matches
from core.data.splits import SPLIT_NAMES, SplitName
from core.errors import DataError
from core.fingerprints import Fingerprint, changes, code_digests, data_digests, package_versions
from core.secrets.redaction import redacted
from core.workspace import json_digest, sha256_of

# Prefixes of settings that affect the scores, the thresholds, the events, or the output files.
_DECIDING = ("scoring.", "data.", "dqvl.enabled", "dqvl.hard.", "model.", "scalogram.")
# Settings that do not affect the result; the sizes of `model.size` are those of the checkpoint.
_NOT_DECIDING = ("scoring.batch_size", "data.store_dir", "data.store_gb", "model.size")
_PACKAGES = ("core", "inference")
_NO_DETECTOR = "none"
# Replaces the digests of checkpoint and detector for scores of control charts alone.
_CHARTS_ALONE = "none, control charts alone"


def made_of(config: AnyConfig, *, root: Path, checkpoint: Path | None, checkpoint_sha256: str | None) -> Fingerprint:
    """The current inputs of scores: digests of checkpoint, detector, files and code, package versions, and the settings
    that affect the scores.

    config: as it was loaded, without the sizes of the checkpoint. checkpoint: None for control charts alone.
    Raises DataError if `data.splits.test` matches no sensor file.
    """
    return {
        "model": {"checkpoint": _CHARTS_ALONE, "detector": _CHARTS_ALONE}
        if checkpoint is None
        else {"checkpoint": checkpoint_sha256, "detector": detector_sha256(checkpoint)},
        "settings": dict(_settings(config)),
        "data": dict(chain.from_iterable(_split(config, name, root) for name in SPLIT_NAMES)),
        "code": {package: json_digest(code_digests((package,))) for package in _PACKAGES},
        "packages": package_versions(),
    }


def detector_sha256(checkpoint: Path) -> str:
    """Digest of the detector of the model at `checkpoint`; "none" if there is no detector."""
    path = detector_path(checkpoint)
    return sha256_of(path) if path.is_file() else _NO_DETECTOR


def reasons_to_score(
    summary: Mapping[str, Any] | None,
    config: AnyConfig,
    *,
    root: Path,
    checkpoint: Path | None,
    checkpoint_sha256: str | None,
) -> list[str]:
    """The reasons why the scores on disk are out of date; empty if they are current.

    summary: the summary of the latest scoring; None if there is none that can be read. checkpoint: None for control
    charts alone.
    """
    if summary is None:
        return ["there are none"]
    if "made_of" not in summary or "files" not in summary:
        return ["their summary does not contain their inputs"]
    missing = [name for name in summary["files"] if not (root / name).is_file()]
    if missing:
        return [f"{missing[0]} is missing"]
    try:
        now = made_of(config, root=root, checkpoint=checkpoint, checkpoint_sha256=checkpoint_sha256)
    except (DataError, OSError) as error:
        return [str(error)]
    return changes(summary["made_of"], now)


def data_root_of(summary: Mapping[str, Any] | None) -> str | None:
    """`data.root` of the scores of a summary; None if it is unknown."""
    try:
        return json.loads(summary["made_of"]["settings"]["data.root"])
    except (ValueError, KeyError, TypeError):
        return None


def _settings(config: AnyConfig) -> Iterator[tuple[str, str]]:
    for key, value in flatten(redacted(config.model_dump(mode="json"))):
        if key.startswith(_DECIDING) and key not in _NOT_DECIDING:
            yield key, json.dumps(value)


def _split(config: AnyConfig, name: SplitName, root: Path) -> Iterator[tuple[str, str]]:
    """The number of files of a split, and one digest for all of them, because a split may have thousands.

    The files of reference splits may be missing: then a detector that was fitted elsewhere is used.
    """
    patterns, folder = config.data.splits[name].files, (root / config.data.root).resolve()
    present = patterns if name == "test" else [pattern for pattern in patterns if matches(pattern, folder)]
    found = dict(data_digests(config, present, root=root))
    labels = {file: digest for file, digest in found.items() if ".labels." in file}
    sensors = {file: digest for file, digest in found.items() if file not in labels}
    yield f"files of data.splits.{name}", str(len(sensors))
    yield f"content of data.splits.{name}", json_digest(sensors)
    if name == "test":
        yield "labels of data.splits.test", json_digest(labels)
        if noted := labelled_spans(config, root):
            yield "labels of the dashboard", json_digest(noted)
