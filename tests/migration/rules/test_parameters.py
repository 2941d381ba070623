import json
import subprocess
import sys

import nbformat
import pytest
from papermill.inspection import inspect_notebook

from migration.analysis.facts import NotebookFacts
from migration.analysis.parameters import plan_parameters
from migration.migrate import migrate
from migration.python.source import CellSource
from migration.rules.forms import PARAMETER_RULES
from migration.rules.preamble import Folders, add_preamble
from migration.rules.rewriting import rewrite
from tests.support.compiling import compiles

SECRET = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF2h"


def _plan(*cells):
    return plan_parameters([CellSource(text, index=index) for index, text in enumerate(cells)])


def _migrate(*cells, folders=None):
    """The cells after the rules of this stage, with the preamble, and the findings."""
    facts = NotebookFacts(parameters=_plan(*cells))
    new, findings = [], []
    for index, text in enumerate(cells):
        source, found = rewrite(CellSource(text, index=index), cell_type="code", rules=PARAMETER_RULES, facts=facts)
        new.append({"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source.text})
        findings += found
    return add_preamble(new, facts, folders or Folders()), findings


def _texts(cells):
    return [cell["source"] for cell in cells]


def _write(path, cells):
    notebook = nbformat.from_dict(
        {
            "nbformat": 4,
            "nbformat_minor": 4,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
                "language_info": {"name": "python"},
            },
            "cells": cells,
        }
    )
    nbformat.write(notebook, path)
    return path


# ------------------------------------------------------------------------------------------------ what is hoisted
@pytest.mark.parametrize(
    "line, written",
    [
        ('epochs = 9 #@param {type:"slider", min:1, max:9}', "epochs = 9  # type: int slider, 1 to 9"),
        ("epochs=-2#@param", "epochs = -2  # type: int"),
        ("epochs = 'a' # @param ['a', 'b']", "epochs = 'a'  # type: str one of \"a\", \"b\""),
        ('epochs = "https://h/?a=b#c" #@param', 'epochs = "https://h/?a=b#c"  # type: str'),
        ("epochs = None #@param {type:'raw'}", "epochs = None  # type: any"),
        ("epochs = [1, 'a=b'] #@param {type:'raw'}", "epochs = [1, 'a=b']  # type: list"),
    ],
)  # fmt: skip
def test_a_literal_moves_to_the_parameters_cell(line, written):
    cells, findings = _migrate(line, "print(epochs)")
    assert written in cells[0]["source"].splitlines()
    assert cells[0]["metadata"]["tags"] == ["parameters"]
    assert _texts(cells)[1:] == ["", "print(epochs)"]
    assert [finding.rule for finding in findings] == ["LF610"]
    namespace: dict = {}
    exec(cells[0]["source"], namespace)
    original: dict = {}
    exec(line, original)
    assert namespace["epochs"] == original["epochs"]


@pytest.mark.parametrize(
    "cells, reason",
    [
        (["x = 1 #@param", "x = 2"], "assigned in cell 1"),
        (["x = 1 #@param", "for x in y: pass"], "assigned in cell 1"),
        (["x = 1 #@param\nx += 1"], "assigned in cell 0"),
        (["x = 1 #@param\nf(x)"], "contains other code"),
        (["!ls\nx = 1 #@param"], "contains other code"),
        (["%%time\nx = 1 #@param"], "contains other code"),
        (["if a:\n    x = 1 #@param\ny = 2 #@param"], ""),
        (["x = 1 #@param", "%%capture x\nprint()"], "assigned in cell 1"),
        (["x = 1 #@param", "def f():\n    global x\n    x = 2"], "assigned in cell 1"),
        (["x = 1 #@param", "x = 2 #@param"], "cells 0, 1 have a field of this name"),
        (["x = 1 #@param", "x = 1 #@param"], "cells 0, 1 have a field of this name"),
        (["print(x)", "x = 1 #@param"], "used before, in cell 0"),
        (["def f(a): return max(a)", "max = 1 #@param"], "used before, in cell 0"),
        (["from a import *", "x = 1 #@param"], "import *"),
        (["%run a.py", "x = 1 #@param"], "%run"),
        (["x = 1 #@param", "print 'old'\nx = 2"], "assigned in cell 1"),
        (["if a:\n    x = 1 #@param"], "branch"),
        (["x = y #@param {type:'raw'}"], "expression"),
        (["work_dir = 'a' #@param"], "another meaning"),
        (['x = "/content" #@param'], "Colab's machine"),
        (['x = "/content/drive/MyDrive" #@param'], "Colab's machine"),
        (['x = "--out /content/a" #@param'], "Colab's machine"),
        (['x = "/opt/bin/a" #@param'], "Colab's machine"),
    ],
)
def test_a_field_is_not_hoisted_if_that_changes_behaviour(cells, reason):
    planned = _plan(*cells)
    assert all(reason in parameter.stays for parameter in planned)
    assert _texts(_migrate(*cells)[0])[-len(cells) :] == cells


@pytest.mark.parametrize(
    "cells",
    [
        ["def f(x): return x", "x = 1 #@param"],
        ["def f(): return x", "x = 1 #@param"],
        ["[x for x in range(3)]", "x = 1 #@param"],
        ["class A:\n    x = 0", "x = 1 #@param"],
        ["x = 1 #@param", "f(x=2)"],
        ["x = 1 #@param", "from a import *"],
    ],
)
def test_a_field_is_hoisted_if_nothing_else_binds_its_name(cells):
    assert not any(parameter.stays for parameter in _plan(*cells))


def test_a_cell_of_fields_moves_as_a_whole():
    """With its comments and blank lines, in its order."""
    text = (
        "#@title Run {run: 'auto'}\n#@markdown How long\nx = 1 #@param\n\n# The rate\ny = 2 #@param\n#@markdown - end"
    )
    cells, _ = _migrate(text, "z = 3 #@param", "f(x, y, z)")
    first, second, third = cells[0]["source"].split("\n\n")[1:]
    assert first == "# Run\n# How long\nx = 1  # type: int"
    assert second == "# The rate\ny = 2  # type: int\n# - end"
    assert third == "z = 3  # type: int"
    assert _texts(cells)[1:] == ["", "", "f(x, y, z)"]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("# Of b\nb = 2 #@param\nf(b)", "its cell contains other code"),
        ("b = 2 #@param\nimport c", "its cell contains other code"),
        ("b = 2 #@param\nhf_token = '' #@param", "another field of its cell stays"),
        ("b = 2 #@param\na = '/content/a' #@param", "another field of its cell stays"),
        ("b = 2 #@param\nc = f() #@param", "its cell contains other code"),
    ],
)
def test_a_field_stays_with_the_other_lines_of_its_cell(text, reason):
    assert _plan(text)[0].stays == reason
    cells, findings = _migrate(text)
    assert _texts(cells)[-1] == text
    assert findings == []


def test_fields_that_are_all_of_a_notebook_are_kept():
    field = {"cell_type": "code", "metadata": {}, "source": "x = 1 #@param", "outputs": [], "execution_count": None}
    title = {"cell_type": "markdown", "metadata": {}, "source": "# T"}
    notebook = {"cells": [title, field], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    title, parameters = migrate(notebook).notebook["cells"]
    assert title["source"] == "# T"
    assert parameters["source"].endswith("\n\nx = 1  # type: int")


# ------------------------------------------------------------------------------------------------ paths and secrets
@pytest.mark.parametrize(
    "line",
    [
        'a = "/content/a/" #@param',
        'a = "/content/drive/MyDrive/b" #@param',
        'hf_token = "" #@param',
        "api_key = 'YOUR_KEY' #@param",
        "password = 'a' #@param",
        f'token = "{SECRET}" #@param',
    ],
)
def test_a_field_of_a_path_or_a_secret_stays_in_its_cell(line):
    cells, findings = _migrate(line)
    assert _texts(cells)[-1] == line
    assert findings == []


def test_a_secret_among_the_options_is_masked():
    cells, _ = _migrate(f'name = "a" #@param ["a", "{SECRET}"] #@title b')
    assert SECRET not in json.dumps(cells)
    assert "@" not in cells[0]["source"]


# ------------------------------------------------------------------------------------------------ the two cells
def test_a_notebook_without_needs_gets_no_cells():
    cells = [{"cell_type": "code", "metadata": {}, "source": "%pip install a\nprint(1)"}]
    assert add_preamble(cells, NotebookFacts(), Folders()) is cells
    assert add_preamble([], NotebookFacts(), Folders()) == []
    other = [{"cell_type": "code", "metadata": {}, "source": "WORK_DIR"}]
    assert add_preamble(other, NotebookFacts(language="r"), Folders()) is other


def test_the_cells_are_before_the_first_code_cell_with_the_used_folders():
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "WORK_DIR"},
        {"cell_type": "code", "metadata": {}, "source": '!pip list | cat\nopen(f"{WORK_DIR}/a")'},
    ]
    new = add_preamble(cells, NotebookFacts(), Folders(work="a b", drive="D:\\drive"))
    assert [cell["metadata"].get("tags") for cell in new] == [None, ["parameters"], ["landfall-setup"], None]
    assert 'work_dir = "a b"' in new[1]["source"]
    assert "drive" not in (new[1]["source"] + new[2]["source"]).lower()
    assert 'os.environ["PATH"] = os.path.dirname(sys.executable)' in new[2]["source"]
    assert "SHELL" not in new[2]["source"]


def test_a_parameter_has_another_name_where_the_notebook_assigns_it():
    cells, _ = _migrate("work_dir = '/x'\nopen(f'{WORK_DIR}/{work_dir}')", "run(drive_dir=f'{DRIVE_DIR}/a')")
    parameters, setup = _texts(cells)[:2]
    assert 'landfall_work_dir = "."' in parameters
    assert "relative to landfall_work_dir" in parameters
    assert "expanduser(landfall_work_dir)" in setup
    assert "expanduser(drive_dir)" in setup
    assert add_preamble(cells, NotebookFacts(), Folders()) == cells


def test_a_second_migration_changes_nothing():
    once, _ = _migrate("x = 1 #@param", 'print("{WORK_DIR} {DRIVE_DIR}")')
    assert add_preamble(once, NotebookFacts(), Folders(work="elsewhere")) == once


def test_missing_lines_of_a_migrated_notebook_are_added():
    once, _ = _migrate("x = 1 #@param", "open(f'{WORK_DIR}/a')")
    more = [*once, {"cell_type": "code", "metadata": {}, "source": "!ls {DRIVE_DIR}"}]
    new = add_preamble(more, NotebookFacts(), Folders(drive="D:\\drive"))
    assert 'drive_dir = "D:/drive"' in new[0]["source"]
    lines = new[1]["source"].splitlines()
    assert lines[-1] == "os.chdir(WORK_DIR)"
    assert sum(line.startswith("DRIVE_DIR =") for line in lines) == 1
    assert sum(line.startswith("WORK_DIR =") for line in lines) == 1
    assert compiles(new[1]["source"])


@pytest.mark.parametrize(
    "text, lines",
    [
        ("%pip install a\n!apt install b && cd c", 0),
        ("!{sys.executable} -m pip install a", 0),
        ("!python train.py", 7),
        ("%%bash\ntorchrun train.py", 7),
        ("subprocess.run(['accelerate', 'launch'])", 7),
        ("from landfall_runtime import files", 7),
    ],
)
def test_the_set_up_cell_prepares_the_kernel(text, lines):
    """The programs of its Python, and the modules next to the notebook, whatever folder later cells select."""
    cells = [{"cell_type": "code", "metadata": {}, "source": text}]
    new = add_preamble(cells, NotebookFacts(), Folders())
    assert len(new) == 1 + bool(lines)
    if lines:
        assert new[0]["source"].count("\n") + 1 <= lines
        assert "sys.path.insert(0" in new[0]["source"]
        assert add_preamble(new, NotebookFacts(), Folders()) == new


def test_the_runtime_is_imported_from_any_folder(tmp_path, monkeypatch):
    cells, _ = _migrate("from landfall_runtime import userdata\n%cd sub")
    (tmp_path / "sub").mkdir()
    (tmp_path / "landfall_runtime.py").write_text("is_local = True")
    code = "\n".join(cell["source"] for cell in cells[:2])
    code += "\nos.chdir('sub')\nimport landfall_runtime\nprint(landfall_runtime.is_local, os.environ['WORK_DIR'])"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout == f"True {tmp_path}\n"


def test_a_parameters_cell_of_the_notebook_is_extended_and_comes_first():
    cells = [
        {"cell_type": "code", "metadata": {}, "source": 'open(f"{WORK_DIR}/a")'},
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "n = 3\n"},
    ]
    new = add_preamble(cells, NotebookFacts(), Folders())
    assert [cell["metadata"].get("tags") for cell in new] == [["parameters"], ["landfall-setup"], None]
    assert new[0]["source"].startswith("n = 3\nwork_dir = ")
    assert add_preamble(new, NotebookFacts(), Folders()) is new


def test_a_parameters_cell_that_computes_keeps_its_place():
    cells = [
        {"cell_type": "code", "metadata": {}, "source": 'a = open(f"{WORK_DIR}/a")'},
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "n = a.read()"},
    ]
    new = add_preamble(cells, NotebookFacts(), Folders())
    assert new[1:] == cells
    assert new[0]["metadata"]["tags"] == ["landfall-setup"]
    assert "\nwork_dir = " in new[0]["source"]


def test_running_the_set_up_cell_again_keeps_the_folders(tmp_path, monkeypatch):
    cells, _ = _migrate("print(f'{DRIVE_DIR}/a')", folders=Folders(work="w"))
    monkeypatch.chdir(tmp_path)
    for name in ("WORK_DIR", "DRIVE_DIR"):
        monkeypatch.setenv(name, "")
    namespace: dict = {}
    exec(cells[0]["source"], namespace)
    for folder in (tmp_path, tmp_path / "w", tmp_path.parent):
        monkeypatch.chdir(folder)
        exec(cells[1]["source"], namespace)
        assert namespace["WORK_DIR"] == str(tmp_path / "w")
        assert namespace["DRIVE_DIR"] == str(tmp_path / "w" / "drive")
    assert (tmp_path / "w" / "drive").is_dir()


# ------------------------------------------------------------------------------------------------ papermill
def test_papermill_shows_parameters_with_their_types(tmp_path):
    cells, _ = _migrate(
        'n = 1 #@param {type:"slider", min:1, max:9}\nurl = "a" #@param ["a"]\nnot_shown = "a=b" #@param\n'
        'flag = True #@param {type:"boolean"}\nmany = [1, 2] #@param {type:"raw"}'
    )
    found = inspect_notebook(_write(tmp_path / "n.ipynb", cells))
    types = {name: entry["inferred_type_name"] for name, entry in found.items()}
    assert types == {"n": "int", "url": "str", "flag": "bool", "many": "list"}
    assert found["n"]["help"] == "slider, 1 to 9"


@pytest.mark.nightly
def test_papermill_fills_the_parameters_from_any_folder(tmp_path):
    cells, _ = _migrate(
        "epochs = 10 #@param\nout = 'out' #@param",
        "import json, os\nos.makedirs(out)\njson.dump([epochs, os.getcwd(), WORK_DIR], open(f'{out}/seen.json', 'w'))",
    )
    _write(tmp_path / "n.ipynb", cells)
    here = tmp_path / "here"
    here.mkdir()
    absolute = tmp_path / "absolute"
    given = ["-p", "epochs", "2", "-p", "work_dir", "w", "-p", "out", str(absolute)]
    subprocess.run(
        [sys.executable, "-m", "papermill", "../n.ipynb", "run.ipynb", *given],
        cwd=here, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    seen = json.loads((absolute / "seen.json").read_text())
    work = str(here / "w")
    assert seen == [2, work, work]


def test_parameters_replace_the_form_in_place():
    """The parameters cell replaces a form cell that becomes empty, under its heading."""
    markdown, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    form = code('#@title Settings\nepochs = 3  #@param {type: "integer"}\n')
    cells = [markdown("## Settings"), form, markdown("## Work"), code("print(epochs)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    cells = migrate(notebook).notebook["cells"]
    assert [cell["metadata"].get("tags", cell["source"]) for cell in cells] == [
        "## Settings", ["parameters"], "## Work", "print(epochs)"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "code, stays",
    [
        ("scope = globals()\nfor key in settings:\n    scope[key] = settings[key]", True),
        ("def load(settings):\n    globals().update(settings)", True),
        ("for key, value in settings.items():\n    exec(f'{key} = {value}')", True),
        ("exec('a = %d' % b)", True),
        ("globals()['steps'] = 2", True),
        ("found = vars(namespace)\nfound[key] = 1", False),
        ("exec(text)", False),
    ],
)
def test_a_field_stays_if_its_name_is_assigned_by_its_text(code, stays):
    (parameter,) = _plan('steps = 3  #@param {type: "integer"}', code)
    assert bool(parameter.stays) is stays
