"""Hostile or careless configurations are rejected with all faults, file and line, and never executed."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.config.compose import config_from_dict, load_config, render
from core.errors import EXIT_USAGE, ConfigError, UsageError
from tests.support import most_nightly
from trainers.train_patchtst_ssl import main as train

BASE = """\
defaults: [patchtst_ssl_local, _self_]
"""
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


def write(workspace: Path, text: str, name: str = "plant/site.yaml") -> str:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return name


def load(workspace: Path, text: str = BASE, *overrides: str, name: str = "plant/site.yaml", **environment: str):
    return load_config(write(workspace, text, name), overrides, root=workspace, environment=environment)


def refusal(workspace: Path, text: str, *overrides: str, **environment: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(workspace, text, *overrides, **environment)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def faults(workspace: Path, text: str, *overrides: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load(workspace, text, *overrides)
    return {fault.key: str(fault) for fault in caught.value.faults}


# ------------------------------------------------------------------------------------------------------------- the text
@pytest.mark.slow
def test_references_that_grow_exponentially_are_rejected_immediately(workspace):
    texts = [f"x{n + 1}: '${{x{n}}}${{x{n}}}'\n" for n in range(40)]
    sections = [f"s{n + 1}: {{a: '${{s{n}}}', b: '${{s{n}}}'}}\n" for n in range(40)]
    for lines in (["x0: aaaa\n", *texts], ["s0: {a: 1, b: 1}\n", *sections]):
        started = time.process_time()
        assert "expand" in refusal(workspace, BASE + "".join(lines))
        assert time.process_time() - started < 100


@pytest.mark.parametrize("text", ["seed=" + "9" * 5_000, "seed=" + "[" * 2_000])
def test_a_long_invalid_override_is_rejected_in_one_line(workspace, text):
    with pytest.raises(UsageError) as caught:
        load_config("configs/patchtst_ssl_local.yaml", [text], root=workspace, environment={})
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BASE + BOMB, ["aliases expand to", "values"]),
        (BASE + "a: &a\n  b: *a\n", ["too deep"]),
        (BASE + "a: " + "[" * 1500 + "]" * 1500 + "\n", ["too deep"]),
        (BASE + f"# {'x' * 300_000}\n", ["larger than 256 KiB"]),
        (BASE + "training:\n\tepochs: 3\n", ["line 3", "'\\t'", "tabs"]),
        (BASE + "seed: 1\nseed: 2\n", ["line 3", "duplicate key seed"]),
        (BASE + "training: {epochs: 1, epochs: 2}\n", ["line 2", "duplicate key epochs"]),
        (BASE + "seed: !!python/object/apply:os.system ['touch canary']\n", ["line 2", "python/object/apply"]),
        (BASE + "seed: !!python/name:os.system\n", ["line 2", "python/name"]),
        ("- a\n- b\n", ["line 1", "no mapping"]),
        ("just words\n", ["line 1", "no mapping"]),
        (BASE + "seed: [1\n", ["line 3", "expected"]),
        (BASE + "---\nseed: 1\n", ["line 2", "another document"]),
        (BASE + "seed: *nobody\n", ["line 2", "undefined alias"]),
        (BASE + "hydra: {searchpath: ['file:///']}\n", ["line 2", "Hydra itself"]),
        ("defaults: [patchtst_ssl_local, override hydra/launcher: basic, _self_]\n", ["line 1", "Hydra itself"]),
        ("defaults: [patchtst_ssl_local, trainer@hydra.run: quick, _self_]\n", ["line 1", "Hydra itself"]),
        ("defaults: [site]\n", ["its own file"]),
        ("defaults: {patchtst_ssl_local: _self_}\n", ["defaults list"]),
        ("defaults: [[[]]]\n", ["defaults list"]),
        (BASE + "1: 2\nnull: 3\n", ["key"]),
        ("# @package hydra\nsearchpath: ['pkg://antigravity']\n", ["line 1", "Hydra itself"]),
        ("defaults: [patchtst_ssl_local, override trainer: '${oc.env:HOME}', _self_]\n", ["line 1", "resolver"]),
    ],
)
def test_invalid_configuration_text_is_rejected_with_its_line(workspace, monkeypatch, text, words):
    monkeypatch.chdir(workspace)
    started = time.process_time()
    output = refusal(workspace, text)
    assert time.process_time() - started < 100  # a bomb would take for ever, or all memory
    assert "plant/site.yaml: " in output
    assert [word for word in words if word not in output] == []
    assert not (workspace / "canary").exists()


def test_bytes_that_are_not_text_are_rejected(workspace):
    (workspace / "bad.yaml").write_bytes(b"seed: \xff\xfe\x00")
    with pytest.raises(UsageError, match=r"bad\.yaml: is not"):
        load_config("bad.yaml", root=workspace, environment={})


def test_a_yaml_bomb_in_an_included_file_is_rejected(workspace):
    write(workspace, f"# @package _global_\n{BOMB}", "plant/trainer/bomb.yaml")
    assert "plant/trainer/bomb.yaml: its aliases" in refusal(workspace, BASE.replace("_self_", "trainer: bomb, _self_"))


# ----------------------------------------------------------------------------------------------------------- the values
@pytest.mark.slow
@pytest.mark.parametrize("text", ["1e-4", "'1e-4'", "1.0e-4", "0.0001"])
def test_small_numbers_can_be_written_in_any_notation(workspace, text):
    assert load(workspace, f"{BASE}training: {{learning_rate: {text}}}\n").config.training.learning_rate == 1e-4
    assert load(workspace, BASE, f"training.learning_rate={text}").config.training.learning_rate == 1e-4
    assert load(workspace, BASE, LANDFALL_TRAINING__LEARNING_RATE=text).config.training.learning_rate == 1e-4


@pytest.mark.slow
def test_all_faults_and_contradictions_are_reported_with_file_and_line(workspace):
    text = f"""\
{BASE}seed: true
training:
  epochs: 0
  learning_rate: fast
  betas: [0.9, 2]
  epoch: 3
data:
  window: 250
  stride: -1
  splits:
    train: {{start: 0.7, stop: 0.6}}
model:
  d_model: 30
  patch_length: 16
  patch_size: 7
device:
  memory: {{fraction: 0.5}}
scoring:
  threshold: {{method: pot}}
"""
    found = faults(workspace, text)
    expected = {
        "seed": ("a boolean, not a number", 2),
        "training.epochs": ("greater than or equal to 1", 4),
        "training.learning_rate": ("valid number", 5),
        "training.betas.1": ("less than 1", 6),
        "training.epoch": ("did you mean epochs?", 7),
        "data.window": ("is not a multiple", 15),
        "data.stride": ("neither auto nor a whole number", 10),
        "data.splits.train.stop": ("is not after start", 12),
        "model.d_model": ("not divisible by num_heads", 14),
        "model.patch_size": ("did you mean patch_length", 16),
        "device.memory.strategy": ("custom needs one", 18),
        "scoring.threshold.method": ("was removed", 20),
    }
    assert found.keys() == expected.keys()
    for key, (words, line) in expected.items():
        assert words in found[key], key
        assert f"(set by plant/site.yaml:{line})" in found[key], key


@pytest.mark.slow
def test_a_contradiction_between_sections_is_reported_with_other_faults(workspace):
    found = faults(workspace, f"{BASE}data: {{window: 250}}\nmodel: {{patch_length: 16}}\ntraining: {{epochs: 0}}\n")
    assert "data.window = 250" in found["data.window"]
    assert "(set by plant/site.yaml:3)" in found["data.window"]
    assert found.keys() == {"data.window", "training.epochs"}


@pytest.mark.parametrize("key", ["training.epochs", "data.window", "training.learning_rate", "seed", "max_threads"])
def test_a_boolean_is_not_accepted_as_a_number(workspace, key):
    assert "not a number" in faults(workspace, BASE, f"{key}=true")[key]


# ------------------------------------------------------------------------------------------------------------ injection
@pytest.mark.parametrize(
    "value", ["${oc.env:CANARY}", "a${oc.env:CANARY,none}b", "${oc.decode:'1'}", "${hydra:runtime.cwd}", "${now:%Y}"]
)
@pytest.mark.parametrize("where", most_nightly(["file", "command line", "environment", "list"], but=1))
def test_no_resolver_is_called(workspace, monkeypatch, value, where):
    monkeypatch.setenv("CANARY", "a-secret-of-the-environment")
    quoted = '"' + value + '"'
    if where == "file":
        output = refusal(workspace, f"{BASE}data: {{timestamp: {quoted}}}\n")
    elif where == "list":
        output = refusal(workspace, f"{BASE}data: {{exclude: [{quoted}]}}\n")
    elif where == "command line":
        output = refusal(workspace, BASE, f"data.timestamp={quoted}")
    else:
        output = refusal(workspace, BASE, LANDFALL_DATA__TIMESTAMP=quoted)
    assert "calls a resolver" in output
    assert "a-secret" not in output


def test_values_of_other_keys_may_be_referenced(workspace):
    assert load(workspace, f"{BASE}data: {{stride: '${{model.d_model}}'}}\n").config.data.stride == 128


@pytest.mark.slow
@pytest.mark.parametrize("section", ["extra", "model", "data", "training"])
def test_targets_are_unknown_keys(workspace, monkeypatch, section):
    monkeypatch.chdir(workspace)
    found = faults(workspace, f"{BASE}{section}: {{_target_: pathlib.Path.touch, _args_: [canary]}}\n")
    assert all("unknown key" in fault for fault in found.values())
    assert found.keys() <= {"extra", f"{section}._target_", f"{section}._args_"}
    assert not (workspace / "canary").exists()


@pytest.mark.parametrize("override", ["hydra.searchpath=[pkg://antigravity]", "+hydra.run.dir=x", "++hydra/launcher=x"])
def test_overrides_cannot_configure_hydra(workspace, override):
    assert "Hydra itself" in refusal(workspace, BASE, override)


# --------------------------------------------------------------------------------------------------------------- places
OUTPUTS = ("logging.log_dir", "logging.checkpoint_path", "logging.artifacts_dir", "dqvl.report_dir", "data.store_dir")


@pytest.mark.slow
@pytest.mark.parametrize("key", most_nightly(OUTPUTS, but=1))
@pytest.mark.parametrize("place", ["../elsewhere/x.pt", "/elsewhere/x.pt", "runs/../../x.pt"])
def test_an_untrusted_configuration_writes_only_in_the_workspace(workspace, key, place):
    section, name = key.split(".")
    text = f"{BASE}{section}: {{{name}: {place}}}\n"
    found = faults(workspace, text)
    assert "outside" in found[key]
    assert "(set by plant/site.yaml:2)" in found[key]
    assert load(workspace, BASE, f"{key}={place}"), "the person at the keyboard may"
    assert load(workspace, text, name="configs/site.yaml"), "and so may the workspace's own configurations"


def test_data_may_be_in_any_folder(workspace, tmp_path):
    outside = tmp_path.parent
    text = f"{BASE}data: {{root: {outside}, splits: {{train: {{files: ['{outside}/*.csv', '../*.csv']}}}}}}\n"
    assert load(workspace, text).config.data.root == str(outside)


# -------------------------------------------------------------------------------------------------------------- secrets
@pytest.mark.parametrize(
    "name", most_nightly(["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"], but=1)
)
def test_a_secret_in_a_configuration_is_rejected(workspace, name):
    output = refusal(workspace, f"{BASE}device: {{environment: {{{name}: hunter2hunter2}}}}\n")
    assert f"{name} looks like a secret" in output
    assert "hunter2" not in output


def test_a_secret_on_the_command_line_is_not_repeated(workspace, capsys):
    words = ["--config", write(workspace, BASE), "--repo-root", str(workspace), "api_key=hunter2hunter2"]
    assert train(words) == EXIT_USAGE
    output = capsys.readouterr().err
    assert "api_key: unknown key" in output
    assert "hunter2" not in output


def test_a_printed_configuration_hides_passwords_in_addresses(workspace):
    loaded = load(workspace, BASE, "data.root='https://reader:hunter2@host/data'")
    assert "hunter2" not in render(loaded)
    assert "https://reader:***@host/data" in render(loaded)


# ------------------------------------------------------------------------------------------------------------- anything
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=12), st.just("auto")
)
_KEYS = st.one_of(
    st.sampled_from(["data", "model", "training", "window", "epochs", "splits", "train", "files", "start", "stop",
                     "device", "memory", "strategy", "fraction", "betas", "d_model", "num_heads", "logging", "log_dir",
                     "stream", "seed", "scoring", "threshold", "environment"]),
    st.text(max_size=6),
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5), max_leaves=20
)


@pytest.mark.nightly
@given(values=st.dictionaries(_KEYS, _VALUES, max_size=6), stream=st.sampled_from(["patchtst", "swinmae"]))
def test_any_values_give_a_configuration_or_faults(values, stream):
    whole = {
        "stream": stream,
        "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt"},
        "dqvl": {"report_dir": "artifacts/dqvl/x"},
        **values,
    }
    with suppress(ConfigError):
        config = config_from_dict(whole, source="anything")
        assert config_from_dict(config.model_dump(mode="json"), source="again") == config


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.text(alphabet=st.sampled_from(list("ab: -[]{}&*!|>'\"#\n\t,.0123${}@_")), max_size=60))
def test_any_text_is_read_or_rejected(workspace, text):
    with suppress(UsageError):
        load(workspace, BASE + text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(override=st.text(min_size=1, max_size=30))
def test_any_override_is_applied_or_rejected(workspace, override):
    with suppress(UsageError):
        load(workspace, BASE, override)
