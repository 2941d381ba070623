"""Names of files, channels, tags and cells with control characters: no command prints them as they are."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support import REPO_ROOT
from tests.support.small_workspace import CONFIGS, PIPELINE_ARGUMENTS, build_small_workspace, install_page

FORGED = "18:00:00 forged"
# Colour, title of the terminal, reversed writing direction, a line of its own, a control character of one byte.
NAME = f"a\x1b[31m\x1b]0;t\x07\u202e\n{FORGED}\r\x9b2J"
CONFIG = CONFIGS["patchtst"]


@pytest.fixture
def hostile(tmp_path) -> Path:
    """A workspace where files and channels have such names, and so has a notebook with such cells."""
    root = build_small_workspace(tmp_path / "workspace")
    install_page(root)
    data = root / "data/fdc"
    for path in data.glob("*.csv"):
        pd.read_csv(path).rename(columns={"r": f"r{NAME}", "q": f"q{NAME}"}).to_csv(path, index=False)
    for old in ("train_1.csv", "test_1.csv", "test_1.labels.csv"):
        (data / old).rename(data / old.replace("_1", f"_{NAME}"))
    source = f"!pip install \x1b[31mfoo\nfrom google.colab import drive\ndrive.mount('/content/drive/{NAME[:12]}')"
    cell = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (root / f"{NAME}.ipynb").write_text(json.dumps(notebook))
    return root


@pytest.mark.nightly
def test_no_command_prints_control_characters_or_a_forged_line(hostile):
    of_stream = ("--stream", "patchtst", "--config", CONFIG)
    for words in (
        ["check", *of_stream, "--no-time"], ["check", *of_stream, "--no-time", "--json"], ["check", "data/fdc"],
        ["quality", "--config", CONFIG], ["train", "patchtst", "--config", CONFIG, "--run-id", "first"],
        ["score", *of_stream], ["score", *of_stream, "--json"],
        ["tag", *of_stream, "first", NAME, "--note", NAME], ["runs", *of_stream], ["runs", *of_stream, "--json"],
        ["calibrate", *of_stream], ["validate", *PIPELINE_ARGUMENTS, "--skip-smoke", "--verbose"],
        ["export", *PIPELINE_ARGUMENTS], ["pipeline", *PIPELINE_ARGUMENTS, "--dry-run"],
        *(["migrate", f"{NAME}.ipynb", *more] for more in ([], ["--check"], ["--diff"], ["--format", "github"])),
    ):  # fmt: skip
        command = [sys.executable, "-m", "landfall", *words]
        environment = {"PYTHONPATH": str(REPO_ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True, check=False)
        lines = [*done.stdout.split("\n"), *done.stderr.split("\n")]
        assert len(lines) > 2, words
        assert [line for line in lines if not line.isprintable() or line.startswith(FORGED)] == [], words
