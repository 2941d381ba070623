"""Former names of configuration keys: accepted from every source of a configuration; the last setting wins."""

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
    sections = {key.rsplit(".", depth)[0] for key in keys for depth in range(key.count(".") + 1)}
    assert set(RENAMED.values()) <= sections
    assert not sections & RENAMED.keys()


def test_a_former_name_sets_the_current_key_with_a_warning(caplog):
    former = "data.parts.test.files=[data/a_*.csv]"
    with caplog.at_level(logging.WARNING, logger="core.config.renames"):
        loaded = load(former)
    assert loaded.config == load("data.splits.test.files=[data/a_*.csv]").config
    assert ["data.splits" in record.getMessage() and former in record.getMessage() for record in caplog.records] == [
        True
    ]
    assert loaded.origins["data.splits.test.files"] == f"command line: {former}"


def test_the_environment_and_a_checkpoint_may_contain_former_names(caplog):
    config = load(environment={"LANDFALL_DATA__PARTS__TEST__START": "0.4"}).config
    assert config.data.splits.test.start == 0.4
    caplog.clear()
    saved = config.model_dump(mode="json")
    saved["data"]["parts"] = saved["data"].pop("splits")
    assert config_from_dict(saved, source="a checkpoint") == config
    assert not caplog.records


def test_a_renamed_section_has_one_warning_for_all_of_its_keys(caplog):
    splits = load("data.parts.train={files: [data/a.csv], stop: 0.5}", "data.parts.test.start=0.9").config.data.splits
    assert (splits.train.files, splits.train.stop, splits.test.start) == (("data/a.csv",), 0.5, 0.9)
    assert [record.args[:2] for record in caplog.records] == [("data.parts", "data.splits")]


def test_the_configurations_of_colab_keep_former_names_without_a_warning(caplog):
    colab = load_config("configs/patchtst_ssl.yaml", root=REPO_ROOT, environment={})
    assert colab.config.data.splits.validation.files
    assert "parts:" in (REPO_ROOT / colab.source).read_text(encoding="utf-8")
    assert not caplog.records


@pytest.mark.parametrize(
    ("overrides", "start"),
    [(("data.parts.test.start=0.4", "data.splits.test.start=0.6"), 0.6),
     (("data.splits.test.start=0.6", "data.parts.test.start=0.4"), 0.4)],
)  # fmt: skip
def test_the_last_setting_wins_if_both_names_are_set(overrides, start):
    assert load(*overrides).config.data.splits.test.start == start


def test_a_wrong_value_is_reported_under_the_current_name():
    with pytest.raises(ConfigError) as caught:
        load("data.parts.test.start=early")
    assert {fault.key for fault in caught.value.faults} == {"data.splits.test.start"}


def test_other_values_and_their_origins_stay():
    values, origins = {"data": {"window": 4, "scaling": {"clip": 3.0}}}, {"data.window": "a.yaml:3"}
    assert with_current_keys(values, origins) == (values, origins)
    assert current_key("data.window") == "data.window"
