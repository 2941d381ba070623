"""The fleet file: the machines of a plant, and the workspace of each one.

A machine's workspace is `machines/<id>` in the workspace of the fleet: a copy of its configurations, notebooks and
page, and a generated configuration with the settings of this machine. So every other command works in it.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from core.config.compose import flatten, load_config, local_config_file, nested
from core.config.fields import Positive, Section
from core.config.schema import Stream
from core.config.scoring import DetectorKind
from core.config.yaml_files import plain_faults, validated
from core.errors import ConfigError, ConfigFault, UsageError
from core.reading import UnreadableError, read_bytes, read_yaml, text_of
from core.workspace import relative, write_text
from pipelines.init_workspace import renew_workspace

FOLDER = "machines"
_LISTS = ("overrides", "tags")


class Tag(Section):
    """Settings of the machines with one tag."""

    overrides: tuple[str, ...] = Field((), description="Overrides of the configuration, before those of a machine.")
    start_from: str = Field("", description="Model that their training starts from, relative to the fleet's workspace.")


class Machine(Section):
    """One machine: one stream of data, with its own configuration and its own model."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Name of the machine and its folder.")
    stream: Stream = Field(description="Kind of data.")
    data: str = Field(
        description="Folder that contains data/fdc or data/vib, relative to the fleet's workspace: its `data.root`."
    )
    overrides: tuple[str, ...] = Field((), description="Overrides of the configuration, as on the command line.")
    tags: tuple[str, ...] = Field((), description="Groups of machines that share settings.")
    detector: DetectorKind = Field("model", description="`charts`: control charts alone, without training.")
    start_from: str = Field("", description="As for a tag, for this machine.")


class _File(Section):
    machines: tuple[Any, ...] | str = Field(description="The machines, or the name of a csv file with one per line.")
    tags: Mapping[str, Tag] = Field({}, description="Settings of each tag; a tag without settings is not listed.")
    stale_after_hours: Positive = Field(24.0, description="Age of the newest data that needs attention.")


@dataclass(frozen=True)
class Fleet:
    """The machines, with the settings of their tags."""

    machines: tuple[Machine, ...]
    stale_after_hours: float

    def chosen(self, ids: Sequence[str], tags: Sequence[str]) -> tuple[Machine, ...]:
        """The machines whose id matches a pattern, or that have a tag; all if neither is given. Raises UsageError for
        a pattern or tag without a machine."""
        if not ids and not tags:
            return self.machines
        by_id = {text: {each.id for each in self.machines if fnmatchcase(each.id, text)} for text in ids}
        by_tag = {text: {each.id for each in self.machines if text in each.tags} for text in tags}
        for kind, found in (("id", by_id), ("tag", by_tag)):
            for text, matching in found.items():
                if not matching:
                    raise UsageError(f"no machine has the {kind} {text!r}")
        chosen = set().union(*by_id.values(), *by_tag.values())
        return tuple(each for each in self.machines if each.id in chosen)


def read_fleet(file: Path | str, root: Path) -> Fleet:
    """Reads `file`, relative to `root`: YAML, or csv with the fields of `Machine` as columns; `overrides` and `tags`
    are separated by blanks. Raises UsageError for a file that cannot be read, ConfigError with every fault.
    """
    path = root / file
    content = {"machines": path.name} if path.suffix == ".csv" else _read(path, read_yaml)
    outline = validated(content, _File, relative(path, root))
    rows = outline.machines
    if isinstance(rows, str):
        rows = _read(path.with_name(rows), _csv_rows)
    machines, faults = [], []
    for number, row in enumerate(rows, start=1):
        try:
            machines.append(_with_tags(Machine.model_validate(row), outline.tags))
        except ValidationError as error:
            faults += plain_faults(error, f"machine {number}: ")
    names = [machine.id.lower() for machine in machines]  # some file systems ignore the case
    faults += [
        ConfigFault(name, "two machines have this id") for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if faults:
        raise ConfigError(relative(path, root), faults)
    if not machines:
        raise UsageError(f"{relative(path, root)} lists no machine", hint="docs/fleet.md has an example")
    return Fleet(tuple(machines), outline.stale_after_hours)


def _read(path: Path, read: Any) -> Any:
    try:
        return read(path)
    except (OSError, UnreadableError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: {reason}", hint="name the fleet file with --fleet; docs/fleet.md has one") from error


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    lines = csv.DictReader(io.StringIO(text_of(read_bytes(path))))
    rows = [{name: value for name, value in line.items() if name and value} for line in lines]
    return [{name: value.split() if name in _LISTS else value for name, value in row.items()} for row in rows]


def _with_tags(machine: Machine, tags: Mapping[str, Tag]) -> Machine:
    own = [tags[name] for name in machine.tags if name in tags]
    start_from = machine.start_from or next((tag.start_from for tag in reversed(own) if tag.start_from), "")
    overrides = (*(text for tag in own for text in tag.overrides), *machine.overrides)
    return machine.model_copy(update={"overrides": overrides, "start_from": start_from})


# ----------------------------------------------------------------------------------------------------------- workspaces
def workspace_of(machine: Machine, root: Path) -> Path:
    return root / FOLDER / machine.id


def prepare(machine: Machine, root: Path) -> Path:
    """Creates or updates the workspace of a machine. Raises as `load_config` does."""
    folder = workspace_of(machine, root)
    local = Path(local_config_file(machine.stream))
    renew_workspace(folder, source=root, without=(local.name, "fleet.*"))
    shared = local.with_stem(f"{machine.stream}_ssl_fleet")
    _write_changed(folder / shared, (root / local).read_text(encoding="utf-8"))
    head = "# Generated from the fleet file at each `landfall fleet`: make changes there.\n"
    content = {"defaults": [shared.stem, "_self_"], **_differences(machine, local, folder, root)}
    _write_changed(folder / local, head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return folder


def _differences(machine: Machine, file: Path, folder: Path, root: Path) -> dict[str, Any]:
    """The values of a machine that differ from the configuration of the fleet, in sections."""
    everyone, own = (
        dict(flatten(load_config(file, overrides, root=root, environment={}).config.model_dump(mode="json")))
        for overrides in ((), machine.overrides)
    )
    differing = {key: value for key, value in own.items() if key not in everyone or everyone[key] != value}
    differing["data.root"] = Path(os.path.relpath(root / machine.data, folder)).as_posix()
    if machine.start_from:
        differing["training.start_from"] = Path(os.path.relpath(root / machine.start_from, folder)).as_posix()
    return nested((key.split("."), value) for key, value in differing.items())


def _write_changed(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
