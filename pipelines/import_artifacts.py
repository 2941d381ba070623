"""Brings what a run left on Colab or a drive into this workspace: `make import-artifacts FROM=DIR|ZIP`.

Everything is verified before the first file is placed, and nothing that is here is overwritten unless asked for; then
what was here is kept under another name.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import logging
import re
import shutil
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from core.cli import add_root_argument, root_of, run_command
from core.config.schema import STREAMS, Stream
from core.errors import EXIT_OK, LandfallError, OutputError, UsageError
from core.lock import Lock
from core.workspace import atomic_file, relative, temporary_folder, utc_now

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Artifact:
    """A file found in the bundle and the place of the contract it goes to (relative to the workspace)."""

    source: Path
    target: str
    stream: Stream


Check = Callable[[Artifact, "dict[str, Path]"], None]


def import_artifacts(source: Path, *, root: Path, replace: bool = False) -> list[str]:
    """Places the artifacts of a folder or zip; gives the names of the files placed.

    Recognised wherever they lie in it: checkpoints with their sidecars and detectors, loss histories and curves,
    scalers, scores, and run folders. A file that is already here and the same is left; one that differs stops the
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
        _verify(artifacts, folder)
        new = [artifact for artifact in artifacts if not _equal(artifact.source, root / artifact.target)]
        in_the_way = [artifact.target for artifact in new if (root / artifact.target).exists()]
        if in_the_way and not replace:
            raise OutputError(
                f"already here, with other contents: {', '.join(in_the_way)}",
                hint="add --replace (REPLACE=1 with make) to keep these under another name, or move them away",
            )
        suffix = f".before-{re.sub(r'[^0-9]', '', utc_now())[:14]}"
        with Lock() as lock:
            for target in dict.fromkeys(_locked_with(artifact) for artifact in new):
                lock.take(root / target, key="--repo-root")
            for artifact in new:
                _place(artifact, root, suffix)
    for artifact in artifacts:
        log.info("%s %s", "placed" if artifact in new else "the same, left", artifact.target)
    return [artifact.target for artifact in new]


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
    with temporary_folder(root / "import") as scratch, zipfile.ZipFile(source) as archive:
        _unpack(archive, scratch, source)
        yield scratch


# Weights and logs hardly shrink; what grows a hundredfold is made to fill a disk.
_LARGEST_RATIO, _ALWAYS_UNPACKED = 100, 10**8


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
        try:
            archive.extract(info, folder)
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            raise OutputError(
                f"{source}: {info.filename} is torn: {error}", hint="download the bundle again"
            ) from error


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
        (rf"{_STREAM}_ssl/(?P<run>\d{{8}}-\d{{6}}-\w+)/(?P<name>[^/]+)", "runs/{stream}_ssl/{run}/{name}"),
    )
)


def _target_of(path: PurePosixPath) -> tuple[str, Stream] | None:
    for pattern, place in _PLACES:
        if found := pattern.fullmatch(path.as_posix()):
            return place.format(**found.groupdict()), found["stream"]
    return None


def _found(folder: Path) -> list[Artifact]:
    """Every file that has a place; a file goes before its sidecar, as training writes them.

    Raises OutputError for a link that leads out of the folder.
    """
    found, whole = [], folder.resolve()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(whole):
            raise OutputError(f"{relative(path, folder)} leads out of the bundle", hint="this is no bundle of Landfall")
        place = _target_of(PurePosixPath(path.relative_to(folder).as_posix())) if path.is_file() else None
        if place is not None:
            found.append(Artifact(path, *place))
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


# ------------------------------------------------------------------------------------------------------------- verified
def _verify(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Raises OutputError with every fault found, not only the first."""
    sources = {artifact.target: artifact.source for artifact in artifacts}
    faults = []
    for artifact in artifacts:
        for suffix, check in _CHECKS:
            if not artifact.target.endswith(suffix):
                continue
            try:
                check(artifact, sources)
            except (LandfallError, OSError, ValueError, KeyError, TypeError) as error:
                told = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                faults.append(f"{relative(artifact.source, folder)}: {told}")
            break
    if faults:
        raise OutputError(
            f"nothing was imported; {'; '.join(faults)}", hint="copy these files again, or leave them out"
        )


def _checkpoint(artifact: Artifact, sources: dict[str, Path]) -> None:
    """The hash is the sidecar's, the file loads, and its weights fit the model its configuration describes."""
    from core import checkpoint
    from core.config.compose import config_from_dict
    from core.devices.manager import DeviceManager
    from inference.scoring import load_scoring_model

    description = checkpoint.verify(artifact.source)
    if description.get("stream") != artifact.stream:
        raise OutputError(f"is a model of the stream {description.get('stream')}")
    config = config_from_dict(description["config"], source=artifact.source.name)
    load_scoring_model(artifact.source, DeviceManager(config).plan(processes=1))


def _sidecar(artifact: Artifact, sources: dict[str, Path]) -> None:
    _json(artifact, sources)
    model = artifact.target.removesuffix(".json") + ".pt"
    if artifact.target.startswith("checkpoints/") and model not in sources:
        raise OutputError(f"describes {PurePosixPath(model).name}, which is not in the bundle")


def _detector(artifact: Artifact, sources: dict[str, Path]) -> None:
    """Whole, and of the checkpoint that comes with it."""
    from core.checkpoint import describe
    from inference.detector import Detector

    detector = Detector.load(artifact.source)
    model = sources.get(f"checkpoints/{artifact.stream}_ssl.pt")
    if model is None:
        raise OutputError(f"belongs to {artifact.stream}_ssl.pt, which is not in the bundle")
    if (detector.stream, detector.checkpoint_sha256) != (artifact.stream, describe(model)["sha256"]):
        raise OutputError("was made for another checkpoint than the one that comes with it")


def _json(artifact: Artifact, sources: dict[str, Path]) -> None:
    if not isinstance(json.loads(artifact.source.read_text(encoding="utf-8")), dict):
        raise OutputError("is no JSON object")


def _events(artifact: Artifact, sources: dict[str, Path]) -> None:
    if not isinstance(json.loads(artifact.source.read_text(encoding="utf-8")), list):
        raise OutputError("is no JSON list")


def _scaler(artifact: Artifact, sources: dict[str, Path]) -> None:
    """Reads as a scaler, for the channels of the checkpoint that comes with it."""
    from core.checkpoint import load
    from core.data.scaling import Scaler

    values = json.loads(artifact.source.read_text(encoding="utf-8"))
    values.pop("run_id", None)
    scaler = Scaler.from_dict(values)
    model = sources.get(f"checkpoints/{artifact.stream}_ssl.pt")
    if model is not None and tuple(load(model)["channels"]) != tuple(scaler.channels):
        raise OutputError("is for other channels than the checkpoint that comes with it")


def _losses(artifact: Artifact, sources: dict[str, Path]) -> None:
    from core.runlog import read_loss_csv

    if not read_loss_csv(artifact.source):
        raise OutputError("holds no epoch")


def _metrics(artifact: Artifact, sources: dict[str, Path]) -> None:
    """A line torn by a killed run is left out, loudly, wherever the log is read; one whole line must be there."""
    from core.runlog import read_metrics

    if not read_metrics(artifact.source):
        raise OutputError("holds no record")


def _picture(artifact: Artifact, sources: dict[str, Path]) -> None:
    with artifact.source.open("rb") as file:
        if file.read(8) != b"\x89PNG\r\n\x1a\n":
            raise OutputError("is no PNG")


def _table(artifact: Artifact, sources: dict[str, Path]) -> None:
    import pyarrow.parquet

    pyarrow.parquet.read_metadata(artifact.source)


# The end of a target, and what such a file must stand; the first that fits.
_CHECKS: tuple[tuple[str, Check], ...] = (
    (".pt", _checkpoint),
    (".detector.npz", _detector),
    ("_ssl.json", _sidecar),
    ("_ssl.last.json", _sidecar),
    ("scaler_patchtst.json", _scaler),
    ("scaler_swinmae.json", _scaler),
    ("_loss_history.csv", _losses),
    ("metrics.jsonl", _metrics),
    ("_events.json", _events),
    (".json", _json),
    (".png", _picture),
    (".parquet", _table),
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


def _place(artifact: Artifact, root: Path, suffix: str) -> None:
    target = root / artifact.target
    if target.exists():
        kept = target.with_name(target.name + suffix)
        target.replace(kept)
        log.warning("%s is kept as %s", artifact.target, kept.name)
    with atomic_file(target) as part:
        shutil.copyfile(artifact.source, part)


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall import-artifacts",
        description="Brings checkpoints, losses, logs and scalers from Colab into place.",
    )
    parser.add_argument("source", type=Path, metavar="DIR|ZIP", help="what was downloaded from Colab or the drive")
    parser.add_argument("--replace", action="store_true", help="put them over what is here, which is kept beside them")
    add_root_argument(parser)

    def command(arguments: argparse.Namespace) -> int:
        placed = import_artifacts(arguments.source, root=root_of(arguments), replace=arguments.replace)
        json.dump({"placed": placed}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
