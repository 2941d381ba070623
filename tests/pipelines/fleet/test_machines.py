"""The fleet file, and the workspace of a machine."""

from __future__ import annotations

import pytest
import yaml

from core.config.compose import load_config
from core.errors import ConfigError, UsageError
from pipelines.fleet.machines import prepare, read_fleet


def write(root, content):
    (root / "configs/fleet.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def test_csv_and_yaml_describe_the_same_machines(workspace):
    machines = [
        {"id": "a", "stream": "patchtst", "data": "data/a", "overrides": ["training.epochs=2"], "tags": ["x", "y"]},
        {"id": "b", "stream": "swinmae", "data": "data/b", "detector": "charts"},
    ]
    write(workspace, {"machines": machines})
    csv = (
        "id,stream,data,overrides,tags,detector\na,patchtst,data/a,training.epochs=2,x y,\nb,swinmae,data/b,,,charts\n"
    )
    (workspace / "configs/plant.csv").write_text(csv)
    of_yaml, of_csv = (read_fleet(f"configs/{name}", workspace) for name in ("fleet.yaml", "plant.csv"))
    assert of_yaml == of_csv
    assert [machine.id for machine in of_csv.chosen(["b*"], ["y"])] == ["a", "b"]
    with pytest.raises(UsageError, match="'z'"):
        of_csv.chosen([], ["z"])


def test_every_fault_is_reported_with_its_machine(workspace):
    good = {"id": "a", "stream": "patchtst", "data": "."}
    write(
        workspace, {"machines": [good, {**good, "id": "../up", "stream": "none"}, {**good, "id": "A", "date": 1}, good]}
    )
    with pytest.raises(ConfigError) as caught:
        read_fleet("configs/fleet.yaml", workspace)
    assert [fault.key for fault in caught.value.faults] == [
        "machine 2: id",
        "machine 2: stream",
        "machine 3: date",
        "a",
    ]


@pytest.mark.slow
def test_a_machine_has_the_settings_of_its_tags_and_its_own(workspace):
    """The configuration of its workspace says what is different, so that every command there uses it."""
    tags = {"x": {"overrides": ["trainer=quick", "training.batch_size=4"], "start_from": "checkpoints/pool.pt"}}
    machine = {"id": "a", "stream": "patchtst", "data": "data/a", "tags": ["x"], "overrides": ["training.batch_size=8"]}
    write(workspace, {"tags": tags, "machines": [machine]})
    folder = prepare(read_fleet("configs/fleet.yaml", workspace).machines[0], workspace)
    config = load_config("configs/patchtst_ssl_local.yaml", root=folder, environment={}).config
    direct = load_config("configs/patchtst_ssl_local.yaml", ["trainer=quick", "training.batch_size=8"], root=workspace)
    assert (config.training.epochs, config.training.batch_size) == (2, 8)
    assert (folder / config.data.root).resolve() == (workspace / "data/a").resolve()
    assert config.training.start_from == "../../checkpoints/pool.pt"
    differing = {"data": {"root": config.data.root}, "training": {"start_from": config.training.start_from}}
    plain = direct.config.model_dump(mode="json")
    for section, values in differing.items():
        plain[section] |= values
    assert config.model_dump(mode="json") == plain
    assert not (folder / "configs/fleet.yaml").exists()


def test_a_workspace_follows_the_configuration_of_the_fleet(workspace):
    write(workspace, {"machines": [{"id": "a", "stream": "patchtst", "data": "."}]})
    machine = read_fleet("configs/fleet.yaml", workspace).machines[0]
    folder = prepare(machine, workspace)
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}
    assert prepare(machine, workspace) == folder
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()} == before
    group = workspace / "configs/trainer/default.yaml"
    group.write_text(group.read_text().replace("epochs: ", "epochs: 1"))
    prepare(machine, workspace)
    assert (folder / "configs/trainer/default.yaml").read_text() == group.read_text()
