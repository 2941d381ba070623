from pathlib import Path

import pytest
import yaml

from core.config.compose import config_from_dict, load_config
from core.config.hardware import load_tiers
from core.config.schema import STREAMS
from core.errors import ConfigError, UsageError
from pipelines.devices.costs import load_costs
from tests.support import REPO_ROOT

TIERS, COSTS = "configs/hardware/tiers.yaml", "configs/hardware/costs.yaml"
SIZES = "configs/hardware/sizes"


def edit(workspace: Path, file: str, old: str, new: str) -> None:
    path = workspace / file
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def faults_of(load, workspace: Path, file: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load(workspace)
    assert caught.value.source == file
    return {fault.key: fault.problem for fault in caught.value.faults}


def test_an_edited_row_applies(workspace):
    edit(workspace, TIERS, "batch_size: 2048", "batch_size: 4096")
    edit(workspace, COSTS, "gpu: 0.50", "gpu: 3.20")
    assert next(tier for tier in load_tiers(workspace).tiers if tier.name == "cuda-40gb").batch_size == 4096
    assert load_costs(workspace).per_hour("mps") == 3.20


def test_the_defaults_of_the_costs():
    costs = load_costs(REPO_ROOT)
    assert [costs.per_hour(kind) for kind in ("cpu", "cuda", "mps", "xpu", "tpu")] == [0.0, 0.5, 0.5, 0.5, 2.0]


@pytest.mark.parametrize(
    "old, new, key, words",
    [
        ("kind: cpu,", "kind: abacus,", "tiers.10.kind", "'cpu'"),
        ("batch_size: 1536", "batch_size: many", "tiers.1.batch_size", "integer"),
        ("batch_size: 1536", "batchsize: 1536", "tiers.1.batchsize", "not permitted"),
        (
            "kind: cpu, min_memory_gb: 0",
            "kind: cpu, min_memory_gb: 1",
            "the file",
            "min_memory_gb 0",
        ),
        ("min_memory_gb: 24", "min_memory_gb: 40", "the file", "min_memory_gb"),
    ],
)
def test_a_wrong_row_is_rejected_with_file_and_key(workspace, old, new, key, words):
    edit(workspace, TIERS, old, new)
    assert words in faults_of(load_tiers, workspace, TIERS)[key]


def test_a_price_is_a_number(workspace):
    edit(workspace, COSTS, "0.50", "-1")
    edit(workspace, COSTS, "2.00", "much")
    assert faults_of(load_costs, workspace, COSTS).keys() == {"gpu", "tpu"}


@pytest.mark.parametrize(
    "file, old, new, key, words",
    [
        ("patchtst/full.yaml", "num_heads: 16", "heads: 16", "model.heads", "not permitted"),
        ("patchtst/full.yaml", "num_heads: 16", "num_heads: 15", "model", "128 is not divisible by num_heads = 15"),
        ("patchtst/full.yaml", "model:", "data:", "data", "cannot set"),
        ("patchtst/full.yaml", "model:", "scalogram:", "scalogram", "cannot set"),
        ("swinmae/reduced.yaml", "image_size: 64", "image_size: 0", "scalogram.image_size", "greater than"),
    ],
)
def test_a_wrong_size_is_rejected_with_file_and_key(workspace, file, old, new, key, words):
    edit(workspace, f"{SIZES}/{file}", old, new)
    assert words in faults_of(load_tiers, workspace, f"{SIZES}/{file}")[key]


@pytest.mark.parametrize(
    "text, words",
    [("tiers: [1\n", "is not YAML"), ("", "no keys"), (None, "No such file")],
)
def test_an_error_names_a_damaged_or_missing_table(workspace, text, words):
    (workspace / TIERS).unlink()
    if text is not None:
        (workspace / TIERS).write_text(text)
    with pytest.raises(UsageError, match=f"{TIERS}.*{words}"):
        load_tiers(workspace)


def test_the_workspace_around_the_current_folder_is_read(workspace, monkeypatch):
    edit(workspace, COSTS, "0.50", "0.75")
    monkeypatch.chdir(workspace / "configs")
    assert load_costs().gpu == 0.75


def test_bundled_tables_are_read_outside_a_workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_tiers() == load_tiers(REPO_ROOT)


@pytest.mark.slow
def test_the_full_sizes_are_the_published_ones():
    models = load_tiers(REPO_ROOT).models
    colab = load_config("configs/swinmae_ssl.yaml", root=REPO_ROOT, environment={}).config.model_dump(mode="json")
    for section in ("model", "scalogram"):
        values = models["swinmae"]["full"][section]
        assert values == {key: colab[section][key] for key in values}
    assert models["patchtst"]["full"]["model"] == {"d_model": 128, "num_heads": 16, "num_layers": 3, "d_ff": 512}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("size", ["full", "reduced"])
def test_a_size_completes_the_colab_configuration(stream, size):
    colab = yaml.safe_load((REPO_ROOT / f"configs/{stream}_ssl.yaml").read_text())
    for section, values in load_tiers(REPO_ROOT).models[stream][size].items():
        colab[section] |= values
    assert config_from_dict(colab, source="a test").stream == stream
