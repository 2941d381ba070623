"""Selection of steps, and reasons to run a step again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core import fingerprints
from core.config.compose import load_config
from core.errors import DataError, UsageError
from core.fingerprints import changes, file_digests
from pipelines.steps.fingerprints import fingerprint
from pipelines.steps.planning import Selection, reason_to_run
from pipelines.steps.records import StepRecord, read_step
from pipelines.steps.table import Order, Step, pipeline_steps, quality_step
from tests.support import REPO_ROOT
from tests.support.small_workspace import CONFIGS, build_small_workspace

EVERY = (
    "quality-patchtst", "quality-swinmae", "notebook-patchtst", "notebook-swinmae", "scores-patchtst", "scores-swinmae",
    "checklist", "dashboard",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_small_workspace(tmp_path / "workspace")


def order_of(root: Path, *overrides: str, run_id: str = "run-1", **parameters: object) -> Order:
    configs = {stream: load_config(file, overrides, root=root) for stream, file in CONFIGS.items()}
    return Order(configs, run_id, overrides, parameters)


def steps_of(root: Path, *overrides: str) -> dict[str, Step]:
    return {step.name: step for step in pipeline_steps(order_of(root, *overrides), root)}


# ------------------------------------------------------------------------------------------------------------ choosing
@pytest.mark.slow
def test_every_step_is_after_its_dependencies(root):
    steps = pipeline_steps(order_of(root), root)
    assert tuple(step.name for step in steps) == EVERY
    before: set[str] = set()
    for step in steps:
        assert set(step.needs) <= before
        before.add(step.name)
    assert steps[-1].always
    assert set(steps[-1].needs) == set(EVERY[:-1])


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), EVERY),
        (Selection(only=["checklist"]), ("checklist",)),
        (Selection(only=["*-patchtst"]), ("quality-patchtst", "notebook-patchtst", "scores-patchtst")),
        (Selection(start=["scores-*"]), ("scores-patchtst", "scores-swinmae", "checklist", "dashboard")),
        (
            Selection(start=["notebook-swinmae"], skip=["dashboard"]),
            ("notebook-swinmae", "scores-swinmae", "checklist"),
        ),
        (
            Selection(skip=["*-swinmae", "quality-*"]),
            ("notebook-patchtst", "scores-patchtst", "checklist", "dashboard"),
        ),
    ],
)
def test_steps_are_chosen_by_name(root, selection, chosen):
    assert tuple(step.name for step in selection.of(pipeline_steps(order_of(root), root))) == chosen


def test_an_unknown_step_is_rejected_with_the_known_ones(root):
    steps = pipeline_steps(order_of(root), root)
    with pytest.raises(UsageError, match=r"'checklists' .*checklist\? .*quality-patchtst"):
        Selection(only=["checklists"]).of(steps)
    with pytest.raises(UsageError, match="no step is selected"):
        Selection(skip=["*"]).of(steps)
    without = [step for step in steps if step.stream != "swinmae"]
    assert Selection(skip=["*swinmae"]).of(without, ["scores-swinmae"]) == tuple(without)
    with pytest.raises(UsageError, match="no step is selected"):
        Selection(only=["*swinmae"]).of(without, ["scores-swinmae"])


# ---------------------------------------------------------------------------------------------------- why it is to run
@pytest.fixture
def done(root):
    """The training of process sensors, as if it had just ended well; returns the reasons to repeat it."""
    step = steps_of(root)["notebook-patchtst"]
    for name in step.outputs:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    order = order_of(root)
    StepRecord(step.name, "run-1", fingerprint(step, order, root), file_digests(step.outputs, root), 1.0).write(root)

    def reason(*overrides: str, **parameters: object) -> str | None:
        order = order_of(root, *overrides, run_id="run-2", **parameters)
        (step,) = [step for step in pipeline_steps(order, root) if step.name == "notebook-patchtst"]
        return reason_to_run(step, order, root)

    return reason


@pytest.mark.slow
def test_another_run_name_is_not_a_reason(done):
    assert done() is None


def test_a_changed_configuration_is_reported_by_key(done):
    assert done("training.epochs=5") == "configuration: patchtst training.epochs was 3, is 5"


@pytest.mark.parametrize("override, is_reason", [("training.epochs=5", False), ("dqvl.hard.missing_ratio=0.4", True)])
def test_the_quality_check_depends_on_its_own_settings(root, override, is_reason):
    before, after = (
        fingerprint(quality_step("patchtst", order, root), order, root)
        for order in (order_of(root), order_of(root, override))
    )
    assert bool(changes(before, after)) == is_reason


@pytest.mark.slow
def test_other_weights_to_start_from_are_reported(done, root):
    """The configuration names a file; its content affects the result."""
    start = "training.start_from=checkpoints/elsewhere.pt"
    (root / "checkpoints").mkdir(exist_ok=True)
    (root / "checkpoints/elsewhere.pt").write_bytes(b"one")
    step = next(step for step in pipeline_steps(order_of(root, start), root) if step.name == "notebook-patchtst")
    before = fingerprint(step, order_of(root, start), root)
    (root / "checkpoints/elsewhere.pt").write_bytes(b"another")
    assert changes(before, fingerprint(step, order_of(root, start), root)) == [
        "configuration: checkpoints/elsewhere.pt changed"
    ]


def test_a_changed_parameter_is_reported(done):
    assert done(bundle=True) == "parameters: bundle is new"


@pytest.mark.slow
def test_a_changed_sensor_or_label_file_is_reported(done, root):
    data = root / "data/fdc"
    (data / "test_1.labels.csv").write_text("timestamp,anomaly\n", encoding="utf-8")
    shutil.copy(data / "test_2.csv", data / "test_3.csv")
    assert done() == "data: data/fdc/test_1.labels.csv changed, data/fdc/test_3.csv is new"
    for name in ("test_1.csv", "test_2.csv"):
        (data / name).unlink()
    assert done().startswith("data: ")
    assert done().endswith(" and 1 more")


def test_other_streams_and_files_are_not_a_reason(done, root):
    (root / "data/fdc/notes.txt").write_text("hello", encoding="utf-8")
    (root / "data/vib/train_1.npy").unlink()
    assert done() is None


def test_a_changed_notebook_is_reported_but_not_changed_outputs(done, root):
    path = root / "notebooks/local_patchtst_ssl.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cell = next(cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", ()))
    cell["execution_count"] = 7
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert done() is None
    cell["source"].append("\nepochs = 1")
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert done() == "code: notebooks/local_patchtst_ssl.ipynb changed"


def test_changed_code_is_reported(done, root, monkeypatch):
    for package in ("core", "trainers", "inference", "pipelines"):
        shutil.copytree(REPO_ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprints, "CODE_ROOT", root)
    assert done() is None
    (root / "trainers/optimizer.py").write_text("")
    assert done() == "code: trainers/optimizer.py changed"


@pytest.mark.slow
def test_a_missing_or_foreign_result_is_reported(done, root):
    (root / "checkpoints/patchtst_ssl.pt").write_text("of another run", encoding="utf-8")
    assert done().startswith("checkpoints/patchtst_ssl.pt has changed")
    (root / "checkpoints/patchtst_ssl.pt").unlink()
    assert done() == "checkpoints/patchtst_ssl.pt is missing"


def test_a_pattern_without_files_is_reported(done):
    with pytest.raises(DataError, match="does not exist"):
        done("data.splits.test.files=[data/none/*]")


@pytest.mark.parametrize(
    "content", ["{torn", "[]", '{"step": "notebook-patchtst", "inputs": 3}', '{"schema_version": 2}']
)
def test_an_unreadable_record_is_ignored(done, root, content):
    (root / "artifacts/pipeline/steps/notebook-patchtst.json").write_text(content, encoding="utf-8")
    assert done() == "has never completed"


def test_a_record_keeps_the_names_of_files(root):
    name = "data/fdc/odd\u202ename\x07.csv"
    StepRecord("made", "run-1", {"data": {name: "digest"}}, {name: "digest"}, 1.0).write(root)
    assert read_step(root, "made").inputs == {"data": {name: "digest"}}
