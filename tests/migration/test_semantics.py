"""Small Colab notebooks and what `migrate` makes of them do the same: both are run, in real kernels."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from migration.migrate import Migration
from migration.rules.table import RULES
from tests.migration.semantics.cases import colab_api, detection, family, forms, installs, magics, paths, shell, words
from tests.migration.semantics.kernels import colab_machine, has_private_roots, local_machine
from tests.migration.semantics.outcome import PREAMBLE_NAMES, Case, Machines, Outcome, notebook_of
from tests.migration.semantics.web import web

CASES: tuple[Case, ...] = tuple(
    case
    for module in (colab_api, detection, family, forms, installs, magics, paths, shell, words)
    for case in module.CASES
)
ONLY_REPORT = {
    *("LF204", "LF210", "LF211", "LF212", "LF213", "LF214", "LF215", "LF216", "LF217", "LF218", "LF219", "LF220"),
    *("LF221", "LF222", "LF223", "LF224", "LF225", "LF226", "LF229", "LF232", "LF236", "LF308", "LF309", "LF410"),
    *("LF508", "LF509", "LF510", "LF523", "LF524", "LF531", "LF545", "LF546", "LF568", "LF569", "LF802", "LF811"),
    *("LF812", "LF813", "LF821", "LF822", "LF823", "LF824", "LF825", "LF831", "LF841", "LF842", "LF901", "LF903"),
}
"""Rules that find something and change nothing: the import that stands above does, or a person must."""
CELLS = [pytest.param(case, n, id=f"{case}-{n}") for case in CASES for n in range(len(case.cells))]

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The outcome of a case, which is run once."""
    if sys.platform != "linux":
        pytest.skip("a machine like Colab's, with a folder /content, is made on Linux only")
    folder = tmp_path_factory.mktemp("semantics")
    private = has_private_roots(folder)
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as stack:
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
            if case.name not in outcomes:
                outcomes[case.name] = machines.outcome(case)
            return outcomes[case.name]

        yield outcome


def differences(case: Case, outcome: Outcome, cell: int) -> list[str]:
    """What a cell does otherwise than the original."""
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


@pytest.mark.parametrize("case, cell", CELLS)
def test_a_cell_does_the_same(run: Run, case: Case, cell: int):
    assert differences(case, run(case), cell) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_notebook_leaves_the_same(run: Run, case: Case):
    outcome = run(case)
    files = [
        {name: None if name in case.by_environment else content for name, content in files.items()}
        for files in (outcome.migrated_files, outcome.original_files)
    ]
    assert files[0] == files[1]
    before, after = outcome.original[-1].variables, outcome.migrated[-1].variables
    added = {name for name, value in after.items() if name not in before and value not in ("<module>", "<colab>")}
    assert case.restarts or added <= PREAMBLE_NAMES


def test_a_notebook_that_is_left_as_it_was_is_told_apart(run: Run):
    (case,) = [case for case in CASES if case.name == "paths on the drive"]
    outcome = run(case, Migration(notebook=notebook_of(case.cells), findings=[]))
    assert [cell for cell in range(len(case.cells)) if differences(case, outcome, cell)] == list(range(len(case.cells)))
    assert outcome.migrated_files != outcome.original_files


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_notebook_exercises_its_rules(run: Run, case: Case):
    assert set(case.rules) <= run(case).rules


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_rules_that_rewrite_have_rewritten(run: Run, case: Case):
    assert ONLY_REPORT.isdisjoint(run(case).rules)


def test_every_rule_that_rewrites_code_is_exercised():
    rewriting = {rule.id for rule in RULES if rule.find and "code" in rule.cells} - ONLY_REPORT
    assert rewriting - {rule for case in CASES for rule in case.rules} == set()
    assert len(CELLS) >= 60
