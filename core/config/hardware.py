"""The tables that a user may edit: hardware tiers and model sizes under `configs/hardware/`, and device profiles."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from core.config.compose import CONFIG_DIR, LoadedConfig, config_from_dict, flatten, is_set_with_size
from core.config.execution import TPU_BATCH_FACTOR, DeviceKind, Execution
from core.config.fields import Count, Section
from core.config.former_keys import with_current_keys
from core.config.overrides import PROFILE_DIR
from core.config.recipe import as_trained
from core.config.schema import SCHEMAS, AnyConfig, Stream
from core.config.yaml_files import read_validated, validated, yaml_values
from core.errors import ConfigError, ConfigFault, UsageError
from core.workspace import CODE_ROOT, root_or

log = logging.getLogger(__name__)

HARDWARE_DIR = f"{CONFIG_DIR}/hardware"
SizeName = Literal["full", "reduced"]
SIZE_NAMES: tuple[SizeName, ...] = get_args(SizeName)
# The sections that a size may set.
_SIZED = ("model", "scalogram", "training")


class Tier(Section):
    """Starting values of a run on devices of one kind with at least `min_memory_gb` of memory each."""

    name: str
    kind: DeviceKind
    min_memory_gb: float = Field(ge=0.0)
    batch_size: Count
    gradient_checkpointing: bool
    model_size: SizeName


class TierTable(Section):
    """`tiers.yaml`."""

    tiers: tuple[Tier, ...]

    @model_validator(mode="after")
    def _every_device_has_one_row(self) -> TierTable:
        for kind in get_args(DeviceKind):
            bounds = [tier.min_memory_gb for tier in self.tiers if tier.kind == kind]
            if 0.0 not in bounds:
                raise ValueError(f"no row for {kind} from min_memory_gb 0")
            if len(set(bounds)) < len(bounds):
                raise ValueError(f"two rows for {kind} with the same min_memory_gb")
        return self


class Tiers(TierTable):
    """The tiers, and per stream and size the configuration keys it sets: `{"model": {"d_model": 128, …}}`."""

    models: Mapping[Stream, Mapping[SizeName, Mapping[str, Any]]]

    def tier_for(self, kind: DeviceKind, memory_gb: float, *, tpu_batch_factor: int = TPU_BATCH_FACTOR) -> Tier:
        """The tier of a kind with the largest memory that the device has. On a TPU its batch size scales with the
        factor."""
        rows = [tier for tier in self.tiers if tier.kind == kind and tier.min_memory_gb <= memory_gb]
        tier = max(rows, key=lambda tier: tier.min_memory_gb)
        if kind != "tpu" or tpu_batch_factor == TPU_BATCH_FACTOR:
            return tier
        return tier.model_copy(update={"batch_size": max(1, tier.batch_size * tpu_batch_factor // TPU_BATCH_FACTOR)})


def load_tiers(root: Path | None = None) -> Tiers:
    """The tiers and model sizes of a workspace: by default the one that contains the current folder, otherwise the
    bundled one.

    Raises UsageError for a file that is missing or not YAML, ConfigError with file and keys for wrong content.
    """
    root = root or root_or(CODE_ROOT)
    table = read_validated(f"{HARDWARE_DIR}/tiers.yaml", TierTable, root=root)
    models = {stream: {size: _read_size(stream, size, root) for size in SIZE_NAMES} for stream in SCHEMAS}
    return Tiers(tiers=table.tiers, models=models)


def list_profiles(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / PROFILE_DIR).glob("*.yaml"))


def load_profile(name: str, root: Path) -> Execution:
    """A device profile over the defaults. Raises UsageError if it is missing, ConfigError for its faults."""
    known = list_profiles(root)
    if name not in known:
        raise UsageError(f"there is no device profile {name!r}", hint=f"there are {', '.join(known)}")
    return read_validated(f"{PROFILE_DIR}/{name}.yaml", Execution, root=root)


def _read_size(stream: Stream, size: SizeName, root: Path) -> dict[str, Any]:
    """The sections of a size; each must be valid by itself."""
    file = f"{HARDWARE_DIR}/sizes/{stream}/{size}.yaml"
    sections = yaml_values(file, root)
    fields = SCHEMAS[stream].model_fields
    for name, values in sections.items():
        if name not in _SIZED or name not in fields:
            raise ConfigError(file, [ConfigFault(name, "a model size cannot set this section")])
        validated(values, fields[name].annotation, file, section=name)
    return sections


# ----------------------------------------------------------------------------------------------------------- model size
def resolve_model_size(
    config: AnyConfig, tier: Tier, tiers: Tiers, origins: Mapping[str, str]
) -> tuple[AnyConfig, str]:
    """The configuration with the sizes of `model.size`, and the reason as text.

    `custom` changes nothing. A single size that is set in the same place as `model.size`, or later (a file that builds
    on it, the environment, the command line), is kept. If the choice of `auto` does not fit other values, such as
    `data.window`, the reduced model is used. Raises ConfigError if a requested size does not fit.
    """
    requested = config.model.size
    if requested == "custom":
        return config, "model.size = custom"
    if requested != "auto":
        return _resized(config, requested, tiers, origins, f"model.size = {requested}")
    reason = f"{tier.model_size} on the tier {tier.name}"
    try:
        return _resized(config, tier.model_size, tiers, origins, reason)
    except ConfigError as error:
        if tier.model_size == "reduced":
            raise
        reason = f"reduced: {'; '.join(fault.problem for fault in error.faults)}"
        log.warning("the full model of the tier %s does not fit, the reduced one is used: %s", tier.name, error)
        return _resized(config, "reduced", tiers, origins, reason)


def size_as_trained(loaded: LoadedConfig, trained: Mapping[str, Any], tiers: Tiers) -> AnyConfig:
    """The configuration with the sizes of `model.size`; with `auto`, those of a trained configuration. The values of
    `auto` in the recipe come from the trained configuration, too.

    A single size that is set in the same place as `model.size`, or later, is kept. trained: the configuration in a
    checkpoint; one of another stream is ignored.
    """
    config, size = as_trained(loaded.config, trained), loaded.config.model.size
    if size == "custom" or trained["stream"] != config.stream:
        return config
    if size != "auto":
        return _resized(config, size, tiers, loaded.origins, "")[0]
    trained, _ = with_current_keys(trained)
    values = config.model_dump(mode="json")
    values["model"]["size"] = trained["model"].get("size", "custom")
    for key in {key for sizes in tiers.models[config.stream].values() for key, _ in flatten(sizes)}:
        section, name = key.split(".")
        if not is_set_with_size(loaded.origins, key):
            values[section][name] = trained[section].get(name, values[section][name])
    return config_from_dict(values, source=loaded.source)


def _resized(
    config: AnyConfig, size: SizeName, tiers: Tiers, origins: Mapping[str, str], reason: str
) -> tuple[AnyConfig, str]:
    values = config.model_dump(mode="json")
    values["model"]["size"] = size
    kept = []
    for key, value in flatten(tiers.models[config.stream][size]):
        section, name = key.split(".")
        if is_set_with_size(origins, key):
            kept.append(f"{key} = {values[section][name]}")
        else:
            values[section][name] = value
    if kept:
        reason += f", but {', '.join(kept)} as set"
    return config_from_dict(values, source=f"with model.size = {size}"), reason
