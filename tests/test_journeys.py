"""Three journeys of a new user, with the commands of the README alone: sensors, vibration, and a Colab notebook."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest

from benchmarks.plants.files import START, STYLES, write_plant
from benchmarks.plants.plant import make_plant
from pipelines.init_workspace import init_workspace
from tests.support import REPO_ROOT

pytestmark = pytest.mark.slow

MOST_COMMANDS = 6
RATE = 1000


def commands_of(section: str) -> list[str]:
    """The commands in a section of the README, without the help, and the server that ends only by Ctrl-C."""
    text = (REPO_ROOT / "README.md").read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    lines = [line for span in spans for line in span.split(" && ")]
    commands = dict.fromkeys(line for line in lines if line.startswith(("landfall ", "papermill ", "mkdir ")))
    commands = [command for command in commands if command not in ("landfall dashboard", "landfall --help")]
    assert 2 <= len(commands) <= MOST_COMMANDS
    return commands


def run(folder: Path, command: str) -> str:
    """The stdout of a command as a shell would run it in the activated environment."""
    words = shlex.split(command)
    if words[0] in ("landfall", "papermill"):
        words = [sys.executable, "-m", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT), "LANDFALL_LOGGING__PROGRESS": "off"}
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stdout[-1000:]} {ended.stderr[-2000:]}"
    return ended.stdout


def events_of(folder: Path, stream: str) -> pd.DataFrame:
    return pd.DataFrame(json.loads((folder / f"artifacts/scores/{stream}_events.json").read_text("utf-8")))


def test_own_sensors_from_csv_to_the_faulty_sensor(tmp_path):
    root = tmp_path / "plant"
    init_workspace(root)
    plant = make_plant("exchange", 1)
    for command in commands_of("Your own data"):
        if command.endswith("charts"):
            continue  # the README: for those who do not train
        if command.startswith("landfall train"):
            command += " trainer=quick"  # the README: to change a value, append it
        printed = run(root, command)
        if command.startswith("mkdir"):
            write_plant(plant, root / "data/fdc", STYLES["plain"])
        if command == "landfall check":
            assert "next: landfall train patchtst" in printed
        if command.startswith("landfall score"):
            assert "next: landfall export" in printed
            start, stop = (START["test"] + pd.Timedelta(seconds=row) for row in (plant.start, plant.stop - 1))
            events = events_of(root, "patchtst")
            first, last = (pd.to_datetime(events[name]) for name in ("start", "end"))
            found = events[(first <= stop) & (last >= start)]
            assert len(found), command
            assert found.loc[found["severity"].idxmax(), "top_channels"].split("; ")[0] in plant.sensors, command
    state = json.loads((root / "training_dashboard/data/dashboard-state.json").read_text("utf-8"))
    assert state["streams"]["patchtst"]["light"]["state"] == "open events"
    assert state["streams"]["swinmae"]["light"]["state"] == "not in use"


@pytest.mark.nightly
def test_own_vibration_from_npy_to_the_impacts(tmp_path):
    root = tmp_path / "rig"
    init_workspace(root)
    rng = np.random.default_rng(5)
    for command in commands_of("Your own data"):
        command = command.replace("data/fdc", "data/vib").replace("patchtst", "swinmae")
        if command.startswith("landfall train") or command == "landfall score":
            continue  # the README: training can be skipped
        run(root, command)
        if command.startswith("mkdir"):
            for name, seconds, impacts in (("train_1", 90, ()), ("test_1", 40, (15, 25))):
                np.save(root / f"data/vib/{name}.npy", vibration(rng, seconds, impacts))
                (root / f"data/vib/{name}.json").write_text(json.dumps({"sampling_rate_hz": RATE}), encoding="utf-8")
    events = events_of(root, "swinmae")
    worst = events.loc[events["severity"].idxmax()]
    assert 14 <= worst["start_seconds"] <= 17
    assert 24 <= worst["end_seconds"] <= 29, "scores are means over seconds"


def vibration(rng: np.random.Generator, seconds: int, impacts: tuple[int, ...]) -> np.ndarray:
    """Float32 (T, 3): a shaft of 29 Hz in noise; between two times, impacts that ring at 230 Hz."""
    time_t = np.arange(seconds * RATE) / RATE
    wave_t3 = np.sin(2 * np.pi * 29 * time_t)[:, None] * [1.0, 0.6, 0.3] + 0.3 * rng.normal(size=(len(time_t), 3))
    if impacts:
        phase_t = (time_t * 7) % 1 / 7
        is_hit_t = (time_t >= impacts[0]) & (time_t < impacts[1])
        wave_t3[:, 2] += is_hit_t * 4 * np.exp(-phase_t * 60) * np.sin(2 * np.pi * 230 * phase_t)
    return wave_t3.astype(np.float32)


def test_an_own_colab_notebook_from_drive_to_its_result(tmp_path):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell(source)
        for source in (
            "from google.colab import drive\ndrive.mount('/content/drive')",
            "import pandas as pd\nmachine = 'pump 7'  #@param {type: 'string'}",
            "frame = pd.read_csv('/content/drive/MyDrive/plant/pump.csv')\nprint(machine, frame['flow'].mean())",
            "frame.describe().to_csv('/content/summary.csv')",
        )
    ]
    nbformat.write(notebook, tmp_path / "my_notebook.ipynb")
    original = (tmp_path / "my_notebook.ipynb").read_bytes()
    convert, execute = commands_of("Your own Colab notebook")
    printed = run(tmp_path, convert)
    source, here = re.search(r"copy MyDrive/(\S+) to (\S+)", printed).groups()
    assert source == "plant/pump.csv"
    (tmp_path / here).parent.mkdir(parents=True)
    pd.DataFrame({"flow": [40.0, 44.0]}).to_csv(tmp_path / here, index=False)
    run(tmp_path, execute)
    outputs = [output for cell in nbformat.read(tmp_path / "run.ipynb", 4).cells for output in cell.get("outputs", [])]
    assert any("pump 7 42.0" in output.get("text", "") for output in outputs)
    assert (tmp_path / "summary.csv").is_file()
    assert (tmp_path / "my_notebook.ipynb").read_bytes() == original
