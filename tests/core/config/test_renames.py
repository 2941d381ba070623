"""Former names of configuration keys: accepted wherever a configuration comes from, and the last one set counts."""

import logging

import pytest

from core.config.compose import config_from_dict, load_config, local_config_file
from core.config.faults import schema_keys
from core.config.renames import RENAMED, current_key, with_current_keys
from core.config.schema import SCHEMAS
from core.errors import ConfigError
from tests.support import REPO_ROOT

LOCAL = local_config_file("patchtst")


def load(*overrides, environment=None):
    return load_config(LOCAL, overrides, root=REPO_ROOT, environment=environment or {})


def test_current_names_exist_and_former_names_do_not():
    keys = {key for schema in SCHEMAS.values() for key in schema_keys(schema)}
    assert {rename.key for rename in RENAMED.values()} <= keys
    assert not keys & RENAMED.keys()


@pytest.mark.parametrize(
    ("former", "current"),
    [("scoring.model_share=0.4", "scoring.model_weight=0.4"),
     ("model.encoder_sees=visible", "model.drop_masked_tokens=true"),
     ("model.encoder_sees=all", "model.drop_masked_tokens=false")],
)  # fmt: skip
def test_a_former_name_sets_the_current_key_with_a_warning(former, current, caplog):
    with caplog.at_level(logging.WARNING, logger="core.config.renames"):
        loaded = load(former)
    assert loaded.config == load(current).config
    name = current.partition("=")[0]
    assert [name in record.getMessage() and former in record.getMessage() for record in caplog.records] == [True]
    assert loaded.origins[name] == f"command line: {former}"


def test_the_environment_and_a_checkpoint_may_contain_former_names(caplog):
    config = load(environment={"LANDFALL_SCORING__MODEL_SHARE": "0.4"}).config
    assert config.scoring.model_weight == 0.4
    caplog.clear()
    saved = config.model_dump(mode="json")
    saved["scoring"]["model_share"] = saved["scoring"].pop("model_weight")
    saved["model"]["encoder_sees"] = "visible" if saved["model"].pop("drop_masked_tokens") else "all"
    assert config_from_dict(saved, source="a checkpoint") == config
    assert not caplog.records


@pytest.mark.parametrize(
    ("overrides", "weight"),
    [(("scoring.model_share=0.4", "scoring.model_weight=0.6"), 0.6),
     (("scoring.model_weight=0.6", "scoring.model_share=0.4"), 0.4)],
)  # fmt: skip
def test_of_both_names_the_last_one_counts(overrides, weight):
    assert load(*overrides).config.scoring.model_weight == weight


def test_a_wrong_value_is_reported_under_the_current_name():
    with pytest.raises(ConfigError) as caught:
        load("model.encoder_sees=some", "scoring.model_share=2")
    assert {fault.key for fault in caught.value.faults} == {"model.drop_masked_tokens", "scoring.model_weight"}


def test_other_values_and_their_origins_stay():
    values, origins = {"data": {"window": 4, "scaling": {"clip": 3.0}}}, {"data.window": "a.yaml:3"}
    assert with_current_keys(values, origins) == (values, origins)
    assert current_key("data.window") == "data.window"
