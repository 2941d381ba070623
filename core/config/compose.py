"""Composes a configuration with Hydra, validates it with the schema and remembers who set each value.

Hydra is imported where it is used: it takes a quarter of a second, which `--help` and device reports can do without.
Precedence, weakest first: schema default < group file < configuration file < `LANDFALL_*` environment < command line.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from core.config.execution import Execution
from core.config.faults import all_faults, origin_of, refuse_outputs_elsewhere, validate
from core.config.schema import AnyConfig, Stream
from core.config.sources import Source, calls_resolver, read_sources
from core.errors import ConfigError, ConfigFault, UsageError
from core.redaction import redacted
from core.workspace import find_root, relative

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

log = logging.getLogger(__name__)

CONFIG_DIR = "configs"
_SIZE_GROUPS = "hardware/sizes/"
ENVIRONMENT_PREFIX = "LANDFALL_"
# Names that other tools for the same machines use; a LANDFALL_ variable of the same key wins.
COMPUTE_VARIABLES = {
    "COMPUTE_PREFER": "device.prefer",
    "COMPUTE_ALLOW_TPU": "device.allow_tpu",
    "COMPUTE_TPU_BATCH_FACTOR": "device.tpu_batch_factor",
}


@dataclass(frozen=True)
class LoadedConfig:
    """A validated configuration, the file it came from and, per dotted key, which file or override set the value.

    origins: in the order in which the values were set.
    """

    config: AnyConfig
    source: str
    origins: Mapping[str, str]


def local_config_file(stream: Stream) -> str:
    return f"{CONFIG_DIR}/{stream}_ssl_local.yaml"


def load_config(
    file: Path | str, overrides: Sequence[str] = (), *, root: Path, environment: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Composes `file` (relative to `root`) with Hydra overrides such as `trainer=quick` or `training.epochs=2`.

    Raises UsageError for a missing file or an override that cannot be parsed, ConfigError with every fault otherwise.
    """
    path = Path(root, file)
    source = relative(path, root)
    if not path.is_file():
        found = sorted(relative(p, root) for p in (root / CONFIG_DIR).glob("**/*_ssl*.yaml"))
        hint = f"there are {', '.join(found)}" if found else f"{root} has none: is it the workspace?"
        raise UsageError(f"configuration file {source} does not exist", hint=hint)
    if path.suffix != ".yaml":
        raise UsageError(f"configuration file {source} does not end in .yaml", hint="rename it")
    from_environment = _environment_overrides(os.environ if environment is None else environment, root)
    from_command_line = [_parse_override(text) for text in overrides]
    values, origins = _compose(path, [*from_environment, *from_command_line], root=root)
    _note_override_origins(origins, from_environment, "environment")
    _note_override_origins(origins, from_command_line, "command line")
    config = validate(values, source=source, origins=origins)
    refuse_outputs_elsewhere(config, source, origins, root)
    _tell_overruled_sizes(config, [*from_environment, *from_command_line], origins)
    return LoadedConfig(config, source, origins)


def _tell_overruled_sizes(config: AnyConfig, asked: Sequence[Override], origins: Mapping[str, str]) -> None:
    """A group of sizes that was asked for holds only where `model.size` leaves the sizes to the groups."""
    if config.model.size == "custom":
        return
    for override in asked:
        if override.key_or_group.startswith(_SIZE_GROUPS):
            size, asked_for = config.model.size, override.value()
            log.warning(
                "%s=%s is overruled: model.size = %s, set by %s; ask for model.size=%s instead",
                override.key_or_group, asked_for, size, origin_of("model.size", origins) or "default", asked_for,
            )  # fmt: skip


def config_from_dict(values: Mapping[str, Any], *, source: str) -> AnyConfig:
    """Validates plain values, such as a checkpoint holds. Raises ConfigError."""
    return validate(values, source=source, origins={})


def with_values(config: AnyConfig, values: Mapping[str, Any], *, source: str) -> AnyConfig:
    """The configuration with other values of some keys, dotted. Raises ConfigError."""
    plain = config.model_dump(mode="json")
    for key, value in values.items():
        *sections, name = key.split(".")
        functools.reduce(dict.__getitem__, sections, plain)[name] = value
    return config_from_dict(plain, source=source)


def execution_from_environment(environment: Mapping[str, str] | None = None) -> Execution:
    """Device settings where there is no configuration file: defaults and what COMPUTE_* and LANDFALL_* variables set.

    Raises ConfigError for a value that does not fit.
    """
    root = _workspace()
    values: dict[str, Any] = {}
    overrides = _environment_overrides(os.environ if environment is None else environment, root)
    for override in sorted(overrides, key=lambda each: not _is_group(each.key_or_group, root)):
        if _is_group(override.key_or_group, root):  # such as LANDFALL_LOCAL__DEVICES=cpu
            _merge(values, _group_values(override, root))
            continue
        value = override.value()
        for name in reversed(override.key_or_group.split(".")):
            value = {name: value}
        _merge(values, value)
    known = {name: value for name, value in values.items() if name in Execution.model_fields}
    try:
        return Execution.model_validate(known)
    except ValidationError as error:
        raise ConfigError("environment", all_faults(error, known, Execution, {})) from None


def _workspace() -> Path | None:
    try:
        return find_root()
    except UsageError:
        return None


def _group_values(override: Override, root: Path) -> dict[str, Any]:
    file = root / CONFIG_DIR / override.key_or_group / f"{override.value()}.yaml"
    if not file.is_file():
        options = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml")))
        raise UsageError(f"there is no {override.key_or_group}={override.value()}", hint=f"there are: {options}")
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}


def _merge(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Puts `more` over `values`, section by section."""
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(values.get(name), dict):
            _merge(values[name], value)
        else:
            values[name] = dict(value) if isinstance(value, Mapping) else value


def is_set_with(origins: Mapping[str, str], key: str, reference: str) -> bool:
    """Whether `key` was set where `reference` was, or later and so in its knowledge."""
    if key not in origins or reference not in origins:
        return key in origins
    source, reference_source = (origins[name].partition(":")[0] for name in (key, reference))
    order = list(origins)
    return source == reference_source or order.index(key) > order.index(reference)


def render(loaded: LoadedConfig, *, with_origin: bool = False) -> str:
    """The whole configuration as YAML; `with_origin` adds who set each value as a comment."""
    lines = list(_yaml_lines(redacted(loaded.config.model_dump(mode="json"))))
    if not with_origin:
        return "\n".join(line for line, _ in lines) + "\n"
    width = min(72, max(len(line) for line, _ in lines))
    rows = [
        line if key is None else f"{line:<{width}}  # {origin_of(key, loaded.origins) or 'default'}"
        for line, key in lines
    ]
    return "\n".join(rows) + "\n"


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and leaf values of nested mappings."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{key}.")
        else:
            yield key, value


# ---------------------------------------------------------------------------------------------------------- overrides
def _parse_override(text: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if text.lstrip("+~").startswith("hydra"):
        raise UsageError(f"the override {text!r} would configure Hydra itself", hint="Landfall composes alone")
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise UsageError(
            f"cannot read the override {text!r}", hint="write key=value or group=option, such as training.epochs=2"
        ) from error


def _environment_overrides(environment: Mapping[str, str], root: Path | None) -> list[Override]:
    """`LANDFALL_TRAINING__EPOCHS=2` sets `training.epochs`: two underscores stand for a dot, or for the slash of a
    group, as in `LANDFALL_LOCAL__DEVICES=cpu`."""
    overrides = [
        _parse_override(f"{key}={environment[name].lower()}")
        for name, key in COMPUTE_VARIABLES.items()
        if environment.get(name)
    ]
    for name, value in sorted(environment.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            words = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            group = "/".join(words)
            overrides.append(_parse_override(f"{group if _is_group(group, root) else '.'.join(words)}={value}"))
    return overrides


def _is_group(name: str, root: Path | None) -> bool:
    return root is not None and (root / CONFIG_DIR / name).is_dir()


def _hydra_text(override: Override, root: Path) -> str:
    """A value override may set a key that no file mentions; the schema, not Hydra, decides whether the key exists."""
    text = override.input_line or ""
    return text if _is_group(override.key_or_group, root) or text.startswith(("+", "~")) else f"++{text}"


def _note_override_origins(origins: dict[str, str], overrides: Sequence[Override], source: str) -> None:
    """An override that is a mapping, such as `data.scaling={method: zscore}`, set the keys it names and no others."""
    for override in overrides:
        for key, _ in flatten({override.key_or_group: override.value()}):
            _note(origins, key, f"{source}: {override.input_line}")


def _note(origins: dict[str, str], key: str, source: str) -> None:
    """The order of the mapping is the order in which the values were last set."""
    origins.pop(key, None)
    origins[key] = source


# ------------------------------------------------------------------------------------------------------------ Hydra
def _compose(path: Path, overrides: Sequence[Override], *, root: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Values as plain data, and the file that set each one."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    sources = read_sources(path, (path.parent, root / CONFIG_DIR), root)
    for override in overrides:
        if _is_group(override.key_or_group, root):
            option = root / CONFIG_DIR / override.key_or_group / f"{override.value()}.yaml"
            sources |= read_sources(option, (root / CONFIG_DIR,), root)
    folder = str((root / CONFIG_DIR).resolve()).replace("'", r"\'")
    texts = [f"hydra.searchpath=['file://{folder}']", *(_hydra_text(override, root) for override in overrides)]
    try:
        with initialize_config_dir(str(path.parent.resolve()), version_base="1.3", job_name="landfall"):
            composed = compose(config_name=path.stem, overrides=texts)
            origins = _file_origins(path, texts, sources, root=root)
            _refuse_resolvers(OmegaConf.to_container(composed, resolve=False), relative(path, root), origins)
            values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingConfigException as error:
        options = ", ".join(error.options or ())
        hint = f"there are: {options}" if options else None
        raise UsageError(f"{relative(path, root)}: {_first_line(error)}", hint=hint) from error
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise UsageError(f"{relative(path, root)}: {_first_line(error)}") from error
    return values, origins  # type: ignore[return-value]


def _refuse_resolvers(values: Mapping[str, Any], source: str, origins: Mapping[str, str]) -> None:
    """A resolver is a function that a configuration calls: `${oc.env:HOME}` would write the environment into logs."""
    called = [(key, value) for key, value in flatten(values) if any(map(calls_resolver, _texts(value)))]
    if called:
        problem = "{!r} calls a resolver; only ${{section.key}} is looked up"
        faults = [ConfigFault(key, problem.format(value), origin_of(key, origins)) for key, value in called]
        raise ConfigError(source, faults)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _file_origins(path: Path, overrides: list[str], sources: Mapping[Path, Source], *, root: Path) -> dict[str, str]:
    """Walks Hydra's own list of composed files in merge order; the last file that has a key set it, `file:line`."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    loader = GlobalHydra.instance().config_loader()
    defaults = loader.compute_defaults_list(path.stem, overrides, RunMode.RUN).defaults
    origins: dict[str, str] = {}
    for entry in defaults:
        file = _source_file(entry.config_path, (path.parent, root / CONFIG_DIR))
        if file is None or (entry.package or "").split(".")[0] == "hydra":
            continue
        source = sources.get(file) or read_sources(file, (), root)[file]
        prefix = f"{entry.package}." if entry.package else ""
        for key, line in source.lines.items():
            if key != "defaults":
                _note(origins, f"{prefix}{key}", f"{relative(file, root)}:{line}")
    return origins


def _source_file(config_path: str | None, folders: Sequence[Path]) -> Path | None:
    candidates = [folder / f"{config_path}.yaml" for folder in folders]
    return next((file for file in candidates if file.is_file()), None)


def _first_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return str(error).strip().splitlines()[0]


# ---------------------------------------------------------------------------------------------------------- rendering
def _yaml_lines(values: Mapping[str, Any], depth: int = 0, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    indent = "  " * depth
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{name}:", None
            yield from _yaml_lines(value, depth + 1, f"{prefix}{name}.")
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
            yield f"{indent}{name}: {text.removesuffix('...' + chr(10)).strip()}", f"{prefix}{name}"
