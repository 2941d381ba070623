"""Hostile files: no code in a checkpoint, an array, a bundle or notebook parameters is ever executed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import stat
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import checkpoint
from core.config.compose import config_from_dict
from core.config.schema import Data
from core.data.readers import read_recordings
from core.errors import EXIT_OUTPUT, EXIT_USAGE, CheckpointError, ConfigError, DataError, OutputError
from core.git import git_state, tracked_files
from core.models.factory import build_model, refuse_other_weights
from core.runlog import RunLog
from core.secrets.redaction import HIDDEN, redacted, redacted_text
from inference.detector.file import load_detector
from pipelines.import_artifacts import import_artifacts
from pipelines.import_artifacts import main as import_command
from tests.support import REPO_ROOT, most_nightly

CANARY = "canary"


class Trap:
    """Writes the canary when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path(CANARY),)


@pytest.fixture(autouse=True)
def cage(tmp_path, monkeypatch):
    """A separate folder, where no canary may appear."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert list(tmp_path.rglob(CANARY)) == []


def sidecar_for(path: Path, **description: object) -> None:
    """An attacker also writes a matching sidecar."""
    facts = {"format_version": 1, **checkpoint._identity(path), **description}
    checkpoint.sidecar_path(path).write_text(json.dumps(facts))


def test_the_malicious_pickle_works_when_unpickled(cage):
    pickle.loads(pickle.dumps(Trap()))
    assert (cage / CANARY).exists()
    (cage / CANARY).unlink()


# ---------------------------------------------------------------------------------------------------------- checkpoints
def saved_by_torch(path: Path) -> None:
    torch.save({"format_version": 1, "model": Trap()}, path)


def saved_in_the_old_form(path: Path) -> None:
    torch.save({"format_version": 1, "model": Trap()}, path, _use_new_zipfile_serialization=False)


def a_bare_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"format_version": 1, "model": Trap()}))


def a_script(path: Path) -> None:
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))


def a_whole_module(path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), path)


def a_system_call(path: Path) -> None:
    path.write_bytes(b"cposix\nsystem\n(S'touch canary'\ntR.")


@pytest.mark.parametrize(
    "write", [saved_by_torch, saved_in_the_old_form, a_bare_pickle, a_script, a_whole_module, a_system_call]
)
def test_a_checkpoint_with_code_is_rejected_without_running_it(cage, write):
    path = cage / "model.pt"
    write(path)
    sidecar_for(path)
    with pytest.raises(CheckpointError, match=r"model\.pt: cannot be loaded") as caught:
        checkpoint.load(path)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("honest") / "model.pt"
    checkpoint.save(path, {"model": {"w": torch.arange(20.0)}, "names": ["a", "b"], "epoch": 3}, description={})
    return path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8), cut=st.booleans()
)
def test_a_checkpoint_with_any_bytes_is_loaded_or_rejected(cage, honest, places, cut):
    content = bytearray(honest)
    for place, byte in places:
        content[place % len(content)] = byte
    path = cage / "model.pt"
    path.write_bytes(content[: places[0][0] % len(content)] if cut else content)
    sidecar_for(path)
    with suppress(CheckpointError):
        assert isinstance(checkpoint.load(path), dict)


@pytest.mark.parametrize("run_id", ["/elsewhere", "../../x", "a/b", "", 5, None, "a\x1b[2J"])
def test_a_checkpoint_with_a_path_as_run_name_is_rejected(cage, run_id):
    """A run that resumes it would write there."""
    path = cage / "model.pt"
    checkpoint.save(path, {"model": {}}, description={"run_id": run_id})
    for read in (checkpoint.describe, checkpoint.verify, checkpoint.load):
        with pytest.raises(CheckpointError):
            read(path)
    checkpoint.save(path, {"model": {}, "run_id": run_id}, description={})
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


def test_a_checkpoint_bomb_is_rejected(cage):
    honest, packed = cage / "honest.pt", cage / "model.pt"
    checkpoint.save(honest, {"model": {"w": torch.zeros(10**6)}}, description={})
    with zipfile.ZipFile(honest) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    sidecar_for(packed)
    assert packed.stat().st_size < 10**4
    with pytest.raises(CheckpointError):
        checkpoint.load(packed)


def model_of(stream: str, **settings: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """A configuration, and the weights of a small model of its stream."""
    values = {
        "stream": stream,
        "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt"},
        "dqvl": {"report_dir": "artifacts/dqvl/x"},
        "data": {"window": 128},
    }
    small = {"patchtst": {"d_model": 16, "d_ff": 16, "num_layers": 1}, "swinmae": {}}[stream]
    weights = build_model(config_from_dict(values | {"model": small}, source="a test"), num_channels=3).state_dict()
    return config_from_dict(values | {"model": small | settings}, source="a test"), weights


@pytest.mark.parametrize("stream, settings", [
    ("patchtst", {"num_layers": 2_000_000}),
    ("patchtst", {"d_model": 4 * 10**6}),
    ("patchtst", {"mask_ratio": 1e-12, "patch_length": 1, "d_model": 2**28}),
    ("swinmae", {"depths": (10**6, 2, 2)}),
    ("swinmae", {"embed_dim": 48 * 10**4}),
    ("swinmae", {"window_size": 512}),
])  # fmt: skip
def test_a_model_larger_than_its_weights_is_not_built(stream, settings):
    config, weights = model_of(stream)
    refuse_other_weights(config, weights, num_bytes=10**8)
    config, weights = model_of(stream, **settings)
    with pytest.raises(ValueError):
        refuse_other_weights(config, weights, num_bytes=10**8)


def test_weights_larger_than_their_file_are_rejected():
    config, weights = model_of("patchtst")
    weights |= {name: torch.zeros(1).expand(10**6, 10**6) for name in list(weights)[:1]}
    with pytest.raises(ValueError):
        refuse_other_weights(config, weights, num_bytes=10**8)


def test_a_detector_bomb_is_rejected(cage):
    np.savez_compressed(cage / "d.npz", header=np.zeros(10**8, np.uint8), sha256=np.array("0"))
    with pytest.raises(OutputError, match="compressed"):
        load_detector(cage / "d.npz")


def test_a_detector_with_objects_is_rejected(cage):
    np.savez(cage / "d.npz", header=np.array([Trap()], dtype=object), sha256=np.array("0"))
    with pytest.raises(OutputError, match="cannot be read"):
        load_detector(cage / "d.npz")


# --------------------------------------------------------------------------------------------------------------- arrays
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_an_array_of_objects_is_rejected_without_running_code(cage, name):
    values = np.array([Trap()], dtype=object)
    np.save(cage / name, values) if name == "a.npy" else np.savez(cage / name, x=values)
    with pytest.raises(DataError, match="never unpickled"):
        read_recordings(cage / name, root=cage, stream="swinmae", settings=Data(sampling_rate_hz=1000))


def test_a_pickle_named_like_an_array_is_rejected(cage):
    (cage / "a.npy").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="cannot be read"):
        read_recordings(cage / "a.npy", root=cage, stream="swinmae", settings=Data(sampling_rate_hz=1000))


# -------------------------------------------------------------------------------------------------------------- bundles
def bundle(path: Path, entries: dict[str, bytes], *, link: str | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if link is not None:
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, content if link is None else link)
    return path


def packed(path: Path, num_mb: int, encoding: str) -> Path:
    """A gzipped table of zeros."""
    block = "0,0\n" * (250_000 if encoding == "utf-8" else 125_000)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write("a,b\n".encode(encoding))
        for _ in range(num_mb):
            file.write(block.encode(encoding.replace("16", "16-le")))  # without a byte order mark
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_gzip_bomb_is_rejected(cage, encoding):
    path = packed(cage / "bomb.csv.gz", 120, encoding)
    with pytest.raises(DataError, match="100 times") as caught:
        read_recordings(path, root=cage, stream="patchtst", settings=Data())
    assert caught.value.path == path


def test_a_gzip_file_that_unpacks_to_little_is_read(cage):
    path = packed(cage / "zeros.csv.gz", 2, "utf-8")
    (recording,) = read_recordings(path, root=cage, stream="patchtst", settings=Data())
    assert len(recording) == 500_000 > 100 * path.stat().st_size / len("0,0\n")


def test_an_array_bomb_is_rejected(cage):
    path = cage / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((1, 30_000_000, 1), np.float32))
    with pytest.raises(DataError, match="100 times") as caught:
        read_recordings(path, root=cage, stream="swinmae", settings=Data(sampling_rate_hz=1000))
    assert caught.value.path == path


def one_text(num_rows: int) -> pa.Array:
    """A text of half a MiB in each row, stored once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(num_rows, np.int32)), pa.array(["x" * 2**19]))


def test_a_text_that_a_parquet_file_repeats_is_not_unpacked(cage):
    path = cage / "texts.parquet"
    pq.write_table(pa.table({"a": np.arange(300.0), "s": one_text(300)}), path, compression="zstd")
    with pytest.raises(DataError, match="100 times") as caught:
        read_recordings(path, root=cage, stream="patchtst", settings=Data())
    assert caught.value.path == path


def test_lists_in_a_parquet_file_are_not_unpacked(cage):
    path, num_values = cage / "lists.parquet", 20_000_000
    offsets = pa.array([0, num_values // 2, num_values], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(num_values, np.int8)))
    pq.write_table(pa.table({"a": [0.5, 1.5], "b": lists, "c": [{"x": 1}, {"x": 2}]}), path)
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        (recording,) = read_recordings(path, root=cage, stream="patchtst", settings=Data())
    finally:
        pa.set_memory_pool(usual)
    assert recording.channels == ("a",)
    assert counting.max_memory() < num_values


@pytest.mark.parametrize("suffix", ["csv", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_a_table_on_its_side_is_rejected(cage, suffix):
    path, names = cage / f"wide.{suffix}", [f"c{number}" for number in range(100_001)]
    if suffix == "csv":
        path.write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    else:
        pq.write_table(pa.table({name: [1.0] for name in names}), path)
    with pytest.raises(DataError, match="100001 columns") as caught:
        read_recordings(path, root=cage, stream="patchtst", settings=Data())
    assert caught.value.path == path


@pytest.mark.parametrize(("suffix", "stream"), [("parquet", "patchtst"), ("npy", "swinmae")])
def test_a_file_that_takes_too_much_processor_time_is_rejected(cage, monkeypatch, suffix, stream):
    monkeypatch.setattr("core.data.files._CPU_SECONDS", 0.0)
    monkeypatch.setattr("core.data.files._CPU_SECONDS_PER_MIB", 1e-6)
    path = cage / f"slow.{suffix}"
    if suffix == "parquet":
        zeros = pa.chunked_array([pa.array(np.zeros(2**20))] * 4)
        pq.write_table(pa.table({"a": zeros, "b": zeros}), path)  # run lengths: a thousandth of its content
    else:
        np.save(path, np.zeros(2**22, np.float32))
    with pytest.raises(DataError, match="processor time") as caught:
        read_recordings(path, root=cage, stream=stream, settings=Data(sampling_rate_hz=1000))
    assert caught.value.path == path
    assert caught.value.hint


PLACES = ("checkpoints/patchtst_ssl.pt", "artifacts/loss/patchtst_loss_history.csv",
          "runs/patchtst_ssl/20261121-083000-1f3a/metrics.jsonl")  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", ["../{}", "a/../../{}", "/{}", "./../{}", "..\\{}", "C:/{}", "C:\\..\\{}"])
def test_paths_outside_a_bundle_are_rejected(workspace, cage, way, place):
    before = {path for path in cage.parent.rglob("*") if cage not in path.parents}
    with pytest.raises(OutputError) as caught:
        import_artifacts(bundle(cage / "evil.zip", {way.format(place): b"x"}), root=workspace)
    assert "\n" not in str(caught.value)
    assert {path for path in cage.parent.rglob("*") if cage not in path.parents} == before
    assert not (workspace / place).exists()
    assert [path.name for path in workspace.iterdir() if path.name.startswith(".import-")] == []


@pytest.mark.parametrize("place", PLACES)
def test_links_in_a_bundle_are_rejected(workspace, cage, place):
    with pytest.raises(OutputError, match="is outside the bundle"):
        import_artifacts(bundle(cage / "evil.zip", {place: b""}, link="/etc/passwd"), root=workspace)
    drive = cage / "drive" / place
    drive.parent.mkdir(parents=True)
    drive.symlink_to("/etc/passwd")
    with pytest.raises(OutputError, match="is outside the bundle"):
        import_artifacts(cage / "drive", root=workspace)


@pytest.mark.slow
def test_a_bundle_that_would_fill_the_disk_is_rejected(workspace, cage):
    path = bundle(cage / "bomb.zip", {PLACES[2]: bytes(2 * 10**8)})
    assert path.stat().st_size < 10**6
    with pytest.raises(OutputError, match="more than 100 times its size"):
        import_artifacts(path, root=workspace)


@pytest.mark.parametrize("column", ["score", "recording"])
def test_scores_far_larger_than_their_file_are_not_imported(workspace, cage, column):
    """The export loads all of them."""
    folder = cage / "drive/artifacts/scores"
    folder.mkdir(parents=True)
    values = {"score": np.zeros(14_000_000), "recording": one_text(300)}
    pq.write_table(pa.table({column: values[column]}), folder / "patchtst_scores.parquet", compression="zstd")
    with pytest.raises(OutputError, match="100 times"):
        import_artifacts(cage / "drive", root=workspace)
    assert not (workspace / "artifacts/scores").exists()


def test_a_checkpoint_with_code_is_not_imported(workspace, cage, capsys):
    folder = cage / "drive/checkpoints"
    folder.mkdir(parents=True)
    saved_by_torch(folder / "patchtst_ssl.pt")
    values = config_from_dict(
        {
            "stream": "patchtst",
            "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt"},
            "dqvl": {"report_dir": "artifacts/dqvl/x"},
        },
        source="a test",
    ).model_dump(mode="json")
    sidecar_for(folder / "patchtst_ssl.pt", stream="patchtst", config=values)
    assert import_command([str(cage / "drive"), "--repo-root", str(workspace)]) == EXIT_OUTPUT
    output = capsys.readouterr().err
    assert "nothing was imported" in output
    assert "Traceback" not in output
    assert not (workspace / "checkpoints").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "PYTHONPATH", "PATH", "BASH_ENV", "CUDA_INJECTION64_PATH", "NCCL_NET_PLUGIN", "DYLD_X"),
        *("XDG_CONFIG_HOME", "HOME", "EDITOR", "OMP_TOOL_LIBRARIES", "NCCL_CONF_FILE", "NCCL_DEBUG_FILE", "nccl_debug"),
        *("TORCHINDUCTOR_CACHE_DIR", "GIT_CONFIG_GLOBAL", "XLA_FLAGS", "MPLCONFIGDIR", "NCCL_DEBUG\n"),
    ],
)
def test_a_configuration_sets_only_variables_that_load_no_code(name):
    with pytest.raises(ConfigError) as caught:
        config_from_dict({"stream": "patchtst", "device": {"environment": {name: "./evil"}}}, source="a stranger")
    assert "device.environment" in {fault.key for fault in caught.value.faults}


def test_git_runs_no_command_of_the_settings(cage, monkeypatch):
    """Monitors, hooks and filters are commands, in the settings of the user and of the checkout."""
    command = f'"touch {cage / CANARY}; false"'
    settings_of_git = f'[core]\n\tfsmonitor = {command}\n[filter "x"]\n\tclean = {command}\n\tprocess = {command}\n'
    (cage / "settings/git").mkdir(parents=True)
    (cage / "settings/git/config").write_text(settings_of_git)
    (cage / "configs").mkdir()
    (cage / "configs/file.yaml").write_text("x")
    (cage / ".gitattributes").write_text("* filter=x\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "configs", ".gitattributes"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=cage, check=True)
    os.utime(cage / "configs/file.yaml", (0, 0))  # git compares the contents of a file with another time
    monkeypatch.setenv("XDG_CONFIG_HOME", str(cage / "settings"))
    monkeypatch.setenv("GIT_DIR", str(cage / "nowhere"))
    state = git_state(cage)
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    with (cage / ".git/config").open("a") as file:
        file.write(settings_of_git)
    os.utime(cage / "configs/file.yaml", (1, 1))
    assert git_state(cage) == {"commit": state["commit"], "dirty": None}
    assert tracked_files(cage, ("configs",)) == {"configs/file.yaml"}


# ----------------------------------------------------------------------------------------------------------- parameters
PAYLOADS = (
    "\"; open('canary', 'w'); \"",
    "'''\nopen('canary', 'w')\n'''",
    '"""\nopen("canary", "w")\n"""',
    "\\\"; open('canary', 'w') #",
    "\\\\'\nopen('canary', 'w')\n#",
    "{{ open('canary', 'w') }} ${oc.env:HOME} $(touch canary) `touch canary`",
    "%run canary\n!touch canary",
    "\u2028\u0085\x0c\x1c open('canary', 'w')",
    "\x00\x1b[2J",
)


def notebook_with_parameters(path: Path) -> Path:
    notebook = nbformat.v4.new_notebook()
    parameters = nbformat.v4.new_code_cell('name = "x"')
    parameters.metadata.tags = ["parameters"]
    program = "import json, pathlib\n_ = pathlib.Path('received.json').write_text(json.dumps(name))"
    notebook.cells = [parameters, nbformat.v4.new_code_cell(program)]
    nbformat.write(notebook, path)
    return path


def execute(notebook: Path, parameter: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipelines.execute_notebook", str(notebook), str(notebook.with_name("done.ipynb"))]
    return subprocess.run(
        [*command, "--repo-root", str(notebook.parent), "-p", parameter],
        cwd=REPO_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_parameters_of_a_notebook_are_passed_as_values(cage):
    given = [*PAYLOADS, {payload: [payload] for payload in PAYLOADS}]
    done = execute(notebook_with_parameters(cage / "n.ipynb"), f"name={json.dumps(given)}")
    assert done.returncode == 0, done.stderr
    assert json.loads((cage / "received.json").read_text()) == given


@pytest.mark.parametrize(
    "name",
    most_nightly(
        ["x; open('canary', 'w')", "", "name\nopen('canary','w')\nx", "__import__('os').system('touch canary')", "0"],
        but=2,
    ),
)
def test_an_unknown_notebook_parameter_is_rejected(cage, name):
    done = execute(notebook_with_parameters(cage / "n.ipynb"), f"{name}=1")
    assert done.returncode == EXIT_USAGE
    assert "Traceback" not in done.stderr
    assert not (cage / "done.ipynb").exists()


# -------------------------------------------------------------------------------------------------------------- secrets
def test_the_record_of_a_run_contains_no_secret(cage):
    config = config_from_dict(
        {
            "stream": "patchtst",
            "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt", "tensorboard": False},
            "dqvl": {"report_dir": "artifacts/dqvl/x"},
        },
        source="a test",
    )
    with RunLog(cage, config, "run", steps=1) as run:
        run.write_environment({"python": "3.11", "api_key": "hunter2", "variables": {"HF_TOKEN": "hunter2"}})
    text = (run.folder / "environment.json").read_text()
    assert json.loads(text) == {"python": "3.11", "api_key": HIDDEN, "variables": {"HF_TOKEN": HIDDEN}}


def test_values_under_the_names_of_secrets_are_hidden_at_any_depth():
    given = {
        "a": [{"db_password": "x", "Authorization": "y"}],
        "tokens": 5,
        "num_tokens": 7,
        "token": None,
        "keys": "k",
    }
    assert redacted(given) == {
        "a": [{"db_password": HIDDEN, "Authorization": HIDDEN}],
        "tokens": 5,
        "num_tokens": 7,
        "token": None,
        "keys": "k",
    }


@pytest.mark.parametrize(
    "line",
    [
        "api_key=hunter2",
        "--password hunter2".replace(" ", "="),
        'sent {"token": "hunter2"}',
        "secret: hunter2",
        "Authorization: Bearer hunter2",
        "cloning https://reader:hunter2@host/repository",
        "used hf_hunter2hunter2hunter2",
        "AWS_SECRET_ACCESS_KEY=hunter2/hunter2",
    ],
)
def test_secrets_in_a_line_are_hidden(line):
    assert "hunter2" not in redacted_text(line)
    assert HIDDEN in redacted_text(line)


@pytest.mark.parametrize(
    "line", ["epoch 3: 40 tokens, loss 0.5", "api_key: unknown key", "https://host/path", "seed=42 mask_token"]
)
def test_a_line_without_a_secret_is_unchanged(line):
    assert redacted_text(line) == line
