"""A batch script for SLURM as text: `landfall slurm patchtst [key=value …] > train.sh`.

SLURM sends SIGUSR1 some time before the time limit. Training saves and ends with 75; the script requeues the job, which
then resumes. Imports no torch.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from core.cli import add_config_arguments, root_of, run_command, with_config
from core.config.compose import LoadedConfig
from core.config.execution import Distributed
from core.config.schema import STREAMS
from core.errors import EXIT_OK, EXIT_RESUMABLE, UsageError
from trainers.supervising import training_command

_PORT = 29500
# SLURM parses these lines itself: no quotes, no spaces, no second line.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=@%+/|&*()\[\]-]+")

_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}")

_SCRIPT = """\
#!/bin/bash
{options}

# Before the time limit SLURM sends USR1: training saves and ends with {resumable}, and the job is requeued.
cd -- {root} || exit 1
resume=()
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ]; then
    resume=(--resume unfinished)
fi
{rendezvous}srun {command} "${{resume[@]}}"
code=$?
if [ "$code" -eq {resumable} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
_RENDEZVOUS = """\
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
"""


def slurm_script(
    stream: str, words: Sequence[str], *, root: Path, settings: Distributed, time: str, lead_s: int,
    options: Sequence[str] = (),
) -> str:  # fmt: skip
    """The script that trains in `root` with the arguments of the training command.

    time: in the format of SLURM. lead_s: seconds before the time limit at which SLURM sends the signal. options:
    further options of sbatch, such as `partition=gpu`. Raises UsageError for a time that SLURM cannot read, and for an
    option that does not fit on one line.
    """
    if not _TIME.fullmatch(time):
        raise UsageError(f"SLURM cannot read the time {time!r}", hint="write 08:00:00, 1-12:00:00 or minutes")
    wanted = {
        "job-name": f"landfall-{stream}",
        "time": time,
        "signal": f"USR1@{lead_s}",
        "requeue": None,
        "open-mode": "append",
        "nodes": str(settings.nodes),
        "ntasks-per-node": "1",
    }
    wanted |= {name: value or None for name, _, value in (option.partition("=") for option in options)}
    lines = [f"--{name}" + (f"={value}" if value else "") for name, value in wanted.items()]
    if invalid := next((line for line in lines if not _PLAIN.fullmatch(line)), None):
        raise UsageError(f"sbatch cannot read {invalid!r}", hint="options are NAME=VALUE, without spaces and quotes")
    command, rendezvous = shlex.join(training_command(stream, words)), ""
    if settings.nodes > 1 and not settings.rendezvous:
        rendezvous, command = _RENDEZVOUS, f"{command} \"distributed.rendezvous='$first:{_PORT}'\""
    return _SCRIPT.format(
        options="\n".join(f"#SBATCH {line}" for line in lines),
        resumable=EXIT_RESUMABLE,
        root=shlex.quote(str(root)),
        rendezvous=rendezvous,
        command=command,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall slurm", description="Prints a batch script for SLURM that trains until it is complete."
    )
    parser.add_argument("stream", choices=STREAMS, help="stream to train")
    parser.add_argument("--time", default="08:00:00", metavar="LIMIT", help="time limit of one job (default: 08:00:00)")
    parser.add_argument(
        "--lead", type=int, default=300, metavar="S", help="seconds before the time limit for saving (default: 300)"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of sbatch, such as gres=gpu:1; repeatable",
    )
    add_config_arguments(parser)
    return run_command(with_config(_print), parser, argv)


def _print(arguments: argparse.Namespace, loaded: LoadedConfig) -> int:
    named = ["--config", str(arguments.config)] if arguments.config else []
    script = slurm_script(
        arguments.stream, [*named, *arguments.overrides], root=root_of(arguments), settings=loaded.config.distributed,
        time=arguments.time, lead_s=arguments.lead, options=arguments.option,
    )  # fmt: skip
    sys.stdout.write(script)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
