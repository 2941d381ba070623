"""Small Colab notebooks and their migrated versions have the same effects in real kernels."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock

from migration.migrate import Migration
from migration.rules.table import RULES
from tests.migration.semantics.cases import colab_api, detection, family, forms, installs, magics, paths, shell, words
from tests.migration.semantics.kernels import colab_machine, has_private_roots, local_machine
from tests.migration.semantics.outcome import PREAMBLE_NAMES, Case, Machines, Outcome, notebook_of
from tests.migration.semantics.web import web

KINDS = (colab_api, detection, family, forms, installs, magics, paths, shell, words)
CASES: tuple[Case, ...] = tuple(case for module in KINDS for case in module.CASES)
# Each takes a second: of each kind, all but the first two run at night, and the one with the real pip takes 20 to 50.
FIRST = {case.name for module in KINDS for case in module.CASES[:2]} - {"installs of what is there"}
TIERED = [pytest.param(case, id=str(case), marks=() if case.name in FIRST else pytest.mark.nightly) for case in CASES]
ONLY_REPORT = {
    *("LF210", "LF211", "LF213", "LF214", "LF215", "LF218"),
    *("LF221", "LF229", "LF232", "LF308", "LF523", "LF545", "LF811"),
    *("LF822", "LF823", "LF831", "LF841", "LF842", "LF901", "LF903"),
}
"""Rules that find something and change nothing: the import that stands above does, or a person must."""

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a case, or skips it with the reason."""
    if sys.platform != "linux":
        pytest.skip("a machine like Colab's, with a folder /content, is made on Linux only")
    folder = tmp_path_factory.mktemp("semantics")
    private = has_private_roots(folder)
    with ExitStack() as stack:
        if not private:  # one worker at a time has the machine's own /content
            stack.enter_context(FileLock(Path(tempfile.gettempdir()) / "landfall-tests-content.lock"))
        try:
            colab, content = stack.enter_context(colab_machine(folder, private=private))
        except OSError as error:
            pytest.skip(f"neither a root of its own nor a folder /content for a machine like Colab's: {error}")
        local = stack.enter_context(local_machine(folder, private=private))
        machines = Machines(folder, colab, content, local, stack.enter_context(web(folder / "web")))

        def outcome(case: Case, migration: Migration | None = None) -> Outcome:
            if migration:
                return machines.outcome(case, migration)
            if case.private_root and not private:
                pytest.skip("the original writes at the root of the machine, and this system gives it none of its own")
            missing = [program for program in case.needs if not shutil.which(program)]
            if missing:
                pytest.skip(f"this machine has no {', '.join(missing)}")
            return machines.outcome(case)

        yield outcome


def differences(case: Case, outcome: Outcome, cell: int) -> list[str]:
    """Differences between a cell and the original."""
    before, after = outcome.original[cell], outcome.migrated[cell]
    found = [
        f"{what}: {expected!r}, here {value!r} {after.traceback}"
        for what in ("error", "stdout", "results", "images")
        if (value := getattr(after, what)) != (expected := getattr(before, what))
    ]
    kept = {} if case.restarts else {name: value for name, value in before.variables.items() if name not in case.gone}
    return found + [
        f"{name} = {value}, here {after.variables.get(name)}"
        for name, value in kept.items()
        if value not in ("<module>", "<colab>") and after.variables.get(name) != value
    ]


def faults(case: Case, outcome: Outcome) -> dict[str, object]:
    """Differences between a case and the original or its declaration: cells, files, variables, rules."""
    found: dict[str, object] = {f"cell {n}": differences(case, outcome, n) for n in range(len(case.cells))}
    original, migrated = outcome.original_files, outcome.migrated_files
    found["files"] = {name for name in original.keys() | migrated.keys() if original.get(name) != migrated.get(name)}
    found["files"] |= original.keys() ^ migrated.keys()
    before, after = outcome.original[-1].variables, outcome.migrated[-1].variables
    added = {name for name, value in after.items() if name not in before and value not in ("<module>", "<colab>")}
    found["new variables"] = set() if case.restarts else added - PREAMBLE_NAMES
    found["rules that did nothing"] = set(case.rules) - outcome.rules
    found["rules that only report"] = ONLY_REPORT & outcome.rules
    return {what: fault for what, fault in found.items() if fault}


@pytest.mark.slow
@pytest.mark.parametrize("case", TIERED)
def test_a_migrated_notebook_has_the_same_effects(run: Run, case: Case):
    assert faults(case, run(case)) == {}


@pytest.mark.slow
def test_an_unchanged_notebook_is_reported_separately(run: Run):
    (case,) = [case for case in CASES if case.name == "paths on the drive"]
    outcome = run(case, Migration(notebook=notebook_of(case.cells), findings=[]))
    assert [cell for cell in range(len(case.cells)) if differences(case, outcome, cell)] == list(range(len(case.cells)))
    assert outcome.migrated_files != outcome.original_files


def test_every_rule_that_rewrites_code_is_exercised():
    rewriting = {rule.id for rule in RULES if rule.find and "code" in rule.cells} - ONLY_REPORT
    assert rewriting - {rule for case in CASES for rule in case.rules} == set()
    assert sum(len(case.cells) for case in CASES) >= 60
