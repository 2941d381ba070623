"""Checkpoints: plain dicts that load with `weights_only=True`, with a JSON sidecar that can be read without torch.

Two files cannot be renamed atomically together. Therefore the sidecar is written first, and until the checkpoint is
renamed it also contains its previous content, under `replaces`. If a process is killed at any moment, the checkpoint
has one of the two digests.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import CheckpointError, first_line
from core.names import is_run_id
from core.reading import read_json_object, refuse_packed
from core.secrets.redaction import redacted
from core.workspace import atomic_file, flush_folder, write_json

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
_REPLACES = "replaces"


def sidecar_path(path: Path) -> Path:
    return path.with_suffix(".json")


def last_path(path: Path) -> Path:
    """Path of the resumable state, next to the best model at `path`."""
    return path.with_suffix(f".last{path.suffix}")


def previous_path(path: Path, age: int) -> Path:
    """Path of the state that was at `path` before the last `age` saves; `path` itself for age 0."""
    return path.with_suffix(f".{age}{path.suffix}") if age else path


def detector_path(path: Path) -> Path:
    """Path of the detector of the model at `path` (`inference.detector.detector`)."""
    return path.with_suffix(".detector.npz")


def exported_path(path: Path) -> Path:
    """Path of the ONNX file of the model at `path` (`inference.export_model`)."""
    return path.with_suffix(".onnx")


# -------------------------------------------------------------------------------------------------------------- writing
def save(path: Path, payload: Mapping[str, Any], *, description: Mapping[str, Any], keep: int | None = None) -> None:
    """Writes `payload` (tensors, numbers, strings, dicts, lists) and its sidecar. If the process is killed at any
    moment, the previous or the new checkpoint is complete. The sidecar contains `description` without secrets, the
    format version and the file's sha256. keep: states to keep; previous ones are at `previous_path`, older ones are
    deleted. None: no other file is touched, because `model.1.pt` next to `model.pt` may be another model.
    """
    import torch

    with atomic_file(path) as part:
        with part.open("wb") as file:  # with a path, torch would not report why it cannot be written
            torch.save({"format_version": FORMAT_VERSION, **payload}, file)
        sidecar = {"format_version": FORMAT_VERSION, **redacted(description), **_identity(part)}
        if keep is not None:
            _rotate(path, keep)
        _announce(path, sidecar)
    _settle(path, sidecar)


def _rotate(path: Path, keep: int) -> None:
    """Renames each state to the next age, and deletes those beyond `keep`. A damaged state replaces no valid one."""
    for age in range(keep - 1, 0, -1):
        newer, older = previous_path(path, age - 1), previous_path(path, age)
        try:
            sidecar = verify(newer)
        except CheckpointError:
            log.debug("%s is not kept", newer, exc_info=True)
            continue
        _replace(newer, older, sidecar, _link)
    for age in count(keep):
        forgotten = [previous_path(path, age), sidecar_path(previous_path(path, age))]
        if not any(file.exists() for file in forgotten):
            break
        for file in forgotten:
            file.unlink(missing_ok=True)


def copy(source: Path, target: Path) -> None:
    """Copies the checkpoint `source` to `target`. If the process is killed at any moment, the old or the new one is
    complete. The two share no bytes on disk, so damage to one does not affect the other. Raises CheckpointError if the
    source is missing or damaged.
    """
    _replace(source, target, verify(source), shutil.copyfile)


def _replace(source: Path, target: Path, sidecar: Mapping[str, Any], fill: Callable[[Path, Path], Any]) -> None:
    """Replaces the target by the source. sidecar: of the source. fill: writes its content to a temporary file."""
    with atomic_file(target) as part:
        fill(source, part)
        _announce(target, sidecar)
    _settle(target, sidecar)


def _announce(path: Path, sidecar: Mapping[str, Any]) -> None:
    """Writes the sidecar of the file that is about to be renamed to `path`, together with that of the current file."""
    try:
        sidecar = {**sidecar, _REPLACES: describe(path)}
    except CheckpointError:
        log.debug("%s replaces nothing", path, exc_info=True)
    write_json(sidecar_path(path), sidecar)
    flush_folder(path.parent)


def _settle(path: Path, sidecar: Mapping[str, Any]) -> None:
    """Removes the previous sidecar content after the rename is on disk."""
    flush_folder(path.parent)
    write_json(sidecar_path(path), sidecar)


def _link(source: Path, part: Path) -> None:
    part.unlink()
    try:
        os.link(source, part)
    except OSError:  # some file systems, such as a mounted drive, have no links
        shutil.copyfile(source, part)


def _identity(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return _identity_of(file)


def _identity_of(file: BinaryIO) -> dict[str, Any]:
    return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": file.tell()}


# -------------------------------------------------------------------------------------------------------------- reading
def describe(path: Path) -> dict[str, Any]:
    """The sidecar of a checkpoint. Raises CheckpointError if it is missing or unreadable."""
    newest, *replaced = _sidecars(path)
    if not replaced:
        return newest
    found = _identity(path)
    return next((sidecar for sidecar in replaced if _is_of(sidecar, found)), newest)


def verify(path: Path) -> dict[str, Any]:
    """The sidecar, after comparing size and sha256 of the file. Raises CheckpointError for a damaged file."""
    with _verified(path) as (_, description):
        return description


def load(path: Path) -> dict[str, Any]:
    """The payload, on the CPU. Raises CheckpointError for a missing, damaged or foreign file."""
    return load_described(path)[0]


def load_described(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The payload and its sidecar, which match even if another process saves meanwhile. Raises as `load` does."""
    import torch

    with _verified(path) as (file, description):
        try:
            refuse_packed(file)
            payload = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a malicious file may cause any error in torch
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CheckpointError(path, f"cannot be loaded: {reason}", hint="train again, or restore it") from error
    found = payload.get("format_version") if isinstance(payload, dict) else None
    if found != FORMAT_VERSION:
        raise CheckpointError(path, f"has format version {found}, this Landfall reads {FORMAT_VERSION}")
    _refuse_invalid_run(path, payload)
    return payload, description


@contextmanager
def _verified(path: Path) -> Iterator[tuple[BinaryIO, dict[str, Any]]]:
    """The open file, at its start, and the matching sidecar."""
    while True:
        sidecars = _sidecars(path)
        with _opened(path) as file:
            found = _identity_of(file)
            description = next((sidecar for sidecar in sidecars if _is_of(sidecar, found)), None)
            if description is not None:
                file.seek(0)
                yield file, description
                return
        if _sidecars(path) == sidecars:  # otherwise it was replaced during reading
            raise CheckpointError(
                path,
                "is damaged or was changed: its sha256 differs from the sidecar",
                hint="restore it, or train again",
            )


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(path, f"cannot be read: {error.strerror}", hint="check its permissions, and the disk")


class _Description(dict[str, Any]):
    """A sidecar; a missing entry is an error of the checkpoint."""

    def __init__(self, path: Path, facts: Mapping[str, Any]):
        super().__init__(facts)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise CheckpointError(self.path, f"its sidecar has no {name}", hint="restore it, or train again")


def _sidecars(path: Path) -> list[dict[str, Any]]:
    """The content of the sidecar and, while the file is being replaced, its previous content."""
    try:
        is_there = path.is_file()
    except OSError as error:  # its folder may not be searched
        raise _unreadable(path, error) from error
    if not is_there:
        hint = "landfall train STREAM creates it; landfall score --detector charts needs no model"
        raise CheckpointError(path, "does not exist", hint=hint)
    sidecar, hint = sidecar_path(path), "restore it, or train again"
    try:
        description = read_json_object(sidecar)
    except FileNotFoundError as error:
        raise CheckpointError(path, f"its sidecar {sidecar.name} is missing", hint=hint) from error
    except (OSError, ValueError) as error:
        problem = f"its sidecar {sidecar.name} cannot be read: {first_line(error)}"
        raise CheckpointError(path, problem, hint=hint) from error
    replaced = description.pop(_REPLACES, None)
    found = [description, replaced] if isinstance(replaced, dict) else [description]
    for each in found:
        _refuse_invalid_run(path, each)
        for name in ("config", "hardware", "metrics"):
            if not isinstance(each.get(name, {}), dict):
                raise CheckpointError(path, f"its sidecar {sidecar.name} has no usable {name}", hint=hint)
    return [_Description(path, each) for each in found]


def _refuse_invalid_run(path: Path, facts: Mapping[str, Any]) -> None:
    """Raises CheckpointError for an invalid name of a run, because the name becomes part of paths."""
    if "run_id" in facts and not is_run_id(facts["run_id"]):
        raise CheckpointError(path, "names a run that is not valid", hint="it is not from Landfall; do not use it")


def _is_of(description: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(description.get(name) == value for name, value in found.items())
