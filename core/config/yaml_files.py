"""YAML files of a workspace that are not configurations, such as the hardware tiers, and their validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from core.errors import ConfigError, ConfigFault, UsageError
from core.reading import UnreadableError, read_yaml

S = TypeVar("S", bound=BaseModel)


_OF_THE_REPOSITORY = "restore it from the repository"


def read_validated(file: str, schema: type[S], *, root: Path, hint: str = _OF_THE_REPOSITORY) -> S:
    """A YAML file, relative to `root`, validated. Raises UsageError and ConfigError as `yaml_values` and `validated`
    do."""
    return validated(yaml_values(file, root, hint=hint), schema, file)


def yaml_values(file: str, root: Path, *, hint: str = _OF_THE_REPOSITORY) -> dict[str, Any]:
    """Raises UsageError for a file that is missing or not YAML, ConfigError for one without keys. hint: what to do if
    it cannot be read."""
    try:
        values = read_yaml(root / file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=hint) from error
    except UnreadableError as error:
        raise UsageError(f"{file} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(file, [ConfigFault("the file", "contains no keys")])
    return values


def validated(values: Any, schema: type[S], file: str, *, section: str | None = None) -> S:
    """Raises ConfigError with every fault."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise ConfigError(file, plain_faults(error, f"{section}." if section else "")) from None


def plain_faults(error: ValidationError, prefix: str = "") -> list[ConfigFault]:
    """The faults of a file that is not a configuration, such as a table. prefix: of each key."""
    found = []
    for details in error.errors(include_url=False):
        key = f"{prefix}{'.'.join(map(str, details['loc']))}".rstrip(".")
        problem = str(details["ctx"]["error"]) if details["type"] == "value_error" else details["msg"]
        found.append(ConfigFault(key or "the file", problem))
    return found
