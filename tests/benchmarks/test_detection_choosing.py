"""Constants that are chosen on other sets: the search, and that a set is never used for its own choice."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from benchmarks.detection import choosing
from benchmarks.detection.__main__ import main
from benchmarks.detection.choosing import Choosing
from benchmarks.detection.detectors import LANDFALL
from benchmarks.detection.sets import SETS
from tests.benchmarks.test_detection import pack  # noqa: F401
from tests.support import REPO_ROOT

SHARE, SPAN = "scoring.model_weight", "scoring.smoothing_span"


class Wishes:
    """A score that increases as the constants approach given values."""

    def __init__(self, family: str, **wishes: float):
        self.wishes, self.asked = {SHARE: wishes["share"], SPAN: wishes["span"]}, 0
        self.unit, self.benchmark = SimpleNamespace(name=family), SimpleNamespace(family=family)
        self.model = SimpleNamespace(scoring=SimpleNamespace(sha256="0" * 64))

    def headline(self, constants):
        self.asked += 1
        return 1.0 - abs(constants[SHARE] - self.wishes[SHARE]) - abs(constants[SPAN] - self.wishes[SPAN]) / 100


@pytest.fixture
def grid(monkeypatch):
    monkeypatch.setitem(choosing.GRID, "patchtst", {SHARE: (0.5, 0.0, 1.0), SPAN: (10, 5, 20)})


def test_constants_of_a_set_are_chosen_on_other_sets(grid, tmp_path):
    cases = [Wishes("a", share=0.0, span=20), Wishes("b", share=0.0, span=20), Wishes("c", share=1.0, span=5)]
    found = Choosing("patchtst", cases, tmp_path / "memo.json")
    assert found.families == ["a", "b", "c"]
    assert found.chosen_without("c") == {SHARE: 0.0, SPAN: 20}
    assert cases[2].asked == 0
    assert found.chosen_without(None) == {SHARE: 0.0, SPAN: 20}
    assert cases[2].asked > 0
    effects = {key: effect for key, _, effect in found.effect({SHARE: 0.0, SPAN: 20})}
    assert effects[SHARE] == pytest.approx(1 / 3)


def test_neutral_constants_are_kept_unless_others_are_better(grid, tmp_path):
    cases = [Wishes("a", share=0.5, span=10), Wishes("b", share=0.5, span=10)]
    assert Choosing("patchtst", cases, tmp_path / "memo.json").chosen_without("a") == {SHARE: 0.5, SPAN: 10}


def test_an_evaluated_set_is_not_evaluated_again(grid, tmp_path):
    first, second = Wishes("a", share=0.0, span=20), Wishes("a", share=0.0, span=20)
    chosen = Choosing("patchtst", [first], tmp_path / "memo.json").chosen_without(None)
    assert Choosing("patchtst", [second], tmp_path / "memo.json").chosen_without(None) == chosen
    assert first.asked > 0
    assert second.asked == 0


def test_every_constant_of_the_grid_is_a_key_and_its_default_is_within_the_values():
    from core.config.compose import load_config, local_config_file, with_values

    for stream, grid in choosing.GRID.items():
        config = load_config(local_config_file(stream), [], root=REPO_ROOT, environment={}).config
        neutral = {key: values[0] for key, values in grid.items()}
        assert with_values(config, neutral, source="a test").scoring.model_weight == neutral[SHARE]
        for key, values in grid.items():
            default = config
            for name in key.split("."):
                default = getattr(default, name)
            assert default == "auto" or min(values) <= default <= max(values), key


def test_sets_of_the_same_machines_are_one_family():
    family = {each.name: each.family for each in SETS}
    assert family["smd_400"] == "smd"
    assert family["femto_80_95"] == "femto"
    assert family["st_awfd_d2_without_8_9"] == "st_awfd_d2"
    assert family["skab"] == "skab"


@pytest.mark.nightly
def test_each_set_uses_the_constants_chosen_on_others(pack, tmp_path, monkeypatch):  # noqa: F811
    both = tmp_path / "pack/fdc"
    for name in ("asd", "smd"):
        (both / name).mkdir(parents=True)
        for file in (pack / "fdc/asd").glob("m1.*" if name == "asd" else "m2.*"):
            (both / name / file.name).symlink_to(file)
    monkeypatch.setitem(choosing.GRID, "patchtst", {SHARE: (0.5, 0.0), SPAN: (10, 30)})
    arguments = [
        "--quick",
        "--set",
        "asd,smd",
        "--leave-one-out",
        "--out",
        str(tmp_path),
        "--repo-root",
        str(REPO_ROOT),
    ]
    assert main([str(both.parent), *arguments]) == 0
    document = json.loads((tmp_path / "benchmark.json").read_text())
    constants = document["constants"]["patchtst"]
    assert constants["units"] == ["smd/m2", "asd/m1"]
    assert constants["sets"].keys() == {"smd", "asd"}
    assert all(each.keys() == {SHARE, SPAN} for each in constants["sets"].values())
    assert document["sets"].keys() == {"smd", "asd"}
    assert 0.0 < document["sets"]["asd"][LANDFALL][0]["vus_pr"] <= 1.0
    assert "| `scoring.model_weight` |" in (tmp_path / "benchmark.md").read_text()
    trained = json.loads((tmp_path / "work/asd_m1.training.json").read_text())
    assert trained["seconds"] > 0
