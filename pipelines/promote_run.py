"""`landfall promote RUN`: makes the weights of a run the model of its stream."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from core import promotion
from core.cli import print_json, root_of, run_command
from core.errors import EXIT_OK, UsageError
from core.lock import Lock
from pipelines.stream_configs import add_run_arguments, chosen_configs


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall promote",
        description="Makes the weights of a run the model that is scored and exported. The previous one is kept.",
    )
    add_run_arguments(parser)

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        chosen = [
            config
            for config in chosen_configs(arguments, root)
            if promotion.weights_path(root, config, arguments.run).is_file()
        ]
        if not chosen:
            raise UsageError(f"no run {arguments.run} with weights", hint="`landfall runs` lists the runs")
        before = {}
        for config in chosen:
            with Lock(arguments.run) as lock:
                lock.take(root / config.logging.checkpoint_path, key="logging.checkpoint_path")
                before[config.stream] = promotion.promote(root, config, arguments.run)
        print_json({"promoted": arguments.run, "before": before}, indent=2)
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
