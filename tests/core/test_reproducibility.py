import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.config.execution import Profile
from core.reproducibility import derive_seed, generator, wrong_hash_seed
from tests.support import REPO_ROOT

MODULE = """\
import os
import sys

from core.config.execution import Profile
from core.reproducibility import prepare_process

with open("starts", "a") as starts:
    starts.write(f"{os.getpid()}\\n")
if "--forgetful" in sys.argv:
    os.environ.pop("PYTHONHASHSEED", None)
prepare_process(Profile(pythonhashseed=42))
assert "torch" not in sys.modules
print(hash("x"), os.environ.get("KEPT"), *sys.argv[1:])
"""


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    plain = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONHASHSEED", "_LANDFALL_STARTED_FOR")
    }
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**plain, "PYTHONPATH": f"{folder}{os.pathsep}{REPO_ROOT}", **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a command that requires PYTHONHASHSEED = 42 and records each of its starts."""
    (tmp_path / "seeded.py").write_text(MODULE)
    return tmp_path


def starts(folder: Path) -> list[str]:
    return (folder / "starts").read_text().split()


@pytest.mark.slow
@pytest.mark.parametrize("seed, count", [({}, 2), ({"PYTHONHASHSEED": "7"}, 2), ({"PYTHONHASHSEED": "42"}, 1)])
def test_a_command_restarts_with_the_right_hash_seed(folder, seed, count):
    expected = run(folder, "-c", "print(hash('x'))", PYTHONHASHSEED="42").stdout.strip()
    result = run(folder, "-m", "seeded", "a b", "training.epochs=2", KEPT="yes", **seed)
    assert result.stdout == f"{expected} yes a b training.epochs=2\n", "same words, same environment"
    assert len(starts(folder)) == count


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot replace a process")
def test_the_restart_keeps_the_process_id(folder):
    run(folder, "-m", "seeded")
    assert len(set(starts(folder))) == 1


@pytest.mark.slow
def test_a_process_without_its_environment_restarts_once(folder):
    result = run(folder, "-m", "seeded", "--forgetful")
    assert len(starts(folder)) == 2
    assert "PYTHONHASHSEED=42" in result.stderr


def test_a_wrong_hash_seed_is_reported(monkeypatch):
    profile = Profile(pythonhashseed=42)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert re.fullmatch("PYTHONHASHSEED is not set.* 42", wrong_hash_seed(profile))
    assert wrong_hash_seed(Profile(pythonhashseed=0)) is not None
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert re.fullmatch("PYTHONHASHSEED is 7.* 42", wrong_hash_seed(profile))
    assert wrong_hash_seed(Profile()) is None
    monkeypatch.setenv("PYTHONHASHSEED", "42")
    assert wrong_hash_seed(profile) is None


def test_seeds_are_stable_across_versions():
    assert derive_seed(42, "masks", 3) == 1960837808621840356


def test_each_purpose_has_its_own_seed():
    seeds = [derive_seed(42, purpose, epoch) for purpose in ("masks", "order") for epoch in range(100)]
    seeds += [derive_seed(seed, "masks", 0) for seed in range(100)]
    assert len(set(seeds)) == 299, "only (42, masks, 0) is asked for twice"
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_draws_for_one_purpose_do_not_affect_another():
    alone = torch.rand(4, generator=generator(1, "order"))
    torch.rand(100, generator=generator(1, "masks"))
    torch.rand(100)
    assert torch.equal(torch.rand(4, generator=generator(1, "order")), alone)
