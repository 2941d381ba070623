"""`python -m tools.traces FOLDER --count 300 --seed 0`: compares the effects of notebooks before and after migration.
Each notebook is executed twice in a sandbox without a network: the original on a simulated Colab machine, and the
migrated one on a plain machine. Processes, packages, log-ins and the network are recorders (`tools.traces.recorders`).
Needs Linux with unprivileged user namespaces.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.cli import run_command
from core.errors import EXIT_OK, LandfallError
from migration.migrate import Migration, migrate
from migration.notebook.reading import language_of, read, source_text
from tools.traces.compare import Difference, Effect, compare, summarised
from tools.traces.dependents import dependents

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONHASHSEED": "0"}
_MAY_READ = re.compile(r"""os\.environ(?:\[|\.get\()["'](\w+)["']""")
_READS = re.compile(r"""os\.environ\[["'](\w+)["']\](?!\s*=[^=])""")
_OF_ADDED_CELLS = ("error", "environment", "module path")
HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parents[1] / "landfall_runtime.py"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.traces", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="notebooks, in folders of any depth")
    parser.add_argument("--count", type=int, default=300, help="number of notebooks, chosen at random (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice (default: 0)")
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="write every difference")
    parser.add_argument("--show", type=int, default=5, help="examples of each kind of difference (default: 5)")
    return run_command(_run, parser, None)


def _run(arguments: argparse.Namespace) -> int:
    paths = sorted(arguments.folder.rglob("*.ipynb"))
    random.Random(arguments.seed).shuffle(paths)
    found: dict[str, Difference] = {}
    left_out: Counter[str] = Counter()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        colab, local = (stack.enter_context(_sandbox(folder / kind, kind)) for kind in ("colab", "local"))
        for path in paths:
            if len(found) == arguments.count:
                break
            try:
                notebook, _ = read(path)
                if language_of(notebook) != "python":
                    left_out["another language"] += 1
                    continue
                migration = migrate(notebook)
            except LandfallError:
                left_out["not readable"] += 1
                continue
            difference = _compared(notebook, migration, colab, local)
            if difference is None:
                left_out["ended by a limit of time or memory"] += 1
            else:
                found[str(path.relative_to(arguments.folder))] = difference
    _print(found, left_out, arguments.show)
    if arguments.report is not None:
        arguments.report.write_text(json.dumps({name: asdict(one) for name, one in found.items()}, indent=1))
    return EXIT_OK


class Sandbox:
    """A process in a sandbox that runs notebooks."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process

    def run(self, cells: list[str], environment: Mapping[str, str] | None = None) -> list[Effect] | None:
        """The effects of a notebook; None if it was ended by a limit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"cells": cells, "environment": environment or {}}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LandfallError("the sandbox has ended", hint="it needs Linux with unprivileged user namespaces")
        try:
            answer = json.loads(line)
        except json.JSONDecodeError:
            return None
        return None if answer["ended"] else [(cell, kind, text) for cell, kind, text in answer["effects"]]


@contextmanager
def _sandbox(root: Path, kind: str) -> Iterator[Sandbox]:
    root.mkdir()
    runtime = root.parent / "runtime"
    runtime.mkdir(exist_ok=True)
    (runtime / "landfall_runtime.py").write_bytes(RUNTIME.read_bytes())
    prefix = Path(sys.prefix).resolve()
    read = ":".join(map(str, (prefix, Path(sys.base_prefix).resolve(), HERE.parent, runtime)))
    enter = ["unshare", "--user", "--map-root-user", "--mount", "--net", "sh", str(HERE / "sandbox.sh"), str(root)]
    command = [*enter, kind, read, str(prefix / "bin/python"), str(HERE / "runner.py"), kind, str(runtime)]
    with (root.parent / f"{kind}.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_ENVIRONMENT,
        )
    try:
        yield Sandbox(process)
    finally:
        process.kill()
        process.wait()


def _compared(notebook: dict[str, Any], migration: Migration, colab: Sandbox, local: Sandbox) -> Difference | None:
    """The difference of the two traces; None if a run was ended by a limit."""
    cells, new = _code(notebook), _code(migration.notebook)
    original, migrated = colab.run(cells), local.run(new, _secrets(cells, new))
    if original is None or migrated is None:
        return None
    named = _named(migration, cells, new)
    after = [(_origin(migration, cell), kind, text) for cell, kind, text in migrated if (kind, text) not in named]
    # Effects of added cells are not compared, except those that last and errors.
    kept: list[Effect] = [effect for effect in after if effect[0] is not None or effect[1] in _OF_ADDED_CELLS]  # type: ignore[misc]
    human = {finding.cell for finding in migration.needs_human if finding.cell is not None}
    difference = compare(original, kept, human)
    if not difference.kinds:
        return difference
    before, after = ({cell for cell, kind, _ in effects if kind == "error"} for effects in (original, kept))
    return compare(
        original, kept, human, local.run(cells) or (), dependents(cells, migration.needs_human, after - before)
    )


def _code(notebook: dict[str, Any]) -> list[str]:
    return [source_text(cell) if cell["cell_type"] == "code" else "" for cell in notebook["cells"]]


def _secrets(cells: list[str], new: list[str]) -> dict[str, str]:
    """Values for the environment variables that the migrated notebook reads more often: the report asks the user for
    them."""
    before, after = (Counter(_READS.findall("\n".join(texts))) for texts in (cells, new))
    return {name: f"secret-{name}" for name in after - before}


def _named(migration: Migration, cells: list[str], new: list[str]) -> set[tuple[str, str]]:
    """Reads of environment variables that only the migrated notebook has, and that the report names."""
    before, after = (set(_MAY_READ.findall("\n".join(texts))) for texts in (cells, new))
    report = "\n".join(f"{found.message} {found.action} {found.after}" for found in migration.findings)
    return {("secret", name) for name in after - before if re.search(rf"\b{name}\b", report)}


def _origin(migration: Migration, cell: int) -> int | None:
    return -1 if cell < 0 else migration.origins[cell]


def _print(found: dict[str, Difference], left_out: Counter[str], show: int) -> None:
    total = max(1, len(found))
    lines = [f"{len(found)} notebooks compared"]
    lines += [f"  {count:5} {count / total:6.1%} {what}" for what, count in sorted(summarised(found).items())]
    lines += [f"  {count:5} left out: {what}" for what, count in left_out.items()]
    by_kind: dict[str, list[str]] = {}
    for name, difference in found.items():
        for side, texts in (("lost", difference.lost), ("added", difference.added)):
            for kind, several in texts.items():
                by_kind.setdefault(f"{kind} {side}", []).append(f"{name}: {several[0][:150]!r}")
    for kind, examples in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        lines += [f"{kind}: {len(examples)} notebooks", *(f"    {example}" for example in examples[:show])]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
