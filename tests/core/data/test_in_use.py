"""The streams in use: one without data is left out, one with files that no glob matches is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config.compose import LoadedConfig, config_from_dict, load_config, local_config_file
from core.config.schema import STREAMS, Stream
from core.data.in_use import streams_off
from core.errors import ConfigError, UsageError


def configs(root: Path, **overrides: str) -> dict[Stream, LoadedConfig]:
    return {
        stream: load_config(local_config_file(stream), filter(None, [overrides.get(stream)]), root=root)
        for stream in STREAMS
    }


def touch(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


@pytest.mark.parametrize(
    "files, off",
    [
        (["data/fdc/train_1.csv"], {"swinmae"}),
        (["data/vib/train_1.npy"], {"patchtst"}),
        (["data/fdc/train_1.csv", "data/vib/train_1.npy"], set()),
        # A file that no glob matches is a mistake to report.
        (["data/fdc/train_1.csv", "data/vib/pump.npy"], set()),
        # Neither has data: both report it.
        ([], set()),
        (["samples/data/fdc/train_1.csv", "samples/data/vib/train_1.npy"], set()),
        # Own data and sample data never mix.
        (["data/fdc/train_1.csv", "samples/data/vib/train_1.npy"], {"swinmae"}),
    ],
)
def test_a_stream_without_data_is_not_in_use(workspace, files, off):
    touch(workspace, *files)
    found = streams_off(configs(workspace), workspace)
    assert set(found) == off
    assert all("data/" in reason for reason in found.values())


def test_a_stream_can_be_switched_off_and_on(workspace):
    touch(workspace, "data/fdc/train_1.csv", "data/vib/train_1.npy")
    found = streams_off(configs(workspace, swinmae="enabled=false"), workspace)
    assert set(found) == {"swinmae"}
    assert "enabled" in found["swinmae"]
    (workspace / "data/vib/train_1.npy").unlink()
    assert set(streams_off(configs(workspace), workspace)) == {"swinmae"}
    assert not streams_off(configs(workspace, swinmae="enabled=true"), workspace), "missing data is then an error"
    assert not streams_off(configs(workspace), workspace, needed=["swinmae"]), "an imported model"


def test_not_every_stream_can_be_switched_off(workspace):
    with pytest.raises(UsageError, match="enabled"):
        streams_off(configs(workspace, patchtst="enabled=false", swinmae="enabled=false"), workspace)


def test_plain_values_name_the_folder_of_the_data(workspace):
    values = configs(workspace)["patchtst"].config.model_dump(mode="json")
    assert config_from_dict(values, source="a caller").data.root == "."
    values["data"]["root"] = "auto"
    with pytest.raises(ConfigError) as raised:
        config_from_dict(values, source="a caller")
    assert [fault.key for fault in raised.value.faults] == ["data.root"]
