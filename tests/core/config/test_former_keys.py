"""Former configuration keys. A former name is accepted from every source of a configuration; the last setting wins."""

import logging

import pytest

from core.config.compose import config_from_dict, environment_settings, load_config, local_config_file
from core.config.faults import schema_fields
from core.config.former_keys import RENAMED, current_key, with_current_keys
from core.config.schema import SCHEMAS
from core.errors import ConfigError
from tests.support import REPO_ROOT

LOCAL = local_config_file("patchtst")
# The model that can drop masked tokens.
PUBLISHED = "models/patchtst=published"


def load(*overrides, environment=None):
    return load_config(LOCAL, overrides, root=REPO_ROOT, environment=environment or {})


def test_current_names_exist_and_former_names_do_not():
    keys = {key for schema in SCHEMAS.values() for key, _ in schema_fields(schema)}
    sections = {key.rsplit(".", depth)[0] for key in keys for depth in range(key.count(".") + 1)}
    assert {rename.key for rename in RENAMED.values()} <= sections
    assert not sections & RENAMED.keys()


SETTINGS = [
    ("device.kind=cuda", "device.prefer=cuda"),
    ("device.precision=32", "precision=32"),
    ("device.threads=3", "max_threads=3"),
    ("scoring.model_share=0.4", "scoring.model_weight=0.4"),
    ("training.gradient_clip=0.5", "gradient_clip_val=0.5"),
    ("model.patch_stride=8", "model.patch_length=8"),
    ("device.enable_mixed_precision=false", "device.amp=false"),
    ("model.encoder_sees=visible", "model.drop_masked_tokens=true"),
    ("model.encoder_sees=all", "model.drop_masked_tokens=false"),
    ("data.parts.test.files=[data/a_*.csv]", "data.splits.test.files=[data/a_*.csv]"),
]


def test_every_former_name_is_tried():
    assert all(any(former.startswith(name) for former, _ in SETTINGS) for name in RENAMED)


@pytest.mark.parametrize(("former", "current"), SETTINGS)
def test_a_former_name_sets_the_current_key_with_a_warning(former, current, caplog):
    with caplog.at_level(logging.WARNING, logger="core.config.former_keys"):
        loaded = load(PUBLISHED, former)
    assert loaded.config == load(PUBLISHED, current).config
    name = current.partition("=")[0]
    renamed = next(rename.key for key, rename in RENAMED.items() if former.startswith(key))
    assert [renamed in record.getMessage() and former in record.getMessage() for record in caplog.records] == [True]
    assert loaded.origins[name] == f"command line: {former}"


def test_the_environment_and_a_checkpoint_may_contain_former_names(caplog):
    config = load(environment={"LANDFALL_SCORING__MODEL_SHARE": "0.4"}).config
    assert config.scoring.model_weight == 0.4
    caplog.clear()
    saved = config.model_dump(mode="json")
    saved["scoring"]["model_share"] = saved["scoring"].pop("model_weight")
    saved["data"]["parts"] = saved["data"].pop("splits")
    saved["model"]["encoder_sees"] = "visible" if saved["model"].pop("drop_masked_tokens") else "all"
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
    ("overrides", "weight"),
    [(("scoring.model_share=0.4", "scoring.model_weight=0.6"), 0.6),
     (("scoring.model_weight=0.6", "scoring.model_share=0.4"), 0.4)],
)  # fmt: skip
def test_the_last_setting_wins_if_both_names_are_set(overrides, weight):
    assert load(*overrides).config.scoring.model_weight == weight


def test_a_wrong_value_is_reported_under_the_current_name():
    with pytest.raises(ConfigError) as caught:
        load("model.encoder_sees=some", "scoring.model_share=2")
    assert {fault.key for fault in caught.value.faults} == {"model.drop_masked_tokens", "scoring.model_weight"}


def test_a_removed_key_is_accepted_with_the_only_value_left(caplog):
    loaded = load("scoring.threshold.method=conformal")
    assert loaded.config == load().config
    assert "scoring.threshold.method" not in loaded.origins
    assert ["no longer has an effect" in record.getMessage() for record in caplog.records] == [True]


def test_another_value_of_a_removed_key_is_an_error_except_in_a_checkpoint(caplog):
    with pytest.raises(ConfigError) as caught:
        load("scoring.threshold.method=pot")
    assert [(fault.key, "was removed" in fault.problem) for fault in caught.value.faults] == [
        ("scoring.threshold.method", True)
    ]
    config = load().config
    saved = config.model_dump(mode="json")
    saved["scoring"]["threshold"]["method"] = "pot"
    assert config_from_dict(saved, source="a checkpoint") == config
    assert not caplog.records


def test_a_removed_key_that_weights_depend_on_is_an_error_in_a_checkpoint_too():
    config = load_config(local_config_file("swinmae"), root=REPO_ROOT, environment={}).config
    saved = config.model_dump(mode="json")
    saved["model"]["norm_target"] = False
    assert config_from_dict(saved, source="a checkpoint") == config
    saved["model"]["norm_target"] = True
    with pytest.raises(ConfigError, match=r"model\.norm_target: was removed"):
        config_from_dict(saved, source="a checkpoint")


def test_a_checkpoint_may_contain_a_former_name_next_to_the_current_one():
    saved = load("device.amp=false").config.model_dump(mode="json")
    saved["device"]["enable_mixed_precision"] = True
    assert not config_from_dict(saved, source="a checkpoint").device.amp
    saved["device"] |= {"amp": True, "enable_mixed_precision": False}
    assert not config_from_dict(saved, source="a checkpoint").device.amp


def test_the_device_settings_of_the_environment_may_have_former_names(caplog):
    settings, origins = environment_settings({"LANDFALL_DEVICE__ENABLE_MIXED_PRECISION": "false"})
    assert not settings.device.amp
    assert list(origins) == ["device.amp"]
    assert ["device.amp" in record.getMessage() for record in caplog.records] == [True]


def test_other_values_and_their_origins_stay():
    values, origins = {"data": {"window": 4, "scaling": {"clip": 3.0}}}, {"data.window": "a.yaml:3"}
    assert with_current_keys(values, origins) == (values, origins)
    assert current_key("data.window") == "data.window"
