"""Real faults of disks, clocks and other processes during a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch

from core import checkpoint, runlog
from core.checkpoint import last_path
from core.data import store
from core.data.store import Store
from core.errors import EXIT_OUTPUT, EXIT_USAGE, LockedError, StoppedError, WriteError
from core.owner import Owner
from core.runlog import EpochRecord, RunLog
from core.stopping import StopRequest
from core.workspace import atomic_file, temporary_folder, write_text
from inference.run_scoring_example import score_stream
from pipelines.export_training_dashboard_state import export_state
from pipelines.init_workspace import init_workspace
from tests.inference.trained_workspace import OVERRIDES, SHARED, build, configuration
from tests.pipelines.executed_notebooks import execute, write_notebook
from tests.support import REPO_ROOT, built_once
from tests.support.artifact_checks import artifacts, faults, is_same, leftovers, trained
from trainers.run import train

EPOCHS = "training.epochs=3"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A read-only workspace with both streams trained, one scored, and the dashboard exported."""
    trained = built_once(tmp_path_factory, "trained", build)
    root = Path(shutil.copytree(trained, tmp_path_factory.mktemp("finished") / "workspace"))
    score_stream(configuration("patchtst", root), root=root)
    export_state(root)
    return root


@pytest.fixture
def workspace(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "workspace")


class Disk:
    """A separate disk in memory with a finished workspace."""

    def __init__(self, folder: Path):
        self.folder, self.root, self._filler = folder, folder / "workspace", folder / "filler"

    def fill(self, leave: int) -> None:
        facts = os.statvfs(self.folder)
        self._filler.write_bytes(bytes(facts.f_bavail * facts.f_frsize - leave))

    def free(self) -> None:
        self._filler.unlink()

    def mount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True)


@pytest.fixture
def disk(finished, tmp_path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = sys.platform == "linux" and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("a disk that may be filled cannot be mounted here: that takes root on Linux")
    try:
        shutil.copytree(finished, folder / "workspace")
        yield Disk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


def work(name: str, root: Path, store: Path) -> object:
    """`store`: on another disk, because it would be the first to run out of space."""
    if name == "export":
        return export_state(root)
    loaded = configuration("patchtst", root, EPOCHS if name == "train" else "scoring.batch_size=16",
                           f"data.store_dir={store}")  # fmt: skip
    return train(loaded, root=root) if name == "train" else score_stream(loaded, root=root)


def result_of(root: Path) -> dict:
    return trained(root / "checkpoints/patchtst_ssl.pt", root / "artifacts/loss/patchtst_loss_history.csv")


# ---------------------------------------------------------------------------------------------------- disks that refuse
@pytest.mark.slow
def test_a_workspace_is_created_completely_or_not_at_all(disk):
    new = disk.folder / "new"
    disk.fill(60_000)
    with pytest.raises(WriteError, match="new/"):
        init_workspace(new)
    assert list(new.iterdir()) == []
    disk.free()
    init_workspace(new)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, leave, file",
    [
        ("train", 60_000, "checkpoints/patchtst_ssl.last.pt"),
        ("export", 8_192, "training_dashboard/data/"),
        pytest.param("train", 0, "checkpoints/.patchtst_ssl.pt", marks=pytest.mark.nightly),
        pytest.param("train", 20_000, "config.yaml", marks=pytest.mark.nightly),
        pytest.param("score", 20_480, "patchtst_scores.parquet", marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk_is_reported_in_one_line_and_old_files_stay_valid(disk, tmp_path, name, leave, file):
    if name == "export":
        shutil.rmtree(disk.root / "training_dashboard/data")
    before = set(artifacts(disk.root))
    disk.fill(leave)
    with pytest.raises(WriteError, match="cannot be written: No space left on device") as caught:
        work(name, disk.root, tmp_path / "store")
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (caught.value.exit_code, caught.value.hint) == (EXIT_OUTPUT, "free space on its disk and start again")
    assert faults(disk.root) == []
    assert leftovers(disk.root) == []
    gone = {path.name for path in before if not path.exists()}
    assert gone <= {"patchtst_summary.json"}, "which goes when the first of what it speaks of is replaced"
    disk.free()
    work(name, disk.root, tmp_path / "store")
    assert faults(disk.root) == []


@pytest.mark.nightly
def test_training_resumes_bit_exactly_after_a_full_disk(disk, workspace, tmp_path):
    work("train", workspace, tmp_path / "store")
    disk.fill(60_000)
    with pytest.raises(WriteError):
        work("train", disk.root, tmp_path / "store")
    disk.free()
    work("train", disk.root, tmp_path / "store")
    assert is_same(result_of(disk.root), result_of(workspace))


@pytest.mark.slow
def test_the_command_reports_a_full_disk_in_its_last_line(disk):
    command = [sys.executable, "-m", "pipelines.export_training_dashboard_state", "--repo-root", disk.root]
    shutil.rmtree(disk.root / "training_dashboard/data")
    disk.fill(0)
    ended = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_OUTPUT
    assert "Traceback" not in ended.stderr
    assert ".json cannot be written: No space left on device" in ended.stderr.splitlines()[-1]


@pytest.mark.nightly
def test_a_notebook_on_a_full_disk_ends_with_its_error(disk):
    notebook = write_notebook(
        disk.folder / "plant.ipynb", "from core.workspace import write_bytes\nfrom pathlib import Path",
        "write_bytes(Path('big.bin'), bytes(10**6))",
    )  # fmt: skip
    disk.fill(100_000)
    ended = execute(notebook)
    assert ended.code == EXIT_OUTPUT
    assert "WriteError: big.bin cannot be written: No space left on device" in ended.last_line
    assert not (disk.folder / "big.bin").exists()
    assert ended.executed is not None


@pytest.mark.slow
def test_a_notebook_copy_on_a_full_disk_is_reported(disk):
    notebook = write_notebook(disk.folder / "plant.ipynb", "1 + 1")
    disk.fill(0)
    ended = execute(notebook)
    assert ended.code == EXIT_OUTPUT
    assert "plant.ipynb cannot be written: No space left on device" in ended.last_line
    assert "Traceback" not in ended.last_line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "score", "export"])
def test_a_read_only_disk_is_reported_in_one_line(disk, tmp_path, name):
    shutil.rmtree(disk.root / "training_dashboard/data")
    disk.mount("ro")
    with pytest.raises(WriteError, match="cannot be written: Read-only file system") as caught:
        export_state(disk.root) if name == "export" else work(name, disk.root, tmp_path / "store")
    assert "mount it for writing" in caught.value.hint
    disk.mount("rw")
    assert faults(disk.root) == []


@pytest.mark.nightly
def test_a_folder_without_permission_is_reported_in_one_line(workspace):
    """Without the privilege of root to ignore permissions."""
    command = [sys.executable, "-m", "pipelines.export_training_dashboard_state", "--repo-root", str(workspace)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root without setpriv: nothing is forbidden")
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}", *command]
    data = workspace / "training_dashboard/data"
    (data / "dashboard-state.json").unlink()
    data.chmod(0o555)
    ended = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)
    data.chmod(0o755)
    assert ended.returncode == EXIT_OUTPUT
    last = ended.stderr.splitlines()[-1]
    assert "dashboard-state.json" in last
    assert "Permission denied" in last
    assert faults(workspace) == []


# ------------------------------------------------------------------------------------------------- damage and vanishing
def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit": flipped,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "path", ["checkpoints/patchtst_ssl.pt", "checkpoints/patchtst_ssl.last.pt", "checkpoints/patchtst_ssl.detector.npz"]
)
def test_damage_to_detector_files_is_always_detected(workspace, path, damage):
    file = workspace / path
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert [fault.partition(":")[0] for fault in faults(workspace)] == [path]


def test_a_truncated_file_of_any_kind_is_detected(workspace):
    """Otherwise the soak test could not detect anything."""
    kinds = {path.suffix: path for path in artifacts(workspace) if path.suffix not in (".yaml", ".jsonl", ".csv")}
    assert {".json", ".png", ".parquet", ".npz", ".npy", ".pt"} <= kinds.keys()
    for path in kinds.values():
        path.write_bytes(path.read_bytes()[:100])
    assert {Path(fault.partition(":")[0]).suffix for fault in faults(workspace)} == kinds.keys()


@pytest.mark.slow
def test_training_resumes_from_the_state_before_a_damaged_one(workspace):
    last = last_path(workspace / "checkpoints/patchtst_ssl.pt")
    last.write_bytes(flipped(last.read_bytes()))
    train(configuration("patchtst", workspace, EPOCHS), root=workspace)
    assert faults(workspace) == []


def test_damaged_dashboard_documents_are_written_again(workspace):
    documents = [path for path in artifacts(workspace) if "training_dashboard" in path.parts]
    good = {path: path.read_bytes() for path in documents if path.name != "dashboard-state.json"}
    for path in documents:
        path.write_bytes(path.read_bytes()[:50])
    export_state(workspace)
    assert faults(workspace) == []
    assert {path: path.read_bytes() for path in good} == good


# Ends when its parent ends, for any reason.
_VANISHING = """
import os, pathlib, sys
root, parent = pathlib.Path(sys.argv[1]), int(sys.argv[2])
names = ["runs/patchtst_ssl", "artifacts/scores", "artifacts/dqvl/fdc", "checkpoints"]
print("started", flush=True)
while os.getppid() == parent:
    for name in names:
        (root / name).rename(root / "away")
        (root / "away").rename(root / name)
"""


@pytest.mark.slow
def test_files_that_vanish_during_an_export_do_not_stop_it(workspace):
    command = [sys.executable, "-c", _VANISHING, workspace, str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            until = time.monotonic() + 2.0
            while time.monotonic() < until:
                export_state(workspace)
        finally:
            process.kill()


def test_a_stop_during_reading_a_checkpoint_is_not_damage(workspace, monkeypatch):
    """Found by the soak test: training would have failed or restarted."""
    monkeypatch.setattr(torch, "load", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(StoppedError, match="SIGTERM"), StopRequest():
        checkpoint.load(workspace / "checkpoints/patchtst_ssl.pt")


def test_two_processes_may_remove_cache_entries_concurrently(tmp_path, monkeypatch):
    """Both streams of a pipeline share it."""
    entries = [tmp_path / "readings" / f"{number:02}" for number in range(9)]
    for entry in entries:
        write_text(entry / "values.npy", "x" * 100)
    measure = store._size_of

    def measure_while_another_forgets(path: Path) -> int:
        for entry in entries[:6]:
            shutil.rmtree(entry, ignore_errors=True)
        return measure(path)

    monkeypatch.setattr(store, "_size_of", measure_while_another_forgets)
    mine = Store(tmp_path, limit_gb=0.0)
    mine._added = True
    mine.forget_oldest()
    assert not any((tmp_path / "readings").iterdir())


# ----------------------------------------------------------------------------------------------- what the killed leave
_KILLED_WRITER = """
import pathlib, sys, time
from core.workspace import atomic_file, temporary_folder
with atomic_file(pathlib.Path(sys.argv[1], "state.json")), temporary_folder(pathlib.Path(sys.argv[1], "entry")):
    print("half way", flush=True)
    time.sleep(60)
"""


def test_files_of_killed_writers_are_removed_and_those_of_running_ones_stay(tmp_path):
    folder = tmp_path / "artifacts"
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED_WRITER, folder], cwd=REPO_ROOT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"half way\n"
        assert len(leftovers(tmp_path)) == 2
        writer.kill()
    with atomic_file(folder / "living.json") as part, temporary_folder(folder / "living") as mine:
        start = "import pathlib, sys; from core.workspace import write_text; write_text(pathlib.Path(sys.argv[1]), 'x')"
        subprocess.run([sys.executable, "-c", start, folder / "next.json"], cwd=REPO_ROOT, check=True)
        assert sorted(leftovers(tmp_path)) == sorted(f"artifacts/{path.name}" for path in (part, mine))
    assert leftovers(tmp_path) == []


def test_an_export_removes_leftovers_of_a_killed_export(workspace):
    dead = Owner(Owner.this_process().machine, 2**22 + 1, 1)
    (workspace / f"training_dashboard/data/quality/.patchtst.json.{dead.token}.11112222.part").touch()
    export_state(workspace)
    assert leftovers(workspace) == []


@pytest.mark.parametrize("age, stays", [(timedelta(minutes=50), True), (timedelta(minutes=70), False)])
def test_files_of_another_machine_are_removed_after_an_hour(tmp_path, age, stays):
    here = Owner.this_process()
    part = tmp_path / f".state.json.{here.token.replace(here.machine, '0123abcd')}.11112222.part"
    part.touch()
    written = time.time() - age.total_seconds()
    os.utime(part, (written, written))
    write_text(tmp_path / "state.json", "")
    assert part.exists() is stays


# ---------------------------------------------------------------------------------------------------------- concurrency
@pytest.fixture
def training(workspace) -> Iterator[subprocess.Popen]:
    """A run of the command line in the middle of its training."""
    shutil.rmtree(workspace / "checkpoints")
    small = [*OVERRIDES["patchtst"], *SHARED, "training.epochs=100000"]
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--repo-root", workspace, "--run-id", "first"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, *small], cwd=REPO_ROOT, **quiet) as run:
        while run.poll() is None and not last_path(workspace / "checkpoints/patchtst_ssl.pt").exists():
            time.sleep(0.02)
        yield run
        run.kill()


@pytest.mark.nightly
def test_two_runs_with_one_checkpoint_do_not_mix(workspace, training, caplog):
    with pytest.raises(LockedError, match=f"is being written by .*, run first .process {training.pid} on") as refused:
        train(configuration("patchtst", workspace), root=workspace)
    assert refused.value.exit_code == EXIT_USAGE
    train(configuration("swinmae", workspace), root=workspace)
    assert {path.name for path in (workspace / "runs/patchtst_ssl").glob("[!.]*")} == {"first", "run-patchtst"}
    training.send_signal(signal.SIGKILL)
    training.wait()
    train(configuration("patchtst", workspace, "training.resume=never"), root=workspace, run_id="second")
    assert f"run first (process {training.pid}" in caplog.text
    assert faults(workspace) == leftovers(workspace) == []


@pytest.mark.nightly
def test_readers_never_see_incomplete_files_despite_kills():
    """A short soak; `python -m tools.soak` is the long form."""
    kinds = ("--only", "training patchtst", "--only", "export")
    command = [sys.executable, "-m", "tools.soak", "--kills", "5", "--reading", "3", *kinds]
    ended = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)
    output = json.loads(ended.stdout)
    assert output["faults"] == []
    assert (output["kills"], ended.returncode) == (5, 0)
    assert output["artifacts_read_while_written"] > 20
    assert output["completed"]["training patchtst"] >= 2, "so that one was held against the other"


# --------------------------------------------------------------------------------------------------------------- clocks
def test_a_clock_set_back_gives_no_negative_time(workspace, monkeypatch):
    config = configuration("patchtst", workspace).config
    hours = iter([10, 11, *[3] * 20])
    monkeypatch.setattr(runlog, "utc_now", lambda: datetime(2026, 11, 22, next(hours), tzinfo=UTC).isoformat())
    with RunLog(workspace, config, "clock", steps=2) as run:
        run.steps(1, [(1, 0.5, 1e-3, 1.0)])
        run.steps(1, [(2, 0.4, 1e-3, 1.0)])
        run.epoch(EpochRecord(1, 0.5, 0.4, 1e-3, 1.0, 10.0), best=EpochRecord(1, 0.5, 0.4, 1e-3, 1.0, 10.0))
        eta = run._status.eta_seconds
    status = json.loads((run.folder / "status.json").read_text())
    assert status["started_at"] <= status["updated_at"] <= status["finished_at"]
    assert eta >= 0
    times = [record["time"] for record in runlog.read_metrics(run.metrics_file)]
    assert times == sorted(times)
    export_state(workspace)
    record = json.loads((workspace / "training_dashboard/data/runs/clock.json").read_text())
    assert record["duration_seconds"] == 3600.0


@pytest.mark.parametrize("owner, state", [("alive", "running"), ("dead", "stopped")])
def test_the_state_of_a_run_does_not_depend_on_the_clock(workspace, owner, state):
    """Its last update seems to come from tomorrow."""
    here = Owner.this_process()
    token = here.token if owner == "alive" else Owner(here.machine, here.pid, here.started - 1).token
    file = workspace / "runs/patchtst_ssl/run-patchtst/status.json"
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    output = json.loads(file.read_text()) | {"state": "running", "updated_at": tomorrow, "owner": token}
    write_text(file, json.dumps(output))
    assert export_state(workspace).streams["patchtst"].state == state
