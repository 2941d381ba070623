"""Which data is in this workspace: commands for both streams skip one that is switched off or has no data, and a model
may have been trained on another machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from core.config.compose import LoadedConfig
from core.config.faults import origin_of
from core.config.schema import AnyConfig, Stream
from core.data.files import folder_of, matches
from core.errors import UsageError
from core.secrets.redaction import redacted_text
from core.workspace import holds_files, relative


def streams_off(
    configs: Mapping[Stream, LoadedConfig], root: Path, *, needed: Collection[Stream] = ()
) -> dict[Stream, str]:
    """The streams that are not in use, each with the reason; a password in the path of a share is hidden.

    needed: streams that are in use without data, such as one with an imported model. If no stream has data, only those
    that are switched off are left out: each of the others then reports what is missing.
    Raises UsageError if every stream is switched off.
    """
    switched_off = {
        stream: f"switched off: enabled = false, set by {origin_of('enabled', loaded.origins) or loaded.source}"
        for stream, loaded in configs.items()
        if loaded.config.enabled is False
    }
    if configs and len(switched_off) == len(configs):
        raise UsageError("every stream is switched off: enabled = false", hint="set enabled=true for one of them")
    without_data = {
        stream: f"no data: {' and '.join(folders)} {'has' if len(folders) == 1 else 'have'} no files"
        for stream, loaded in configs.items()
        if loaded.config.enabled == "auto" and stream not in needed and (folders := _empty_folders(loaded.config, root))
    }
    off = {stream: redacted_text(reason) for stream, reason in (switched_off | without_data).items()}
    return off if len(off) < len(configs) else switched_off


def has_files(config: AnyConfig, name: str, root: Path) -> bool:
    """Whether a file of a split is in this workspace."""
    return any(matches(glob, root / config.data.root) for glob in config.data.splits[name].files)


def _empty_folders(config: AnyConfig, root: Path) -> list[str]:
    """The folders of the globs of all splits, if none of them contains a file; else empty. A file with a name that no
    glob matches is a mistake to report, not an unused stream."""
    folders = {root / config.data.root / folder_of(glob) for glob in config.data.splits.globs}
    if not folders or any(map(holds_files, folders)):
        return []
    return sorted(relative(folder, root) for folder in folders)
