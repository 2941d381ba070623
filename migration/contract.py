"""The contract that local notebooks and configurations keep (TR-01 to TR-05), as checks that name each breach.

TR-01 paths are relative to the repository root · TR-02 nothing local names `/content` · TR-03 the Colab notebooks stay
as they are · TR-04 local notebooks are `notebooks/local_*.ipynb` · TR-05 local configurations are
`configs/*_local.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from core.config.compose import flatten, load_config, local_config_file
from core.config.schema import STREAMS
from core.reading import read_json_object
from core.workspace import relative

_COLAB_PATH = re.compile(r"/content(?![\w-])|google\.colab")
_ABSOLUTE_LITERAL = re.compile(r"""["']((?:/\w|~/|[A-Za-z]:[\\/])[^"'\n]*)["']""")


@dataclass(frozen=True)
class Breach:
    """One breach: the rule, the file and what in it breaks the rule."""

    rule: str
    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.rule} {self.file}: {self.problem}"


def breaches(root: Path) -> list[Breach]:
    """Every breach in the workspace, in the order of the rules."""
    return [breach for check in _RULES for breach in check(root)]


def is_repository_path(text: str) -> bool:
    """Relative on every system and inside the repository: no root, no drive letter, no home folder, no way up."""
    path = PureWindowsPath(text)
    return not (path.drive or path.root or text.startswith("~") or ".." in path.parts)


def required_values(stream: str) -> dict[str, Any]:
    """What a local configuration must say."""
    return {
        "device.prefer_cuda": True,
        "device.amp": True,
        "logging.log_dir": f"runs/{stream}_ssl",
        "logging.checkpoint_path": f"checkpoints/{stream}_ssl.pt",
    }


def _paths_are_relative(root: Path) -> Iterator[Breach]:
    for stream, file, values in _local_configs(root):
        for key, value in values.items():
            for text in _path_texts(key, value):
                if not is_repository_path(text):
                    yield Breach("TR-01", file, f"{key} = {text} is not relative to the repository root")
        for key, expected in required_values(stream).items():
            if values.get(key) != expected:
                yield Breach("TR-01", file, f"{key} = {values.get(key)!r}, expected {expected!r}")
        for key, folder in (("data.parts.", "data/"), ("dqvl.report_dir", "artifacts/dqvl/")):
            for found, value in values.items():
                if found.startswith(key):
                    yield from (
                        Breach("TR-01", file, f"{found} = {text} is not under {folder}")
                        for text in _path_texts(found, value)
                        if not text.startswith(folder)
                    )
    for notebook in sorted(root.glob("notebooks/local_*.ipynb")):
        for text in _ABSOLUTE_LITERAL.findall(_source(notebook)):
            yield Breach("TR-01", relative(notebook, root), f"{text} is not relative to the repository root")


def _nothing_local_names_colab(root: Path) -> Iterator[Breach]:
    for file in [*_local_config_files(root), *sorted(root.glob("notebooks/local_*.ipynb"))]:
        if found := _COLAB_PATH.search(file.read_text(encoding="utf-8")):
            yield Breach("TR-02", relative(file, root), f"names {found.group()}")
    for _, file, values in _local_configs(root):
        for key, value in values.items():
            if any(_COLAB_PATH.search(text) for text in _path_texts(key, value)):
                yield Breach("TR-02", file, f"{key} = {value} is composed from a Colab path")


def _colab_originals_stay(root: Path) -> Iterator[Breach]:
    for stream in STREAMS:
        for file in (f"notebooks/colab_{stream}_ssl.ipynb", f"configs/{stream}_ssl.yaml"):
            if not (root / file).is_file():
                yield Breach("TR-03", file, "the Colab original is missing")


def _local_notebooks_in_place(root: Path) -> Iterator[Breach]:
    for stream in STREAMS:
        file = f"notebooks/local_{stream}_ssl.ipynb"
        if not (root / file).is_file():
            yield Breach("TR-04", file, "the local notebook is missing")


def _local_configs_in_place(root: Path) -> Iterator[Breach]:
    for stream in STREAMS:
        if not (root / local_config_file(stream)).is_file():
            yield Breach("TR-05", local_config_file(stream), "the local configuration is missing")


_RULES: tuple[Callable[[Path], Iterator[Breach]], ...] = (
    _paths_are_relative,
    _nothing_local_names_colab,
    _colab_originals_stay,
    _local_notebooks_in_place,
    _local_configs_in_place,
)


def _source(notebook: Path) -> str:
    cells = read_json_object(notebook)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def _local_config_files(root: Path) -> list[Path]:
    return sorted(root.glob("configs/*_local.yaml"))


def _local_configs(root: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Stream, file name and composed values; the environment is left out, for a file is judged by itself."""
    for path in _local_config_files(root):
        file = relative(path, root)
        config = load_config(file, root=root, environment={}).config
        yield config.stream, file, dict(flatten(config.model_dump(mode="json")))


def _path_texts(key: str, value: Any) -> list[str]:
    """The texts of a value whose key holds paths."""
    if not key.endswith((".files", "_dir", "_path", ".root")):
        return []
    return [str(text) for text in value] if isinstance(value, list) else [str(value)]
