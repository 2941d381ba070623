"""Arguments that select runs by stream or configuration, shared by `landfall runs`, `tag` and `promote`."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.cli import add_root_argument, run_name
from core.config.compose import load_config, local_config_file
from core.config.schema import STREAMS, AnyConfig


def add_run_arguments(parser: argparse.ArgumentParser, *, takes_run: bool = True) -> None:
    """Adds RUN where one is named, `--stream`, `--config` and `--repo-root`."""
    if takes_run:
        parser.add_argument("run", type=run_name, metavar="RUN", help="the run; `landfall runs` lists them")
    parser.add_argument("--stream", choices=STREAMS, help="runs of this stream only (default: of all)")
    parser.add_argument("--config", metavar="FILE", help="configuration of the runs (default: the local ones)")
    add_root_argument(parser)


def chosen_configs(arguments: argparse.Namespace, root: Path) -> list[AnyConfig]:
    """The configurations whose runs are meant. Raises ConfigError for an invalid one."""
    sources = [arguments.config] if arguments.config else map(local_config_file, STREAMS)
    configs = [load_config(source, [], root=root).config for source in sources]
    return [config for config in configs if arguments.stream in (None, config.stream)]
