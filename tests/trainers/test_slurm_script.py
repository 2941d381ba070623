"""The batch script for SLURM, run by bash with replacements for the programs of SLURM."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import landfall
from core.config.execution import Distributed
from core.errors import UsageError
from trainers.slurm_script import slurm_script

NASTY = 'data.root=it\'s $HOME `touch canary` "q" \\ ; touch canary #'


def script(*words: str, root: Path = Path("work space"), options: tuple[str, ...] = (), **settings) -> str:
    return slurm_script(
        "patchtst", words, root=root, settings=Distributed(**settings), time="01:30:00", lead_s=120, options=options
    )


def options_of(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


class Cluster:
    """A folder of programs that record their arguments; `srun` ends with a given exit code."""

    def __init__(self, folder: Path):
        self.folder, self.root = folder, folder / "work space"
        self.root.mkdir(parents=True)
        self._program("srun", f'printf "%s\\0" "$PWD" "$@" > "{folder}/srun-called"; exit "$CODE"')
        self._program("scontrol", f'echo "$@" >> "{folder}/scontrol-called"; echo node-7')

    def _program(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, text: str, *, code: int = 0, restarts: int | None = None) -> tuple[int, list[str], str]:
        """Exit code of the job, arguments of srun (first its working folder), and arguments of scontrol."""
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "CODE": str(code), "SLURM_JOB_ID": "42"}
        environment |= {"SLURM_JOB_NODELIST": "node-[7-8]"}
        if restarts is not None:
            environment["SLURM_RESTART_COUNT"] = str(restarts)
        done = subprocess.run(["bash"], input=text, env=environment, cwd=self.folder, text=True, check=False)
        called = self.folder / "scontrol-called"
        words = (self.folder / "srun-called").read_text().split("\0")[:-1]
        return done.returncode, words, called.read_text() if called.exists() else ""


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_arguments_are_passed_on_unchanged(cluster):
    text = script(NASTY, "training.epochs=3", root=cluster.root)
    code, words, called = cluster.run(text)
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", NASTY, "training.epochs=3"]
    assert (code, words, called) == (0, [str(cluster.root), *command], "")
    assert not list(cluster.folder.rglob("canary"))


def test_a_stopped_job_is_requeued_and_resumes(cluster):
    text = script(root=cluster.root)
    code, words, called = cluster.run(text, code=75)
    assert (code, called) == (75, "requeue 42\n")
    assert "--resume" not in words
    _, words, _ = cluster.run(text, restarts=1)
    assert words[-2:] == ["--resume", "unfinished"]


@pytest.mark.parametrize("code", [0, 1, 2, 130, 143])
def test_a_job_with_another_exit_code_is_not_requeued(cluster, code):
    assert cluster.run(script(root=cluster.root), code=code)[::2] == (code, "")


def test_a_missing_folder_starts_nothing(cluster):
    cluster.root.rmdir()
    done = subprocess.run(["bash"], input=script(root=cluster.root), text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert not (cluster.folder / "srun-called").exists()


def test_options_for_slurm():
    constraint = "constraint=[(a100|h100)*2&ib]"
    assert options_of(script(options=(constraint,)))[-1] == f"--{constraint}", (
        "special characters of SLURM are not quoted"
    )
    assert options_of(script(options=("gres=gpu:1", "exclusive", "time=2-00:00:00"))) == [
        *("--job-name=landfall-patchtst", "--time=2-00:00:00", "--signal=USR1@120", "--requeue"),
        *("--open-mode=append", "--nodes=1", "--ntasks-per-node=1", "--gres=gpu:1", "--exclusive"),
    ]


@pytest.mark.parametrize("option", ["comment=two words", "comment=a\n#SBATCH --uid=0", "comment='a'", "x;y=1"])
def test_an_option_that_slurm_would_misread_is_rejected(option):
    with pytest.raises(UsageError, match="sbatch cannot read"):
        script(options=(option,))


@pytest.mark.parametrize("time", ["90", "30:00", "08:00:00", "2-0", "1-12:30", "1-12:00:00"])
def test_times_in_the_format_of_slurm(workspace, capsys, time):
    assert landfall.main(["slurm", "patchtst", "--repo-root", str(workspace), "--time", time]) == 0
    assert f"--time={time}" in options_of(capsys.readouterr().out)


@pytest.mark.parametrize("time", ["8h", "forever", "1:2:3:4", "-1", ""])
def test_a_time_that_slurm_cannot_read_is_rejected(workspace, capsys, time):
    assert landfall.main(["slurm", "patchtst", "--repo-root", str(workspace), f"--time={time}"]) == 2
    assert re.search(rf"{re.escape(repr(time))} .*08:00:00", capsys.readouterr().err)


def test_missing_arguments_are_named(capsys):
    with pytest.raises(SystemExit):
        landfall.main(["slurm"])
    assert capsys.readouterr().err.endswith("landfall slurm: error: the following arguments are required: stream\n")


def test_several_machines_use_the_first_of_the_job_as_rendezvous(cluster):
    text = script(root=cluster.root, nodes=2)
    assert "--nodes=2" in options_of(text)
    _, words, called = cluster.run(text)
    assert words[-1] == "distributed.rendezvous='node-7:29500'"
    assert called == "show hostnames node-[7-8]\n"
    named = script(root=cluster.root, nodes=2, rendezvous="head:1")
    assert "scontrol show" not in named


def test_the_command_prints_it(workspace, capsys):
    words = ["slurm", "swinmae", "--repo-root", str(workspace), "--time", "04:00:00", "--option", "partition=gpu"]
    assert landfall.main([*words, "training.epochs=7"]) == 0
    text = capsys.readouterr().out
    assert {"--time=04:00:00", "--partition=gpu"} <= set(options_of(text))
    assert "-m trainers.train_swinmae_ssl training.epochs=7 " in text
    assert landfall.main([*words, "training.epoch=7"]) == 2, (
        "a wrong configuration is reported before the job is queued"
    )
