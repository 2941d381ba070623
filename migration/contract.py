"""Rules for Colab and local notebooks and configurations, as checks that list each violation.

- paths: paths are relative to the repository root (TR-01 of docs/requirements/local/TRD.md)
- Colab leftovers: no local file contains `/content` or `google.colab` (TR-02)
- Colab originals: the Colab notebooks and configurations keep their content (TR-03)
- local notebooks: they are `notebooks/local_*.ipynb`, complete and runnable by papermill (TR-04)
- configurations: local ones are `configs/*_local.yaml`; Hydra can compose every file of `configs/` (TR-05)

The digests of the Colab originals are in `colab_originals.json`; after an intended change of an original, update them
with `python -m migration.contract --write`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any

from core.cli import run_page_command
from core.config.compose import flatten, load_config, local_config_file
from core.config.hardware import HARDWARE_DIR, load_profile, load_tiers
from core.config.overrides import CONFIG_DIR, FLEET_FILE, PROFILE_DIR
from core.config.schema import STREAMS
from core.errors import UsageError
from core.reading import UnreadableError, parse_json, parse_yaml
from core.workspace import SAMPLES, json_text, relative

_DIGESTS = Path(__file__).with_name("colab_originals.json")
_COLAB_PATH = re.compile(r"(?<!<)/content(?![\w-])|google\.colab")
_ABSOLUTE_LITERAL = re.compile(r"""["']((?:/\w|~/|[A-Za-z]:[\\/])[^"'\n]*)["']""")


@dataclass(frozen=True)
class Violation:
    """One violation: the rule, the file and the problem."""

    rule: str
    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem} (rule: {self.rule})"


@dataclass(frozen=True)
class Assets:
    """The notebooks and configurations of a workspace: those on disk, and those that git tracks and that must exist.
    tracked: files that git tracks, relative to the root.
    """

    root: Path
    tracked: frozenset[str] = frozenset()

    @cached_property
    def notebooks(self) -> list[str]:
        """Local notebooks; those of the two streams are always expected."""
        return self._files("notebooks", "local_*.ipynb", [f"notebooks/local_{stream}_ssl.ipynb" for stream in STREAMS])

    @cached_property
    def configs(self) -> list[str]:
        """Every configuration and group file, without the Colab originals and the list of a plant's machines; those of
        the two streams are always expected."""
        found = self._files("configs", "**/*.yaml", [local_config_file(stream) for stream in STREAMS])
        return [file for file in found if file not in colab_originals() and file != FLEET_FILE]

    def _files(self, folder: str, pattern: str, expected: Iterable[str]) -> list[str]:
        on_disk = {relative(path, self.root) for path in (self.root / folder).glob(pattern)}
        suffix, start = pattern.rpartition("*")[2], f"{folder}/{pattern.partition('*')[0]}"
        known = {file for file in self.tracked if file.startswith(start) and file.endswith(suffix)}
        return sorted(on_disk | known | set(expected))

    @cached_property
    def composed(self) -> dict[str, dict[str, Any] | str]:
        """For each configuration of a run its flat values, or the reason why it cannot be composed. Environment
        variables are ignored."""
        return {file: self._composed(file) for file in self.configs if _is_runnable(file) and self.has(file)}

    def _composed(self, file: str) -> dict[str, Any] | str:
        try:
            config = load_config(file, root=self.root, environment={}).config
        except UsageError as error:
            return error.message
        return dict(flatten(config.model_dump(mode="json")))

    def has(self, file: str) -> bool:
        return (self.root / file).is_file()

    def text(self, file: str) -> str:
        return (self.root / file).read_text(encoding="utf-8", errors="replace") if self.has(file) else ""


def violations(root: Path, tracked: Iterable[str] = (), *, rules: Sequence[str] | None = None) -> list[Violation]:
    """Every violation in the workspace, in the order of the rules. tracked: files that git tracks. rules: default:
    all."""
    assets = Assets(root, frozenset(tracked))
    return [
        violation for name, check in _RULES.items() if rules is None or name in rules for violation in check(assets)
    ]


def colab_originals() -> dict[str, str]:
    """The digest of each Colab original, by its file."""
    return json.loads(_DIGESTS.read_text(encoding="utf-8"))


def digest_of(path: Path) -> str:
    """SHA-256 of the text; line ends are ignored, because they depend on the system."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def _is_runnable(file: str) -> bool:
    """Whether a file is a configuration of a run; the others are groups and tables."""
    return file.rpartition("/")[0] in ("configs", "configs/examples")


def is_repository_path(text: str) -> bool:
    """Whether a path is relative on every system and inside the repository: no root, drive letter, `~` or `..`."""
    path = PureWindowsPath(text)
    return not (path.drive or path.root or text.startswith("~") or ".." in path.parts)


def required_values(stream: str) -> dict[str, Any]:
    """Required values of a local configuration."""
    return {
        "device.prefer_cuda": True,
        "device.amp": True,
        "logging.log_dir": f"runs/{stream}_ssl",
        "logging.checkpoint_path": f"checkpoints/{stream}_ssl.pt",
    }


def _paths_are_relative(assets: Assets) -> Iterator[Violation]:
    for file, values in assets.composed.items():
        if isinstance(values, str):
            continue  # the rule for configurations reports it
        for key, value in values.items():
            for text in _path_texts(key, value):
                if not is_repository_path(text):
                    yield Violation("paths", file, f"{key} = {text} is not relative to the repository root")
        required = required_values(values["stream"]) if file == local_config_file(values["stream"]) else {}
        for key, expected in required.items():
            if values.get(key) != expected:
                yield Violation("paths", file, f"{key} = {values.get(key)!r}, expected {expected!r}")
        # `data.root: auto` stands for the workspace, or for the folder of the sample data while there is no other.
        root = "" if values["data.root"] in (".", SAMPLES) else f"{values['data.root']}/"
        for key, prefix, folder in (("data.splits.", root, "data/"), ("dqvl.report_dir", "", "artifacts/dqvl/")):
            for found, value in values.items():
                if found.startswith(key):
                    yield from (
                        Violation("paths", file, f"{found} = {text} is not under {folder}")
                        for text in _path_texts(found, value)
                        if not f"{prefix}{text}".startswith(folder)
                    )
    for notebook in assets.notebooks:
        for text in _ABSOLUTE_LITERAL.findall(_source(assets.text(notebook))):
            yield Violation("paths", notebook, f"{text} is not relative to the repository root")


def _local_files_name_no_colab_path(assets: Assets) -> Iterator[Violation]:
    for file in [*assets.configs, *assets.notebooks]:
        if found := _COLAB_PATH.search(assets.text(file)):
            yield Violation("Colab leftovers", file, f"names {found.group()}")
    for file, values in assets.composed.items():
        for key, value in values.items() if isinstance(values, dict) else ():
            if any(_COLAB_PATH.search(text) for text in _path_texts(key, value)):
                yield Violation("Colab leftovers", file, f"{key} = {value} is composed from a Colab path")


def _colab_originals_are_unchanged(assets: Assets) -> Iterator[Violation]:
    for file, digest in colab_originals().items():
        if not assets.has(file):
            yield Violation("Colab originals", file, "the Colab original is missing")
        elif digest_of(assets.root / file) != digest:
            yield Violation("Colab originals", file, "differs from the Colab original")


def _local_notebooks_are_complete(assets: Assets) -> Iterator[Violation]:
    for file in assets.notebooks:
        if not assets.has(file):
            yield Violation("local notebooks", file, "the local notebook is missing")
        elif not _code_cells(assets.text(file)):
            yield Violation("local notebooks", file, "is not a complete notebook with code cells")


def _local_configs_compose(assets: Assets) -> Iterator[Violation]:
    for file in assets.configs:
        values = assets.composed.get(file)
        if not assets.has(file):
            yield Violation("configurations", file, "the local configuration is missing")
        elif isinstance(values, str):
            yield Violation("configurations", file, values)
        elif values is None and (problem := _fault_of_group(assets, file)):
            yield Violation("configurations", file, problem)


_RULES: dict[str, Callable[[Assets], Iterator[Violation]]] = {
    "paths": _paths_are_relative,
    "Colab leftovers": _local_files_name_no_colab_path,
    "Colab originals": _colab_originals_are_unchanged,
    "local notebooks": _local_notebooks_are_complete,
    "configurations": _local_configs_compose,
}


def _code_cells(notebook: str) -> list[str]:
    """The sources of the code cells; empty if the text is not a notebook."""
    try:
        cells = parse_json(notebook)["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (UnreadableError, KeyError, TypeError):
        return []


def _source(notebook: str) -> str:
    try:
        return "\n".join("".join(cell["source"]) for cell in parse_json(notebook)["cells"])
    except (UnreadableError, KeyError, TypeError):
        return notebook


def _fault_of_group(assets: Assets, file: str) -> str | None:
    """Why a group file or table cannot be used; groups are composed with the first configuration that is valid, those
    in a folder of a stream with one of that stream."""
    try:
        values, _ = parse_yaml(assets.text(file))
    except UnreadableError as error:
        return str(error)
    if not isinstance(values, dict):
        return "is not a mapping of keys to values"
    folder, _, name = file.removesuffix(".yaml").rpartition("/")
    stream = folder.rpartition("/")[2]
    valid = {name: composed for name, composed in assets.composed.items() if isinstance(composed, dict)}
    fitting = [name for name, composed in valid.items() if stream not in STREAMS or composed.get("stream") == stream]
    runnable = next(iter(fitting), None)
    try:
        if folder == PROFILE_DIR:
            load_profile(name, assets.root)
        elif folder.startswith(HARDWARE_DIR):
            load_tiers(assets.root)
        elif runnable is not None:
            override = f"{folder.removeprefix(CONFIG_DIR)[1:]}={name}"
            load_config(runnable, [override], root=assets.root, environment={})
    except UsageError as error:
        # `load_tiers` reads several files.
        return error.message if not folder.startswith(HARDWARE_DIR) or file in error.message else None
    return None


def _path_texts(key: str, value: Any) -> list[str]:
    """The texts of a value whose key contains paths."""
    if not key.endswith((".files", "_dir", "_path", ".root")):
        return []
    return [str(text) for text in value] if isinstance(value, list) else [str(value)]


# ------------------------------------------------------------------------------------------------------------- digests
def digests_text(root: Path) -> str:
    """The JSON text of `colab_originals.json` for the current files."""
    patterns = ("notebooks/colab_{}_ssl.ipynb", "configs/{}_ssl.yaml")
    files = [pattern.format(stream) for pattern in patterns for stream in STREAMS]
    return json_text({file: digest_of(root / file) for file in files})


def main(argv: Sequence[str] | None = None) -> int:
    root = Path(__file__).resolve().parents[1]
    return run_page_command(
        relative(_DIGESTS, root), lambda: digests_text(root),
        description="Prints the digests of the Colab originals.", argv=argv,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
