"""A fleet on SLURM, PBS and LSF through dask-jobqueue, as docs/fleet.md shows it. The batch system is absent: its
commands are replaced by a program that runs the job scripts on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.fleet.starting import start
from tests.support import REPO_ROOT

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")

# Takes a job script as its argument or its standard input, as sbatch, qsub and bsub do, and runs it.
SUBMIT = """#!/bin/sh
cat "${1:-/dev/stdin}" > "$JOBS/script"
setsid sh "$JOBS/script" > "$JOBS/log" 2>&1 < /dev/null &
echo "Submitted batch job $!"
"""
CANCEL = """#!/bin/sh
kill -- -"$1"
"""
# Command that submits, command that cancels, and lines that the documentation of each system requires of such a job.
SYSTEMS = {
    "SLURM": ("sbatch", "scancel", ["#SBATCH -t 08:00:00", "#SBATCH --mem=8G", "#SBATCH --gres=gpu:1"]),
    "PBS": ("qsub", "qdel", ["#PBS -l walltime=08:00:00", "#PBS -l select=1:ncpus=1:ngpus=1:mem=8gb"]),
    "LSF": ("bsub", "bkill", ["#BSUB -W 08:00", '#BSUB -gpu "num=1"']),
}


def documented_program(system: str) -> str:
    """The example of the documentation, with the arguments of its table."""
    text = (REPO_ROOT / "docs/fleet.md").read_text(encoding="utf-8").partition("## SLURM, PBS, LSF")[2]
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    arguments = dict(re.findall(r"^\| `(\w+)Cluster` \| `(.*)` \|$", text, re.MULTILINE))
    assert arguments["SLURM"] in program
    return program.replace(arguments["SLURM"], arguments[system]).replace("SLURMCluster", f"{system}Cluster")


@pytest.mark.nightly
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_fleet_runs_on_workers_that_a_batch_system_starts(system, plant, tmp_path, monkeypatch):
    submit, cancel, lines = SYSTEMS[system]
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in ((submit, SUBMIT), (cancel, CANCEL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    environment = {**os.environ, "JOBS": str(tmp_path), "PYTHONPATH": str(REPO_ROOT), "OMP_NUM_THREADS": "1"}
    program = documented_program(system).replace("cluster.scale(20)", "cluster.scale(1)")
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as cluster:  # fmt: skip
        address = cluster.stdout.readline().strip()
        try:
            process = start(plant, "score", "--machine", "pump", "--machine", "broken", "--scheduler", address)
            out, err = process.communicate(timeout=300)
        finally:
            cluster.communicate("\n", timeout=300)
    script = Path(tmp_path, "script").read_text()
    assert process.returncode == 1, err + Path(tmp_path, "log").read_text()
    assert '"completed": 1' in out
    assert "broken failed" in err
    assert cluster.returncode == 0
    for line in lines:
        assert line in script.splitlines()
    assert f"dask_worker {address} " in script
    assert "--nthreads 1 " in script
