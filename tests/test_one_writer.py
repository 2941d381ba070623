"""Two commands that would write the same model, scores or reports: the second is rejected and names the first."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from core.errors import EXIT_USAGE
from core.lock import Lock
from tests.support import copy_notebooks, most_nightly

MODEL, SUMMARY = "checkpoints/patchtst_ssl.pt", "artifacts/scores/patchtst_summary.json"
NEWER = "data.splits.calibration.files=[newer_*.csv]"
WRITERS = {
    "train": ("trainers.train_patchtst_ssl", [], MODEL),
    "score": ("inference.run_scoring_example", ["--stream", "patchtst"], MODEL),
    "score the same with another model": ("inference.run_scoring_example", ["--stream", "patchtst"], SUMMARY),
    "watch": ("inference.watch.command", ["patchtst", "--detector", "charts"], "artifacts/watch/patchtst_state.bin"),
    "export a model": ("inference.export_model", ["patchtst"], MODEL),
    "calibrate": ("inference.recalibrate", ["--stream", "patchtst", NEWER], MODEL),
    "pipeline, while a model is trained": ("pipelines.run_local_training_pipeline", [], MODEL),
    "pipeline, while one is scored": ("pipelines.run_local_training_pipeline", [], SUMMARY),
    "a second pipeline": ("pipelines.run_local_training_pipeline", [], "artifacts/pipeline"),
    "validate": ("pipelines.validate_training_outputs", ["--skip-smoke"], "artifacts/validation_report.json"),
}


@pytest.fixture
def root(workspace: Path) -> Path:
    copy_notebooks(workspace / "notebooks")
    return workspace


def files_in(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if ".lock" not in path.name}


@pytest.mark.parametrize(("module", "arguments", "held"), most_nightly(WRITERS.values(), but=5), ids=WRITERS)
def test_a_second_writer_is_rejected_and_the_first_named(module, arguments, held, root, capsys):
    (root / held).parent.mkdir(parents=True)
    before = files_in(root)
    with Lock("run-7", command="landfall pipeline") as first:
        first.take(root / held, key="x")
        assert import_module(module).main([*arguments, "--repo-root", str(root)]) == EXIT_USAGE
    last = capsys.readouterr().err.splitlines()[-1]
    assert held in last
    assert "landfall pipeline, run run-7 (process " in last
    assert {path for path in files_in(root) - before if Path(path).suffix} == set(), "it has written nothing"
