"""Command line arguments for streams and their configurations, and the configurations that they select."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.cli import add_root_argument, run_name
from core.config.compose import LoadedConfig, load_config, local_config_file
from core.config.data import Quality
from core.config.overrides import CONFIG_FLAGS
from core.config.schema import REPORT_DIRS, SCHEMAS, STREAMS, AnyConfig, Logging, Stream
from pipelines.imported_models import streams_off_here

log = logging.getLogger(__name__)

LOCAL_FILES: Mapping[Stream, str] = {stream: local_config_file(stream) for stream in STREAMS}
# Configurations with the output folders of the contract, for streams whose own configuration is missing or invalid.
CONTRACT: Mapping[Stream, AnyConfig] = {
    stream: schema(
        logging=Logging(log_dir=f"runs/{stream}_ssl", checkpoint_path=f"checkpoints/{stream}_ssl.pt"),
        dqvl=Quality(report_dir=REPORT_DIRS[stream]),
    )
    for stream, schema in SCHEMAS.items()
}


# --------------------------------------------------------------------------------------------------------- both streams
def add_stream_config_arguments(parser: argparse.ArgumentParser) -> None:
    for stream, flag in CONFIG_FLAGS.items():
        text = f"configuration of {stream} (default: {LOCAL_FILES[stream]})"
        parser.add_argument(flag, default=LOCAL_FILES[stream], metavar="FILE", dest=stream, help=text)


def config_files(arguments: argparse.Namespace) -> dict[Stream, str]:
    return {stream: getattr(arguments, stream) for stream in CONFIG_FLAGS}


def configs_in_use(
    files: Mapping[Stream, str], overrides: Sequence[str], root: Path
) -> tuple[dict[Stream, LoadedConfig], dict[Stream, str]]:
    """The configurations of the streams in use, and the reason for each other stream, which is logged.

    Raises UsageError if every stream is switched off, and as `load_config` does.
    """
    configs = {stream: load_config(file, overrides, root=root) for stream, file in files.items()}
    off = streams_off_here(configs, root)
    for stream, reason in off.items():
        log.info("%s is not in use: %s", stream, reason)
    return {stream: loaded for stream, loaded in configs.items() if stream not in off}, off


# ---------------------------------------------------------------------------------------------------------------- runs
def add_run_arguments(parser: argparse.ArgumentParser, *, takes_run: bool = True) -> None:
    """Adds RUN (if `takes_run`), `--stream`, `--config` and `--repo-root`."""
    if takes_run:
        parser.add_argument("run", type=run_name, metavar="RUN", help="the run; `landfall runs` lists them")
    parser.add_argument("--stream", choices=STREAMS, help="runs of this stream only (default: of all)")
    parser.add_argument("--config", metavar="FILE", help="configuration of the runs (default: the local ones)")
    add_root_argument(parser)


def chosen_configs(arguments: argparse.Namespace, root: Path) -> list[AnyConfig]:
    """The selected configurations. Raises ConfigError for an invalid one."""
    sources = [arguments.config] if arguments.config else LOCAL_FILES.values()
    configs = [load_config(source, [], root=root).config for source in sources]
    return [config for config in configs if arguments.stream in (None, config.stream)]
