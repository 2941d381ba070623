"""`docs/configuration.md`, generated from the schema: `python -m tools.config_reference --write`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from core.cli import run_page_command
from core.config.faults import schema_fields
from core.config.schema import SCHEMAS, Config

FILE = "docs/configuration.md"

_INTRODUCTION = """\
# Configuration reference

Generated from `core/config/schema.py` and `execution.py` by `python -m tools.config_reference --write`; edit the
descriptions there.

A configuration is composed from files and overrides. Later ones win:

1. the defaults below,
2. group files that the configuration file names: `configs/trainer/`, `configs/local/`, `configs/local/devices/`,
3. the configuration file, such as `configs/patchtst_ssl_local.yaml`,
4. the environment: `LANDFALL_TRAINING__EPOCHS=2` sets `training.epochs`, `LANDFALL_LOCAL__DEVICES=cpu` chooses a group
   file, and `COMPUTE_PREFER`, `COMPUTE_ALLOW_TPU` and `COMPUTE_TPU_BATCH_FACTOR` set keys of `device`,
5. the command line: `training.epochs=2` sets a value, `trainer=quick` or `local/devices=cpu` chooses a group file.

A group file that the environment or the command line chooses is applied as a whole at that position of the order: with
`local/devices=cpu` on the command line every key of the profile is above the file and the environment. A single key is
above the group files of its own position.

`landfall train patchtst --print-config --origin` prints the result and the origin of each value. All faults of a
configuration are reported together; an unknown key is an error.
"""


def reference() -> str:
    """The complete page."""
    sections = [_INTRODUCTION, _table("Both streams", Config, skip=("stream",))]
    for stream, schema in SCHEMAS.items():
        sections.append(_table(f"Stream `{stream}`", schema, skip=tuple(Config.model_fields.keys() - {"stream"})))
    return "\n".join(sections)


def _table(title: str, schema: type[BaseModel], *, skip: Sequence[str]) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{key}` | {_type(field.annotation)} | {_default(field)} | {field.description or ''} |"
        for key, field in schema_fields(schema)
        if key.split(".")[0] not in skip
    ]
    return f"## {title}\n\n" + "\n".join(rows) + "\n"


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " · ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _type(arguments[0])
    if origin is Union or type(annotation).__name__ == "UnionType":
        return " or ".join("empty" if part is type(None) else _type(part) for part in arguments)
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return "empty"
    if isinstance(field.default, tuple):
        return f"`[{', '.join(str(value) for value in field.default)}]`"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def main(argv: Sequence[str] | None = None) -> int:
    return run_page_command(FILE, reference, description="Prints the configuration reference.", argv=argv)


if __name__ == "__main__":
    sys.exit(main())
