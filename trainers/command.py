"""The command both training entry points share. `--help` and `--print-config` never import torch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from core.cli import add_config_arguments, config_of, print_config, root_of, run_command
from core.config.compose import local_config_file
from core.config.schema import Stream
from core.errors import EXIT_OK


def main_for(stream: Stream, title: str, argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog=f"train {stream}", description=f"Trains {title}.")
    add_config_arguments(parser, default=local_config_file(stream))
    parser.add_argument("--resume", metavar="auto|never|PATH", help="short for training.resume=…")
    parser.add_argument("--run-id", help="name of the run's folder (default: a new one)")

    def command(arguments: argparse.Namespace) -> int:
        if arguments.resume:
            arguments.overrides.append(f"training.resume='{arguments.resume}'")
        loaded = config_of(arguments, stream=stream)
        if arguments.print_config:
            return print_config(arguments, loaded)
        from trainers.run import train

        result = train(loaded, root=root_of(arguments), run_id=arguments.run_id)
        json.dump(result.to_json(), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return EXIT_OK

    return run_command(command, parser, argv)
