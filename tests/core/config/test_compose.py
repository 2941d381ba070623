import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from core.config.compose import (
    config_from_dict,
    environment_settings,
    is_set_with_size,
    load_config,
    local_config_file,
    recorded,
    render,
)
from core.config.faults import schema_fields
from core.config.overrides import COMPUTE_VARIABLES
from core.config.schema import SCHEMAS, STREAMS, Training
from core.errors import ConfigError, UsageError
from tests.support import REPO_ROOT, most_nightly

LOCAL = local_config_file("patchtst")
MINIMAL = """
stream: patchtst
logging: {log_dir: runs/x, checkpoint_path: checkpoints/x.pt}
dqvl: {report_dir: artifacts/dqvl/x}
"""


def write(workspace: Path, name: str, text: str) -> str:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def load(workspace: Path, *overrides: str, file: str = LOCAL, environment: dict[str, str] | None = None):
    return load_config(file, overrides, root=workspace, environment=environment or {})


def faults_of(workspace: Path, *overrides: str, **options) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load(workspace, *overrides, **options)
    return {fault.key: str(fault) for fault in caught.value.faults}


# --------------------------------------------------------------------------------------------------------- precedence
def test_each_layer_overrides_the_previous_one(workspace):
    write(workspace, "configs/trainer/seven.yaml", "# @package _global_\ntraining: {epochs: 7}\n")
    plain = write(workspace, "configs/plain.yaml", MINIMAL)
    grouped = write(workspace, "configs/grouped.yaml", f"defaults: [trainer: seven, _self_]\n{MINIMAL}")
    filed = write(workspace, "configs/filed.yaml", f"{(workspace / grouped).read_text()}training: {{epochs: 8}}\n")
    environment = {"LANDFALL_TRAINING__EPOCHS": "9"}

    def epochs(*overrides: str, **options) -> int:
        return load(workspace, *overrides, **options).config.training.epochs

    assert epochs(file=plain) == Training().epochs == 10
    assert epochs(file=grouped) == 7
    assert epochs(file=filed) == 8
    assert epochs(file=filed, environment=environment) == 9
    assert epochs("training.epochs=11", file=filed, environment=environment) == 11


def test_sample_data_is_used_only_without_own_data(workspace):
    assert load(workspace).config.data.root == "."
    for folder in ("samples/data/fdc", "data/fdc"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "samples/data/fdc/train_1.csv").touch()
    (workspace / "data/.gitkeep").touch()
    loaded = load(workspace)
    assert loaded.config.data.root == "samples"
    assert "sample data" in loaded.origins["data.root"]
    (workspace / "data/fdc/train_9.csv").touch()
    assert load(workspace).config.data.root == "."
    assert load(workspace, "data.root=samples").config.data.root == "samples"


@pytest.mark.slow
def test_the_command_line_overrides_a_group_of_the_environment(workspace):
    environment = {"LANDFALL_TRAINER": "quick", "LANDFALL_LOCAL__DEVICES": "cpu", "PATH": "/bin"}
    config = load(workspace, environment=environment).config
    assert (config.training.epochs, config.device.prefer) == (2, "cpu")
    config = load(workspace, "trainer=default", "local/devices=auto", environment=environment).config
    assert (config.training.windows_per_epoch, config.device.prefer) == ("auto", "auto")


def test_a_profile_on_the_command_line_overrides_file_and_environment_completely(workspace):
    body = "defaults: [patchtst_ssl_local, _self_]\ndevice: {prefer: mps}\nmax_threads: 3\ntimeout_hours: 1\n"
    file = write(workspace, "configs/site.yaml", body)
    environment = {"COMPUTE_PREFER": "gpu", "LANDFALL_MAX_THREADS": "2", "LANDFALL_LOCAL__DEVICES": "kaggle_t4"}

    def settings(*overrides: str) -> tuple:
        config = load(workspace, *overrides, file=file, environment=environment).config
        return config.device.prefer, config.max_threads, config.timeout_hours, config.hardware.kind

    assert settings() == ("gpu", 2, 8.5, "cuda"), "keys of the environment over its profile, both over the file"
    assert settings("local/devices=cpu") == ("cpu", 0, None, "cpu")
    assert settings("max_threads=5", "local/devices=cpu") == ("cpu", 5, None, "cpu")
    assert settings("local/devices=cpu", "device.prefer=auto")[0] == "auto"


@pytest.mark.slow
def test_groups_on_the_command_line_override_the_file(workspace):
    file = write(workspace, "configs/site.yaml", "defaults: [patchtst_ssl_local, _self_]\ntraining: {epochs: 7}\n")
    loaded = load(workspace, "trainer=quick", file=file, environment={"LANDFALL_TRAINING__EPOCHS": "9"})
    assert loaded.config.training.epochs == 2
    assert loaded.origins["training.epochs"] == "configs/trainer/quick.yaml:4"
    nested = load(workspace, "local=hpc", file=file, environment={"LANDFALL_LOGGING__ARTIFACTS_DIR": "elsewhere"})
    assert (nested.config.logging.artifacts_dir, nested.config.training.resume) == ("artifacts", "unfinished")


@pytest.mark.parametrize("size, has_effect", [(None, True), ("reduced", False), ("custom", True)])
def test_sizes_of_a_chosen_group_apply_unless_a_size_is_set_later(workspace, caplog, size, has_effect):
    file = local_config_file("swinmae")
    load(workspace, file=file)
    assert not caplog.records, "no warning was expected"
    loaded = load(workspace, "hardware/sizes/swinmae=full", *([f"model.size={size}"] if size else []), file=file)
    assert is_set_with_size(loaded.origins, "model.embed_dim") is (size is None)
    assert ("hardware/sizes/swinmae=full" in caplog.text) is not has_effect


@pytest.mark.parametrize("word, words", [
    ("~training.epochs", None), ("~training.nothing", ("~training.nothing", "not set")),
    ("training.epochs=1,2", ("training.epochs=1,2", "not set a single value")),
])  # fmt: skip
def test_an_existing_key_can_be_removed(workspace, word, words):
    if words is None:
        assert load(workspace, word).config.training.epochs == Training().epochs
        return
    with pytest.raises(UsageError) as caught:
        load(workspace, word)
    assert all(each in str(caught.value) for each in words)


def test_the_environment_is_read_by_default(workspace, monkeypatch):
    monkeypatch.setenv("LANDFALL_SEED", "7")
    assert load_config(LOCAL, root=workspace).config.seed == 7


def test_a_compute_variable_overrides_files_but_not_landfall_variables(workspace):
    environment = {"COMPUTE_PREFER": "TPU", "COMPUTE_ALLOW_TPU": "True", "COMPUTE_TPU_BATCH_FACTOR": "64"}

    def prefer(*overrides: str, **more: str) -> str:
        return load(workspace, *overrides, environment=environment | more).config.device.prefer

    assert load(workspace, "local/devices=cpu").config.device.prefer == "cpu"
    assert prefer() == "tpu", "the environment is above a group file"
    assert prefer("local/devices=cpu") == "cpu", "the command line is above the environment"
    assert prefer(LANDFALL_DEVICE__PREFER="gpu") == "gpu"
    assert prefer("device.prefer=mps", LANDFALL_DEVICE__PREFER="gpu") == "mps"
    loaded = load(workspace, environment=environment)
    assert (loaded.config.device.allow_tpu, loaded.config.device.tpu_batch_factor) == (True, 64)
    assert loaded.origins["device.prefer"] == "environment: COMPUTE_PREFER=TPU"


def test_an_empty_compute_variable_is_ignored(workspace):
    environment = dict.fromkeys(COMPUTE_VARIABLES, "")
    assert load(workspace, environment=environment).config == load(workspace).config


def test_a_wrong_compute_variable_is_a_fault(workspace):
    faults = faults_of(workspace, environment={"COMPUTE_PREFER": "abacus", "COMPUTE_TPU_BATCH_FACTOR": "0"})
    assert faults.keys() == {"device.prefer", "device.tpu_batch_factor"}
    assert "(set by environment: COMPUTE_PREFER=abacus)" in faults["device.prefer"]


def test_the_environment_alone_is_used_without_a_file():
    environment = {
        "COMPUTE_PREFER": "gpu",
        "LANDFALL_DEVICE__PREFER": "cpu",
        "LANDFALL_DEVICE__MEMORY__STRATEGY": "aggressive",
    }
    execution, _ = environment_settings({**environment, "LANDFALL_TRAINING__EPOCHS": "3", "LANDFALL_PRECISION": "32"})
    assert (execution.device.prefer, execution.device.memory.share, execution.precision) == ("cpu", 0.9, "32")
    with pytest.raises(ConfigError) as caught:
        environment_settings({"COMPUTE_PREFER": "abacus"})
    (fault,) = caught.value.faults
    assert (fault.key, fault.origin) == ("device.prefer", "environment: COMPUTE_PREFER=abacus")


def test_origins_are_in_the_order_of_setting(workspace):
    write(workspace, "site.yaml", "defaults: [patchtst_ssl_local, _self_]\nmodel: {d_model: 64}\n")
    origins = load(workspace, "seed=3", file="site.yaml", environment={"LANDFALL_MODEL__D_FF": "512"}).origins
    set_with_size = {key for key in origins if is_set_with_size(origins, key)}
    assert {"model.d_model", "model.d_ff", "seed"} <= set_with_size
    assert "training.batch_size" in set_with_size, "of the same file"
    assert set_with_size.isdisjoint({"model.num_heads", "model.num_layers", "training.epochs", "device.prefer"})
    assert not is_set_with_size(origins, "model.dropout"), "a default"


def test_a_mapping_override_keeps_the_other_keys(workspace):
    loaded = load(workspace, "data.scaling={method: zscore}")
    assert loaded.config.data.scaling.method == "zscore"
    assert loaded.config.data.window == "auto"
    assert "data.scaling.clip" not in loaded.origins


# ------------------------------------------------------------------------------------------------------------- faults
def test_all_faults_are_reported_at_once_with_their_origins(workspace):
    file = write(workspace, "configs/bad.yaml", f"{MINIMAL}model: {{d_model: 0}}\ntraining: {{epoch: 3}}\n")
    faults = faults_of(workspace, "seed=-1", file=file, environment={"LANDFALL_TRAINING__BATCH_SIZE": "many"})
    assert faults.keys() == {"model.d_model", "training.epoch", "seed", "training.batch_size"}
    assert re.search(r"epochs\b.*configs/bad\.yaml:6", faults["training.epoch"])
    assert "(set by configs/bad.yaml:5)" in faults["model.d_model"]
    assert "(set by command line: seed=-1)" in faults["seed"]
    assert "(set by environment: LANDFALL_TRAINING__BATCH_SIZE=many)" in faults["training.batch_size"]


def test_a_key_of_another_section_is_found(workspace):
    assert "did you mean training.learning_rate?" in faults_of(workspace, "learning_rate=1")["learning_rate"]


@pytest.mark.parametrize("key", ["_target_", "model._target_"])
def test_nothing_is_ever_instantiated(workspace, key):
    assert "unknown key" in faults_of(workspace, f"{key}=os.system")[key]


@pytest.mark.parametrize("stream", ["tides", "[patchtst]"])
def test_an_unknown_stream_is_a_single_fault(workspace, stream):
    assert "one of patchtst, swinmae" in faults_of(workspace, f"stream={stream}")["stream"]


def test_an_error_for_a_missing_stream_says_what_to_write(workspace):
    file = write(workspace, "configs/empty.yaml", "")
    assert re.search("missing.*defaults.*patchtst.*swinmae", faults_of(workspace, file=file)["stream"])


def test_a_text_where_a_list_is_needed_is_shown_as_a_list(workspace):
    assert "write [Pressure]" in faults_of(workspace, "data.exclude=Pressure")["data.exclude"]


@pytest.mark.parametrize(
    "file, overrides, words",
    [
        ("configs/nope.yaml", (), ("configs/nope.yaml does not exist", LOCAL)),
        (LOCAL, ("trainer=nope",), (LOCAL, "trainer/nope", "default, kaggle_safe, multi_gpu, quick")),
        (LOCAL, ("training.epochs",), ("'training.epochs'", "key=value")),
        (LOCAL, ("data.exclude=[p [bar]]",), ("quotation marks", '["p [bar]",flow]')),
        (LOCAL, ("training.epochs=1,2",), (LOCAL, "training.epochs=1,2")),
        (LOCAL, ("logging.log_dir='${nothing}'",), (LOCAL, "nothing")),
    ],
)
def test_a_configuration_that_cannot_be_composed_is_a_usage_error(workspace, file, overrides, words):
    with pytest.raises(UsageError) as caught:
        load(workspace, *overrides, file=file)
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, place",
    [("seed: [1\nstream: patchtst\n", "line 2: "), ("seed: 1\nseed: 2\n", "line 2: .*key seed")],
)
def test_an_error_for_invalid_yaml_names_file_and_line(workspace, text, place):
    file = write(workspace, "configs/torn.yaml", text)
    with pytest.raises(UsageError, match=f"{file}: {place}"):
        load(workspace, file=file)


def test_a_file_with_another_suffix_is_rejected(workspace):
    with pytest.raises(UsageError, match=r"site\.yml .*\.yaml"):
        load(workspace, file=write(workspace, "site.yml", MINIMAL))


# ------------------------------------------------------------------------------------------------------------ origins
def test_every_value_knows_its_origin(workspace):
    loaded = load(workspace, "training.epochs=3", "local/devices=cpu", environment={"LANDFALL_TRAINING__KEEP": "7"})
    lines = {
        line.split(":")[0].strip(): line.partition("# ")[2] for line in render(loaded, with_origin=True).splitlines()
    }
    assert lines["epochs"] == "command line: training.epochs=3"
    assert lines["keep"] == "environment: LANDFALL_TRAINING__KEEP=7"
    assert lines["prefer"] == "configs/local/devices/cpu.yaml:3"
    for key, file in {"log_dir": LOCAL, "weight_decay": "configs/trainer/default.yaml",
                      "d_model": "configs/patchtst_ssl.yaml"}.items():  # fmt: skip
        origin, _, line = lines[key].rpartition(":")
        assert origin == file
        assert key in (REPO_ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert lines["enable_jit"] == "default"


@pytest.mark.parametrize("file", ["configs/examples/site.yaml", "plant/site.yaml"])
@pytest.mark.parametrize("base", most_nightly(["patchtst_ssl_local", "/patchtst_ssl_local"], but=1))
def test_a_configuration_in_another_folder_extends_ours(workspace, file, base):
    body = f"defaults:\n  - {base}\n  - override /trainer: quick\n  - _self_\ndata: {{window: 128}}\n"
    loaded = load(workspace, "local/devices=cpu", file=write(workspace, file, body))
    config = loaded.config
    assert (config.data.window, config.data.stride) == (128, "auto")
    assert (config.training.epochs, config.device.prefer) == (2, "cpu")
    assert loaded.source == file
    assert loaded.origins["data.window"] == f"{file}:5"
    assert loaded.origins["data.stride"].startswith("configs/patchtst_ssl_local.yaml:")
    assert loaded.origins["data.scaling.method"].startswith("configs/patchtst_ssl.yaml:")
    assert loaded.origins["training.epochs"] == "configs/trainer/quick.yaml:4"


def test_the_workspace_may_have_any_name(workspace):
    odd = workspace / "Werk (2), Halle 'Süd' & more"
    (workspace / "configs").rename(workspace / "kept")
    odd.mkdir()
    (workspace / "kept").rename(odd / "configs")
    loaded = load(odd, "trainer=quick")
    assert loaded.origins["training.epochs"] == "configs/trainer/quick.yaml:4"


# ---------------------------------------------------------------------------------------------------------- rendering
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("with_origin", most_nightly([True, False], but=1))
def test_the_rendered_configuration_can_be_read_back(workspace, stream, with_origin):
    loaded = load(workspace, "data.exclude=['a: b','#c']", "seed=3", file=local_config_file(stream))
    text = render(loaded, with_origin=with_origin)
    assert config_from_dict(yaml.safe_load(text), source="text") == loaded.config
    assert load(workspace, file=write(workspace, "again.yaml", text)).config == loaded.config


@pytest.mark.parametrize("stream", STREAMS)
def test_a_dumped_configuration_can_be_read_back(stream):
    config = load_config(local_config_file(stream), root=REPO_ROOT, environment={}).config
    assert config_from_dict(config.model_dump(mode="json"), source="checkpoint") == config


def test_every_key_of_the_schema_is_rendered(workspace):
    rendered = yaml.safe_load(render(load(workspace)))
    for key, _ in schema_fields(SCHEMAS["patchtst"]):
        value = rendered
        for name in key.split("."):
            value = value[name]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "module, words",
    [
        ("trainers.train_patchtst_ssl", []),
        ("trainers.train_swinmae_ssl", []),
        ("landfall", ["train", "patchtst"]),
    ],
)
def test_print_config_never_imports_torch(module, words):
    program = f"""
import sys, {module} as command
for arguments in (["--print-config"], ["--print-config", "--origin"]):
    assert command.main({words} + arguments) == 0
assert "torch" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("stream: ") == 2
    assert "# configs/trainer/default.yaml" in result.stdout


def test_without_a_file_the_environment_may_name_a_profile(monkeypatch):
    monkeypatch.chdir(REPO_ROOT)
    named, _ = environment_settings({"LANDFALL_LOCAL__DEVICES": "hpc_a100", "LANDFALL_DEVICES": "2"})
    assert (named.devices, named.hardware.memory_gb, named.device.prefer) == (2, 40, "gpu")
    with pytest.raises(UsageError, match="there is no local/devices=abacus") as caught:
        environment_settings({"LANDFALL_LOCAL__DEVICES": "abacus"})
    assert "hpc_a100" in caught.value.hint


def test_contradicting_variables_are_reported_as_a_fault():
    with pytest.raises(ConfigError, match="device"):
        environment_settings({"LANDFALL_DEVICE__PREFER": "cpu", "LANDFALL_DEVICE__PREFER__X": "1"})


@pytest.mark.parametrize("name", ["UPLOAD", "DOWNLOADS", "WORK_DIR", "DRIVE_DIR"])
def test_variables_of_migrated_notebooks_are_ignored(workspace, name):
    with_variable = load(workspace, environment={f"LANDFALL_{name}": "some/place"})
    assert with_variable.config == load(workspace).config
    assert name in (REPO_ROOT / "landfall_runtime.py").read_text()


def test_settings_of_a_single_start_are_not_recorded(workspace):
    plain = load(workspace).config
    asked = load(workspace, "training.resume=never", "training.allow_changes=true").config
    assert recorded(asked) == recorded(plain)
    assert recorded(load(workspace, "training.epochs=3").config) != recorded(plain)
    assert config_from_dict(recorded(asked), source="a checkpoint") == plain


def test_a_stream_in_place_of_an_override_is_answered_with_the_option(workspace):
    with pytest.raises(UsageError) as caught:
        load(workspace, "swinmae")
    assert "--stream swinmae" in caught.value.hint
