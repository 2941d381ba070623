"""Composes configuration files and chosen groups with Hydra, and finds the line that set each key.

Composing takes a fifth of a second, so the result for the same texts and choices is cached in the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config.overrides import CONFIG_DIR
from core.config.sources import Source, read_sources
from core.errors import UsageError, first_line
from core.workspace import relative

if TYPE_CHECKING:
    from omegaconf import DictConfig

_MAX_CACHED = 64
# Plain values and origins, by all inputs of Hydra.
_cached: dict[tuple[object, ...], tuple[Any, Mapping[str, str]]] = {}


def composed_of(
    path: Path, overrides: Sequence[str], *, root: Path, is_group_only: bool = False
) -> tuple[DictConfig, dict[str, str]]:
    """Hydra's composition of a file and chosen groups, or of the groups only, and the line that set each key.

    The order of the origins is the order in which the values were last set.
    """
    from omegaconf import OmegaConf

    folder = root / CONFIG_DIR if is_group_only else path.parent
    sources = read_sources(path, (folder, root / CONFIG_DIR), root)
    for text in overrides:
        group, _, option = text.lstrip("+~").partition("=")
        sources |= read_sources(root / CONFIG_DIR / group / f"{option}.yaml", (root / CONFIG_DIR,), root)
    texts = tuple((relative(file, root), source.text) for file, source in sources.items())
    key = (relative(path, root), is_group_only, tuple(overrides), texts)
    if key not in _cached:
        found = len(sources)
        values, origins = _compose(None if is_group_only else path.stem, folder, overrides, sources, root=root)
        if len(sources) > found:  # a file that no defaults list names literally: its text is not in the key
            return values, origins
        if len(_cached) >= _MAX_CACHED:
            _cached.clear()
        _cached[key] = OmegaConf.to_container(values, resolve=False), origins
    plain, origins_of_files = _cached[key]
    return OmegaConf.create(plain), dict(origins_of_files)


def note(origins: dict[str, str], key: str, source: str) -> None:
    """Sets the origin of a key, which is then the last in the order."""
    origins.pop(key, None)
    origins[key] = source


def _compose(
    name: str | None, folder: Path, overrides: Sequence[str], sources: dict[Path, Source], *, root: Path
) -> tuple[DictConfig, dict[str, str]]:
    """Adds the other files that Hydra reads to `sources`."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    shown = relative(folder / f"{name}.yaml", root) if name else "the chosen groups"
    configs = str((root / CONFIG_DIR).resolve()).replace("'", r"\'")
    texts = [f"hydra.searchpath=['file://{configs}']", *overrides]
    with initialize_config_dir(str(folder.resolve()), version_base="1.3", job_name="landfall"):
        try:
            composed = compose(config_name=name, overrides=texts)
        except (HydraException, OmegaConfBaseException):
            raise
        except RecursionError as error:
            hint = "remove the file from the defaults list of a file that it includes"
            raise UsageError(f"{shown}: a defaults list includes its own file", hint=hint) from error
        except (ValueError, TypeError, AttributeError, AssertionError) as error:  # Hydra does not check their types
            hint = "write a list of file names, such as defaults: [patchtst_ssl_local, _self_]"
            raise UsageError(f"{shown}: its defaults list cannot be read: {first_line(error)}", hint=hint) from error
        origins = _file_origins(name, texts, (folder, root / CONFIG_DIR), sources, root=root)
    OmegaConf.set_struct(composed, False)
    return composed, origins


def _file_origins(
    name: str | None, overrides: list[str], folders: Sequence[Path], sources: dict[Path, Source], *, root: Path
) -> dict[str, str]:
    """Visits Hydra's list of composed files in merge order; the origin of a key is the last file that contains it,
    `file:line`."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    loader = GlobalHydra.instance().config_loader()
    defaults = loader.compute_defaults_list(name, overrides, RunMode.RUN).defaults
    origins: dict[str, str] = {}
    for entry in defaults:
        file = _source_file(entry.config_path, folders)
        if file is None or (entry.package or "").split(".")[0] == "hydra":
            continue
        if file not in sources:
            sources |= read_sources(file, (), root)
        prefix = f"{entry.package}." if entry.package else ""
        for key, line in sources[file].lines.items():
            if key != "defaults":
                note(origins, f"{prefix}{key}", f"{relative(file, root)}:{line}")
    return origins


def _source_file(config_path: str | None, folders: Sequence[Path]) -> Path | None:
    candidates = [folder / f"{config_path}.yaml" for folder in folders]
    return next((file for file in candidates if file.is_file()), None)
