"""What a step's inputs are made of, so that a later run can say whether they are the same, and which are not."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.config.compose import LoadedConfig, flatten
from core.data.files import data_stem, expand
from core.data.store import Store
from core.redaction import redacted
from core.workspace import relative
from pipelines.steps.table import Order, Step

# Kind of input → item → its digest, or its value where that is short. Kept in files, so secrets are hidden in it, and
# another password is no change.
Fingerprint = dict[str, dict[str, str]]

CODE_ROOT = Path(__file__).resolve().parents[2]
# Their versions decide what comes out of a run; others only how it is shown.
_PACKAGES = ("torch", "numpy", "pandas", "scipy")
# Parameters that name a run or say how it is shown.
_NO_INPUTS = ("run_id", "overrides", "config")
_TOLD = 3


def fingerprint(step: Step, order: Order, root: Path) -> Fingerprint:
    """Raises DataError where a pattern of the configuration matches no file."""
    inputs = step.inputs
    configs = [order.configs[stream] for stream in inputs.streams]
    parameters = redacted(step.notebook.parameters) if step.notebook else {}
    return {
        "data": dict(item for loaded in configs if inputs.data for item in _data(loaded, root)),
        "configuration": dict(item for loaded in configs for item in _configuration(loaded, root)),
        "code": {**_code(inputs.code), **(_cells(root, step.notebook.path) if step.notebook else {})},
        "parameters": {name: json.dumps(value) for name, value in parameters.items() if name not in _NO_INPUTS},
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES if inputs.code},
        "files": digests(inputs.files, root),
    }


def digests(files: tuple[str, ...], root: Path) -> dict[str, str]:
    """SHA-256 of each file that is there."""
    return {name: _sha256((root / name).read_bytes()) for name in files if (root / name).is_file()}


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What differs, in words: one entry for each kind of input."""
    return [told for kind in now if (told := _difference(kind, before.get(kind, {}), now[kind]))]


def _difference(kind: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    names = [name for name in dict.fromkeys([*now, *before]) if before.get(name) != now.get(name)]
    if not names:
        return ""
    told = ", ".join(_item(name, before.get(name), now.get(name)) for name in names[:_TOLD])
    return f"{kind}: {told}" + (f" and {len(names) - _TOLD} more" if len(names) > _TOLD else "")


def _item(name: str, before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return f"{name} is {'new' if before is None else 'gone'}"
    is_digest = len(now) == hashlib.sha256().digest_size * 2
    return f"{name} changed" if is_digest else f"{name} was {before}, is {now}"


# ------------------------------------------------------------------------------------------------------ kinds of inputs
def _data(loaded: LoadedConfig, root: Path) -> Iterator[tuple[str, str]]:
    """Sensor files, and what lies beside them under the same name: labels, and what the publisher tells."""
    settings = loaded.config.data
    folder, store = (root / settings.root).resolve(), Store.of(loaded.config, root)
    parts = (getattr(settings.parts, name) for name in type(settings.parts).model_fields)
    sensors = {file for part in parts if part.files for file in expand(part.files, folder)}
    beside = {other for file in sensors for other in file.parent.glob(f"{data_stem(file)}.*")}
    told = {file.with_name("dataset.json") for file in sensors}
    for file in sorted(sensors | beside | {file for file in told if file.is_file()}):
        yield relative(file, folder), store.digest_of_bytes(file)


def _configuration(loaded: LoadedConfig, root: Path) -> Iterator[tuple[str, str]]:
    config = loaded.config
    for key, value in flatten(redacted(config.model_dump(mode="json"))):
        yield f"{config.stream} {key}", json.dumps(value)
    if config.training.start_from:
        yield from digests((config.training.start_from,), root).items()
    for file in sorted((root / "configs/hardware").rglob("*.yaml")):
        yield relative(file, root), _sha256(file.read_bytes())


def _code(packages: tuple[str, ...]) -> dict[str, str]:
    files = (file for package in packages for file in sorted((CODE_ROOT / package).rglob("*.py")))
    return {relative(file, CODE_ROOT): _sha256(file.read_bytes()) for file in files}


def _cells(root: Path, notebook: str) -> dict[str, str]:
    """The sources of a notebook's code cells: what they showed last is no input."""
    cells: list[dict[str, Any]] = json.loads((root / notebook).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return {notebook: _sha256(json.dumps(sources).encode())}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
