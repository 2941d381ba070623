"""The steps of the pipeline: the command, the inputs and the outputs of each, and the steps that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import checkpoint
from core.config.compose import LoadedConfig
from core.config.overrides import CONFIG_FLAGS
from core.config.schema import Stream
from core.data.scaling import scaler_path
from core.page import SINGLE_FILE, has_page
from core.runlog import loss_csv_path, loss_png_path
from core.workspace import relative
from inference.summary import ScoringPaths
from pipelines.checklist import REPORT
from pipelines.steps.stages import StageId


@dataclass(frozen=True)
class Notebook:
    """A notebook (path relative to the workspace) and its parameters."""

    path: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Inputs:
    """The inputs of a step. While they do not change, `--resume` skips the step. streams: streams whose configuration
    and, with `data`, whose sensor files it reads. sections: those of the configurations that it uses; empty for all.
    code: packages of Landfall that it uses. files: outputs of other steps.
    """

    streams: tuple[Stream, ...] = ()
    data: bool = False
    sections: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One step: either a `command` (module and arguments) or a `notebook`.

    stage: its stage on the dashboard. needs: steps that must complete first.
    outputs: its output files, relative to the workspace.
    stream: steps of different streams may run at the same time. always: runs also after a failure.
    """

    name: str
    title: str
    stage: StageId
    command: tuple[str, ...] = ()
    notebook: Notebook | None = None
    needs: tuple[str, ...] = ()
    inputs: Inputs = field(default_factory=Inputs)
    outputs: tuple[str, ...] = ()
    stream: Stream | None = None
    always: bool = False


# The kinds of steps that each stream has; their names end with that of the stream.
STREAM_STEPS = ("quality", "notebook", "scores")


@dataclass(frozen=True)
class Order:
    """The request: the configuration of each stream in use, overrides of both, and parameters of both notebooks.

    off, files_off: the reason and the configuration file of each stream that is not in use.
    """

    configs: Mapping[Stream, LoadedConfig]
    run_id: str
    overrides: Sequence[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    persist_run_history: bool = True
    off: Mapping[Stream, str] = field(default_factory=dict)
    files_off: Mapping[Stream, str] = field(default_factory=dict)


def pipeline_steps(order: Order, root: Path) -> tuple[Step, ...]:
    """Every step, each after those it needs."""
    streams = tuple(order.configs)
    steps = [
        step
        for make in (quality_step, _notebook, scores_step)
        for step in (make(stream, order, root) for stream in streams)
    ]
    return (*steps, _checklist(order, root, steps), _dashboard(order, root, steps))


def quality_step(stream: Stream, order: Order, root: Path) -> Step:
    loaded = order.configs[stream]
    return Step(
        name=f"quality-{stream}",
        title=f"data quality, {stream}",
        stage="quality",
        command=("pipelines.check_data_quality", "--config", loaded.source, "--run-id", order.run_id, *order.overrides),
        inputs=Inputs((stream,), data=True, sections=("data", "dqvl", "logging"), code=("core",)),
        stream=stream,
    )


def _notebook(stream: Stream, order: Order, root: Path) -> Step:
    loaded = order.configs[stream]
    path = f"notebooks/local_{stream}_ssl.ipynb"
    given = {
        "config": loaded.source,
        "overrides": ["logging.progress=lines", *order.overrides],
        "epochs": None,  # those of the configuration; the notebook's default is a short run
        "run_id": order.run_id,
    }
    return Step(
        name=f"notebook-{stream}",
        title=f"training and scoring, {stream}",
        stage="train",
        notebook=Notebook(path, given | order.parameters),
        needs=(f"quality-{stream}",),
        inputs=Inputs((stream,), data=True, code=("core", "trainers", "inference")),
        outputs=trained(loaded, root),
        stream=stream,
    )


def trained(loaded: LoadedConfig, root: Path) -> tuple[str, ...]:
    """The files that a training writes, without those of its run, relative to the workspace."""
    config = loaded.config
    best = root / config.logging.checkpoint_path
    written = (
        best,
        checkpoint.sidecar_path(best),
        loss_csv_path(root, config),
        loss_png_path(root, config),
        scaler_path(root, config),
    )
    return tuple(relative(file, root) for file in written)


def scores_step(stream: Stream, order: Order, root: Path) -> Step:
    """Scores again, unless the notebook already scored with this checkpoint."""
    loaded = order.configs[stream]
    options = ("--stream", stream, "--config", loaded.source, "--unless-current", *order.overrides)
    return Step(
        name=f"scores-{stream}",
        title=f"scores, {stream}",
        stage="score",
        command=("inference.run_scoring_example", *options),
        needs=(f"notebook-{stream}",),
        inputs=Inputs((stream,), data=True, code=("core", "inference"), files=(loaded.config.logging.checkpoint_path,)),
        outputs=_scored(loaded, root),
        stream=stream,
    )


def _scored(loaded: LoadedConfig, root: Path) -> tuple[str, ...]:
    """Includes the detector, although scoring may only have read it: if the detector was replaced, the step must run
    again."""
    paths = ScoringPaths.of(loaded.config, root=root)
    detector = checkpoint.detector_path(root / loaded.config.logging.checkpoint_path)
    return tuple(relative(file, root) for file in (*paths.tables, paths.summary, detector))


def _checklist(order: Order, root: Path, earlier: Sequence[Step]) -> Step:
    return Step(
        name="checklist",
        title="validation checklist",
        stage="validate",
        command=("pipelines.validate_training_outputs", *_config_arguments(order), *order.overrides),
        needs=tuple(step.name for step in earlier),
        inputs=Inputs(
            tuple(order.configs),
            code=("core", "inference", "migration", "pipelines"),
            files=tuple(dict.fromkeys(output for step in earlier for output in step.outputs)),
        ),
        outputs=(REPORT,),
    )


def _dashboard(order: Order, root: Path, earlier: Sequence[Step]) -> Step:
    history = "--persist-run-history" if order.persist_run_history else "--no-persist-run-history"
    single_file = ("--single-file", str(root / SINGLE_FILE)) if has_page(root) else ()
    return Step(
        name="dashboard",
        title="dashboard export",
        stage="export",
        command=(
            "pipelines.export_training_dashboard_state",
            *("--run-id", order.run_id, history, *single_file, *_config_arguments(order), *order.overrides),
        ),
        needs=(*(step.name for step in earlier), "checklist"),
        always=True,
    )


def _config_arguments(order: Order) -> list[str]:
    """The configurations of all streams: each command determines which are not in use."""
    files = {stream: loaded.source for stream, loaded in order.configs.items()} | order.files_off
    return [word for stream, flag in CONFIG_FLAGS.items() for word in (flag, files[stream])]
