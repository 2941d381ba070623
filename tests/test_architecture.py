"""Rules for the complete code base."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support import REPO_ROOT

PACKAGES = ("core", "trainers", "inference", "migration", "pipelines")
ALL_PACKAGES = (*PACKAGES, "benchmarks", "tools")
MAY_IMPORT = {
    "core": {"core"},
    "trainers": {"trainers", "core"},
    "inference": {"inference", "core"},
    "migration": {"migration", "core"},
    "pipelines": set(PACKAGES),
}
BOXES_OF_CORE = {"config", "devices", "data", "models"}
SOURCES = [path for package in PACKAGES for path in sorted((REPO_ROOT / package).rglob("*.py"))]
# What entry points share speaks to the terminal for them.
SPEAKS_FOR_ENTRY_POINTS = {"core/cli.py", "trainers/command.py", "core/devices/compat.py"}
# For a command that gets a signal while it is still being imported.
ENDS_ENTRY_POINTS = {"core/signals.py"}
STARTS_FAST = (
    "core.errors", "core.config", "core.config.*", "core.cli", "core.workspace", "core.checkpoint", "core.runlog",
    "migration", "migration.*", "migration.notebook.*", "migration.shell.*", "migration.python.*", "migration.colab.*",
    "migration.analysis.*", "migration.rules.*", "migration.report.*", "landfall", "trainers.command",
    "trainers.supervising", "trainers.slurm_script", "core.stopping",
    "trainers.train_patchtst_ssl", "trainers.train_swinmae_ssl", "pipelines.validate_training_outputs",
    "pipelines.export_training_dashboard_state", "pipelines.dashboard.*", "pipelines.checks", "pipelines.checks.*",
    "pipelines.steps.*", "pipelines.run_local_training_pipeline", "pipelines.execute_notebook", "core.notebook",
    "inference.watch.watching", "inference.watch.command", "inference.watch.mqtt", "inference.watch.delivery",
    "inference.export_model",
)  # fmt: skip
# Each takes half a second or more to import; most commands do not call them.
IMPORTED_WHERE_USED = {"scipy.stats", "scipy.signal", "scipy.spatial", "scipy.optimize", "scipy.interpolate"}
TEXT_SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".ipynb", ".json", ".html", ".css", ".mjs", ".js", ".lock", ""}


def name_of(path: Path) -> str:
    return path.relative_to(REPO_ROOT).as_posix()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def imports_of(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            yield node.module or ""


def is_entry_point(path: Path) -> bool:
    return 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


def test_imports_point_in_the_permitted_direction():
    offenders = {}
    for path in SOURCES:
        imported = {module.split(".")[0] for module in imports_of(path)} & set(PACKAGES)
        offenders[name_of(path)] = imported - MAY_IMPORT[name_of(path).split("/")[0]]
    assert {name: imported for name, imported in offenders.items() if imported} == {}


def import_graph(folders: Iterable[str]) -> dict[str, set[str]]:
    """For each module in these folders, its imports from them, including those in functions and for types."""
    paths = [path for folder in folders for path in (REPO_ROOT / folder).rglob("*.py")]
    names = {name_of(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__"): path for path in paths}
    graph = {}
    for name, path in names.items():
        imported: set[str] = set()
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
                imported |= {target if target in names else node.module for target in targets}
        graph[name] = imported & names.keys() - {name}
    return graph


def test_no_modules_import_each_other_in_a_circle():
    try:
        TopologicalSorter(import_graph(ALL_PACKAGES)).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def box_of(module: str) -> str:
    """The box of the drawing that a module is in; `core` for modules that every package uses."""
    package, *inside = module.split(".")
    return inside[0] if package == "core" and inside and inside[0] in BOXES_OF_CORE else package


def test_the_drawing_shows_the_imports_between_packages():
    """What every package imports (`core` itself), and what an arrow implies, is not drawn."""
    imports: dict[str, set[str]] = {}
    for module, imported in import_graph(ALL_PACKAGES).items():
        imports.setdefault(box_of(module), set()).update(map(box_of, imported))
    imports = {box: imported - {box, "core"} for box, imported in imports.items() if box != "core"}
    reached: dict[str, set[str]] = {}
    for box in TopologicalSorter(imports).static_order():
        reached[box] = imports[box].union(*(reached[other] for other in imports[box]))
    needed = {
        (box, other)
        for box, imported in imports.items()
        for other in imported
        if not any(other in reached[between] for between in imported)
    }
    page = (REPO_ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^  (\w+) --> (\w+)$", page, re.MULTILINE)) == needed


def test_each_trip_through_the_code_names_at_most_twelve_files_once():
    page = (REPO_ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    trips = [re.findall(r"^\d+\. `([\w/.]+)`", part, re.MULTILINE) for part in page.split("## From ")[1:]]
    assert len(trips) == 2
    for files in trips:
        assert 5 < len(files) == len(set(files)) <= 12
        assert [file for file in files if not (REPO_ROOT / file).is_file()] == []


def test_every_change_names_files_that_exist_and_at_most_three():
    page = (REPO_ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    _, table = page.split("## Where to change something")
    rows = re.findall(r"^\| (?!change|-)[^|]+ \| ([^|]+) \|$", table, re.MULTILINE)
    named = [re.findall(r"`([\w./]+)`", row) for row in rows]
    assert len(named) > 15
    assert all(0 < len(files) <= 3 for files in named)
    assert [file for files in named for file in files if not (REPO_ROOT / file).exists()] == []


def stated_layers(package: str) -> list[str]:
    """The layers that the docstring of a package lists, lowest first: `- `name`: what it is` a line."""
    docstring = ast.get_docstring(ast.parse((REPO_ROOT / package / "__init__.py").read_text(encoding="utf-8")))
    return re.findall(r"^- `(\w+)`: ", docstring or "", re.MULTILINE)


def offenders_in(package: str) -> set[str]:
    """Modules that the docstring of a package does not list, and imports of modules that it lists below."""
    folder, floor = package.replace("/", "."), {name: number for number, name in enumerate(stated_layers(package))}
    entries = {folder, f"{folder}.__main__"}  # what starts the package stands above its layers
    graph = {name: imported for name, imported in import_graph([package]).items() if name not in entries}
    layer = {name: name.removeprefix(f"{folder}.").split(".")[0] for name in graph}
    missing = {name for name in graph if layer[name] not in floor}
    upwards = {
        f"{name} -> {other}"
        for name, imported in graph.items()
        if name not in missing
        for other in imported
        if other in entries or floor.get(layer[other], -1) > floor[layer[name]]
    }
    return missing | upwards


def test_each_package_lists_its_layers_and_each_imports_only_lower_ones():
    packages = [name_of(path.parent) for path in SOURCES if path.name == "__init__.py"]
    assert len(packages) > 20
    assert {package: found for package in packages if (found := offenders_in(package))} == {}


def modules(pattern: str) -> list[str]:
    """A module, or with `.*` every module of a package."""
    if not pattern.endswith(".*"):
        return [pattern]
    folder = REPO_ROOT / pattern.removesuffix(".*").replace(".", "/")
    return [name_of(path).removesuffix(".py").replace("/", ".") for path in folder.glob("[!_]*.py")]


def test_fast_commands_never_import_torch():
    names = [name for pattern in STARTS_FAST for name in modules(pattern)]
    program = f"""
import sys
from importlib import import_module
for name in {names}:
    import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{{name}} imports torch")
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_slow_packages_are_imported_where_they_are_used():
    offenders = set()
    for path in SOURCES:
        for node in tree_of(path).body:
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            offenders |= {(name_of(path), name) for name in names if name in IMPORTED_WHERE_USED}
    assert offenders == set()


def test_only_entry_points_print_or_exit():
    offenders = set()
    for path in SOURCES:
        forbidden = {"print", "exit", "quit", "sys.exit", "os._exit"}
        if name_of(path) not in SPEAKS_FOR_ENTRY_POINTS:
            forbidden |= {"sys.stdout.write", "sys.stderr.write"}
        calls = {ast.unparse(node.func) for node in nodes_of(path) if isinstance(node, ast.Call)}
        if not is_entry_point(path) and name_of(path) not in ENDS_ENTRY_POINTS:
            offenders |= {(name_of(path), call) for call in calls & forbidden}
    assert offenders == set()


def test_only_the_device_layer_asks_about_hardware():
    hardware = {"cuda", "mps", "xpu", "backends", "version", "accelerator"}
    asked = {
        (name_of(path), ast.unparse(node))
        for path in SOURCES
        if not path.is_relative_to(REPO_ROOT / "core/devices")
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in hardware and ast.unparse(node.value) == "torch"
    }
    assert asked == set()


def test_no_pattern_has_possessive_quantifiers_or_atomic_groups():
    """Python 3.11.0 to 3.11.4 match them wrongly (python/cpython#106052)."""
    newer = re.compile(r"[\])][*+?]\+|(?<!\\)}\+|\(\?>")
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and newer.search(node.value)
    ]
    assert found == []


def test_no_file_names_a_home_folder():
    home = re.compile(r"(?:/home|/Users|/root)/\w|[A-Za-z]:\\+Users\\")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=REPO_ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [REPO_ROOT / name for name in listed.stdout.splitlines()]
    readable = [file for file in files if file.suffix in TEXT_SUFFIXES and file.is_file()]
    assert [name_of(file) for file in readable if home.search(file.read_text(encoding="utf-8"))] == []
