"""Digests of the inputs of a result, with which a later command reports whether it is current, and what has changed.

Nothing here imports torch or pandas: a result that is current is recognised without loading a model.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from glob import escape
from pathlib import Path

from core.config.schema import AnyConfig
from core.data.files import data_stem, expand, is_present
from core.data.store import Store
from core.workspace import CODE_ROOT, relative, sha256_of

# Kind of input → item → its digest, or its value if that is short.
Fingerprint = dict[str, dict[str, str]]

# Their versions affect the results; other packages only affect the display.
_PACKAGES = ("torch", "numpy", "pandas", "scipy")
_NUM_NAMED = 3
_DIGEST_LETTERS = hashlib.sha256().digest_size * 2


def changes(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The differences as text: one entry for each kind of input that differs."""
    return [described for kind in now if (described := _difference(kind, before.get(kind, {}), now[kind]))]


def _difference(kind: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    names = [name for name in dict.fromkeys([*now, *before]) if before.get(name) != now.get(name)]
    if not names:
        return ""
    named = ", ".join(_item(name, before.get(name), now.get(name)) for name in names[:_NUM_NAMED])
    return f"{kind}: {named}" + (f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else "")


def _item(name: str, before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return f"{name} is {'new' if before is None else 'gone'}"
    return f"{name} changed" if len(now) == _DIGEST_LETTERS else f"{name} was {before}, is {now}"


# ------------------------------------------------------------------------------------------------------ kinds of inputs
def file_digests(files: Iterable[str], root: Path) -> dict[str, str]:
    """SHA-256 of each file that exists, by its path relative to `root`."""
    return {name: sha256_of(root / name) for name in files if (root / name).is_file()}


def code_digests(packages: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each source file of packages of Landfall."""
    files = (file for package in packages for file in sorted((CODE_ROOT / package).rglob("*.py")))
    return {relative(file, CODE_ROOT): sha256_of(file) for file in files}


def package_versions() -> dict[str, str]:
    """Versions of the installed packages that affect the results."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def data_digests(config: AnyConfig, patterns: Iterable[str], *, root: Path) -> Iterator[tuple[str, str]]:
    """Path from `data.root` and SHA-256 of the sensor files that match, of their label files and of their JSON facts.

    Raises DataError for a pattern that matches no sensor file.
    """
    folder, store = (root / config.data.root).resolve(), Store.of(config, root)
    sensors = set(expand(patterns, folder))
    same_stem = {other for file in sensors for other in file.parent.glob(f"{escape(data_stem(file))}.*")}
    facts = {file.with_name("dataset.json") for file in sensors}
    for file in sorted(sensors | {file for file in same_stem | facts if is_present(file)}):
        yield relative(file, folder), store.digest_of_bytes(file)
