"""Fingerprints of the inputs of a step, so that a later run can report which inputs have changed. They are stored in
files, so secrets are redacted in them: a changed password is not detected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.config.compose import LoadedConfig, flatten
from core.fingerprints import (
    Fingerprint,
    code_digests,
    data_digests,
    file_digests,
    package_versions,
)
from core.reading import read_json_object
from core.secrets.redaction import redacted
from core.workspace import json_digest, relative, sha256_of
from pipelines.steps.table import Order, Step

# Parameters that affect only the name of a run or its display.
_NO_INPUTS = ("run_id", "overrides", "config")


def fingerprint(step: Step, order: Order, root: Path) -> Fingerprint:
    """The inputs of a step, by kind. Raises DataError if a pattern of the configuration matches no file."""
    inputs = step.inputs
    configs = [order.configs[stream] for stream in inputs.streams]
    parameters = redacted(step.notebook.parameters) if step.notebook else {}
    return {
        "data": dict(item for loaded in configs if inputs.data for item in _data(loaded, root)),
        "configuration": dict(item for loaded in configs for item in _configuration(loaded, root, inputs.sections)),
        "code": {**code_digests(inputs.code), **(_cells(root, step.notebook.path) if step.notebook else {})},
        "parameters": {name: json.dumps(value) for name, value in parameters.items() if name not in _NO_INPUTS},
        "packages": package_versions() if inputs.code else {},
        "files": file_digests(inputs.files, root),
    }


def _data(loaded: LoadedConfig, root: Path) -> Iterator[tuple[str, str]]:
    return data_digests(loaded.config, loaded.config.data.splits.globs, root=root)


def _configuration(loaded: LoadedConfig, root: Path, sections: Sequence[str]) -> Iterator[tuple[str, str]]:
    config = loaded.config
    for key, value in flatten(redacted(config.model_dump(mode="json", include=set(sections) or None))):
        yield f"{config.stream} {key}", json.dumps(value)
    if sections:
        return
    if config.training.start_from:
        yield from file_digests((config.training.start_from,), root).items()
    for file in sorted((root / "configs/hardware").rglob("*.yaml")):
        yield relative(file, root), sha256_of(file)


def _cells(root: Path, notebook: str) -> dict[str, str]:
    """The sources of a notebook's code cells: their outputs are not an input."""
    cells: list[dict[str, Any]] = read_json_object(root / notebook)["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return {notebook: json_digest(sources)}
