"""Checks data before training, in seconds: `landfall check [DATA …]`.

Checks the files or folders DATA, or without DATA the data of the configurations. Exit code 3 if something is missing or
cannot be used.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.cli import add_root_argument, print_json, root_of, run_command
from core.config.compose import LoadedConfig, load_config, local_config_file
from core.config.schema import STREAMS, TITLES, Stream
from core.errors import EXIT_OK, DataError, LandfallError
from core.numbers import aligned, counted, duration_in_words, plain
from core.secrets.redaction import printable
from core.workspace import SAMPLES
from pipelines.colour import with_colour
from pipelines.stream_configs import LOCAL_FILES, configs_in_use

if TYPE_CHECKING:
    from pipelines.data_findings import Finding
    from pipelines.readiness import Readiness, SplitState

log = logging.getLogger(__name__)

_MARKS = {"stop": "✗", "warn": "!", "note": "·"}
_MOST_CHANNELS = 12
# Files with the same problem that are named.
_MOST_FILES = 3


class Checked(NamedTuple):
    """Findings about the data of one stream. next: the next command. remark: a note about this command. seconds: time
    to train on `device`; None if it was not measured.
    """

    stream: Stream
    found: Readiness
    next: str
    remark: str = ""
    seconds: float | None = None
    device: str | None = None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall check",
        description="Checks data before training: rows needed and found, channels, gaps, sampling, time to train.",
    )
    parser.add_argument(
        "words", nargs="*", metavar="DATA|KEY=VALUE",
        help="sensor files or folders (default: the data of the configurations), and overrides",
    )  # fmt: skip
    parser.add_argument("--stream", choices=STREAMS, help="stream of DATA (default: by its content) or of the check")
    parser.add_argument("--config", metavar="FILE", help=f"configuration (default: {local_config_file('<stream>')})")
    parser.add_argument("--no-time", action="store_true", help="do not estimate the training time")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_root_argument(parser)
    return run_command(_check, parser, argv)


def _check(arguments: argparse.Namespace) -> int:
    root = root_of(arguments)
    overrides = [word for word in arguments.words if "=" in word and not Path(word).exists()]
    paths = [Path(word) for word in arguments.words if word not in overrides]
    streams = [arguments.stream] if arguments.stream else list(STREAMS)
    with _warnings_only("core.data", "core.devices"):  # the report has their information
        if paths:
            checked = _check_files(paths, streams, arguments, overrides, root)
        else:
            checked = _check_configured(streams, arguments, overrides, root)
    if arguments.json:
        document = {each.stream: _document(each) for each in checked}
        print_json(document, indent=2)
    else:
        text = "\n\n".join(_text(each) for each in checked) + "\n"
        sys.stdout.write(with_colour(text, sys.stdout))
    stops = [each for one in checked for each in one.found.findings if each.severity == "stop"]
    if stops:
        sys.stdout.flush()
        if len(checked) > 1 and not any(each.found.files for each in checked):
            raise DataError("no data yet", hint="one of the streams is enough: copy its files as described above")
        raise DataError(f"not ready: {len(stops)} to correct, first: {stops[0].text}", hint=stops[0].hint)
    return EXIT_OK


@contextmanager
def _warnings_only(*loggers: str) -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _check_configured(
    streams: Sequence[Stream], arguments: argparse.Namespace, overrides: Sequence[str], root: Path
) -> list[Checked]:
    if arguments.config:
        configs = _of_file(arguments.config, overrides, root)
    elif arguments.stream:
        configs = _of_file(local_config_file(arguments.stream), overrides, root)
    else:
        configs, _ = configs_in_use(LOCAL_FILES, overrides, root)
    from pipelines.readiness import readiness

    checked = []
    for stream, loaded in configs.items():
        found = readiness(loaded.config, root=root)
        config = ["--config", arguments.config] if arguments.config else []
        command = shlex.join(["landfall", "train", stream, *config, *overrides])
        checked.append(_with_time(Checked(stream, found, command), loaded, arguments, root))
    return checked


def _of_file(file: str, overrides: Sequence[str], root: Path) -> dict[Stream, LoadedConfig]:
    loaded = load_config(file, overrides, root=root)
    return {loaded.config.stream: loaded}


def _check_files(
    paths: Sequence[Path],
    streams: Sequence[Stream],
    arguments: argparse.Namespace,
    overrides: Sequence[str],
    root: Path,
) -> list[Checked]:
    from pipelines.own_files import by_stream, copying, sensor_files, with_files
    from pipelines.readiness import readiness

    files = sensor_files(paths)
    of_stream: Mapping[Stream, list[Path]] = {streams[0]: files} if arguments.stream else by_stream(files)
    checked = []
    for stream, own in of_stream.items():
        loaded, splits = with_files(
            load_config(arguments.config or local_config_file(stream), overrides, root=root), own
        )
        found = readiness(loaded.config, root=root, splits=splits)
        checked.append(_with_time(Checked(stream, found, *copying(own, stream, root)), loaded, arguments, root))
    return checked


def _with_time(checked: Checked, loaded: LoadedConfig, arguments: argparse.Namespace, root: Path) -> Checked:
    """Adds the estimated training time on this machine."""
    trained = [split for split in checked.found.splits if split.name in ("train", "validation")]
    if arguments.no_time or len(trained) < 2 or not all(split.is_enough for split in trained):
        return checked
    from core.data.dataset import load_stream_data
    from trainers.estimate import training_seconds

    quiet = loaded.config.model_copy(
        update={"dqvl": loaded.config.dqvl.model_copy(update={"enabled": False}),
                "logging": loaded.config.logging.model_copy(update={"progress": "off"})}
    )  # fmt: skip
    try:
        data = load_stream_data(quiet, root=root, splits=["train", "validation"])
        seconds, device = training_seconds(loaded, data, root=root)
    except LandfallError as error:
        log.warning("%s: the training time cannot be estimated: %s", checked.stream, error)
        return checked
    return checked._replace(seconds=seconds, device=device)


# ---------------------------------------------------------------------------------------------------------------- text
def _document(checked: Checked) -> dict[str, Any]:
    found = checked.found
    return {
        "ready": found.is_ready,
        "files": found.files,
        "recordings": found.recordings,
        "rows": found.rows,
        "channels": list(found.channels),
        "sampling_rate_hz": found.sampling_rate_hz,
        "window": None if found.config.data.window == "auto" else found.config.data.window,
        "splits": [asdict(split) for split in found.splits],
        "findings": [asdict(finding) for finding in found.findings],
        "training_seconds": checked.seconds,
        "device": checked.device,
        "next": checked.next if found.is_ready else None,
    }


def _text(checked: Checked) -> str:
    found = checked.found
    source = f", sample data in {SAMPLES}/ (data/ has no files)" if found.config.data.root == SAMPLES else ""
    lines = [f"{TITLES[checked.stream][1]}, {checked.stream}{source}", *(f"  {line}" for line in _facts(found))]
    if found.splits:
        lines += ["", *_table(found)]
    if found.findings:
        lines += ["", *_finding_lines(found.findings)]
    lines.append("")
    if checked.seconds is not None:
        epochs = found.config.training.epochs
        lines.append(
            f"  training takes about {duration_in_words(checked.seconds)}: {epochs} epochs on {checked.device}"
        )
    stops = sum(finding.severity == "stop" for finding in found.findings)
    lines.append(f"  ready; next: {checked.next}" if found.is_ready else f"  not ready: {stops} to correct, see ✗")
    if found.is_ready and checked.remark:
        lines.append(f"  # {checked.remark}")
    return "\n".join(map(printable, lines))


def _facts(found: Readiness) -> list[str]:
    if not found.rows:
        return []
    amount = f"{counted(found.files, 'file')}, {counted(found.recordings, 'recording')}, {found.rows:,} rows"
    names = ", ".join(found.channels[:_MOST_CHANNELS])
    more = f" and {len(found.channels) - _MOST_CHANNELS} more" if len(found.channels) > _MOST_CHANNELS else ""
    facts = [amount, f"{counted(len(found.channels), 'channel')}: {names}{more}"]
    if found.sampling_rate_hz:
        rate = found.sampling_rate_hz
        facts.append(f"a row every {duration_in_words(1 / rate)}" if rate <= 1 else f"{plain(rate)} rows a second")
    elif found.channels:
        facts.append("no time stamps: rows are numbered")
    if found.config.data.splits.train.by == "recording":
        facts.append("each recording belongs to one split, in the order of time stamps or names")
    if found.config.data.window != "auto":
        facts.append(f"windows of {found.config.data.window} rows")
    return facts


def _table(found: Readiness) -> list[str]:
    rows = [("split", "rows", "needed", "time", "needed", "segments", "windows", "")]
    rows += [_row(split, found.sampling_rate_hz) for split in found.splits]
    return [f"  {line}" for line in aligned(rows, right=range(1, 7))]


def _row(split: SplitState, rate_hz: float | None) -> tuple[str, ...]:
    span = "" if split.seconds is None else duration_in_words(split.seconds)
    needed = duration_in_words(split.rows_needed / rate_hz) if rate_hz else ""
    windows = "" if split.windows is None else f"{split.windows:,}"
    state = "enough" if split.is_enough else "too few"
    return (
        split.name, f"{split.rows:,}", f"{split.rows_needed:,}", span, needed, str(split.segments), windows, state,
    )  # fmt: skip


def _finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings with their hints; of many files with the same problem, the first ones."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        problem = finding.text.rpartition(": ")[2]
        groups.setdefault((finding.severity, problem, finding.hint), []).append(finding)
    for (severity, problem, hint), group in groups.items():
        shown = group[:_MOST_FILES] if len(group) > _MOST_FILES + 1 else group
        yield from (f"  {_MARKS[severity]} {finding.text}" for finding in shown)
        if len(group) > len(shown):
            yield f"  {_MARKS[severity]} {len(group) - len(shown)} more: {problem}"
        if hint:
            yield f"      → {hint}"


if __name__ == "__main__":
    sys.exit(main())
