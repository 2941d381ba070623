"""Static checks of code, notebooks and configurations."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from core.numbers import counted
from core.workspace import relative
from migration.contract import violations
from pipelines.checks.base import Check, CheckFailed, CheckSkipped, CheckWarned, Context


def lint(context: Context) -> str:
    """Findings in Landfall's own files fail; findings in other files of the workspace are warnings."""
    if find_spec("ruff") is None:
        raise CheckSkipped("ruff is not installed; only developing needs it", "`make lint` installs and runs it")
    if not (context.root / "pyproject.toml").is_file():
        raise CheckSkipped(
            "the workspace has no pyproject.toml with lint rules", "only a clone of the repository has one"
        )
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", "."]
    result = subprocess.run(command, cwd=context.root, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode not in (0, 1):
        raise CheckFailed(f"ruff cannot run: {result.stderr.strip().splitlines()[0]}", "run `make lint`")
    found: dict[bool, list[str]] = {True: [], False: []}
    for finding in json.loads(result.stdout):
        file = relative(Path(finding["filename"]), context.root)
        place = f"{file}:{finding['location']['row']}:{finding['location']['column']}"
        found[context.is_own(file)].append(f"{place}: {finding['code']} {finding['message']}")
    if found[True]:
        raise CheckFailed(_first_of(found[True]), "run `make lint`")
    if found[False]:
        file = found[False][0].partition(":")[0]
        raise CheckWarned(
            _first_of(found[False]) + " (not Landfall's files)",
            f"`{Path(sys.executable).name} -m ruff check {shlex.quote(file)}` shows them; they stop nothing",
        )
    return "ruff finds nothing"


def migration_contract(context: Context) -> str:
    """Violations in Landfall's own files fail; in other notebooks and configurations they are warnings."""
    found = violations(context.root, context.own_files or ())
    own = [str(violation) for violation in found if context.is_own(violation.file)]
    hint = "docs/pipeline.md explains each rule and what to do"
    if own:
        raise CheckFailed("; ".join(own[:5]), hint)
    if found:
        raise CheckWarned("; ".join(map(str, found[:5])) + " (not Landfall's files)", hint)
    return "no rule is violated"


def notebooks(context: Context) -> str:
    """Valid, with a parameters cell for papermill, and committed without outputs."""
    import nbformat

    files = sorted(context.root.glob("notebooks/local_*.ipynb"))
    own = [file for file in files if context.is_own(relative(file, context.root))]
    for file in [*own, *(file for file in files if file not in own)]:
        failure = CheckFailed if file in own else CheckWarned
        try:
            notebook = nbformat.read(file, as_version=4)
            nbformat.validate(notebook)
        except (ValueError, nbformat.ValidationError) as error:
            why = str(error).partition("\n")[0]
            raise failure(f"{file.name} is not a valid notebook: {why}", "open it in Jupyter and save it") from error
        if not any("parameters" in cell.metadata.get("tags", ()) for cell in notebook.cells):
            raise failure(f"{file.name} has no cell tagged parameters", "papermill needs one: tag the cell in Jupyter")
        dirty = [index for index, cell in enumerate(notebook.cells) if cell.get("outputs")]
        if dirty:
            raise CheckWarned(
                f"{file.name} contains outputs of an interactive run in cells {dirty}",
                "clear them before committing: jupyter nbconvert --clear-output --inplace",
            )
    return f"{len(files)} notebooks are valid, parameterised and free of outputs"


def _first_of(findings: Sequence[str]) -> str:
    return f"{counted(len(findings), 'finding')}, first: {findings[0]}"


CHECKS = (
    Check("lint", "V-02", "Lint", lint),
    Check("contract", "V-02", "Rules for notebooks and configurations", migration_contract),
    Check("notebooks", "V-02", "Local notebooks", notebooks),
)
