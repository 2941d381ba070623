"""Checks that the outputs of a run agree: checkpoint, loss, logs, quality, scores, notebooks, dashboard."""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import checkpoint
from core.config.compose import local_config_file
from core.config.schema import Stream
from core.data.files import expand
from core.data.scaling import scaler_path
from core.data.splits import SPLIT_NAMES
from core.names import is_run_id
from core.numbers import counted, finite, plain
from core.promotion import compare, weights_path
from core.reading import read_json_object
from core.runlog import EpochRecord, loss_csv_path, loss_png_path, read_loss_csv, read_metrics
from core.workspace import relative
from inference.provenance import detector_sha256
from inference.summary import ScoringPaths
from pipelines.checks.base import Check, CheckFailed, CheckSkipped, CheckWarned, Context
from pipelines.checks.scoring import model_has_not_collapsed, scoring_is_deterministic

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"


def checkpoint_fits(context: Context, stream: Stream) -> str:
    """The checkpoint is valid, loads with strict keys, and was trained with the data of the configuration."""
    from core.config.hardware import load_tiers, size_as_trained
    from core.devices.manager import DeviceManager
    from inference.scoring import load_scoring_model

    loaded, path = context.configs[stream], context.checkpoint(stream)
    described = checkpoint.describe(path)
    config = size_as_trained(loaded, described["config"], load_tiers(context.root))
    load_scoring_model(path, DeviceManager(config).plan(processes=1), config=config)
    parameters = f"{described['parameters'] / 1e6:.2f} M parameters"
    return f"epoch {described['epoch']}, {parameters}, sha256 and configuration match"


def newest_run_is_promoted(context: Context, stream: Stream) -> str:
    """Warns if the promoted model, which scoring uses, is that of an older run that is not better."""
    promoted, newest = checkpoint.describe(context.checkpoint(stream)), _last_run(context, stream)
    if promoted["run_id"] != newest:
        weights = weights_path(context.root, context.config(stream), newest)
        if weights.is_file() and not (verdict := compare(checkpoint.describe(weights), promoted)).replaces:
            return f"the newest run, {newest}, is worse: {verdict.reason}"
        raise CheckWarned(
            f"run {newest} is newer than the model, which is that of run {promoted['run_id']} "
            f"(validation loss {promoted['val_loss']:.5f})",
            f"`landfall runs` compares them; `landfall promote {newest}` promotes the newer one",
        )
    return f"the model is that of the newest run, {newest}"


def loss_falls(context: Context, stream: Stream) -> str:
    history = _history(context, stream)
    values = [value for record in history for value in (record.train_loss, record.val_loss)]
    if not all(math.isfinite(value) for value in values):
        raise CheckFailed("the loss is not finite", "lower training.learning_rate, or set precision=32")
    first, best = history[0], min(history, key=lambda record: record.val_loss)
    if len(history) < 2:
        raise CheckSkipped("one epoch shows no trend", "train for at least two epochs")
    if not (history[-1].train_loss < first.train_loss and best.val_loss < first.val_loss):
        raise CheckFailed(
            f"training {first.train_loss:.4f} → {history[-1].train_loss:.4f}, "
            f"validation {first.val_loss:.4f} → best {best.val_loss:.4f}: not falling",
            "train longer, or look at training.learning_rate and the data",
        )
    return (
        f"training {first.train_loss:.4f} → {history[-1].train_loss:.4f}, "
        f"validation {first.val_loss:.4f} → {best.val_loss:.4f} at epoch {best.epoch}"
    )


def loss_artifacts_agree(context: Context, stream: Stream) -> str:
    """The CSV has the epochs of the log, and the figure is a complete PNG."""
    history = _history(context, stream)
    logged = [
        record for record in read_metrics(_run_folder(context, stream) / "metrics.jsonl") if record["kind"] == "epoch"
    ]
    from_log = [(record["epoch"], record["train_loss"], record["val_loss"]) for record in logged]
    # The log is strict JSON: non-finite values are null there.
    losses = [(record.epoch, record.train_loss, record.val_loss) for record in history]
    from_csv = [tuple(map(finite, row)) for row in losses]
    if from_log != from_csv:
        raise CheckFailed(
            f"the CSV has {len(from_csv)} epochs, the log {len(from_log)}, and they are not the same",
            "one of them belongs to another run: train again",
        )
    picture = loss_png_path(context.root, context.config(stream))
    size = _size_of_png(picture, context)
    return f"{len(history)} epochs in CSV and log agree; {picture.name} is complete ({size // 1024} KiB)"


def scaler_matches(context: Context, stream: Stream) -> str:
    path = scaler_path(context.root, context.config(stream))
    written = _json(path, context)
    if not is_run_id(written.get("run_id", "x")):  # those of earlier versions have none
        raise CheckFailed(f"{path.name} names a run that cannot exist", "train again")
    own = weights_path(context.root, context.config(stream), _last_run(context, stream))
    saved = json.loads(json.dumps(checkpoint.load(own if own.is_file() else context.checkpoint(stream))["scaler"]))
    differing = [key for key, value in saved.items() if written.get(key) != value]
    if differing:
        raise CheckFailed(f"{path.name} differs from the checkpoint in {', '.join(differing)}", "train again")
    if not all(scale > 0 and math.isfinite(scale) for scale in saved["scale"]):
        raise CheckFailed("a channel has no positive, finite scale", "look at the training data, and train again")
    return f"{len(saved['channels'])} channels, {saved['method']}; {len(saved['floored'])} with a floor"


def tensorboard_events(context: Context, stream: Stream) -> str:
    if not context.config(stream).logging.tensorboard:
        raise CheckSkipped("logging.tensorboard = false", "train with logging.tensorboard=true")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.WARNING)  # it reports the end of each file
    folder = _run_folder(context, stream)
    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()["scalars"]
    points = len(events.Scalars("loss/train")) if "loss/train" in tags else 0
    epochs = len(_history(context, stream))
    if points < epochs:
        raise CheckFailed(
            f"{points} of {epochs} epochs are in the events of {relative(folder, context.root)}",
            "restore them, or train again",
        )
    return f"{points} epochs, {len(tags)} curves"


def quality_reports(context: Context, stream: Stream) -> str:
    """There is one valid report for each file of the configuration; a dropped file is no failure. Files that an
    imported model was trained on elsewhere cannot be checked.
    """
    config = context.config(stream)
    if not config.dqvl.enabled:
        raise CheckSkipped("dqvl.enabled = false", "set dqvl.enabled=true")
    reports = [_json(path, context) for path in (context.root / config.dqvl.report_dir).glob("*.json")]
    decisions = {report["file_id"]: report["decision"] for report in reports}
    data_root = context.root / config.data.root
    elsewhere = context.splits_elsewhere(stream, SPLIT_NAMES)
    globs = [glob for name in SPLIT_NAMES if name not in elsewhere for glob in config.data.splits[name].files]
    files = {relative(path, data_root) for path in expand(globs, data_root)}
    if elsewhere and not files:
        raise CheckSkipped(
            f"the model was imported with {len(reports)} reports, and its sensor files are not in this workspace",
            "copy them to where data.splits names them, and import again",
        )
    missing = sorted(files - decisions.keys())
    if missing:
        raise CheckFailed(
            f"{len(missing)} of {len(files)} files have no report, first {missing[0]}", "run the pipeline again"
        )
    dropped = sorted(file for file in files if decisions[file] == "drop")
    warned = sum(bool(report["warnings"]) for report in reports if report["file_id"] in files)
    kept = f"{len(files)} files: {len(files) - len(dropped)} kept, {warned} with warnings"
    unchecked = f"; not checked, because their files are missing: {', '.join(elsewhere)}" if elsewhere else ""
    return f"{kept}; dropped: {', '.join(dropped) or 'none'}{unchecked}"


def scores_match(context: Context, stream: Stream) -> str:
    """Scores, events and figure belong to the checkpoint, or to control charts alone, and the alarms follow from scores
    and threshold. Warns if a model was not used."""
    import pandas as pd

    paths = ScoringPaths.of(context.config(stream), root=context.root)
    summary = _json(paths.summary, context)
    frame = _read(paths.scores, pd.read_parquet, context)
    events = _read(paths.events, pd.read_csv, context)
    _size_of_png(paths.timeline, context)
    is_by_charts = summary["checkpoint_sha256"] is None
    if not is_by_charts:
        if summary["checkpoint_sha256"] != checkpoint.describe(context.checkpoint(stream))["sha256"]:
            raise CheckFailed("the scores come from another checkpoint", "run `landfall score`")
        detector = summary.get("made_of", {}).get("model", {}).get("detector")
        if detector != detector_sha256(context.checkpoint(stream)):
            raise CheckFailed("the scores come from another detector", "run `landfall score`")
    threshold = summary["threshold"]["value"]
    if not (frame["alarm"] == (frame["score"] > threshold)).all():
        raise CheckFailed("alarms do not follow from scores and threshold", "run `landfall score`")
    expected = (summary["scores"] + summary["unscored_rows"], summary["events"])
    if (len(frame), len(events)) != expected:
        raise CheckFailed(
            f"the summary counts {expected}, the files contain {len(frame), len(events)}", "run `landfall score`"
        )
    if not frame["score"].notna().any():
        raise CheckFailed("all scores are NaN", "look at the test data and its quality reports")
    alarms = int(frame["alarm"].sum())
    found = f"{counted(alarms, 'alarm')} in {counted(len(events), 'event')}"
    if is_by_charts and not context.has_no_model(stream):
        raise CheckWarned(
            f"control charts alone scored, without the model: {found}", "`landfall score` scores with the model"
        )
    by = ", by control charts alone" if is_by_charts else ""
    return f"{summary['scores']:,} scores, {found}, threshold {plain(threshold)}{by}"


def executed_notebook(context: Context, stream: Stream) -> str:
    """The newest executed notebook of the stream is complete; training on the command line needs none."""
    import nbformat

    executed = context.root / context.config(stream).logging.artifacts_dir / "notebooks"
    found = list(executed.glob(f"*/local_{stream}_ssl.ipynb"))
    if not found:
        raise CheckSkipped("no notebook was executed", "run `landfall pipeline`, or train from the command line only")
    newest = max(found, key=lambda path: path.stat().st_mtime_ns)
    name, hint = relative(newest, context.root), "open it to see the cell, fix the cause and run `landfall pipeline`"
    notebook = _read(newest, lambda path: nbformat.read(path, as_version=4), context)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    errors = [output for cell in code for output in cell.outputs if output.output_type == "error"]
    if errors:
        raise CheckFailed(f"{name}: {errors[0].ename}: {errors[0].evalue.partition(chr(10))[0]}", hint)
    unexecuted = sum(cell.execution_count is None for cell in code)
    if unexecuted:
        raise CheckFailed(f"{name}: {unexecuted} cells never ran", hint)
    return f"{name}: {len(code)} cells, no error"


def dashboard_state(context: Context) -> str:
    """A new export is valid; so is the last one, if there is any."""
    from core.documents import explain
    from core.page import STATE
    from pipelines.dashboard.state_documents import DashboardState
    from pipelines.export_training_dashboard_state import export_state
    from pipelines.stream_configs import CONTRACT

    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "dashboard-state.json"
        configs = {**CONTRACT, **{stream: context.config(stream) for stream in context.configs}}
        export_state(context.root, out=fresh, configs=configs, off=context.off)
        state = DashboardState.model_validate_json(fresh.read_text(encoding="utf-8"))
    exported = context.root / STATE
    if exported.is_file():
        try:
            DashboardState.model_validate_json(exported.read_bytes())
        except ValueError as error:
            raise CheckFailed(f"{STATE}: {explain(error)}", "run `landfall export`") from error
    return f"valid, schema version {state.schema_version}, {len(context.configs)} streams"


CHECKS = (
    Check("checkpoint", "V-03", "Checkpoint", checkpoint_fits, of="model"),
    Check("newest", "V-03", "Newest run", newest_run_is_promoted, of="model", needs="checkpoint"),
    Check("loss", "V-03", "Loss falls", loss_falls, of="model"),
    Check("loss-artifacts", "V-03", "Loss CSV and figure", loss_artifacts_agree, of="model", needs="checkpoint"),
    Check("scaler", "V-03", "Scaler", scaler_matches, of="model", needs="checkpoint"),
    Check("tensorboard", "V-03", "TensorBoard events", tensorboard_events, of="model", needs="checkpoint"),
    Check("quality", "V-03", "Data quality reports", quality_reports, of="stream"),
    Check("scores", "V-03", "Scores and events", scores_match, of="stream", needs="checkpoint"),
    Check("smoke", "V-03", "Repeated scoring", scoring_is_deterministic, of="model", needs="checkpoint", is_smoke=True),
    Check(
        "collapse",
        "V-03",
        "Model did not collapse",
        model_has_not_collapsed,
        of="model",
        needs="checkpoint",
        is_smoke=True,
    ),
    Check("notebook", "V-03", "Executed notebook", executed_notebook, of="stream"),
    Check("dashboard", "V-03", "Dashboard state", dashboard_state),
)


# -------------------------------------------------------------------------------------------------------------- helpers
def _existing(path: Path, context: Context) -> Path:
    if not path.is_file():
        raise CheckFailed(f"{relative(path, context.root)} is missing", "run `landfall pipeline`")
    return path


def _read(path: Path, read: Callable[[Path], Any], context: Context) -> Any:
    try:
        return read(_existing(path, context))
    except (ValueError, OSError) as error:
        why = str(error).partition("\n")[0]
        raise CheckFailed(f"{relative(path, context.root)} cannot be read: {why}", "run `landfall pipeline`") from error


def _json(path: Path, context: Context) -> dict[str, Any]:
    return _read(path, read_json_object, context)


def _size_of_png(path: Path, context: Context) -> int:
    body = _existing(path, context).read_bytes()
    if not (body.startswith(_PNG_SIGNATURE) and body.endswith(_PNG_END)):
        raise CheckFailed(f"{relative(path, context.root)} is not a complete PNG", "run `landfall pipeline`")
    return len(body)


def _history(context: Context, stream: Stream) -> list[EpochRecord]:
    hint = f"train with {local_config_file(stream)}"
    try:
        history = read_loss_csv(_existing(loss_csv_path(context.root, context.config(stream)), context))
    except ValueError as error:
        raise CheckFailed(str(error), hint) from error
    if not history:
        raise CheckFailed("the loss history is empty", hint)
    return history


def _run_folder(context: Context, stream: Stream) -> Path:
    """The log of the run that wrote the loss history: the newest."""
    folder = context.root / context.config(stream).logging.log_dir / _last_run(context, stream)
    if not folder.is_dir():
        raise CheckFailed(f"{relative(folder, context.root)} is missing", "its log was deleted: train again")
    return folder


def _last_run(context: Context, stream: Stream) -> str:
    """The last training run, complete or not, according to the scaler file; without one, the run of the model."""
    try:
        written = _json(scaler_path(context.root, context.config(stream)), context).get("run_id")
    except CheckFailed:  # the check of the scaler reports it
        written = None
    return written if is_run_id(written) else checkpoint.describe(context.checkpoint(stream))["run_id"]
