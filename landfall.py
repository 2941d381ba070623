"""The `landfall` command: one name over the module entry points. Each is imported only when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from core.errors import EXIT_OK, EXIT_USAGE


class Command(NamedTuple):
    """A word, the module whose `main(argv)` it calls, and what it does."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "migrate": Command("migration.command", "make local notebooks of Colab ones"),
    "pipeline": Command("pipelines.run_local_training_pipeline", "train, score, validate and export both streams"),
    "quality": Command("pipelines.check_data_quality", "judge the sensor files of a stream"),
    "pool": Command("pipelines.pool_sensors", "make the sensors of many machines alike, to pre-train on"),
    "train patchtst": Command("trainers.train_patchtst_ssl", "train PatchTST-SSL on process sensors"),
    "train swinmae": Command("trainers.train_swinmae_ssl", "train Swin-MAE on vibration scalograms"),
    "slurm": Command("trainers.slurm_script", "print a batch script that trains, requeued until it is done"),
    "score": Command("inference.run_scoring_example", "score a stream and find events"),
    "calibrate": Command("inference.recalibrate", "learn anew what is normal from newer data; the model stays"),
    "validate": Command("pipelines.validate_training_outputs", "check that the outputs of a run are whole"),
    "export": Command("pipelines.export_training_dashboard_state", "write what the dashboard shows"),
    "dashboard": Command("pipelines.serve_dashboard", "serve the dashboard on this machine"),
    "devices": Command("pipelines.devices.command", "the hardware found and what a run would use"),
    "import-artifacts": Command("pipelines.import_artifacts", "bring a run's files from Colab or a drive into place"),
    "sample-data": Command("pipelines.sample_data.command", "make the synthetic plant's data"),
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    for length in (2, 1):
        command = COMMANDS.get(" ".join(words[:length])) if len(words) >= length else None
        if command is None:
            continue
        if argv is not None:
            return import_module(command.module).main(words[length:])
        # The command owns this process: it reads the words that are left, and may start anew.
        sys.argv = [f"{sys.argv[0]} {' '.join(words[:length])}", *words[length:]]
        return import_module(command.module).main()
    asked_for_help = not words or words[0] in ("-h", "--help")
    stream = sys.stdout if asked_for_help else sys.stderr
    if not asked_for_help:
        stream.write(f"landfall: no command {' '.join(words[:2])!r}\n\n")
    width = max(map(len, COMMANDS))
    stream.write("usage: landfall COMMAND [arguments]   (landfall COMMAND --help tells more)\n\n")
    stream.writelines(f"  {name:<{width}}  {command.summary}\n" for name, command in COMMANDS.items())
    return EXIT_OK if asked_for_help else EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
