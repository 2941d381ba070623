"""Reads documents that other commands wrote; a damaged file is reported as a problem, never a crash."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

from pydantic import Field, TypeAdapter

from core.documents import SCHEMA_VERSION, Document, Text, explain, jsonable
from core.reading import read_json
from core.workspace import relative

log = logging.getLogger(__name__)

Model = TypeVar("Model")


class Problem(Document):
    path: Text = Field(description="File or folder, relative to the workspace.")
    message: Text = Field(description="The problem.")


class Problems:
    """Inputs that could not be read, in the order in which they were found; every entry is logged once."""

    def __init__(self, root: Path):
        self.root = root
        self.found: list[Problem] = []

    def add(self, path: Path, message: str) -> None:
        problem = Problem(path=relative(path, self.root), message=message)
        if problem in self.found:  # a folder that several inputs are in
            return
        log.warning("%s: %s", problem.path, problem.message)
        self.found.append(problem)


def read_model(path: Path, model: type[Model], problems: Problems) -> Model | None:
    """The JSON file as `model`; None if it is missing, damaged or of another schema version. The latter two are added
    to `problems`."""
    try:
        values = jsonable(read_json(path))
        version = values.get("schema_version", SCHEMA_VERSION) if isinstance(values, dict) else SCHEMA_VERSION
        if version != SCHEMA_VERSION:
            raise ValueError(f"has schema version {version!r}; this version of Landfall reads {SCHEMA_VERSION}")
        return TypeAdapter(model).validate_python(values)
    except FileNotFoundError:
        return None
    # Decoding and validation errors are ValueErrors.
    except (OSError, ValueError) as error:
        problems.add(path, explain(error))
        return None
