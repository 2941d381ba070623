"""A composition is cached until one of its inputs changes."""

import hydra
import pytest

from core.config import composition
from core.config.compose import load_config

FILE = "configs/site.yaml"
BODY = """
stream: patchtst
logging: {log_dir: runs/x, checkpoint_path: checkpoints/x.pt}
dqvl: {report_dir: artifacts/dqvl/x}
"""


@pytest.fixture
def compositions(monkeypatch) -> list[str]:
    """Names of the files that Hydra composes."""
    monkeypatch.setattr(composition, "_cached", {})
    compose, names = hydra.compose, []

    def counted(config_name=None, **options):
        names.append(config_name)
        return compose(config_name, **options)

    monkeypatch.setattr(hydra, "compose", counted)
    return names


def write(workspace, *defaults: str, epochs: int) -> None:
    listed = "".join(f"  - {entry}\n" for entry in (*defaults, "_self_"))
    (workspace / FILE).write_text(f"defaults:\n{listed}{BODY}")
    group = workspace / "configs/trainer/seven.yaml"
    group.write_text(f"# @package _global_\ntraining: {{epochs: {epochs}}}\n")


def load(workspace, *overrides: str):
    return load_config(FILE, overrides, root=workspace, environment={})


def test_equal_texts_are_composed_once(workspace, compositions):
    write(workspace, "trainer: seven", epochs=7)
    first, second, other = load(workspace), load(workspace), load(workspace, "seed=3")
    assert (first.config, first.origins) == (second.config, second.origins)
    assert other.config.seed == 3 != first.config.seed == load(workspace).config.seed, "what is set over it is not kept"
    assert compositions == ["site"]


@pytest.mark.slow
def test_a_changed_text_or_choice_is_composed_again(workspace, compositions):
    write(workspace, "trainer: seven", epochs=7)
    assert load(workspace).config.training.epochs == 7
    write(workspace, "trainer: seven", epochs=8)
    assert load(workspace).config.training.epochs == 8
    assert load(workspace, "trainer=quick").config.training.epochs == 2
    assert load(workspace).config.training.epochs == 8
    (workspace / "configs/trainer/seven.yaml").unlink()
    with pytest.raises(Exception, match="seven"):
        load(workspace)


@pytest.mark.slow
def test_a_configuration_with_an_unlisted_file_is_composed_each_time(workspace, compositions):
    """An option that is named by another choice, so its text is not known in advance."""
    for epochs in (7, 8):
        write(workspace, "hardware/kind: seven", "trainer: ${hardware/kind}", epochs=epochs)
        (workspace / "configs/hardware/kind").mkdir(exist_ok=True)
        (workspace / "configs/hardware/kind/seven.yaml").write_text("# @package _global_\nseed: 5\n")
        assert load(workspace).config.training.epochs == epochs
    assert compositions == ["site", "site"]
