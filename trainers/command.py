"""The command of both training entry points. `--help` and `--print-config` never import torch."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core import checkpoint
from core.cli import add_config_arguments, config_of, print_config, print_json, root_of, root_words, run_command, run_name
from core.config.compose import LoadedConfig, local_config_file
from core.config.schema import AnyConfig, Stream
from core.errors import EXIT_OK, UsageError
from core.reproducibility import prepare_process
from core.runlog import read_status
from core.workspace import new_run_id
from trainers import elastic
from trainers.supervising import Supervisor, is_supervised, training_command

if TYPE_CHECKING:
    from core.devices.manager import DeviceManager

log = logging.getLogger(__name__)


def main_for(stream: Stream, title: str, argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog=f"landfall train {stream}", description=f"Trains {title}.")
    add_config_arguments(parser, stream=stream)
    parser.add_argument(
        "--device", choices=("auto", "cpu", "gpu", "cuda", "mps", "xpu", "tpu"), help="short for device.prefer=…"
    )
    parser.add_argument("--resume", metavar="auto|never|unfinished|PATH", help="short for training.resume=…")
    parser.add_argument("--allow-changes", action="store_true", help="short for training.allow_changes=true")
    parser.add_argument(
        "--until-done", action="store_true", help="restart and resume whenever training is stopped or killed"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="short for training.batch_size=N: no measuring")
    parser.add_argument("--run-id", type=run_name, metavar="NAME", help="name of the run's folder (default: a new one)")

    def command(arguments: argparse.Namespace) -> int:
        if (code := elastic.final_exit_code()) is not None:
            return code
        if arguments.device:
            arguments.overrides.append(f"device.prefer={arguments.device}")
        if arguments.resume is not None:
            name = arguments.resume.replace("'", "\\'")
            arguments.overrides.append(f"training.resume='{name}'")
        if arguments.allow_changes:
            arguments.overrides.append("training.allow_changes=true")
        if arguments.batch_size is not None:
            arguments.overrides.append(f"training.batch_size={arguments.batch_size}")
        loaded = config_of(arguments, stream=stream)
        if arguments.print_config:
            return print_config(arguments, loaded)
        _refuse_used_name(arguments, loaded.config)
        words = sys.argv[1:] if argv is None else list(argv)
        if arguments.until_done and not is_supervised():
            last = checkpoint.last_path(root_of(arguments) / loaded.config.logging.checkpoint_path)
            return Supervisor(training_command(stream, words), last=last).run()
        if arguments.owns_process:
            prepare_process(loaded.config)
        manager = _manager_of_processes(loaded)
        if manager is not None and (manager.num_processes > 1 or loaded.config.distributed.nodes > 1):
            return _train_in_processes(loaded.config, manager.num_processes, arguments, words)
        is_main = os.environ.get("RANK", "0") == "0"
        if not is_main:
            logging.getLogger().setLevel(logging.WARNING)  # only the main process logs its progress
            logging.getLogger("core.devices").setLevel(logging.ERROR)  # all processes would log the same warnings
        from trainers.run import train

        result = train(loaded, root=root_of(arguments), run_id=arguments.run_id, manager=manager)
        if is_main:
            print_json(result.to_json(), indent=2)
            log.info("next: %s", next_command(arguments, stream, is_promoted=result.promoted))
        return EXIT_OK

    return elastic.record_exit(run_command(command, parser, argv))


def next_command(arguments: argparse.Namespace, stream: Stream, *, is_promoted: bool) -> str:
    """The command after a training. Scoring reads the sensor files again, so the overrides of `data` are repeated."""
    if not is_promoted:
        return shlex.join(["landfall", "runs", *root_words(arguments)])
    is_default = arguments.config in (None, local_config_file(stream))
    source = ["--stream", stream] if is_default else ["--config", arguments.config]
    of_data = [word for word in arguments.overrides if word.startswith("data.")]
    return shlex.join(["landfall", "score", *source, *root_words(arguments), *of_data])


def _refuse_used_name(arguments: argparse.Namespace, config: AnyConfig) -> None:
    """Raises UsageError if a new run would overwrite the log and the weights of an older one."""
    is_first = "TORCHELASTIC_RUN_ID" not in os.environ and not is_supervised()
    if arguments.run_id is None or config.training.resume != "never" or not is_first:
        return
    folder = root_of(arguments) / config.logging.log_dir / arguments.run_id
    if read_status(folder) is not None:
        raise UsageError(f"run {arguments.run_id} already exists", hint="choose another --run-id, or omit it")


def _manager_of_processes(loaded: LoadedConfig) -> DeviceManager | None:
    """The device manager, if the configuration requests several processes and this is not one of them; else None."""
    settings = loaded.config.distributed
    wants_several = loaded.config.devices != 1 or settings.nodes > 1
    if not wants_several or settings.strategy == "none" or "TORCHELASTIC_RUN_ID" in os.environ:
        return None
    from core.devices.manager import DeviceManager

    return DeviceManager(loaded.config, origins=loaded.origins)


def _train_in_processes(config: AnyConfig, count: int, arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Trains in one process per device; returns the exit code."""
    from trainers.launching import launch

    if hasattr(signal, "SIGUSR1"):  # only new versions of torchrun forward it; all forward SIGTERM
        signal.signal(signal.SIGUSR1, lambda number, frame: signal.raise_signal(signal.SIGTERM))
    run_id = [] if arguments.run_id else ["--run-id", new_run_id()]  # the same in all processes
    module = f"trainers.train_{config.stream}_ssl"
    notes = root_of(arguments) / config.logging.artifacts_dir / "cache" / "job"
    return launch(module, [*words, *run_id], count, config.distributed, notes=notes)
