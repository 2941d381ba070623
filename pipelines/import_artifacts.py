"""Imports the outputs of a run on Colab or a drive into this workspace: `make import-artifacts FROM=DIR|ZIP`.

All files are verified before the first one is placed. Existing files are replaced only with `--replace`, and are then
kept under another name.
"""

from __future__ import annotations

import argparse
import errno
import filecmp
import logging
import lzma
import re
import shutil
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from core.cli import add_root_argument, print_json, root_of, run_command
from core.config.compose import load_config
from core.config.schema import REPORT_DIRS, STREAMS, Stream
from core.errors import EXIT_OK, LandfallError, OutputError, UsageError, WriteError
from core.lock import Lock
from core.names import is_run_id
from core.reading import LARGEST_RATIO, unpacks_too_far
from core.switching import finish, switch
from core.workspace import relative, temporary_folder, utc_now
from pipelines.imported_checks import Artifact, is_for, verify_artifacts
from pipelines.imported_models import measure_quality, record_import, streams_of
from pipelines.stream_configs import add_stream_config_arguments

log = logging.getLogger(__name__)


def import_artifacts(source: Path, *, root: Path, replace: bool = False) -> list[str]:
    """Imports the artifacts of a folder or zip; returns the names of the new files.

    These are recognised in any subfolder: checkpoints with their sidecars and detectors, loss histories and curves,
    scalers, scores, events, quality reports, and run folders. `artifacts/imported.json` records the imported models. An
    existing file that is equal is skipped. An existing file that differs stops the import; with `replace` it is kept
    next to the new one as `<name>.before-<time>`. Raises UsageError if there is nothing to import, OutputError with
    every file that is damaged, unknown or in conflict, LockedError if a run writes the same files.
    """
    with _opened(source, root) as folder:
        artifacts = _found(folder)
        if not artifacts:
            raise UsageError(
                f"{source} contains no checkpoint, loss history, scaler or run log of Landfall",
                hint="files are recognised by their names, such as patchtst_ssl.pt next to patchtst_ssl.json",
            )
        _refuse_duplicates(artifacts, folder)
        verify_artifacts(artifacts, folder)
        artifacts = [artifact for artifact in artifacts if not _is_stale_detector(artifact, artifacts)]
        with Lock(command="landfall import-artifacts") as lock:
            for target in dict.fromkeys(map(_locked_with, artifacts)):
                lock.take(root / target, key="--repo-root")
            finish(root)
            new = [artifact for artifact in artifacts if not _equal(artifact.source, root / artifact.target)]
            in_the_way = [artifact.target for artifact in new if (root / artifact.target).exists()]
            if in_the_way and not replace:
                raise OutputError(
                    f"exist with other contents: {', '.join(in_the_way)}",
                    hint="add --replace (REPLACE=1 with make) to keep these under another name, or move them away",
                )
            suffix = f".before-{re.sub(r'[^0-9]', '', utc_now())[:14]}"
            kept = switch({artifact.target: artifact.source for artifact in new}, root=root, suffix=suffix)
            record_import(root, [artifact.stream for artifact in artifacts if artifact.target.endswith("_ssl.pt")])
    for name in kept:
        log.warning("the existing file is kept as %s", name)
    for artifact in artifacts:
        log.info("%s %s", "imported" if artifact in new else "unchanged", artifact.target)
    return [artifact.target for artifact in new]


def _is_stale_detector(artifact: Artifact, artifacts: Sequence[Artifact]) -> bool:
    """Whether a detector belongs to other weights than those in the bundle, as after a training that was not scored."""
    if not artifact.target.endswith(".detector.npz"):
        return False
    model = next(each.source for each in artifacts if each.target == f"checkpoints/{artifact.stream}_ssl.pt")
    stale = not is_for(artifact.source, model)
    if stale:
        log.warning("%s is skipped, because it belongs to other weights; scoring creates a new one", artifact.target)
    return stale


# ----------------------------------------------------------------------------------------------------------- the bundle
@contextmanager
def _opened(source: Path, root: Path) -> Iterator[Path]:
    """The folder, or the unpacked zip in a temporary folder of the workspace."""
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise UsageError(f"{source} does not exist", hint="pass the folder or zip from Colab or the drive")
    if not zipfile.is_zipfile(source):
        raise UsageError(f"{source} is neither a folder nor a zip", hint="download it again; it may be incomplete")
    with temporary_folder(root / "import") as scratch:
        try:
            with zipfile.ZipFile(source) as archive:
                _unpack(archive, scratch, source)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise OutputError(f"{source} is a damaged zip: {error}", hint="download the bundle again") from error
        yield scratch


_ENCRYPTED = 1  # a flag of a member
# Errors of the disk of the workspace. The free space is checked before, but quotas count apart.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _unpack(archive: zipfile.ZipFile, folder: Path, source: Path) -> None:
    """Unpacks recognised files only; links, and names outside the folder, are refused."""
    wanted = []
    for info in archive.infolist():
        path = PurePosixPath(info.filename)
        if _target_of(path):
            wanted.append(info)
        elif info.filename and not info.is_dir():
            _warn_of_unknown(path)
    needed, free = sum(info.file_size for info in wanted), shutil.disk_usage(folder).free
    if unpacks_too_far(needed, source.stat().st_size):
        raise OutputError(
            f"{source} unpacks to {needed / 1e9:.1f} GB, more than {LARGEST_RATIO} times its size",
            hint="this is not a bundle of Landfall",
        )
    if needed > free:
        raise OutputError(f"{source} unpacks to {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free", hint="free space")
    for info in wanted:
        name = PurePosixPath(info.filename)
        if name.is_absolute() or ".." in name.parts or stat.S_ISLNK(info.external_attr >> 16):
            raise OutputError(
                f"{source}: {info.filename} is outside the bundle", hint="this is not a bundle of Landfall"
            )
        if info.flag_bits & _ENCRYPTED:
            raise OutputError(f"{source}: {info.filename} is encrypted", hint="unpack it and pass the folder")
        try:
            archive.extract(info, folder)
        except NotImplementedError as error:  # Deflate64 of Windows, and others
            raise OutputError(
                f"{source}: {info.filename} has a compression that Python does not support: {error}",
                hint="unpack it and pass the folder",
            ) from error
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno in _FULL:
                raise WriteError(folder.parent, error) from error
            raise OutputError(
                f"{source}: {info.filename} is damaged: {error}", hint="download the bundle again"
            ) from error


_RUN_FILES = (
    r"(?:status|environment|trace|detection|notes)\.json|metrics\.jsonl|config\.yaml|(?:skipped|lost)-step-\d+\.(?:json|npz)"
    r"|events\.out\.tfevents\.[\w.-]+"
)
_STREAM = f"(?P<stream>{'|'.join(STREAMS)})"
# The end of a path in a bundle, and the target of such a file in the workspace.
_PLACES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:.*/)?{pattern}"), place)
    for pattern, place in (
        (rf"(?P<name>{_STREAM}_ssl(?:\.last)?\.(?:pt|json))", "checkpoints/{name}"),
        (rf"(?P<name>{_STREAM}_ssl\.detector\.npz)", "checkpoints/{name}"),
        (rf"(?P<name>{_STREAM}_loss_(?:history\.csv|curve\.png))", "artifacts/loss/{name}"),
        (rf"(?P<name>scaler_{_STREAM}\.json)", "artifacts/{name}"),
        (
            rf"(?P<name>{_STREAM}_(?:scores\.parquet|events\.(?:csv|json)|recordings\.csv|(?:timeline|event_\d+)\.png|summary\.json))",
            "artifacts/scores/{name}",
        ),
        (rf"{_STREAM}_events/(?P<name>\d+\.json)", "artifacts/scores/{stream}_events/{name}"),
        (rf"{_STREAM}_ssl/(?P<run>[^/]+)/(?P<name>{_RUN_FILES})", "runs/{stream}_ssl/{run}/{name}"),
    )
)
# Quality reports are recognised by their folder, which names the stream.
_REPORTS: tuple[tuple[re.Pattern[str], Stream], ...] = tuple(
    (re.compile(rf"(?:.*/)?{folder.removeprefix('artifacts/')}/(?P<name>[\w.-]+\.json)"), stream)
    for stream, folder in REPORT_DIRS.items()
)


def _target_of(path: PurePosixPath) -> tuple[str, Stream] | None:
    for pattern, place in _PLACES:
        found = pattern.fullmatch(path.as_posix())
        if found and is_run_id(found.groupdict().get("run", "x")):
            return place.format(**found.groupdict()), found["stream"]
    for pattern, stream in _REPORTS:
        if found := pattern.fullmatch(path.as_posix()):
            return f"{REPORT_DIRS[stream]}/{found['name']}", stream
    return None


def _found(folder: Path) -> list[Artifact]:
    """Every recognised file; a file comes before its sidecar, as training writes them. Raises OutputError for a link
    that is broken or leads outside the folder.
    """
    found, whole = [], folder.resolve()
    for path in sorted(folder.rglob("*")):
        place = _target_of(PurePosixPath(path.relative_to(folder).as_posix()))
        if path.is_symlink():
            if path.exists() and not path.resolve().is_relative_to(whole):
                raise OutputError(
                    f"{relative(path, folder)} is outside the bundle", hint="this is not a bundle of Landfall"
                )
            if place is not None and not path.exists():
                raise OutputError(f"{relative(path, folder)} is a broken link", hint="copy the file itself")
        if place is not None and path.is_file():
            found.append(Artifact(path, *place))
        elif path.is_file():
            _warn_of_unknown(PurePosixPath(relative(path, folder)))
    return sorted(found, key=lambda artifact: (artifact.target.endswith(".json"), artifact.target))


def _warn_of_unknown(path: PurePosixPath) -> None:
    if path.parent.parent.name.endswith("_ssl"):
        log.warning("skipped, not a known file of a run: %s", path)


def _refuse_duplicates(artifacts: Sequence[Artifact], folder: Path) -> None:
    by_target: dict[str, list[Path]] = {}
    for artifact in artifacts:
        by_target.setdefault(artifact.target, []).append(artifact.source)
    for target, sources in by_target.items():
        if len({source.read_bytes() for source in sources} if len(sources) > 1 else sources) > 1:
            names = ", ".join(relative(source, folder) for source in sources)
            raise OutputError(
                f"several different files would become {target}: {names}", hint="pass one of their folders"
            )


# --------------------------------------------------------------------------------------------------------------- placed
def _locked_with(artifact: Artifact) -> str:
    """The path that a run locks to write such a file: the model, for all its files, or the run folder."""
    if artifact.target.startswith("runs/"):
        return str(PurePosixPath(artifact.target).parent)
    return f"checkpoints/{artifact.stream}_ssl.pt"


def _equal(source: Path, target: Path) -> bool:
    """Whether both files have the same content."""
    return target.is_file() and filecmp.cmp(source, target, shallow=False)


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall import-artifacts",
        description="Imports checkpoints, losses, logs and scalers from Colab.",
    )
    parser.add_argument("source", type=Path, metavar="DIR|ZIP", help="download from Colab or the drive")
    parser.add_argument(
        "--replace", action="store_true", help="replace existing files, which are kept under another name"
    )
    add_stream_config_arguments(parser)
    add_root_argument(parser)

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        placed = import_artifacts(arguments.source, root=root, replace=arguments.replace)
        for stream in streams_of(placed):
            try:
                measure_quality(load_config(getattr(arguments, stream), root=root).config, root)
            except LandfallError as error:  # the import itself is complete
                log.warning("%s: the data is not checked: %s", stream, error)
        print_json({"placed": placed}, indent=2)
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
