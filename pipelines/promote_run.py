"""`landfall promote RUN`: makes the weights of a run the model of its stream."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from core import promotion
from core.cli import add_root_argument, root_of, run_command, run_name
from core.config.compose import load_config, local_config_file
from core.config.schema import STREAMS
from core.errors import EXIT_OK, UsageError
from core.lock import Lock


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall promote",
        description="Makes the weights of a run the model that is scored and exported. The previous one is kept.",
    )
    parser.add_argument("run", type=run_name, metavar="RUN", help="the run; `landfall runs` lists them")
    parser.add_argument("--stream", choices=STREAMS, help="promote the run of this stream only (default: of all)")
    parser.add_argument("--config", metavar="FILE", help="configuration of the run (default: the local ones)")
    add_root_argument(parser)

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        sources = [arguments.config] if arguments.config else map(local_config_file, STREAMS)
        configs = [load_config(source, [], root=root).config for source in sources]
        chosen = [
            config
            for config in configs
            if arguments.stream in (None, config.stream)
            and promotion.weights_path(root, config, arguments.run).is_file()
        ]
        if not chosen:
            raise UsageError(f"no run {arguments.run} with weights", hint="`landfall runs` lists the runs")
        before = {}
        for config in chosen:
            with Lock(arguments.run) as lock:
                lock.take(root / config.logging.checkpoint_path, key="logging.checkpoint_path")
                before[config.stream] = promotion.promote(root, config, arguments.run)
        json.dump({"promoted": arguments.run, "before": before}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
