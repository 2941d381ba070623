"""Checks the quality of the sensor files: `landfall quality [--stream STREAM | --config FILE] [key=value …]`.

Without a stream, the files of every stream in use are checked. Writes one report per file. Exit code 3 if no file of a
stream passes.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Sequence

from core.cli import add_config_arguments, config_of, print_config, print_json, root_of, run_command, run_name
from core.config.compose import LoadedConfig
from core.config.schema import STREAMS
from core.errors import EXIT_OK
from pipelines.stream_configs import LOCAL_FILES, configs_in_use

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="landfall quality", description="Checks the sensor files of every stream.")
    parser.add_argument("--stream", choices=STREAMS, help="stream to check (default: every stream in use)")
    add_config_arguments(parser, example="dqvl.hard.missing_ratio=0.3")
    parser.add_argument("--run-id", type=run_name, metavar="NAME", help="name of the run, stored in the reports")
    return run_command(_check, parser, argv)


def _check(arguments: argparse.Namespace) -> int:
    found = {}
    for loaded in _configurations(arguments):
        if arguments.print_config:
            print_config(arguments, loaded)
        else:
            found[loaded.config.stream] = _check_stream(loaded, arguments)
    if found:
        print_json(found)
    return EXIT_OK


def _configurations(arguments: argparse.Namespace) -> Iterable[LoadedConfig]:
    if arguments.config or arguments.stream:
        return [config_of(arguments, stream=arguments.stream)]
    return configs_in_use(LOCAL_FILES, arguments.overrides, root_of(arguments))[0].values()


def _check_stream(loaded: LoadedConfig, arguments: argparse.Namespace) -> dict[str, object]:
    from core.data.dataset import check_quality, path_shown

    config = loaded.config
    reports = check_quality(config, root=root_of(arguments), run_id=arguments.run_id or "")
    dropped = [path_shown(report.file_id, config) for report in reports if report.decision == "drop"]
    warned = sum(bool(report.warnings) for report in reports)
    log.log(
        logging.WARNING if warned or dropped else logging.INFO,
        "%s: %d files, %d with warnings, %d dropped%s; reports in %s",
        config.stream, len(reports), warned, len(dropped),
        f" ({', '.join(dropped)})" if dropped else "", config.dqvl.report_dir,
    )  # fmt: skip
    return {"files": len(reports), "warnings": warned, "dropped": dropped}


if __name__ == "__main__":
    sys.exit(main())
