"""The `landfall` command: one name for the entry points of the modules. A module is imported only when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

__version__ = "0.1.0"

# Folder of Landfall's packages in a wheel (setup.py); absent in a repository.
_HOME = Path(__file__).with_name("landfall_home")


class Command(NamedTuple):
    """The module whose `main(argv)` a subcommand calls, and a one-line description."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "init": Command("pipelines.init_workspace", "create a workspace: configurations, notebooks, dashboard"),
    "migrate": Command("migration.command", "convert Colab notebooks to local ones"),
    "pipeline": Command(
        "pipelines.run_local_training_pipeline", "train, score, validate and export each stream that has data"
    ),
    "check": Command("pipelines.check_data", "check data before training: rows needed and found, faults, time"),
    "quality": Command("pipelines.check_data_quality", "check the quality of the sensor files of a stream"),
    "pool": Command("pipelines.pool_sensors", "normalise the sensors of many machines for pre-training"),
    "train patchtst": Command("trainers.train_patchtst_ssl", "train PatchTST-SSL on process sensors"),
    "train swinmae": Command("trainers.train_swinmae_ssl", "train Swin-MAE on vibration scalograms"),
    "runs": Command("pipelines.list_runs", "list the training runs and the promoted models"),
    "promote": Command("pipelines.promote_run", "make the weights of a run the model of its stream"),
    "tag": Command("pipelines.tag_run", "set tags and a note of a run"),
    "slurm": Command("trainers.slurm_script", "print a SLURM batch script that trains until it is complete"),
    "score": Command("inference.run_scoring_example", "score a stream and find events"),
    "watch": Command("inference.watch.command", "monitor: score new rows and recordings as they arrive"),
    "export-model": Command("inference.export_model", "write a model as ONNX, to monitor without PyTorch"),
    "calibrate": Command("inference.recalibrate", "refit the detector to newer reference data; the model stays"),
    "fleet": Command(
        "pipelines.fleet.command", "run a command on every machine of a plant, and rank those that need attention"
    ),
    "validate": Command("pipelines.validate_training_outputs", "check that the outputs of a run are valid"),
    "export": Command("pipelines.export_training_dashboard_state", "write the documents of the dashboard"),
    "dashboard": Command("pipelines.serve_dashboard", "serve the dashboard on this machine"),
    "devices": Command("pipelines.devices.command", "list the hardware and what a run would use"),
    "import-artifacts": Command("pipelines.import_artifacts", "import the files of a run from Colab or a drive"),
    "lab": Command("pipelines.open_lab", "open the notebooks of the workspace in JupyterLab"),
    "completion": Command("pipelines.completion", "print a script that completes commands in a shell"),
    "sample-data": Command("pipelines.sample_data.command", "generate the sample data of a synthetic plant"),
}


_TRAIN_COMMANDS = [name for name in COMMANDS if name.startswith("train ")]
_HELP = ("-h", "--help")


def main(argv: Sequence[str] | None = None) -> int:
    _find_packages()
    from core.errors import EXIT_FAILURE, EXIT_USAGE
    from core.signals import install_signal_handlers

    if argv is None:
        install_signal_handlers()
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        return _print(f"landfall {__version__}\n")
    for length in (2, 1):
        command = COMMANDS.get(" ".join(words[:length])) if len(words) >= length else None
        if command is None:
            continue
        try:
            module = import_module(command.module)
            if argv is not None:
                return module.main(words[length:])
            # The command reads the remaining arguments, and may restart the process with them.
            sys.argv = [f"{sys.argv[0]} {' '.join(words[:length])}", *words[length:]]
            return module.main()
        except ModuleNotFoundError as error:
            hint = "make setup installs it; without a clone: install the wheel with its extra, WHEEL[lab]"
            sys.stderr.write(f"landfall {' '.join(words[:length])}: {error} — {hint}\n")
            return EXIT_FAILURE
    if words == ["train"]:
        sys.stderr.write(f"landfall train: name a stream: {' or '.join(_TRAIN_COMMANDS)}\n")
        return EXIT_USAGE
    if len(words) > 1 and words[0] == "train" and words[1] in _HELP:
        return _print(_train_usage())
    usage = "usage: landfall COMMAND [arguments] | landfall --version   (landfall COMMAND --help: its options)\n\n"
    overview = usage + _listed(COMMANDS)
    if not words or words[0] in _HELP:
        return _print(overview)
    close = _close_to(words)
    more = f"; did you mean {close}? landfall --help lists all commands\n" if close else f"\n\n{overview}"
    sys.stderr.write(f"landfall: no command {' '.join(words[:2])!r}{more}")
    return EXIT_USAGE


def _print(text: str) -> int:
    """Writes to stdout; returns the exit code, also for a full disk and a closed stdout."""
    from core.errors import EXIT_OK, EXIT_OUTPUT

    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        from core.cli import close_stdout

        close_stdout()
        if not isinstance(error, BrokenPipeError):  # which is normal in `… | head`
            sys.stderr.write(f"landfall: the output of this command: {error.strerror}\n")
            return EXIT_OUTPUT
    return EXIT_OK


def _train_usage() -> str:
    usage = f"usage: landfall train STREAM [arguments]   (landfall {_TRAIN_COMMANDS[0]} --help: its options)\n\n"
    return usage + _listed(_TRAIN_COMMANDS)


def _listed(names: Collection[str]) -> str:
    width = max(map(len, names))
    return "".join(f"  {name:<{width}}  {COMMANDS[name].summary}\n" for name in names)


def _close_to(words: Sequence[str]) -> str:
    """The commands with a similar name; empty if there are none."""
    close = get_close_matches(" ".join(words[:2]), COMMANDS, cutoff=0.75)
    if not close:
        first_words = get_close_matches(words[0], {name.partition(" ")[0] for name in COMMANDS})
        close = [name for name in COMMANDS if name.partition(" ")[0] in first_words]
    return " or ".join(close[:2])


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext landfall`: adds `%migrate`, also if Landfall was installed from a wheel."""
    _find_packages()
    import_module("migration").load_ipython_extension(shell)


def _find_packages() -> None:
    """Adds the packages of a wheel to the module path of this process and of its child processes."""
    home = str(_HOME)
    if not _HOME.is_dir() or home in sys.path:
        return
    sys.path.insert(0, home)
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([home, inherited] if inherited else [home])


if __name__ == "__main__":
    sys.exit(main())
