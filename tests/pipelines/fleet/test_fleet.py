"""`landfall fleet` with a real cluster: the same results as the commands alone, whatever fails or dies."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from core.checkpoint import load
from pipelines.fleet.jobs import Job, read_outcome, run_job
from pipelines.fleet.machines import read_fleet
from tests.pipelines.fleet.starting import start
from tests.support.waiting import until

pytest.importorskip("distributed", reason="the extra fleet is not installed")

TRAINED = ("press-1", "press-2")


def fleet(root, *words):
    """The exit code, the JSON of the last line, and stderr."""
    process = start(root, *words)
    out, err = process.communicate(timeout=500)
    assert out, err
    return process.returncode, json.loads(out.splitlines()[-1]), err


def results(workspace: Path) -> dict[str, object]:
    """The weights, and the table of scores, as bytes."""
    best, scores = workspace / "checkpoints/patchtst_ssl.pt", workspace / "artifacts/scores/patchtst_scores.parquet"
    found = {}
    if best.is_file():
        found |= {name: tensor.numpy().tobytes() for name, tensor in load(best)["model"].items()}
    if scores.is_file():
        table = pd.read_parquet(scores)
        found["scores"] = np.ascontiguousarray(table["score"].to_numpy()).tobytes()
    return found


def alone(plant, machine):
    """The results of the commands alone in a copy of the machine's workspace, each in a new process."""
    from pipelines.fleet.machines import prepare

    folder = prepare(machine.model_copy(update={"id": f"{machine.id}-alone"}), plant)
    words = ["--detector", "charts"] if machine.detector == "charts" else []
    modules = [] if words else ["trainers.train_patchtst_ssl"]
    for module, more in [*((module, []) for module in modules), ("inference.run_scoring_example", words)]:
        named = ["--stream", machine.stream] if module.startswith("inference") else []
        process = start(folder, *named, *more, module=module)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    return results(folder)


@pytest.mark.nightly
def test_machines_are_trained_and_scored_as_by_the_commands_alone(plant):
    machines = {machine.id: machine for machine in read_fleet("configs/fleet.yaml", plant).machines}
    code, summary, err = fleet(plant, "train", "--workers", "1")
    assert (code, summary["completed"], summary["skipped"], summary["failed"]) == (1, 2, 2, 1), err
    assert list(summary["reasons"]) == ["broken"]
    assert "nowhere" in summary["reasons"]["broken"]
    code, summary, _ = fleet(plant, "score", "--workers", "2")
    assert (code, summary["completed"], summary["failed"]) == (1, 4, 1)
    for name in (*TRAINED, "pump"):
        assert results(plant / "machines" / name) == alone(plant, machines[name]), name

    # A second start does only what has changed.
    page = plant / "machines/pump/training_dashboard/data/dashboard-state.json"
    exported = page.stat().st_mtime_ns
    file = plant / "configs/fleet.yaml"
    file.write_text(file.read_text().replace("training.epochs=2", "training.epochs=1"))
    code, summary, _ = fleet(plant, "train", "--machine", "press*", "--machine", "pump")
    assert (code, summary["completed"], summary["skipped"]) == (0, 1, 2)
    code, summary, _ = fleet(plant, "score", "--tag", "press", "--machine", "fan")
    assert (code, summary["completed"], summary["skipped"], summary["failed"]) == (1, 1, 3, 1)
    assert page.stat().st_mtime_ns == exported

    code, report, _ = fleet(plant, "calibrate", "--machine", "press-1")
    assert (code, report["completed"]) == (0, 1)


@pytest.mark.nightly
def test_the_death_of_a_worker_and_of_the_scheduler_lose_nothing(plant):
    machine = read_fleet("configs/fleet.yaml", plant).machines[0]
    words = ("train", "--machine", "press-1", "--workers", "1", "training.checkpoint_every_minutes=0.001")
    process = start(plant, *words, "training.epochs=20")

    def logged() -> list[int]:
        metrics = (plant / "machines/press-1/runs/patchtst_ssl").glob("*/metrics.jsonl")
        return [len(path.read_bytes()) for path in metrics]

    until(lambda: logged() or process.poll() is not None)
    workers = [child for child in psutil.Process(process.pid).children() if "spawn_main" in str(child.cmdline())]
    workers[0].kill()
    workers[0].wait()
    before = logged()
    until(lambda: logged() != before or process.poll() is not None)  # the next worker trains
    process.kill()  # with the scheduler
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    code, _, err = fleet(plant, *words, "training.epochs=20")
    assert code == 0, err
    undisturbed = machine.model_copy(
        update={"id": "undisturbed", "overrides": (*machine.overrides, "training.epochs=20")}
    )
    outcome = run_job(Job(undisturbed, "train", plant, "run"))
    assert outcome.ending == "completed", outcome.reason
    assert results(plant / "machines/press-1") == results(plant / "machines/undisturbed")


@pytest.mark.nightly
def test_a_job_leaves_nothing_behind_in_its_process(plant):
    """A deterministic job with a seed of its own between two equal ones; charts, another stream, and a failing one."""
    import torch

    machines = {machine.id: machine for machine in read_fleet("configs/fleet.yaml", plant).machines}
    first = machines["press-1"]
    other = machines["press-2"].model_copy(
        update={"overrides": (*machines["press-2"].overrides, "deterministic=true", "seed=7", "timeout_hours=1")}
    )
    again = first.model_copy(update={"id": "press-3"})
    before = dict(os.environ), torch.get_num_threads(), torch.get_deterministic_debug_mode()
    endings = [
        run_job(Job(machine, command, plant, "run")).ending
        for machine, command in (
            (first, "train"), (first, "score"), (machines["fan"], "score"), (other, "train"), (other, "score"),
            (machines["broken"], "score"), (again, "train"), (again, "score"), (again, "quality"),
        )
    ]  # fmt: skip
    assert endings == ["completed"] * 5 + ["failed"] + ["completed"] * 3
    assert (dict(os.environ), torch.get_num_threads(), torch.get_deterministic_debug_mode()) == before
    assert results(plant / "machines/press-1") == results(plant / "machines/press-3")
    outcome = read_outcome(plant / "machines/broken", "score")
    assert (outcome.ending, outcome.exit_code) == ("failed", 3)


def test_without_dask_one_line_names_the_extra(plant, monkeypatch, capsys):
    from pipelines.fleet import command

    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "pipelines.fleet.cluster", raising=False)
    assert command.main(["score", "--repo-root", str(plant)]) == 2
    assert "extra `fleet`" in capsys.readouterr().err
