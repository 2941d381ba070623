"""Small Colab notebooks and what `migrate` makes of them do the same: both are run, in real kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from migration.rules import all_rules
from tests.migration.semantics.cases import colab_api, detection, forms, installs, magics, paths, shell, words
from tests.migration.semantics.kernels import colab_machine, has_private_roots, local_machine
from tests.migration.semantics.outcome import PREAMBLE_NAMES, Case, Machines, Outcome
from tests.migration.semantics.web import web

CASES: tuple[Case, ...] = (
    *colab_api.CASES, *detection.CASES, *forms.CASES, *installs.CASES, *magics.CASES, *paths.CASES, *shell.CASES,
    *words.CASES,
)  # fmt: skip
ONLY_REPORT = frozenset(
    [
        "LF204",
        "LF210",
        "LF211",
        "LF212",
        "LF213",
        "LF214",
        "LF215",
        "LF216",
        "LF217",
        "LF218",
        "LF219",
        "LF220",
        "LF221",
        "LF222",
        "LF223",
        "LF224",
        "LF225",
        "LF226",
        "LF229",
        "LF232",
        "LF236",
        "LF308",
        "LF309",
        "LF410",
        "LF508",
        "LF509",
        "LF510",
        "LF523",
        "LF524",
        "LF531",
        "LF545",
        "LF546",
        "LF568",
        "LF569",
        "LF802",
        "LF811",
        "LF812",
        "LF813",
        "LF821",
        "LF822",
        "LF823",
        "LF824",
        "LF825",
        "LF831",
        "LF841",
        "LF842",
        "LF901",
        "LF903",
    ]
)
"""Rules that find something and change nothing: the import that stands above does, or a person must."""
CELLS = [pytest.param(case, n, id=f"{case}-{n}") for case in CASES for n in range(len(case.cells))]

Run = Callable[[Case], Outcome]


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

        def outcome(case: Case) -> Outcome:
            if case.private_root and not private:
                pytest.skip("the original writes at the root of the machine, and this system gives it none of its own")
            if case.name not in outcomes:
                outcomes[case.name] = machines.outcome(case)
            return outcomes[case.name]

        yield outcome


@pytest.mark.parametrize("case, cell", CELLS)
def test_a_cell_does_the_same(run: Run, case: Case, cell: int):
    before, after = run(case).original[cell], run(case).migrated[cell]
    assert after.error == before.error, after.traceback or before.traceback
    assert after.stdout == before.stdout
    assert after.results == before.results
    assert after.images == before.images
    if not case.restarts:
        names = {name for name, value in before.variables.items() if value not in ("<module>", "<colab>")} - case.gone
        assert {name: after.variables.get(name) for name in names} == {name: before.variables[name] for name in names}


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_notebook_exercises_its_rules(run: Run, case: Case):
    assert set(case.rules) <= run(case).rules


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_rules_that_rewrite_have_rewritten(run: Run, case: Case):
    assert ONLY_REPORT.isdisjoint(run(case).rules)


def test_every_rule_that_rewrites_code_is_exercised():
    rewriting = {rule.id for rule in all_rules() if rule.find and "code" in rule.cells} - ONLY_REPORT
    assert rewriting - {rule for case in CASES for rule in case.rules} == set()
    assert len(CELLS) >= 60
