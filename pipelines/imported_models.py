"""Models that were trained elsewhere, and the checks for which their data may be missing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from core import checkpoint
from core.config.compose import LoadedConfig
from core.config.schema import STREAMS, AnyConfig, Stream
from core.data.files import matches
from core.data.in_use import has_files, streams_off
from core.errors import LandfallError
from core.reading import json_object_or_none
from core.workspace import relative, utc_now, write_json

log = logging.getLogger(__name__)

RECORD = "artifacts/imported.json"


def record_import(root: Path, streams: Iterable[Stream]) -> None:
    """Records the imported model of each stream by its digest, which distinguishes it from a model that is trained
    later."""
    models = {
        stream: {"sha256": checkpoint.describe(root / f"checkpoints/{stream}_ssl.pt")["sha256"], "at": utc_now()}
        for stream in streams
    }
    if models:
        write_json(root / RECORD, {**_record(root), **models})


def is_imported(root: Path, stream: Stream, model: Path) -> bool:
    """Whether the model of a stream was imported."""
    noted = _record(root).get(stream)
    try:
        return isinstance(noted, dict) and noted.get("sha256") == checkpoint.describe(model)["sha256"]
    except (LandfallError, KeyError):
        return False


def streams_off_here(configs: Mapping[Stream, LoadedConfig], root: Path) -> dict[Stream, str]:
    """The streams that this workspace does not use, each with the reason: an imported model needs no data here.

    Raises UsageError if every stream is switched off.
    """
    imported = [
        stream
        for stream, loaded in configs.items()
        if is_imported(root, stream, root / loaded.config.logging.checkpoint_path)
    ]
    return streams_off(configs, root, needed=imported)


def _record(root: Path) -> dict[str, object]:
    return json_object_or_none(root / RECORD) or {}


def missing_splits(config: AnyConfig, root: Path, names: Sequence[str]) -> list[str]:
    """The splits without any file in this workspace."""
    return [name for name in names if config.data.splits[name].files and not has_files(config, name, root)]


def measure_quality(config: AnyConfig, root: Path) -> None:
    """Writes the missing quality reports of available files; logs which files cannot be checked."""
    from core.data.dataset import SPLIT_NAMES, check_quality

    if missing := missing_splits(config, root, SPLIT_NAMES):
        log.warning(
            "%s: the quality of %s cannot be checked, their files are not in this workspace",
            config.stream, ", ".join(missing),
        )  # fmt: skip
    splits = [name for name in SPLIT_NAMES if name not in missing and config.data.splits[name].files]
    if not config.dqvl.enabled or not splits or not _files_without_report(config, root):
        return
    try:
        reports = check_quality(config, root=root, splits=splits)
    except LandfallError as error:
        log.warning("%s: the quality check failed: %s", config.stream, error)
        return
    log.info("%s: the quality of %d files was checked in this workspace", config.stream, len(reports))


def _files_without_report(config: AnyConfig, root: Path) -> set[str]:
    reports = map(json_object_or_none, (root / config.dqvl.report_dir).glob("*.json"))
    reported = {report.get("file_id") for report in reports if report}
    folder = root / config.data.root
    files = {relative(path, folder) for glob in config.data.splits.globs for path in matches(glob, folder)}
    return files - reported


def streams_of(placed: Iterable[str]) -> list[Stream]:
    """The streams whose model is among the files."""
    return [stream for stream in STREAMS if f"checkpoints/{stream}_ssl.pt" in set(placed)]
