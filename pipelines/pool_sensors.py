"""`landfall pool`: normalises the sensors of many machines, to pre-train one PatchTST-SSL on all of them.

The weights of PatchTST do not depend on the number of channels, only their embeddings do. So the sensors of each
machine are divided at random into groups of equal size, and each group is written to a file of its own, centred and
divided by scale: the model then learns attention between channels from all machines. Training on a machine with little
history starts from the model of the pool (`training.start_from`).
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.cli import add_root_argument, print_json, root_of, run_command
from core.errors import EXIT_OK, DataError, UsageError
from core.progress import Progress
from core.reproducibility import derive_seed
from core.workspace import atomic_file, write_json

if TYPE_CHECKING:
    from core.config.schema import AnyConfig
    from core.data.recording import Recording

log = logging.getLogger(__name__)

INDEX = "pool.json"
_REPORTS = "artifacts/dqvl/pool"
# Sensors in a group: the channels of the pooled model. A machine with fewer has channels without values.
GROUP = 8
# A sensor with fewer different values is a switch or a set point, which cannot be predicted from its past.
MIN_VALUES = 4


@dataclass(frozen=True)
class Pooled:
    """groups: for each written file, origin and scale of each channel. left_out: for each skipped sensor, the
    reason."""

    groups: Mapping[str, Sequence[Mapping[str, Any]]]
    left_out: Mapping[str, str]


def pool(patterns: Sequence[str], out: Path, *, config: AnyConfig, root: Path, force: bool = False) -> Pooled:
    """Writes the sensors of the files of `patterns` (globs, from `root`) as parquet files of `GROUP` channels, in one
    folder per file, and an index.

    Files are read, checked and cleaned as for training. `force` replaces an existing pool.
    Raises DataError for a pattern that matches nothing or if no sensor is left, QualityError if no file passes,
    UsageError for a folder that is not a pool and, without `force`, for one that is.
    """
    from core.data.dataset import read_all
    from core.data.files import expand
    from core.data.store import Store

    _refuse_taken(out, force)
    files = expand(patterns, root)
    store = Store.of(config, root)
    recordings, _ = read_all(files, config, root, "", store)
    groups: dict[str, list[dict[str, Any]]] = {}
    left_out: dict[str, str] = {}
    unfinished = out.with_name(f".{out.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    with Progress(len(recordings), "pooling", unit="recordings", mode=config.logging.progress) as progress:
        for number, recording in enumerate(recordings):
            folder = unfinished / f"{number:03d}_{_plain(recording.file_id)}"
            groups |= _write_groups(recording, folder, config, left_out)
            progress.advance()
    store.forget_oldest()
    if not groups:
        raise DataError(
            f"none of the {len(left_out)} sensors of {len(files)} files can be used: all are constant or have "
            f"fewer than {MIN_VALUES} different values",
            hint="pool files of machines in operation",
        )
    write_json(unfinished / INDEX, {"groups": groups, "left_out": left_out})
    if out.exists():
        shutil.rmtree(out)
    unfinished.rename(out)
    return Pooled(groups, left_out)


def _refuse_taken(out: Path, force: bool) -> None:
    """Raises UsageError if `out` must not be replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / INDEX).is_file():
        raise UsageError(f"{out} exists and is not a pool", hint="pass another folder with --out")
    if not force:
        raise UsageError(f"{out} is already a pool", hint="replace it with --force, or pass another folder with --out")


def _write_groups(
    recording: Recording, folder: Path, config: AnyConfig, left_out: dict[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """Origin and scale of the sensors in each file, by its name. Scales are those of this recording."""
    import pandas as pd

    from core.data.scaling import Scaler

    scaler = Scaler.fit([recording.values_tc], recording.channels, config.data.scaling)
    times = recording.time_ns.view("datetime64[ns]")
    used = []
    for number, channel in enumerate(recording.channels):
        value_t = recording.values_tc[:, number]
        if len(np.unique(value_t[~np.isnan(value_t)])) < MIN_VALUES:
            left_out[f"{recording.file_id}: {channel}"] = f"fewer than {MIN_VALUES} values"
        else:
            used.append(number)
    groups = {}
    for group in _groups_of(used, derive_seed(config.seed, "pool", recording.file_id)):
        scaled_tc = np.full((len(times), GROUP), np.nan, dtype=np.float32)
        for place, number in enumerate(group):
            value_t = recording.values_tc[:, number].astype(np.float64)
            scaled_t = (value_t - scaler.center[number]) / scaler.scale[number]
            scaled_tc[:, place] = np.clip(scaled_t, -scaler.clip, scaler.clip)
        frame = pd.DataFrame(scaled_tc, columns=[f"sensor_{place}" for place in range(GROUP)])
        path = folder / f"{len(groups):03d}.parquet"
        with atomic_file(path) as part:
            frame.assign(timestamp=times).to_parquet(part, index=False)
        groups[f"{folder.name}/{path.name}"] = [
            {
                "file": recording.file_id,
                "sensor": recording.channels[number],
                "center": scaler.center[number],
                "scale": scaler.scale[number],
            }
            for number in group
        ]
    return groups


def _groups_of(sensors: Sequence[int], seed: int) -> Iterator[Sequence[int]]:
    """The sensors in random groups. The last group is filled with sensors of the others, if there are any."""
    shuffled = np.random.default_rng(seed).permutation(sensors).tolist()
    for first in range(0, len(shuffled), GROUP):
        yield shuffled[max(0, min(first, len(shuffled) - GROUP)) :][:GROUP]


def _plain(name: str) -> str:
    """A name that every file system accepts."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[-60:] or "unnamed"


def main(argv: Sequence[str] | None = None) -> int:
    description = "Normalises the sensors of many machines, to pre-train one PatchTST-SSL on all of them."
    parser = argparse.ArgumentParser(prog="landfall pool", description=description)
    parser.add_argument("files", nargs="+", metavar="GLOB", help="sensor files, such as 'data/press_*/*.csv'")
    parser.add_argument("--out", type=Path, default=Path("data/pool"), metavar="DIR", help="default: data/pool")
    parser.add_argument("--force", action="store_true", help="replace an existing pool")
    default = "configs/patchtst_ssl_local.yaml"
    reading = f"how files are read, checked and scaled (default: {default})"
    parser.add_argument("--config", default=default, metavar="FILE", help=reading)
    add_root_argument(parser)
    return run_command(_run, parser, argv)


def _run(arguments: argparse.Namespace) -> int:
    from core.config.compose import load_config

    root = root_of(arguments)
    # Reports of other machines are stored separately from those of the stream.
    config = load_config(arguments.config, [f"dqvl.report_dir={_REPORTS}"], root=root).config
    if config.stream != "patchtst":
        problem = f"{arguments.config} is for the stream {config.stream}"
        raise UsageError(problem, hint="only process sensors are pooled: pass a patchtst configuration")
    pooled = pool(arguments.files, root / arguments.out, config=config, root=root, force=arguments.force)
    if pooled.left_out:
        first, reason = next(iter(pooled.left_out.items()))
        log.info("%d sensors are skipped, such as %s (%s); %s lists all", len(pooled.left_out), first, reason, INDEX)
    log.info(
        "next: landfall train patchtst --config configs/patchtst_ssl_pool.yaml data.root=%s", arguments.out.as_posix()
    )
    num_sensors = len({(each["file"], each["sensor"]) for group in pooled.groups.values() for each in group})
    summary = {"sensors": num_sensors, "left_out": len(pooled.left_out), "folder": str(arguments.out)}
    print_json(summary)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
