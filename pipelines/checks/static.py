"""V-02: what can be judged without running anything."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from migration.contract import breaches
from pipelines.checks.base import Check, CheckFailed, CheckSkipped, Context


def lint(context: Context) -> str:
    if find_spec("ruff") is None:
        raise CheckSkipped("ruff is not installed", "run `make setup`")
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "."]
    result = subprocess.run(command, cwd=context.root, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        findings = result.stdout.strip().splitlines() or result.stderr.strip().splitlines()
        raise CheckFailed(f"{len(findings)} lines of findings, first: {findings[0]}", "run `make lint`")
    return "ruff finds nothing"


def migration_contract(context: Context) -> str:
    found = breaches(context.root)
    if found:
        raise CheckFailed("; ".join(str(breach) for breach in found[:5]), "see docs/runbook.md, migration contract")
    return "TR-01 to TR-05 hold"


def notebooks(context: Context) -> str:
    """Valid, with a parameters cell for papermill, and committed without outputs."""
    import nbformat

    files = sorted(context.root.glob("notebooks/local_*.ipynb"))
    for file in files:
        notebook = nbformat.read(file, as_version=4)
        nbformat.validate(notebook)
        if not any("parameters" in cell.metadata.get("tags", ()) for cell in notebook.cells):
            raise CheckFailed(f"{file.name} has no cell tagged parameters", "restore it: git checkout notebooks")
        dirty = [index for index, cell in enumerate(notebook.cells) if cell.get("outputs")]
        if dirty:
            raise CheckSkipped(
                f"{file.name} holds outputs of an interactive run in cells {dirty}",
                "clear them before committing: jupyter nbconvert --clear-output --inplace",
            )
    return f"{len(files)} notebooks are valid, parameterised and free of outputs"


CHECKS = (
    Check("lint", "V-02", "Lint", lint),
    Check("contract", "V-02", "Migration contract", migration_contract),
    Check("notebooks", "V-02", "Local notebooks", notebooks),
)
