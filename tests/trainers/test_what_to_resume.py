"""Which state a run resumes, and whether it fits; with states that were not trained."""

import json
import platform
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from core import checkpoint
from core.config.schema import AnyConfig
from core.errors import CheckpointError
from core.packages import version_of
from tests.support import REPO_ROOT
from tests.trainers.trainings import config_of
from trainers.resuming import check_fit, checkpoint_to_resume, report_exactness, versions

LAST, EARLIER = "checkpoints/patchtst_ssl.last.pt", "checkpoints/earlier.pt"
HARDWARE = {"name": "CPU", "processes": 1, "batch": {"effective": 8, "micro": 8}, "versions": {"torch": "2.0"}}


def save_state(path: Path, run_id: str = "run-1", **changes) -> Path:
    checkpoint.save(path, {"epoch": 1}, description={"run_id": run_id, "hardware": HARDWARE, **changes})
    return path


@cache
def untouched_config() -> AnyConfig:
    return config_of(REPO_ROOT)


def chosen(root: Path, resume: str, run_id: str | None = None, **started) -> str | None:
    """The path relative to the workspace."""
    config = untouched_config()
    training = config.training.model_copy(update={"resume": resume})
    path = checkpoint_to_resume(config.model_copy(update={"training": training}), root, run_id, **started)
    return None if path is None else path.relative_to(root).as_posix()


# ------------------------------------------------------------------------------------------------------------- choosing
@pytest.mark.parametrize("resume, run_id, expected", [
    ("auto", "run-1", LAST), ("auto", "another", LAST), ("never", "run-1", None), (EARLIER, "another", EARLIER),
    ("unfinished", "run-1", LAST), ("unfinished", "another", None), ("unfinished", None, None),
])  # fmt: skip
def test_a_run_resumes_the_requested_state(tmp_path, resume, run_id, expected):
    for name in (LAST, EARLIER):
        save_state(tmp_path / name)
    assert chosen(tmp_path, resume, run_id) == expected


@pytest.mark.parametrize("resume, run_id, expected", [
    ("auto", "another", LAST), ("never", "run-1", LAST), ("never", "another", None), (EARLIER, "another", LAST),
    ("unfinished", "run-1", LAST), ("unfinished", "another", None),
])  # fmt: skip
def test_a_restarted_process_resumes_the_run_of_the_previous_one(tmp_path, resume, run_id, expected):
    for name in (LAST, EARLIER):
        save_state(tmp_path / name)
    assert chosen(tmp_path, resume, run_id, is_restarted=True) == expected


def test_a_restarted_process_without_a_state_starts_like_the_previous_one(tmp_path):
    assert chosen(tmp_path, "never", "run-1", is_restarted=True) is None
    save_state(tmp_path / EARLIER)
    assert chosen(tmp_path, EARLIER, "run-1", is_restarted=True) == EARLIER
    save_state(tmp_path / LAST, "another-run")
    assert chosen(tmp_path, EARLIER, "run-1", is_restarted=True) == EARLIER


@pytest.mark.parametrize("state, expected", [
    ("running", LAST), ("stopped", LAST), ("failed", LAST), ("completed", None), (None, None),
])  # fmt: skip
def test_a_run_without_a_name_resumes_unless_it_is_complete(tmp_path, state, expected):
    save_state(tmp_path / LAST)
    folder = tmp_path / "runs/patchtst_ssl/run-1"
    folder.mkdir(parents=True)
    if state is not None:
        (folder / "status.json").write_text(json.dumps({"state": state}))
    assert chosen(tmp_path, "unfinished") == expected


def save_row(root: Path, states: str) -> None:
    """One letter per state, newest first: valid, damaged, or missing."""
    for age, state in enumerate(states):
        path = checkpoint.previous_path(root / LAST, age)
        if state != "m":
            save_state(path)
        if state == "t":
            path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "states, age", [("w", 0), ("ww", 0), ("tw", 1), ("mw", 1), ("ttw", 2), ("mtw", 2), ("m", None)]
)
def test_the_newest_valid_state_is_used_and_damaged_ones_are_reported(tmp_path, caplog, states, age):
    save_row(tmp_path, states)
    path = None if age is None else checkpoint.previous_path(tmp_path / LAST, age)
    assert chosen(tmp_path, "auto") == (None if age is None else path.relative_to(tmp_path).as_posix())
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == (age or 0)
    assert all(text.endswith(path.name) for text in warnings)


@pytest.mark.parametrize("states, problem", [("t", "is damaged"), ("tt", "is damaged"), ("mt", "does not exist")])
def test_without_a_valid_state_the_newest_is_named(tmp_path, states, problem):
    save_row(tmp_path, states)
    with pytest.raises(CheckpointError, match=rf"patchtst_ssl\.last\.pt: {problem}"):
        chosen(tmp_path, "auto")


def test_a_requested_file_must_exist_and_have_a_batch_size(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist") as caught:
        chosen(tmp_path, EARLIER)
    assert caught.value.hint == "set training.resume to auto or never"
    for hardware in ({}, {"name": "CPU"}):
        save_state(tmp_path / EARLIER, hardware=hardware)
        with pytest.raises(CheckpointError, match="batch size"):
            chosen(tmp_path, EARLIER)


# -------------------------------------------------------------------------------------------------------------- fitting
CONFIG = {"seed": 1, "model": {"d_ff": 32}, "logging": {"every_steps": 3}, "training": {"keep": 2, "epochs": 4}}
DATA = {"train": {"files": {"a.csv": "1f", "b.csv": "2e"}, "windows": [7, "3d"]}}
STATE = {"optimizer": {}, "config": CONFIG, "data": DATA}


def fit(state=STATE, *, config=CONFIG, data=DATA, allow_changes: bool = False) -> None:
    check_fit(Path("model.pt"), state, config=config, data=data, allow_changes=allow_changes)


def test_changes_of_what_is_learned_are_rejected_and_all_are_named(caplog):
    free = {"logging": {"every_steps": 9}, "training": {"keep": 5, "epochs": 4}, "timeout_hours": 1}
    fit()
    fit(config={**CONFIG, **free})
    assert not caplog.records
    other = {**CONFIG, "model": {"d_model": 64}, "seed": 2}
    data = {"train": {"files": {"a.csv": "1f", "c.csv": "2e"}, "windows": [8, "3d"]}}
    changed = (
        "model.d_ff was 32, is None",
        "model.d_model was None, is 64",
        "seed was 1, is 2",
        "b.csv",
        "c.csv",
        "became 8",
    )
    with pytest.raises(CheckpointError) as caught:
        fit(config=other, data=data)
    assert caught.value.message.startswith("checkpoint model.pt: ")
    assert [words for words in changed if words not in caught.value.message] == []
    assert "logging" not in caught.value.message
    fit(config=other, data=data, allow_changes=True)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert [words for words in changed if words not in record.getMessage()] == []


@pytest.mark.parametrize("missing, problem, hint", [
    ("optimizer", "no training state", "resume from model.last.pt"),
    ("data", "training data", "restart with --resume never"),
])  # fmt: skip
def test_a_file_without_training_state_is_rejected_even_with_allow_changes(missing, problem, hint):
    state = {name: value for name, value in STATE.items() if name != missing}
    with pytest.raises(CheckpointError, match=problem) as caught:
        fit(state, allow_changes=True)
    assert caught.value.hint == hint


# ----------------------------------------------------------------------------------------------------------- exactness
def test_the_log_says_whether_a_run_resumes_bit_exactly(caplog):
    caplog.set_level("INFO")
    report_exactness(HARDWARE, {**HARDWARE, "memory": 3})
    report_exactness(HARDWARE, {**HARDWARE, "name": "Tesla T4", "batch": {"effective": 8, "micro": 4}, "x64": True})
    exact, differing = caplog.records
    assert (exact.levelname, differing.levelname) == ("INFO", "WARNING")
    changed = ("device was CPU, is Tesla T4", "float64 was None, is True", "micro-batch was 8, is 4")
    assert [words for words in changed if words not in differing.getMessage()] == []
    assert "memory" not in differing.getMessage()


def test_versions_of_the_training_software_are_recorded():
    others = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    assert versions() == {"landfall": version_of("landfall"), **others}
