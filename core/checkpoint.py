"""Checkpoints: plain dicts that load with `weights_only=True`, beside a JSON sidecar that reads without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import CheckpointError
from core.workspace import atomic_file, write_json

FORMAT_VERSION = 1


def sidecar_path(path: Path) -> Path:
    return path.with_suffix(".json")


def last_path(path: Path) -> Path:
    """Where the resumable state lies, beside the best model at `path`."""
    return path.with_suffix(f".last{path.suffix}")


def detector_path(path: Path) -> Path:
    """Where the detector of the model at `path` lies (`inference.detector`)."""
    return path.with_suffix(".detector.npz")


def save(path: Path, payload: Mapping[str, Any], *, description: Mapping[str, Any]) -> None:
    """Writes `payload` (tensors, numbers, strings, dicts, lists) and its sidecar, each atomically.

    The sidecar holds `description`, the format version and the file's sha256.
    """
    import torch

    with atomic_file(path) as part:
        torch.save({"format_version": FORMAT_VERSION, **payload}, part)
        digest, size = _sha256(part), part.stat().st_size
    write_json(sidecar_path(path), {"format_version": FORMAT_VERSION, **description, "sha256": digest, "bytes": size})


def describe(path: Path) -> dict[str, Any]:
    """The sidecar of a checkpoint. Raises CheckpointError where it is missing or unreadable."""
    sidecar = sidecar_path(path)
    if not path.is_file():
        raise CheckpointError(path, "does not exist", hint="train first, or pass another checkpoint")
    hint = "restore it, or train again"
    try:
        description = json.loads(sidecar.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(path, f"its sidecar {sidecar.name} is missing", hint=hint) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(path, f"its sidecar {sidecar.name} cannot be read: {error}", hint=hint) from error
    if not isinstance(description, dict):
        raise CheckpointError(path, f"its sidecar {sidecar.name} is no JSON object", hint=hint)
    return description


def verify(path: Path) -> dict[str, Any]:
    """The sidecar, after holding the file against its size and sha256. Raises CheckpointError for a torn file."""
    description = describe(path)
    if path.stat().st_size != description.get("bytes") or _sha256(path) != description.get("sha256"):
        raise CheckpointError(
            path, "is torn or was changed: its sha256 is not the sidecar's", hint="restore it, or train again"
        )
    return description


def load(path: Path) -> dict[str, Any]:
    """The payload, on the CPU. Raises CheckpointError for a missing, torn or foreign file."""
    import torch

    verify(path)
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever a stranger's bytes lead it into
        told = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(path, f"cannot be loaded: {told}", hint="train again, or restore it") from error
    found = payload.get("format_version") if isinstance(payload, dict) else None
    if found != FORMAT_VERSION:
        raise CheckpointError(path, f"has format version {found}, this Landfall reads {FORMAT_VERSION}")
    return payload


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
