"""Common functions of all command-line entry points: logging to stderr, configuration arguments, exit codes of errors.

Configuration is imported where it is used: `--help` does not wait for it.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import logging
import os
import sys
import traceback
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from core.errors import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_OUTPUT,
    EXIT_RESUMABLE,
    EXIT_USAGE,
    LandfallError,
    UsageError,
    WriteError,
)
from core.progress import ConsoleHandler
from core.secrets.redaction import RedactingFormatter, printable, redacted_text
from core.signals import SignalStop, ignore_signals, install_signal_handlers, raise_signals
from core.switching import finish
from core.workspace import find_root, write_text

if TYPE_CHECKING:
    from core.config.compose import LoadedConfig
    from core.config.schema import Stream

log = logging.getLogger("landfall")

# Number of new objects that starts the garbage collector. Imports create hundreds of thousands of objects that stay;
# with Python's default of 700, the collector takes a sixth of the import time.
_OBJECTS_UNTIL_COLLECTION = 10_000

# Characters at the start and at the end of an error that are printed.
_LONGEST_PART = 5_000

Command = Callable[[argparse.Namespace], int]


def run_command(command: Command, parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parses the arguments and runs the command. An error becomes one line on stderr and a documented exit code.

    `arguments.owns_process` is true if the command was started by its name: only then may it restart the process.
    """
    parser.add_argument("--debug", action="store_true", help="also show the traceback of an error")
    parser.register("type", Path, _path)
    arguments = parser.parse_intermixed_args(argv)
    arguments.owns_process = argv is None
    if arguments.owns_process:
        install_signal_handlers()
        _open_streams()
        gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
    handler = ConsoleHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(severity)s%(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # PyTorch sets this level too, but not if Ctrl-C interrupts its import; it would then log cache statistics at exit.
    logging.getLogger("torch").setLevel(logging.WARNING)
    logging.raiseExceptions = False  # a log that cannot be written does not end the command
    if arguments.owns_process and getattr(arguments, "repo_root", None) is None and not _has_current_folder():
        # Libraries, such as that of PyTorch, end the process without it.
        return _print_error(
            parser.prog, "the current folder was removed — change folder", EXIT_USAGE, show_traceback=False
        )
    try:
        try:
            raise_signals()
            if getattr(arguments, "config", None) == "":  # a variable of a script that is not set
                raise UsageError("--config is empty", hint="name a file, or omit --config")
            code = command(arguments)
            sys.stdout.flush()
        finally:
            if arguments.owns_process:
                ignore_signals()
        return code
    except LandfallError as error:
        return _print_error(parser.prog, str(error), error.exit_code, show_traceback=arguments.debug)
    except KeyboardInterrupt as stop:
        return _interrupted(parser.prog, stop, "", show_traceback=arguments.debug)
    except BrokenPipeError:  # the reader of stdout has closed it (`… | head`)
        close_stdout()
        return EXIT_OK
    except Exception as error:
        if not isinstance(error, OSError) and (stop := _signal_behind(error)) is not None:
            then = f"; while stopping: {type(error).__name__}: {error}"
            return _interrupted(parser.prog, stop, then, show_traceback=arguments.debug)
        message, code = _described(error, debug=arguments.debug)
        return _print_error(parser.prog, message, code, show_traceback=arguments.debug)


def _interrupted(program: str, stop: KeyboardInterrupt, then: str, *, show_traceback: bool) -> int:
    """Reports a stop by a signal, and returns the exit code. then: text about an error that followed from it."""
    if isinstance(stop, SignalStop):
        return _print_error(
            program, f"stopped: {stop}{then} — run it again", EXIT_RESUMABLE, show_traceback=show_traceback
        )
    return _print_error(program, f"interrupted{then}", EXIT_INTERRUPTED, show_traceback=bool(then) and show_traceback)


def _signal_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that caused an error: some libraries raise their own error while they clean up."""
    cause = error.__context__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause


def _has_current_folder() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def _described(error: Exception, *, debug: bool) -> tuple[str, int]:
    """The message and the exit code of an unexpected error."""
    if isinstance(error, ModuleNotFoundError):
        hint = "make setup installs it into .venv; without a clone: install the wheel with its extra, WHEEL[lab]"
        return f"{error} ({sys.executable}) — {hint}", EXIT_FAILURE
    cause = error.__context__
    if isinstance(error, RuntimeError) and isinstance(cause, OSError) and cause.errno == errno.ELOOP:
        error = cause  # of Path.resolve before Python 3.13
    if isinstance(error, OSError) and error.errno in WriteError.HINTS:
        place = error.filename if error.filename is not None else "the output of this command"
        code = EXIT_OUTPUT if error.filename is None or error.errno != errno.EACCES else EXIT_USAGE
        if error.filename is None:
            close_stdout()
        return f"{place}: {os.strerror(error.errno)} — {WriteError.HINTS[error.errno]}", code
    hint = "" if debug else " — --debug shows where"
    return f"unexpected {type(error).__name__}: {error}{hint}", EXIT_FAILURE


def _open_streams() -> None:
    """Redirects streams that the caller has closed to the null device, and lets file names that are not UTF-8 be
    printed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def close_stdout() -> None:
    """Discards buffered output: otherwise Python exits with 120 if it cannot be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(program: str, message: str, code: int, *, show_traceback: bool) -> int:
    """Prints one line on stderr, without line breaks and control characters of quoted names and cells.

    Returns the exit code.
    """
    with suppress(OSError, ValueError):  # stderr is full or closed: only the exit code remains
        if show_traceback:
            sys.stderr.write(redacted_text(traceback.format_exc()))
        sys.stderr.write(f"{program}: {_shortened(printable(redacted_text(message)))}\n")
        sys.stderr.flush()
    return code


def _shortened(message: str) -> str:
    """Without the middle of a message that quotes a very long value; the hint is at its end."""
    if len(message) <= 2 * _LONGEST_PART:
        return message
    return f"{message[:_LONGEST_PART]} … {message[-_LONGEST_PART:]}"


def add_root_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo-root", type=Path, metavar="DIR", help="workspace (default: the one around this folder)")


def root_of(arguments: argparse.Namespace) -> Path:
    """The workspace that the arguments name, or the one that contains the current folder. Completes an import that was
    killed in it. Raises UsageError if there is none."""
    if arguments.repo_root and not arguments.repo_root.is_dir():
        raise UsageError(f"--repo-root {arguments.repo_root} is not a folder", hint="pass the folder of the workspace")
    root = arguments.repo_root.resolve() if arguments.repo_root else find_root()
    finish(root)
    return root


def root_words(arguments: argparse.Namespace) -> list[str]:
    """The option of `add_root_argument` as it was passed, for the next command in a message."""
    return ["--repo-root", str(arguments.repo_root)] if arguments.repo_root else []


def _path(text: str) -> Path:
    """For `type=Path`: `Path("")` would be the current folder."""
    if not text:  # a variable of a script that is not set
        raise argparse.ArgumentTypeError("is empty; name a file or a folder, such as . for the current folder")
    return Path(text)


def run_name(text: str) -> str:
    """The type of `--run-id`."""
    from core.names import checked_run_id

    try:
        return checked_run_id(unicodedata.normalize("NFC", text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, such as new-pump-2") from error


def add_config_arguments(
    parser: argparse.ArgumentParser, *, stream: str = "<stream>", example: str = "training.epochs=2 or trainer=quick"
) -> None:
    """Adds the arguments of a command with a configuration. stream: the stream whose local configuration is the
    default; by default, the one that the arguments name."""
    from core.config.compose import local_config_file

    text = f"configuration file (default: {local_config_file(stream)})"
    parser.add_argument("--config", metavar="FILE", help=text)
    parser.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=f"such as {example}")
    parser.add_argument("--print-config", action="store_true", help="print the validated configuration and exit")
    parser.add_argument("--origin", action="store_true", help="with --print-config: origin of each value")
    add_root_argument(parser)


def add_checkpoint_argument(parser: argparse.ArgumentParser) -> None:
    """For `LoadedConfig.with_checkpoint`."""
    parser.add_argument("--checkpoint", metavar="FILE", help="model (default: logging.checkpoint_path)")


def add_detector_arguments(parser: argparse.ArgumentParser) -> None:
    from core.config.scoring import DetectorKind

    add_checkpoint_argument(parser)
    parser.add_argument(
        "--detector",
        choices=get_args(DetectorKind),
        default="model",
        help="charts: control charts alone, without training and without a checkpoint (default: model)",
    )


def check_detector_arguments(arguments: argparse.Namespace) -> None:
    if arguments.detector == "charts" and arguments.checkpoint is not None:
        raise UsageError("control charts need no checkpoint", hint="omit --checkpoint, or --detector charts")


def config_of(arguments: argparse.Namespace, *, stream: Stream | None) -> LoadedConfig:
    """The configuration that the arguments name, by default the local one of the stream. Raises ConfigError, also for a
    configuration of another stream."""
    from core.config.compose import load_config, local_config_file

    file = arguments.config or local_config_file(stream)
    loaded = load_config(file, arguments.overrides, root=root_of(arguments))
    if stream is not None and loaded.config.stream != stream:
        raise UsageError(
            f"{loaded.source} is for the stream {loaded.config.stream}, not {stream}",
            hint=f"pass a {stream} configuration such as {local_config_file(stream)}",
        )
    return loaded


def with_config(command: Callable[[argparse.Namespace, LoadedConfig], int]) -> Command:
    """The command for the configuration that the arguments name; `--print-config` prints it instead."""

    def run(arguments: argparse.Namespace) -> int:
        loaded = config_of(arguments, stream=arguments.stream)
        return print_config(arguments, loaded) if arguments.print_config else command(arguments, loaded)

    return run


def print_config(arguments: argparse.Namespace, loaded: LoadedConfig) -> int:
    from core.config.compose import render

    sys.stdout.write(render(loaded, with_origin=arguments.origin))
    return EXIT_OK


def print_json(result: Any, *, indent: int | None = None) -> None:
    """Prints the result of a command on stdout."""
    sys.stdout.write(json.dumps(result, indent=indent) + "\n")


def run_page_command(file: str, page: Callable[[], str], *, description: str, argv: Sequence[str] | None) -> int:
    """The command of a generated page: prints it, or with `--write` writes it to its `file` in the workspace."""
    parser = argparse.ArgumentParser(prog="reference", description=description)
    parser.add_argument("--write", action="store_true", help=f"write it to {file} instead")
    add_root_argument(parser)

    def command(arguments: argparse.Namespace) -> int:
        if arguments.write:
            write_text(root_of(arguments) / file, page())
        else:
            sys.stdout.write(page())
        return EXIT_OK

    return run_command(command, parser, argv)
