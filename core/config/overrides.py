"""Values from outside of the configuration files: environment variables and arguments of the command line.

Each is parsed by Hydra's grammar and keeps its original text. Hydra is imported where it is used.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config.schema import STREAMS, Stream
from core.errors import UsageError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

# Texts that need no quotation marks in an override.
_WORD = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)

CONFIG_DIR = "configs"
# The machines of a plant (`landfall fleet`): the one file of `configs/` that no run is composed of.
FLEET_FILE = f"{CONFIG_DIR}/fleet.yaml"
# For commands on both streams: the option for the configuration of each stream.
CONFIG_FLAGS: Mapping[Stream, str] = {"patchtst": "--patch-config", "swinmae": "--swin-config"}
PROFILE_DIR = f"{CONFIG_DIR}/local/devices"
ENVIRONMENT_PREFIX = "LANDFALL_"
# For migrated notebooks (`landfall_runtime`), not for configurations.
NOTEBOOK_VARIABLES = frozenset({"LANDFALL_UPLOAD", "LANDFALL_DOWNLOADS", "LANDFALL_WORK_DIR", "LANDFALL_DRIVE_DIR"})
# Names that other tools for the same machines use; a LANDFALL_ variable of the same key overrides them.
COMPUTE_VARIABLES = {
    "COMPUTE_PREFER": "device.prefer",
    "COMPUTE_ALLOW_TPU": "device.allow_tpu",
    "COMPUTE_TPU_BATCH_FACTOR": "device.tpu_batch_factor",
}


@dataclass(frozen=True)
class Setting:
    """One override. origin: its source, such as `environment: COMPUTE_PREFER=gpu`."""

    override: Override
    origin: str

    @property
    def key(self) -> str:
        """A dotted key, or the name of a group."""
        return self.override.key_or_group

    @property
    def text(self) -> str:
        return self.override.input_line or ""

    def set_keys(self) -> Iterator[str]:
        """The dotted keys it sets: those of a mapping such as `data.scaling={method: zscore}`, and no others."""
        yield from (key for key, _ in flatten({self.key: self.override.value()}))


def from_command_line(words: Sequence[str]) -> list[Setting]:
    return [Setting(_parsed(word, word), f"command line: {word}") for word in words]


def from_environment(environment: Mapping[str, str], root: Path | None) -> list[Setting]:
    """`LANDFALL_TRAINING__EPOCHS=2` sets `training.epochs`: two underscores stand for a dot, or for the slash of a
    group, as in `LANDFALL_LOCAL__DEVICES=cpu`."""
    named = [(name, key, environment[name].lower()) for name, key in COMPUTE_VARIABLES.items() if environment.get(name)]
    for name, value in sorted(environment.items()):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOTEBOOK_VARIABLES:
            words = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            group = "/".join(words)
            named.append((name, group if is_group(group, root) else ".".join(words), value))
    return [
        Setting(_parsed(f"{key}={value}", f"{name}={environment[name]}"), f"environment: {name}={environment[name]}")
        for name, key, value in named
    ]


def is_group(name: str, root: Path | None) -> bool:
    return root is not None and (root / CONFIG_DIR / name).is_dir()


def apply(setting: Setting, values: DictConfig) -> None:
    """Sets, or with `~` removes, a key; the schema decides later whether the key exists.

    Raises UsageError for an override that does not set a single value.
    """
    from omegaconf import OmegaConf

    override, key = setting.override, setting.key
    if override.package is not None or override.is_sweep_override():
        raise UsageError(f"the override {setting.text!r} does not set a single value", hint="write key=value")
    if not override.is_delete():
        OmegaConf.update(values, key, override.value(), merge=True, force_add=True)
        return
    section, _, name = key.rpartition(".")
    parent = OmegaConf.select(values, section) if section else values
    if parent is None or name not in parent:
        raise UsageError(f"the override {setting.text!r} removes a key that is not set")
    del parent[name]


def flatten(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys and leaf values of nested mappings."""
    yield from ((".".join(map(str, path)), value) for path, value in leaves(values))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """For each dotted key whose values in nested mappings differ, in order: `was …, is …`."""
    old, new = dict(flatten(before)), dict(flatten(now))
    changed = (key for key in sorted(old | new) if old.get(key) != new.get(key))
    return {key: f"was {old.get(key)}, is {new.get(key)}" for key in changed}


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Leaf values of nested mappings, each with the keys that lead to it; an empty mapping is a leaf, too."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def nested(found: Iterable[tuple[Sequence[str], Any]]) -> dict[str, Any]:
    """The nested mappings with these leaves; a later leaf replaces an earlier one with the same keys."""
    values: dict[str, Any] = {}
    for (*sections, name), value in found:
        inner = values
        for section in sections:
            if not isinstance(inner.get(section), dict):
                inner[section] = {}
            inner = inner[section]
        inner[name] = value
    return values


def list_override(key: str, names: Iterable[str]) -> str:
    """A list of texts as an override that a shell passes on unchanged: `'data.exclude=["p [bar]",q]'`."""
    return shlex.quote(f"{key}=[{','.join(map(_as_text, names))}]")


def _as_text(name: str) -> str:
    """The name, in quotation marks unless Hydra's grammar reads it as the same text without them."""
    if _WORD.fullmatch(name) and name.lower() not in ("true", "false", "null", "nan", "inf"):
        return name
    before_quotes = re.sub(r'(\\*)"', r'\1\1\\"', name)
    return '"' + re.sub(r"(\\+)$", r"\1\1", before_quotes) + '"'


def stream_hint(text: str) -> str | None:
    """A hint, if the text is the name of a stream or similar to one; otherwise None."""
    close = get_close_matches(text, STREAMS, n=1, cutoff=0.7)
    return f"a stream is an option: --stream {close[0]}" if close else None


def _parsed(text: str, source: str) -> Override:
    """source: the argument or variable for messages."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if text.lstrip("+~").startswith("hydra"):
        raise UsageError(f"the override {source!r} would configure Hydra itself", hint="only Landfall configures Hydra")
    try:
        return OverridesParser.create().parse_override(text)
    except (HydraException, ValueError, RecursionError) as error:
        hint = stream_hint(text) or "write key=value or group=option, such as training.epochs=2"
        if re.search(r"=.*[^\w\s.,/\[\]-]|\[.*\[", text):
            hint = """put texts with special characters in quotation marks, such as 'data.exclude=["p [bar]",flow]'"""
        raise UsageError(f"cannot read the override {source[:200]!r}", hint=hint) from error
