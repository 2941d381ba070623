"""Collects all faults of a configuration, each with the key and its origin."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from core.config.fields import ContradictionError
from core.config.former_keys import REMOVED
from core.config.schema import OUTPUT_KEYS, SCHEMAS, AnyConfig
from core.errors import ConfigError, ConfigFault

# Sections nest three deep, and each round checks contradictions one level higher.
_ROUNDS = 5


def validate(values: Mapping[str, Any], *, source: str, origins: Mapping[str, str]) -> AnyConfig:
    if not isinstance(values, Mapping):
        raise ConfigError(source, [ConfigFault("configuration", "is not a mapping of keys to values")])
    stream = values.get("stream")
    schema = SCHEMAS.get(stream) if isinstance(stream, str) else None
    if schema is None:
        problem = f"is {stream!r}; one of {', '.join(SCHEMAS)}"
        if stream is None:
            names = " or ".join(f"/{name}_ssl_local" for name in SCHEMAS)
            problem = f"is missing; begin the file with `defaults: [NAME, _self_]`, where NAME is {names}"
        raise ConfigError(source, [ConfigFault("stream", problem, origins.get("stream"))])
    try:
        return schema.model_validate(values)  # type: ignore[return-value]
    except ValidationError as error:
        raise ConfigError(source, all_faults(error, values, schema, origins)) from None


def all_faults(
    error: ValidationError | None, values: Mapping[str, Any], schema: type[BaseModel], origins: Mapping[str, str]
) -> list[ConfigFault]:
    """Every fault of every key, and the contradictions between valid keys.

    Pydantic checks contradictions only if all keys of a section are valid. Therefore invalid keys are replaced by valid
    values, and the rest is checked again.
    """
    found: list[ConfigFault] = []
    corrected, at_fault = copy.deepcopy(dict(values)), set()
    for _ in range(_ROUNDS):
        if error is None:
            break
        for details in error.errors(include_url=False):
            for fault, keys in _faults_of(details, schema, origins):
                if not any(_is_within(key, at_fault) for key in keys):
                    found.append(fault)
                    at_fault.update(keys)
                for key in keys:
                    _replace_invalid(corrected, key.split("."), schema)
        error = _error_of(corrected, schema)
    return found


def _faults_of(
    details: Any, schema: type[BaseModel], origins: Mapping[str, str]
) -> Iterator[tuple[ConfigFault, tuple[str, ...]]]:
    """Faults of one pydantic error, each with the keys involved."""
    section = ".".join(map(str, details["loc"]))
    error = details.get("ctx", {}).get("error")
    if not isinstance(error, ContradictionError):
        yield _fault(details, schema, origins), (section,)
        return
    for problem, names in error.found:
        keys = tuple(f"{section}.{name}".strip(".") for name in names) or (section,)
        last = next((key for key in reversed(list(origins)) if key in keys), keys[0])
        yield ConfigFault(keys[0] or "configuration", problem, origin_of(last, origins)), keys


def _is_within(key: str, sections: Iterable[str]) -> bool:
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def _replace_invalid(values: dict[str, Any], names: Sequence[str], schema: type[BaseModel]) -> None:
    """Replaces an invalid value by the default, or by a value of the right type."""
    for name, *rest in (names[place:] for place in range(len(names))):
        field = schema.model_fields.get(name)
        is_section = (
            field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        )
        if rest and is_section and isinstance(values.get(name), dict):
            values, schema = values[name], field.annotation
            continue
        values.pop(name, None)
        if field is not None and field.is_required():
            values[name] = {} if is_section else ""
        return


def refuse_outputs_elsewhere(config: AnyConfig, source: str, origins: Mapping[str, str], root: Path) -> None:
    """Raises ConfigError if a file from outside of `configs/` would make a run write outside of the workspace.

    Commands and the workspace's own configurations may name any path.
    """
    faults = []
    for key in OUTPUT_KEYS:
        section, name = key.split(".")
        place = os.path.normpath(Path(root, getattr(getattr(config, section), name)))
        origin = origin_of(key, origins) or ""
        trusted = not origin or origin.startswith(("command line: ", "environment: ", "configs/"))
        if not trusted and not Path(place).is_relative_to(os.path.normpath(root)):
            problem = f"{place} is outside of the workspace; name it on the command line or in configs/"
            faults.append(ConfigFault(key, problem, origin))
    if faults:
        raise ConfigError(source, faults)


def _error_of(values: Mapping[str, Any], schema: type[BaseModel]) -> ValidationError | None:
    try:
        schema.model_validate(values)
    except ValidationError as error:
        return error
    return None


def _fault(details: Any, schema: type[BaseModel], origins: Mapping[str, str]) -> ConfigFault:
    names = [str(name) for name in details["loc"]]
    key = ".".join(names) or "configuration"
    if key in REMOVED:
        problem = REMOVED[key].problem
    elif details["type"] == "extra_forbidden":
        problem = f"unknown key{_did_you_mean(names, schema)}"
    elif details["type"] == "missing":
        problem = "is required"
    elif details["type"] == "value_error":
        problem = str(details["ctx"]["error"])
    elif details["type"] in ("tuple_type", "list_type"):
        problem = f"{details['input']!r} is not a list; write [{details['input']}]"
    else:
        message = details["msg"]
        problem = f"{details['input']!r}: {message[0].lower()}{message[1:]}"
    return ConfigFault(key, problem, origin_of(key, origins))


def _did_you_mean(names: Sequence[str], schema: type[BaseModel]) -> str:
    """Similar keys of the same section, otherwise the same name in another section."""
    section: type[BaseModel] = schema
    for name in names[:-1]:
        section = section.model_fields[name].annotation  # type: ignore[assignment]
    close = difflib.get_close_matches(names[-1], section.model_fields, n=2)
    if not close:
        close = [key for key, _ in schema_fields(schema) if key.split(".")[-1] == names[-1]][:2]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def schema_fields(schema: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every dotted leaf key of a schema, with its field."""
    for name, field in schema.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from schema_fields(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def origin_of(key: str, origins: Mapping[str, str]) -> str | None:
    """The origin of the key, or of the nearest mapping above or list entry below it."""
    while key:
        if key in origins:
            return origins[key]
        key = key.rpartition(".")[0]
    return None
