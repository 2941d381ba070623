"""`python -m benchmarks.migration FOLDER`: migrates every notebook of a folder and checks the outputs. It runs the real
command, then checks its output files independently: nbformat's validator, papermill's loader, IPython's transformer
with Python's compiler, `benchmarks.colab_leftovers`, and a second migration.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.colab_leftovers import leftovers
from core.cli import run_command
from core.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE
from migration.report.document import SECRETS, UPKEEP

# Without comments that the rules rewrite: forms, paths, secrets.
_PROSE = re.compile(
    r"[ \t]*#(?![ \t]*[!%])(?![^\n]*(?:/content|drive/My|google\.colab|@[ \t]*param|\bhf_\w{20}))[^\n]*\w"
)
# Conditions, badges, addresses and texts that stay on purpose, and are reported.
_REPORTS_KEPT = ("LF230", "LF301", "LF407", "LF409", "LF701", "LF702")
_PROSE_MARK = re.compile(r"#[ \t]*@[ \t]*(?:title|markdown|param)|\{[^{}]*\}[ \t]*$")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.migration", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="notebooks, in folders of any depth")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the migrated notebooks here")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default: 1, to measure one core)")
    parser.add_argument("--show", type=int, default=20, help="examples of each fault to print (default: 20)")
    return run_command(_measure, parser, None)


def _measure(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        once = arguments.keep or Path(scratch) / "once"
        before = _hashes(arguments.folder)
        report, seconds = _migrate(arguments.folder, once, arguments.jobs)
        survey = Survey(arguments.show)
        for entry in report["notebooks"]:
            survey.check(entry, Path(entry["input"]))
        survey.count("inputs changed", sum(now != before[path] for path, now in _hashes(arguments.folder).items()))
        twice = Path(scratch) / "twice"
        _migrate(once, twice, arguments.jobs)
        survey.count("second migration differs", sum(1 for _ in _different(once, twice)))
        survey.figures["notebooks per second and process"] = f"{len(before) / seconds / arguments.jobs:.1f}"
        sys.stdout.write(f"{survey}\n")
    return EXIT_OK


def _migrate(folder: Path, out: Path, jobs: int) -> tuple[dict[str, Any], float]:
    """The report of a run of the real command over a folder, and its seconds."""
    report = out.with_name(f"{out.name}-report.json")
    command = [sys.executable, "-m", "migration", str(folder), "--out-dir", str(out), "--report", str(report)]
    started = time.perf_counter()
    result = subprocess.run([*command, "--jobs", str(jobs), "--force"], stdout=subprocess.DEVNULL, text=True)
    seconds = time.perf_counter() - started
    if result.returncode not in (EXIT_OK, EXIT_FAILURE, EXIT_USAGE):
        sys.exit(f"the migration ended with {result.returncode}")
    return json.loads(report.read_text(encoding="utf-8")), seconds


class Survey:
    """Counts of passed and failed checks, with the first examples of each fault."""

    def __init__(self, show: int):
        self.figures: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self.constructs: Counter[str] = Counter()
        self.show = show

    def count(self, what: str, number: int = 1, example: str = "") -> None:
        self.counts[what] += number
        shown = self.examples.setdefault(what, [])
        if example and len(shown) < self.show:
            shown.append(example)

    def check(self, entry: dict[str, Any], source: Path) -> None:
        """One notebook: its report's entry and the files before and after."""
        self.count("notebooks")
        if entry["output"] is None:
            self.count("failed", example=f"{source}: {entry.get('error')}")
            return
        beyond = _not_for_colab(entry)
        self.count("edited only where Colab requires it", not beyond)
        for rule in sorted(beyond):
            self.count(f"edited by {rule}, not for Colab", example=str(source))
        migrated = json.loads(Path(entry["output"]).read_text(encoding="utf-8"))
        self._check_file(Path(entry["output"]), migrated)
        try:
            original = _load(source)
        except (
            json.JSONDecodeError
        ) as error:  # the migrator repairs more than json can read; its output is checked without the original
            self.count("broken originals, not compared", example=f"{source}: {error}")
            return
        cells = original.get("cells") or [cell for sheet in original.get("worksheets", []) for cell in sheet["cells"]]
        places = {old: new for new, old in enumerate(entry["cells"]) if old is not None}
        if len(entry["cells"]) != len(migrated["cells"]) or any(old >= len(cells) for old in places):
            self.count("cells without an explanation in the report", example=str(source))
            return
        human = {
            cell
            for finding in entry["findings"]
            if finding["keeps"] == "needs-human" or (finding["rule"] in _REPORTS_KEPT and not finding["changed"])
            for cell in (finding["cell"], *finding["also"])
        }
        self._check_leftovers(source, migrated, {new: old for old, new in places.items()}, human)
        self.count("cells added", len(migrated["cells"]) - len(places))
        added = [cell for cell, old in zip(migrated["cells"], entry["cells"], strict=True) if old is None]
        self._check_prose(source, cells, migrated["cells"])
        if sum(cell["cell_type"] == "code" for cell in added) > 2:
            self.count("more than two code cells added", example=str(source))
        touched: dict[int | None, set[int]] = {}
        for finding in entry["findings"]:
            for cell, lines in _touched_lines(finding):
                touched.setdefault(cell, set()).update(lines)
        for index, cell in enumerate(cells):
            new = migrated["cells"][places[index]] if index in places else None
            self.count("removed cells", new is None)
            if new is not None and _text(cell).strip() and not _text(new).strip():
                self.count("cells emptied", example=f"{source}:{index}")
            if cell["cell_type"] == "code":
                self._check_cell(f"{source}:{index}", _text(cell), new, touched.get(index, set()))
        for finding in entry["findings"]:
            if finding["keeps"] == "needs-human" and not finding["action"]:
                self.count("needs-human without an action", example=f"{source}: {finding['rule']}")

    def _check_file(self, path: Path, notebook: dict[str, Any]) -> None:
        import nbformat
        from papermill.iorw import load_notebook_node
        from papermill.utils import nb_kernel_name, nb_language

        try:
            nbformat.validate(notebook)
        except Exception as error:
            self.count("invalid", example=f"{path}: {error!s:.200}")
        try:
            loaded = load_notebook_node(str(path))
            nb_kernel_name(loaded), nb_language(loaded)
        except Exception as error:
            self.count("refused by papermill", example=f"{path}: {error!s:.200}")

    def _check_leftovers(self, source: Path, notebook: dict[str, Any], old: dict[int, int], human: set[int]) -> None:
        unexplained = []
        for found in leftovers(notebook):
            explained = found.cell is not None and old.get(found.cell) in human
            self.constructs[f"{found.construct} ({'needs-human' if explained else 'unexplained'})"] += 1
            if not explained:
                unexplained.append(found)
        if unexplained:
            cell, construct, text = unexplained[0]
            self.count("unexplained leftovers", example=f"{source}:{cell and old.get(cell)} {construct}: {text:.160}")

    def _check_prose(self, source: Path, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
        """Comment lines whose words do not occur in the migrated notebook; those of forms are moved to another
        comment."""
        kept = _words("\n".join(_text(cell) for cell in after))
        for cell in before:
            for line in _text(cell).split("\n") if cell["cell_type"] == "code" else ():
                words = _words(_PROSE_MARK.sub("", line)) if _PROSE.match(line) else ""
                words = words if re.sub(r"\b[bh]r\b", "", words).strip("_ ") else ""  # "___" is a line across a form
                self.count("comment lines", bool(words))
                if words and words not in kept:
                    self.count("comment lines lost", example=f"{source}: {line.strip()!r:.120}")

    def _check_cell(self, place: str, before: str, new: dict[str, Any] | None, touched: set[int]) -> None:
        self.count("code cells")
        after = _text(new or {})
        if new and new["cell_type"] == "code" and before != after and not _compiles(after) and _compiles(before):
            self.count("cells that no longer compile", example=place)
        lines = [
            line
            for row, line in enumerate(before.split("\n"), start=1)
            if row not in touched and (new is not None or line.strip())
        ]
        self.count("untouched lines", len(lines))
        missing = _not_a_subsequence(lines, after.split("\n"))
        self.count("untouched lines changed", len(missing), example=f"{place} {missing[0]!r:.120}" if missing else "")

    def __str__(self) -> str:
        lines = [f"{what:<36} {number}" for what, number in self.counts.items()]
        lines += [f"{what:<36} {figure}" for what, figure in self.figures.items()]
        share = 1 - self.counts["unexplained leftovers"] / max(1, self.counts["notebooks"])
        lines.append(f"{'free of unexplained leftovers':<36} {share:.3%}")
        own = self.counts["edited only where Colab requires it"] / max(1, self.counts["notebooks"])
        lines.append(f"{'edited only where Colab requires it':<36} {own:.2%}")
        same = 1 - self.counts["untouched lines changed"] / max(1, self.counts["untouched lines"])
        lines.append(f"{'untouched lines byte-identical':<36} {same:.4%}")
        lines += [f"  {construct:<50} {number}" for construct, number in self.constructs.most_common()]
        for what, examples in self.examples.items():
            lines += [f"{what}:", *(f"    {example}" for example in examples)] if examples else []
        return "\n".join(lines)


def _not_for_colab(entry: dict[str, Any]) -> set[str]:
    """The rules that edited a notebook although Colab does not require it. The table of rules decides: a rule serves
    something else if its row is among those that repair any notebook (`UPKEEP`) or that remove secrets (`SECRETS`). The
    form of the file (LF101 to LF107) is not counted: papermill needs it, and no cell or output shows it.
    """
    edits = {finding["rule"] for finding in entry["findings"] if finding["changed"]}
    return edits & (UPKEEP | SECRETS) - {f"LF{number}" for number in range(101, 108)}


def _touched_lines(finding: dict[str, Any]) -> Iterator[tuple[int | None, range]]:
    """The original lines that a finding reports as changed, by their cells."""
    if finding["changed"] and finding["line"]:
        size = 1 if finding["also_lines"] else finding["before"].count("\n") + 1
        for cell, line in ((finding["cell"], finding["line"]), *finding["also_lines"]):
            yield cell, range(line, line + size)


def _not_a_subsequence(lines: list[str], of: list[str]) -> list[str]:
    """The lines that do not occur in `of`, in this order."""
    missing, rest = [], 0
    for line in lines:
        try:
            rest = of.index(line, rest) + 1
        except ValueError:
            missing.append(line)
    return missing


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return source if isinstance(source, str) else "".join(source)


def _load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes().decode("utf-8-sig", errors="replace"), strict=False)


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text))


@cache
def _compiles(text: str) -> bool:
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(TransformerManager().transform_cell(text), "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _hashes(folder: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.ipynb"))}


def _different(once: Path, twice: Path) -> Iterator[Path]:
    for path in sorted(once.rglob("*.ipynb")):
        if path.read_bytes() != (twice / path.relative_to(once)).read_bytes():
            yield path


if __name__ == "__main__":
    sys.exit(main())
