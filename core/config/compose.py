"""Composes a configuration with Hydra, validates it with the schema and records the origin of each value.

Hydra is imported where it is used: the import takes a quarter of a second, and `--help` and device reports do not need
it.
Precedence, weakest first: schema default < group file < configuration file < environment < command line. A group that
the environment or the command line chooses is applied in its own layer, as a whole, and single keys of that layer over
it.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from core.config.composition import composed_of, note
from core.config.execution import Execution
from core.config.faults import all_faults, origin_of, refuse_outputs_elsewhere, validate
from core.config.former_keys import with_current_keys
from core.config.interpolations import expanded_size
from core.config.overrides import (
    CONFIG_DIR,
    Setting,
    apply,
    flatten,
    from_command_line,
    from_environment,
    is_group,
    leaves,
    nested,
)
from core.config.schema import AnyConfig, Stream
from core.config.sources import calls_resolver
from core.errors import ConfigError, ConfigFault, UsageError, first_line
from core.reading import UnreadableError, read_yaml
from core.secrets.redaction import redacted
from core.workspace import SAMPLES, broken_link, holds_files, relative, root_or

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

# Characters of a configuration with everything it references; our longest has ten thousand.
_LARGEST_EXPANSION = 1 << 20
# Keys of `training` that set how to start, not what to train.
_REQUESTS = ("resume", "allow_changes")

_SIZE_GROUPS = "hardware/sizes/"


@dataclass(frozen=True)
class LoadedConfig:
    """A validated configuration, the file it came from and, per dotted key, which file or override set the value.

    origins: in the order in which the values were set.
    """

    config: AnyConfig
    source: str
    origins: Mapping[str, str]

    def with_checkpoint(self, file: Path | str | None) -> LoadedConfig:
        """With the model of another file, relative to the workspace; None changes nothing."""
        if not file:
            return self
        logging = self.config.logging.model_copy(update={"checkpoint_path": str(file)})
        return replace(self, config=self.config.model_copy(update={"logging": logging}))


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
    if (link := broken_link(path)) is not None:
        raise UsageError(f"{relative(link, root)} is a broken link", hint="correct the link, or connect its drive")
    if not path.is_file():
        found = sorted(relative(p, root) for p in (root / CONFIG_DIR).glob("**/*_ssl*.yaml"))
        hint = f"there are {', '.join(found)}" if found else f"{root} has none: is it the workspace?"
        raise UsageError(f"configuration file {source} does not exist", hint=hint)
    if path.suffix != ".yaml":
        raise UsageError(f"configuration file {source} does not end in .yaml", hint="rename it")
    layers = (from_environment(os.environ if environment is None else environment, root), from_command_line(overrides))
    values, origins = _compose(path, layers, root=root)
    values, origins = with_current_keys(values, origins)
    config, origins = _with_data_root(validate(values, source=source, origins=origins), origins, root)
    refuse_outputs_elsewhere(config, source, origins, root)
    _warn_of_overridden_sizes(config, [setting for layer in layers for setting in layer], origins)
    return LoadedConfig(config, source, origins)


def _with_data_root(config: AnyConfig, origins: Mapping[str, str], root: Path) -> tuple[AnyConfig, Mapping[str, str]]:
    """Replaces `data.root: auto` by a folder: user data and sample data are never mixed."""
    if config.data.root != "auto":
        return config, origins
    has_samples, has_own = (holds_files(root / folder) for folder in (f"{SAMPLES}/data", "data"))
    folder = SAMPLES if has_samples and not has_own else "."
    data = config.data.model_copy(update={"root": folder})
    why = "the sample data, because data/ has no files" if folder == SAMPLES else "the workspace"
    return config.model_copy(update={"data": data}), {**origins, "data.root": f"auto: {why}"}


def _warn_of_overridden_sizes(config: AnyConfig, settings: Sequence[Setting], origins: Mapping[str, str]) -> None:
    """Warns if a chosen group of sizes has no effect because `model.size` was set after it."""
    if config.model.size == "custom":
        return
    for setting in settings:
        option = f"{CONFIG_DIR}/{setting.key}/{setting.override.value()}.yaml:"
        keys = [key for key, origin in origins.items() if origin.startswith(option)]
        if setting.key.startswith(_SIZE_GROUPS) and not all(is_set_with_size(origins, key) for key in keys):
            log.warning(
                "%s has no effect: model.size = %s, set by %s; use model.size=%s instead",
                setting.text, config.model.size, origin_of("model.size", origins) or "default",
                setting.override.value(),
            )  # fmt: skip


def config_from_dict(values: Mapping[str, Any], *, source: str) -> AnyConfig:
    """Validates plain values, such as those of a checkpoint.

    Raises ConfigError, also for `data.root` = auto: only `load_config` knows the workspace that it depends on.
    """
    config = validate(with_current_keys(values)[0], source=source, origins={})
    if config.data.root == "auto":
        problem = "auto is resolved only by load_config, which knows the workspace"
        raise ConfigError(source, [ConfigFault("data.root", problem)], hint="name a folder, such as data.root = '.'")
    return config


def recorded(config: AnyConfig) -> dict[str, Any]:
    """Plain values for a checkpoint, without the settings of a single start, so that an interrupted run writes the same
    file as an uninterrupted one."""
    plain = config.model_dump(mode="json")
    for name in _REQUESTS:
        del plain["training"][name]
    return plain


def with_values(config: AnyConfig, values: Mapping[str, Any], *, source: str) -> AnyConfig:
    """The configuration with other values of some dotted keys. Raises ConfigError."""
    plain = config.model_dump(mode="json")
    for key, value in values.items():
        *sections, name = key.split(".")
        functools.reduce(dict.__getitem__, sections, plain)[name] = value
    return config_from_dict(plain, source=source)


def environment_settings(environment: Mapping[str, str] | None = None) -> tuple[Execution, dict[str, str]]:
    """Device settings without a configuration file: defaults, and values of COMPUTE_* and LANDFALL_* variables; and the
    origin of each key that is set.

    Raises ConfigError for a value that does not fit.
    """
    root = root_or(None)
    found: dict[tuple[str, ...], Any] = {}
    origins: dict[str, str] = {}
    settings = from_environment(os.environ if environment is None else environment, root)
    for setting in sorted(settings, key=lambda each: not is_group(each.key, root)):
        if is_group(setting.key, root):  # such as LANDFALL_LOCAL__DEVICES=cpu
            of_setting = dict(leaves(_group_values(setting.override, root)))
        else:
            of_setting = dict(leaves(nested([(setting.key.split("."), setting.override.value())])))
        found |= of_setting
        for path in of_setting:
            note(origins, ".".join(path), setting.origin)
    values, origins = with_current_keys(nested(found.items()), origins)
    known = {name: value for name, value in values.items() if name in Execution.model_fields}
    try:
        return Execution.model_validate(known), origins
    except ValidationError as error:
        raise ConfigError("environment", all_faults(error, known, Execution, origins)) from None


def _group_values(override: Override, root: Path) -> dict[str, Any]:
    file = root / CONFIG_DIR / override.key_or_group / f"{override.value()}.yaml"
    if not file.is_file():
        options = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml")))
        raise UsageError(f"there is no {override.key_or_group}={override.value()}", hint=f"there are: {options}")
    try:
        return read_yaml(file) or {}
    except (OSError, UnreadableError) as error:
        raise UsageError(
            f"{relative(file, root)}: {error}", hint="a configuration must be a UTF-8 text file"
        ) from error


def is_set_with_size(origins: Mapping[str, str], key: str) -> bool:
    """Whether `key` was set in the same place as `model.size`, or later."""
    size = "model.size"
    if key not in origins or size not in origins:
        return key in origins
    source, source_of_size = (origins[name].partition(":")[0] for name in (key, size))
    order = list(origins)
    return source == source_of_size or order.index(key) > order.index(size)


def render(loaded: LoadedConfig, *, with_origin: bool = False) -> str:
    """The complete configuration as YAML; `with_origin` adds the origin of each value as a comment."""
    lines = list(_yaml_lines(redacted(loaded.config.model_dump(mode="json"))))
    if not with_origin:
        return "\n".join(line for line, _ in lines) + "\n"
    width = min(72, max(len(line) for line, _ in lines))
    rows = [
        line if key is None else f"{line:<{width}}  # {origin_of(key, loaded.origins) or 'default'}"
        for line, key in lines
    ]
    return "\n".join(rows) + "\n"


# ------------------------------------------------------------------------------------------------------------ Hydra
def _compose(path: Path, layers: Sequence[Sequence[Setting]], *, root: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Values as plain data, and the file or override that set each one. layers: of overrides, weakest first."""
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    choices = {setting.key: setting for layer in layers for setting in layer if is_group(setting.key, root)}
    try:
        composed, origins = composed_of(path, [setting.text for setting in choices.values()], root=root)
        for layer in layers:
            for chosen in (setting for setting in layer if choices.get(setting.key) is setting):
                composed = _with_group(composed, chosen, origins, root=root)
            for setting in (setting for setting in layer if setting.key not in choices):
                try:
                    apply(setting, composed)
                except UsageError as error:
                    raise UsageError(f"{relative(path, root)}: {error.message}", hint=error.hint) from error
                for key in setting.set_keys():
                    note(origins, key, setting.origin)
        plain = OmegaConf.to_container(composed, resolve=False)
        _refuse_resolvers(plain, relative(path, root), origins)
        if (size := expanded_size(plain)) > _LARGEST_EXPANSION:
            raise UsageError(
                f"{relative(path, root)}: its ${{…}} expand to {size:.3g} characters", hint="write them out"
            )
        values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingConfigException as error:
        options = ", ".join(error.options or ())
        hint = f"there are: {options}" if options else None
        raise UsageError(f"{relative(path, root)}: {_first_line(error)}", hint=hint) from error
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise UsageError(f"{relative(path, root)}: {_first_line(error)}") from error
    return values, origins  # type: ignore[return-value]


def _with_group(values: DictConfig, chosen: Setting, origins: dict[str, str], *, root: Path) -> DictConfig:
    """The values, overridden by those of a chosen group file."""
    from omegaconf import OmegaConf

    if chosen.override.is_delete() or chosen.override.package is not None:
        return values  # done by Hydra
    option = root / CONFIG_DIR / chosen.key / f"{chosen.override.value()}.yaml"
    group, of_group = composed_of(option, [f"+{chosen.key}={chosen.override.value()}"], root=root, is_group_only=True)
    for key, origin in of_group.items():
        note(origins, key, origin)
    merged = OmegaConf.merge(values, group)
    OmegaConf.set_struct(merged, False)
    return merged  # type: ignore[return-value]


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


def _first_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return first_line(error) if str(error).strip() else f"a key or value that cannot be used ({type(error).__name__})"


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
