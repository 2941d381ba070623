"""Verifies files before they are imported: each is valid for its name, and they fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from core.config.schema import Stream
from core.errors import OutputError
from core.names import checked_run_id
from core.reading import UnreadableError, read_json, read_json_object, read_yaml
from core.secrets.redaction import printable
from core.workspace import relative


@dataclass(frozen=True)
class Artifact:
    """A file of the bundle and its target (relative to the workspace)."""

    source: Path
    target: str
    stream: Stream


# In pixels; figures of Landfall have a few million.
_LARGEST_PICTURE = 50_000_000

Check = Callable[[Artifact, dict[str, Path]], None]


def verify_artifacts(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Raises OutputError with every fault found, not only the first."""
    sources = {artifact.target: artifact.source for artifact in artifacts}
    faults = []
    for artifact in artifacts:
        for suffix, check in _CHECKS:
            if not artifact.target.endswith(suffix):
                continue
            try:
                check(artifact, sources)
            except Exception as error:  # a malicious file may cause any error in its reader
                reason = f"has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
                faults.append(printable(f"{relative(artifact.source, folder)}: {reason}"))
            break
    if faults:
        raise OutputError(
            f"nothing was imported; {'; '.join(faults)}", hint="copy these files again, or leave them out"
        )


def _checkpoint(artifact: Artifact, sources: dict[str, Path]) -> None:
    """The hash is that of the sidecar, the file loads, and its weights fit the model of its configuration."""
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
    """Complete, and next to a checkpoint."""
    from inference.detector.file import load_detector

    detector = load_detector(artifact.source)
    model = sources.get(f"checkpoints/{artifact.stream}_ssl.pt")
    if model is None:
        raise OutputError(f"belongs to {artifact.stream}_ssl.pt, which is not in the bundle")
    if detector.stream != artifact.stream:
        raise OutputError(f"is a detector of the stream {detector.stream}")


def is_for(detector: Path, model: Path) -> bool:
    """Whether a valid detector belongs to these weights."""
    from core.checkpoint import describe
    from inference.detector.file import load_detector

    return load_detector(detector).checkpoint_sha256 == describe(model)["sha256"]


def _json(artifact: Artifact, sources: dict[str, Path]) -> None:
    read_json_object(artifact.source)


def _yaml(artifact: Artifact, sources: dict[str, Path]) -> None:
    if not isinstance(read_yaml(artifact.source), dict):
        raise UnreadableError("is not a mapping of keys to values")


def _events(artifact: Artifact, sources: dict[str, Path]) -> None:
    if not isinstance(read_json(artifact.source), list):
        raise UnreadableError("is not a JSON list")


def _scaler(artifact: Artifact, sources: dict[str, Path]) -> None:
    """Is a scaler for the channels of the checkpoint in the same bundle."""
    from core.checkpoint import load
    from core.data.scaling import Scaler

    values = read_json_object(artifact.source)
    if (run := values.pop("run_id", None)) is not None:
        checked_run_id(run)
    scaler = Scaler.from_dict(values)
    model = sources.get(f"checkpoints/{artifact.stream}_ssl.pt")
    if model is not None and tuple(load(model)["channels"]) != tuple(scaler.channels):
        raise OutputError("is for other channels than the checkpoint in the bundle")


def _losses(artifact: Artifact, sources: dict[str, Path]) -> None:
    from core.runlog import read_loss_csv

    if not read_loss_csv(artifact.source):
        raise OutputError("contains no epoch")


def _metrics(artifact: Artifact, sources: dict[str, Path]) -> None:
    """At least one line must be valid. Readers of the log skip a line that is truncated by a kill, with a warning."""
    from core.runlog import read_metrics

    if not read_metrics(artifact.source):
        raise OutputError("contains no record")


def _picture(artifact: Artifact, sources: dict[str, Path]) -> None:
    """Can be decoded completely, and needs no gigabytes in a browser. Its header is read first: decoding a large
    picture would take these gigabytes here."""
    from PIL import Image

    with artifact.source.open("rb") as file:
        head = file.read(24)
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if width * height > _LARGEST_PICTURE:
        raise OutputError(f"has {width} × {height} pixels, more than a figure of Landfall")
    try:
        with Image.open(artifact.source, formats=["PNG"]) as picture:
            picture.load()
    except (OSError, SyntaxError, ValueError) as error:
        raise OutputError("is not a PNG, or incomplete") from error


def _table(artifact: Artifact, sources: dict[str, Path]) -> None:
    """Can be read completely, and its scores are not much larger than their file: the export loads all of them."""
    import pyarrow.parquet

    from core.data.files import refuse_bomb
    from core.data.tables import read_blocks

    described = pyarrow.parquet.read_metadata(artifact.source)
    refuse_bomb(artifact.source, 8 * described.num_rows * described.num_columns)
    for _ in read_blocks(artifact.source, None):
        pass


# The end of a target and its check; the first match is used.
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
    (".yaml", _yaml),
    (".png", _picture),
    (".parquet", _table),
)
