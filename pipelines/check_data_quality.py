"""Checks the quality of the sensor files of a stream: `python -m pipelines.check_data_quality --config FILE [key=value
…]`.

Writes one report per file. Exit code 3 if no file passes.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence

from core.cli import add_config_arguments, config_of, print_config, root_of, run_command, run_name
from core.errors import EXIT_OK

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="landfall quality", description="Checks the sensor files of a stream.")
    add_config_arguments(parser, default=None, example="dqvl.hard.missing_ratio=0.3")
    parser.add_argument("--run-id", type=run_name, metavar="NAME", help="name of the run, stored in the reports")
    return run_command(_check, parser, argv)


def _check(arguments: argparse.Namespace) -> int:
    loaded = config_of(arguments)
    if arguments.print_config:
        return print_config(arguments, loaded)
    from core.data.dataset import check_quality

    config = loaded.config
    reports = check_quality(config, root=root_of(arguments), run_id=arguments.run_id or "")
    dropped = [report.file_id for report in reports if report.decision == "drop"]
    warned = sum(bool(report.warnings) for report in reports)
    log.log(
        logging.WARNING if warned or dropped else logging.INFO,
        "%s: %d files, %d with warnings, %d dropped%s; reports in %s",
        config.stream, len(reports), warned, len(dropped),
        f" ({', '.join(dropped)})" if dropped else "", config.dqvl.report_dir,
    )  # fmt: skip
    json.dump({"files": len(reports), "warnings": warned, "dropped": dropped}, sys.stdout)
    sys.stdout.write("\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
