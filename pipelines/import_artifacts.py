"""Brings what a run left on Colab or a drive into this workspace: `make import-artifacts FROM=DIR|ZIP`.

Everything is verified before the first file is placed, and nothing that is here is overwritten unless asked for; then
what was here is kept under another name.
"""

from __future__ import annotations

import argparse
import filecmp
import json
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

from core.cli import add_root_argument, root_of, run_command
from core.config.compose import load_config, local_config_file
from core.config.schema import REPORT_DIRS, STREAMS, Stream
from core.errors import EXIT_OK, LandfallError, OutputError, UsageError
from core.lock import Lock
from core.names import is_run_id
from core.switching import finish, switch
from core.workspace import relative, temporary_folder, utc_now
from pipelines.imported_checks import Artifact, is_for, verify
from pipelines.imported_models import measure_quality, record_import, streams_of

log = logging.getLogger(__name__)


def import_artifacts(source: Path, *, root: Path, replace: bool = False) -> list[str]:
    """Places the artifacts of a folder or zip; gives the names of the files placed.

    Recognised wherever they lie in it: checkpoints with their sidecars and detectors, loss histories and curves,
    scalers, scores, events, quality reports, and run folders. `artifacts/imported.json` records which models came from
    elsewhere. A file that is already here and the same is left; one that differs stops the
    import, or with `replace` is kept beside the new one as `<name>.before-<time>`.
    Raises UsageError where there is nothing to import, OutputError naming every file that is torn, foreign or in the
    way, LockedError where a run writes the same.
    """
    with _opened(source, root) as folder:
        artifacts = _found(folder)
        if not artifacts:
            raise UsageError(
                f"{source} holds no checkpoint, loss history, scaler or run log of Landfall",
                hint="files are known by their names, such as patchtst_ssl.pt beside patchtst_ssl.json",
            )
        _refuse_doubles(artifacts, folder)
        verify(artifacts, folder)
        artifacts = [artifact for artifact in artifacts if not _is_stale_detector(artifact, artifacts)]
        with Lock(command="landfall import-artifacts") as lock:
            for target in dict.fromkeys(map(_locked_with, artifacts)):
                lock.take(root / target, key="--repo-root")
            finish(root)
            new = [artifact for artifact in artifacts if not _equal(artifact.source, root / artifact.target)]
            in_the_way = [artifact.target for artifact in new if (root / artifact.target).exists()]
            if in_the_way and not replace:
                raise OutputError(
                    f"already here, with other contents: {', '.join(in_the_way)}",
                    hint="add --replace (REPLACE=1 with make) to keep these under another name, or move them away",
                )
            suffix = f".before-{re.sub(r'[^0-9]', '', utc_now())[:14]}"
            kept = switch({artifact.target: artifact.source for artifact in new}, root=root, suffix=suffix)
            record_import(root, [artifact.stream for artifact in artifacts if artifact.target.endswith("_ssl.pt")])
    for name in kept:
        log.warning("what was here is kept as %s", name)
    for artifact in artifacts:
        log.info("%s %s", "placed" if artifact in new else "the same, left", artifact.target)
    return [artifact.target for artifact in new]


def _is_stale_detector(artifact: Artifact, artifacts: Sequence[Artifact]) -> bool:
    """Whether it was made for other weights than come with it, as after a training that was not scored."""
    if not artifact.target.endswith(".detector.npz"):
        return False
    model = next(each.source for each in artifacts if each.target == f"checkpoints/{artifact.stream}_ssl.pt")
    stale = not is_for(artifact.source, model)
    if stale:
        log.warning("%s is left out, for it was made for other weights; scoring makes a new one", artifact.target)
    return stale


# ----------------------------------------------------------------------------------------------------------- the bundle
@contextmanager
def _opened(source: Path, root: Path) -> Iterator[Path]:
    """The folder, or what the zip holds unpacked beside the place it goes to."""
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise UsageError(f"{source} does not exist", hint="pass the folder or zip that came from Colab or the drive")
    if not zipfile.is_zipfile(source):
        raise UsageError(f"{source} is neither a folder nor a zip", hint="download it again; it may be torn")
    with temporary_folder(root / "import") as scratch:
        try:
            with zipfile.ZipFile(source) as archive:
                _unpack(archive, scratch, source)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise OutputError(f"{source} is a damaged zip: {error}", hint="download the bundle again") from error
        yield scratch


# Weights and logs hardly shrink; what grows a hundredfold is made to fill a disk.
_LARGEST_RATIO, _ALWAYS_UNPACKED = 100, 10**8
_ENCRYPTED = 1  # a flag of a member


def _unpack(archive: zipfile.ZipFile, folder: Path, source: Path) -> None:
    """Only what has a place here; links, and names that lead out of the folder, are refused."""
    wanted = [info for info in archive.infolist() if not info.is_dir() and _target_of(PurePosixPath(info.filename))]
    needed, free = sum(info.file_size for info in wanted), shutil.disk_usage(folder).free
    if needed > max(_ALWAYS_UNPACKED, _LARGEST_RATIO * source.stat().st_size):
        raise OutputError(
            f"{source} unpacks to {needed / 1e9:.1f} GB, more than {_LARGEST_RATIO} times its size",
            hint="this is no bundle of Landfall",
        )
    if needed > free:
        raise OutputError(f"{source} unpacks to {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free", hint="free space")
    for info in wanted:
        name = PurePosixPath(info.filename)
        if name.is_absolute() or ".." in name.parts or stat.S_ISLNK(info.external_attr >> 16):
            raise OutputError(
                f"{source}: {info.filename} leads out of the bundle", hint="this is no bundle of Landfall"
            )
        if info.flag_bits & _ENCRYPTED:
            raise OutputError(f"{source}: {info.filename} is encrypted", hint="unpack it and pass the folder")
        try:
            archive.extract(info, folder)
        except NotImplementedError as error:  # Deflate64 of Windows, and others
            raise OutputError(
                f"{source}: {info.filename} is packed in a way that Python does not read: {error}",
                hint="unpack it and pass the folder",
            ) from error
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError) as error:
            raise OutputError(
                f"{source}: {info.filename} is torn: {error}", hint="download the bundle again"
            ) from error


_RUN_FILES = (
    r"status\.json|metrics\.jsonl|config\.yaml|environment\.json|trace\.json|lost-step-\d+\.(?:json|npz)"
    r"|events\.out\.tfevents\.[\w.-]+"
)
_STREAM = f"(?P<stream>{'|'.join(STREAMS)})"
# The end of a path in a bundle, and where in the workspace such a file belongs.
_PLACES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:.*/)?{pattern}"), place)
    for pattern, place in (
        (rf"(?P<name>{_STREAM}_ssl(?:\.last)?\.(?:pt|json))", "checkpoints/{name}"),
        (rf"(?P<name>{_STREAM}_ssl\.detector\.npz)", "checkpoints/{name}"),
        (rf"(?P<name>{_STREAM}_loss_(?:history\.csv|curve\.png))", "artifacts/loss/{name}"),
        (rf"(?P<name>scaler_{_STREAM}\.json)", "artifacts/{name}"),
        (
            rf"(?P<name>{_STREAM}_(?:scores\.parquet|events\.(?:csv|json)|(?:timeline|event_\d+)\.png|summary\.json))",
            "artifacts/scores/{name}",
        ),
        (rf"{_STREAM}_events/(?P<name>\d+\.json)", "artifacts/scores/{stream}_events/{name}"),
        (rf"{_STREAM}_ssl/(?P<run>[^/]+)/(?P<name>{_RUN_FILES})", "runs/{stream}_ssl/{run}/{name}"),
    )
)
# Quality reports are known by their folder, which names the stream.
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
    """Every file that has a place; a file goes before its sidecar, as training writes them.

    Raises OutputError for a link that leads out of the folder or nowhere.
    """
    found, whole = [], folder.resolve()
    for path in sorted(folder.rglob("*")):
        place = _target_of(PurePosixPath(path.relative_to(folder).as_posix()))
        if path.is_symlink():
            if path.exists() and not path.resolve().is_relative_to(whole):
                raise OutputError(
                    f"{relative(path, folder)} leads out of the bundle", hint="this is no bundle of Landfall"
                )
            if place is not None and not path.exists():
                raise OutputError(f"{relative(path, folder)} is a link that leads nowhere", hint="copy the file itself")
        if place is not None and path.is_file():
            found.append(Artifact(path, *place))
        elif path.parent.parent.name.endswith("_ssl") and path.is_file():
            log.warning("left out, for it is not known as a file of a run: %s", relative(path, folder))
    return sorted(found, key=lambda artifact: (artifact.target.endswith(".json"), artifact.target))


def _refuse_doubles(artifacts: Sequence[Artifact], folder: Path) -> None:
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
    """What a run locks that writes such a file: the model, with all that belongs to it, or its own folder."""
    if artifact.target.startswith("runs/"):
        return str(PurePosixPath(artifact.target).parent)
    return f"checkpoints/{artifact.stream}_ssl.pt"


def _equal(source: Path, target: Path) -> bool:
    """Whether both hold the same bytes."""
    return target.is_file() and filecmp.cmp(source, target, shallow=False)


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall import-artifacts",
        description="Brings checkpoints, losses, logs and scalers from Colab into place.",
    )
    parser.add_argument("source", type=Path, metavar="DIR|ZIP", help="what was downloaded from Colab or the drive")
    parser.add_argument("--replace", action="store_true", help="put them over what is here, which is kept beside them")
    for option, stream in (("--patch-config", "patchtst"), ("--swin-config", "swinmae")):
        parser.add_argument(option, default=local_config_file(stream), metavar="FILE", dest=stream)
    add_root_argument(parser)

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        placed = import_artifacts(arguments.source, root=root, replace=arguments.replace)
        for stream in streams_of(placed):
            try:
                measure_quality(load_config(getattr(arguments, stream), root=root).config, root)
            except LandfallError as error:  # what was imported is in place
                log.warning("%s: the data is not checked: %s", stream, error)
        json.dump({"placed": placed}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
