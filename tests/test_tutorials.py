"""Runs the commands and programs of the tutorials and of the README as a reader would, and compares the results."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import REPO_ROOT, SHARED_DATA, needs_shared_data

pytestmark = pytest.mark.nightly

PROCESS, VIBRATION = "docs/tutorial-process-sensors.md", "docs/tutorial-vibration.md"
# The results on another processor differ from those of the page by rounding, which training amplifies.
TOLERANCE = 0.03


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (REPO_ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def run(folder: Path, *arguments: str) -> str:
    """The standard output of a Python command in a folder. Fails with the last lines of its log."""
    result = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(REPO_ROOT), "LANDFALL_LOGGING__PROGRESS": "off"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def run_page(page: str, folder: Path) -> None:
    """Runs the programs of a page that prepare the data, then its `landfall` commands."""
    for program in blocks(page, "python"):
        run(folder, "-c", program)
    commands = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("landfall ")]
    assert [command.split()[1] for command in commands] == ["train", "score"]
    for command in commands:
        run(folder, "-m", *command.split())


def expected(page: str, key: str) -> str:
    """The value of a key in the table of results."""
    return re.search(rf"^\| `{key}` \| ([^|]+) \|", (REPO_ROOT / page).read_text("utf-8"), re.MULTILINE)[1].strip()


def detection(folder: Path, stream: str) -> dict[str, float]:
    return json.loads((folder / f"artifacts/scores/{stream}_summary.json").read_text("utf-8"))["detection"]


@needs_shared_data
def test_the_tutorial_for_process_sensors_gives_its_results(workspace):
    source = SHARED_DATA / "fdc/skab"
    for file in sorted(source.glob("*_*.labels.csv.gz")):
        name = file.name.removesuffix(".labels.csv.gz")
        group, number = name.rsplit("_", 1)
        table = pd.read_csv(source / f"{name}.csv.gz").join(pd.read_csv(file)[["anomaly", "changepoint"]])
        target = workspace / f"downloads/SKAB/data/{group}/{number}.csv"
        target.parent.mkdir(parents=True, exist_ok=True)
        table.rename(columns={"timestamp": "datetime"}).to_csv(target, sep=";", index=False)
    run_page(PROCESS, workspace)
    found = detection(workspace, "patchtst")
    assert found["auroc"] == pytest.approx(float(expected(PROCESS, "auroc")), abs=TOLERANCE)
    assert found["event_recall_by_chance"] == pytest.approx(float(expected(PROCESS, "event_recall_by_chance")), abs=0.1)
    faults, total = map(int, expected(PROCESS, "faults_found").split(" of "))
    assert found["faults_total"] == total
    assert abs(found["faults_found"] - faults) <= 1


@needs_shared_data
def test_the_tutorial_for_vibration_gives_its_results(workspace):
    for name in ("fan_0_low_0_weight", "fan_0_low_1_weight"):
        target = workspace / "downloads/fan/datasets/ceiling-fan" / name
        target.mkdir(parents=True)
        with np.load(SHARED_DATA / f"vibration/fan_3axis/{name}.npz") as records:
            for number, record_ta in enumerate(records["x"]):
                np.savetxt(target / f"{number:04d}.csv", record_ta, delimiter=",", fmt="%.6g")
    run_page(VIBRATION, workspace)
    found = detection(workspace, "swinmae")
    assert found["auroc"] == pytest.approx(float(expected(VIBRATION, "auroc")), abs=TOLERANCE)
    assert f"{found['faults_found']} of {found['faults_total']}" == expected(VIBRATION, "faults_found")


def test_the_python_example_of_the_readme_trains_and_prints_events(workspace):
    shutil.copy(REPO_ROOT / "pyproject.toml", workspace)
    run(workspace, "-m", "landfall", "sample-data")
    (example,) = blocks("README.md", "python")
    loss, *sentences = run(workspace, "-c", example).splitlines()
    assert 0 < float(loss) < 1
    assert len(sentences) == 5
    assert all(" × threshold, mostly " in sentence for sentence in sentences)
