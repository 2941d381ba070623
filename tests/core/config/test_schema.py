import re

import pytest
from pydantic import BaseModel

from core.config.compose import config_from_dict
from core.config.data import Split
from core.config.schema import SCHEMAS, STREAMS
from core.errors import ConfigError


def minimal(stream: str = "patchtst", **values) -> dict:
    return {
        "stream": stream,
        "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt"},
        "dqvl": {"report_dir": "artifacts/dqvl/x"},
        **values,
    }


def fault_of(values: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from_dict(values, source="a test")
    (fault,) = caught.value.faults
    return str(fault)


@pytest.mark.parametrize("stream", STREAMS)
def test_defaults_make_a_valid_configuration(stream):
    assert config_from_dict(minimal(stream), source="a test").stream == stream


def test_required_keys_are_named():
    with pytest.raises(ConfigError) as caught:
        config_from_dict({"stream": "patchtst", "logging": {}}, source="a test")
    required = {"logging.log_dir", "logging.checkpoint_path", "dqvl"}
    assert {fault.key for fault in caught.value.faults} == required
    assert all(fault.problem == "is required" for fault in caught.value.faults)


@pytest.mark.parametrize(
    "values, keys",
    [
        (minimal(data={"window": 16}), r"data\.window = 16\b"),
        (minimal(model={"d_model": 30, "num_heads": 4}), r"model\.d_model: d_model = 30\b.*num_heads = 4\b"),
        (minimal("swinmae", model={"num_heads": [3, 6]}), r"num_heads\b.* 2\b.*depths\b.* 3\b"),
        (minimal("swinmae", model={"decoder_depths": [2]}), r"decoder_depths: 1\b.* 2\b"),
        (minimal("swinmae", model={"decoder": "light"}), r"decoder_depths: 2\b.* 1\b"),
        (minimal("swinmae", model={"num_heads": [5, 6, 12]}), r"model\.num_heads: stage 0\b.* 48\b.* 5\b"),
        (minimal("swinmae", scalogram={"image_size": 72}), r"image_size = 72\b"),
        (
            minimal("swinmae", scalogram={"image_size": 40}, model={"mask_unit": 1, "depths": [2, 2, 2]}),
            r"image_size = 40\b",
        ),
        (minimal(training={"learning_rate": float("inf")}), r"^training\.learning_rate: inf\b"),
        (minimal(model={"patch_size": 4}), r"^model\.patch_size: .*patch_length"),
        (minimal(device={"memory": {"strategy": "custom"}}), r"strategy = custom\b.*fraction = None"),
        (minimal(device={"memory": {"fraction": 0.5}}), r"strategy = balanced\b.*fraction = 0\.5"),
        (minimal(device={"prefer": "tpu", "allow_tpu": False}), r"prefer = tpu\b.*allow_tpu = false"),
        (minimal(devices="cpu"), r"^devices: .*device\.prefer=cpu"),
        (minimal(device={"sort": "cpu"}), r"^device\.sort: unknown"),
        (minimal(training={"clip": 1.0}), r"^training\.clip: unknown"),
    ],
)
def test_contradicting_keys_are_rejected(values, keys):
    assert re.search(keys, fault_of(values))


@pytest.mark.parametrize(
    "split, keys",
    [
        ({"start": 0.7, "stop": 0.6}, r"stop = 0\.6\b.*start = 0\.7\b"),
        ({"start": 9, "stop": 9}, r"stop = 9\b.*start = 9\b"),
        ({"start": 5.0}, r"start = 5\.0\b.* 5 "),
        ({"start": "late"}, r"\.start: 'late'"),
        ({"stop": float("nan")}, r"\.stop: nan\b"),
        ({"start": -1}, r"\.start: -1\b"),
    ],
)
def test_an_invalid_segment_is_rejected(split, keys):
    fault = fault_of(minimal(data={"splits": {"train": split}}))
    assert fault.startswith("data.splits.train")
    assert re.search(keys, fault)


def test_bounds_keep_their_unit():
    assert isinstance(Split(start=0.25, stop=0.5).stop, float)
    assert isinstance(Split(start=0, stop=500).stop, int)
    assert isinstance(Split(stop=1).stop, float), "all of the file, not its first row"
    assert isinstance(Split(by="recording", stop=1).stop, int), "the first recording"


def test_precision_may_be_written_as_a_number():
    assert config_from_dict(minimal(precision=32), source="a test").precision == "32"


@pytest.mark.parametrize(
    "memory, share",
    [
        ({}, 0.75),
        ({"strategy": "conservative"}, 0.60),
        ({"strategy": "aggressive"}, 0.90),
        ({"strategy": "custom", "fraction": 0.5}, 0.5),
    ],
)
def test_a_memory_strategy_is_a_share(memory, share):
    assert config_from_dict(minimal(device={"memory": memory}), source="a test").device.memory.share == share


def test_values_never_change_after_validation():
    config = config_from_dict(minimal(), source="a test")
    with pytest.raises(ValueError, match="frozen"):
        config.training.epochs = 3


def undescribed(schema: type[BaseModel], prefix: str = "") -> list[str]:
    names = [f"{prefix}{name}" for name, field in schema.model_fields.items() if not field.description]
    for name, field in schema.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names += undescribed(field.annotation, f"{prefix}{name}.")
    return names


@pytest.mark.parametrize("stream", STREAMS)
def test_every_key_says_what_it_means(stream):
    assert undescribed(SCHEMAS[stream]) == []
