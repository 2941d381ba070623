import json
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from traitlets.config import Config

from tests.migration.made_notebooks import code, save
from tests.support import REPO_ROOT
from tests.support.kernels import own_sockets

COLAB = code("x = open('/content/x.txt', 'w')")


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / ".ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    shell.run_line_magic("load_ext", "migration")
    return shell


def test_the_magic_migrates_and_prints_the_summary(shell, capsys):
    save(Path("colab_a.ipynb"), COLAB)
    result = shell.run_cell("%migrate colab_a.ipynb")
    assert (result.success, result.result) == (True, None)
    assert capsys.readouterr().out.startswith("colab_a.ipynb → local_a.ipynb\n")
    assert Path("local_a.ipynb").is_file()


def test_the_magic_accepts_the_options_of_the_command(shell, capsys):
    save(Path("a b.ipynb"), COLAB)
    assert shell.run_cell("name = 'a b.ipynb'\n%migrate \"{name}\" -o 'made/b.ipynb' --report report.json").success
    assert json.loads(Path("report.json").read_text(encoding="utf-8"))["summary"]["notebooks"] == 1
    assert Path("made/b.ipynb").is_file()
    capsys.readouterr()
    assert shell.run_cell('%migrate --check "a b.ipynb"').success
    assert "a b.ipynb: cell 0, line 1: LF4" in capsys.readouterr().out


def test_the_magic_has_help(shell, capsys):
    assert shell.run_cell("%migrate --help").success
    assert capsys.readouterr().out.startswith("usage: migrate ")
    assert shell.run_cell("%migrate --rules").success
    assert shell.run_cell("%migrate --schema").success
    assert "LF901" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["--fly", "gone.ipynb", "a.ipynb --jobs -1", ""])
def test_an_error_of_the_magic_is_one_line_without_a_traceback(shell, capsys, line):
    save(Path("a.ipynb"), COLAB)
    result = shell.run_cell(f"%migrate {line}")
    assert not result.success
    output = capsys.readouterr()
    assert "UsageError: " in output.out + output.err
    assert "Traceback" not in output.out + output.err


def test_the_magic_uses_the_current_notebook_by_default(shell, capsys, monkeypatch):
    path = save(Path("nb/colab_open.ipynb"), COLAB).absolute()
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    assert shell.run_cell("%migrate").success
    assert Path("nb/local_open.ipynb").is_file()
    monkeypatch.setenv("JPY_SESSION_NAME", str(path.with_name("renamed.ipynb")))
    assert not shell.run_cell("%migrate").success


@pytest.mark.nightly
def test_the_magic_works_in_a_kernel(tmp_path):
    save(tmp_path / "colab_a.ipynb", COLAB)
    for number in range(3):
        save(tmp_path / f"many/{number}.ipynb", COLAB)
    cells = [
        f"import sys\nsys.path.insert(0, {str(REPO_ROOT)!r})",
        "%load_ext migration",
        "%migrate colab_a.ipynb",
        "%migrate many --out-dir out --jobs 2",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    with own_sockets() as config:
        place = {"metadata": {"path": tmp_path}}
        NotebookClient(notebook, timeout=400, kernel_name="python3", resources=place, config=config).execute()
    printed = ["".join(output.get("text", "") for output in cell["outputs"]) for cell in notebook["cells"]]
    assert printed[2].startswith("colab_a.ipynb → local_a.ipynb\n")
    assert "3 notebooks: 3 migrated" in printed[3]
    assert len(list((tmp_path / "out").glob("*.ipynb"))) == 3
