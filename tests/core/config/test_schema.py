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
    "values, words",
    [
        (minimal(data={"window": 16}), "data.window = 16 is not a multiple"),
        (minimal(model={"d_model": 30, "num_heads": 4}), "model.d_model: d_model = 30 is not divisible by num_heads"),
        (minimal("swinmae", model={"num_heads": [3, 6]}), "num_heads has 2 stages, depths has 3"),
        (minimal("swinmae", model={"decoder_depths": [2]}), "stages in decoder_depths: 1 given, 2 needed"),
        (minimal("swinmae", model={"decoder": "light"}), "stages in decoder_depths: 2 given, 1 needed"),
        (minimal("swinmae", model={"num_heads": [5, 6, 12]}), "stage 0 is 48 wide: 5 heads"),
        (minimal("swinmae", scalogram={"image_size": 72}), "image_size = 72 is not a multiple"),
        (
            minimal("swinmae", scalogram={"image_size": 40}, model={"mask_unit": 1, "depths": [2, 2, 2]}),
            "image_size = 40 is not a multiple",
        ),
        (minimal(training={"learning_rate": float("inf")}), "inf: "),
        (minimal(model={"patch_size": 4}), "patch_stride"),
        (minimal(device={"memory": {"strategy": "custom"}}), "strategy = custom with fraction = None"),
        (minimal(device={"memory": {"fraction": 0.5}}), "strategy = balanced with fraction = 0.5"),
        (minimal(device={"prefer": "tpu", "allow_tpu": False}), "prefer = tpu, but allow_tpu = false"),
        (minimal(devices="cpu"), "choose the device with device.prefer=cpu"),
        (minimal(device={"sort": "cpu"}), "device.sort: unknown key"),
        (minimal(training={"clip": 1.0}), "training.clip: unknown key"),
    ],
)
def test_contradicting_keys_are_rejected(values, words):
    assert words in fault_of(values)


@pytest.mark.parametrize(
    "split, words",
    [
        ({"start": 0.7, "stop": 0.6}, "stop = 0.6 is not after start = 0.7"),
        ({"start": 9, "stop": 9}, "stop = 9 is not after start = 9"),
        ({"start": 5.0}, "write 5 for a row number"),
        ({"start": "late"}, "'late' is"),
        ({"stop": float("nan")}, "nan is"),
        ({"start": -1}, "-1: "),
    ],
)
def test_an_invalid_segment_is_rejected(split, words):
    fault = fault_of(minimal(data={"splits": {"train": split}}))
    assert fault.startswith("data.splits.train")
    assert words in fault


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
