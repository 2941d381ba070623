import os
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import paths
from migration.rules.rewriting import rewrite


def migrated(text):
    new, found = rewrite(CellSource(text), cell_type="code", rules=paths.RULES, facts=NotebookFacts())
    again, repeated = rewrite(new, cell_type="code", rules=paths.RULES, facts=NotebookFacts())
    assert again is new
    assert not any(finding.changed for finding in repeated)
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("%%writefile /content/x.txt\nhello", '%%writefile "$WORK_DIR/x.txt"\nhello'),
        ('%%writefile -a "/content/a b.txt"\nhello', '%%writefile -a "$WORK_DIR/a b.txt"\nhello'),
        ("%%writefile run.sh\ncd /content/x\n", '%%writefile run.sh\ncd "$WORK_DIR"/x\n'),
        ("%%writetemplate /content/d.yaml\na: /content/{n}", "%%writetemplate $WORK_DIR/d.yaml\na: {WORK_DIR}/{n}"),
        ("%%writefile a.py\n# in /content\nx = 1\n", "%%writefile a.py\n# in WORK_DIR\nx = 1\n"),
        (
            "%%writefile a.py\nx = '/content/x'\n",
            "%%writefile a.py\nimport os\nWORK_DIR = os.environ[\"WORK_DIR\"]\n\nx = f'{WORK_DIR}/x'\n",
        ),
        (
            "%%writefile a.py\n'''On /content.'''\nimport sys, re\nimport os\n\nx = '/content/drive/MyDrive/x'\n",
            "%%writefile a.py\n'''On WORK_DIR.'''\nimport sys, re\nimport os\nDRIVE_DIR = os.environ[\"DRIVE_DIR\"]\n\n"
            "x = f'{DRIVE_DIR}/x'\n",
        ),
        (
            "%%python3\nprint('/content')",
            '%%python3\nimport os\nWORK_DIR = os.environ["WORK_DIR"]\n\nprint(WORK_DIR)',
        ),
        (
            "%%writefile a.yaml\ntrain: /content/a\n",
            'get_ipython().run_cell_magic("writefile", "a.yaml", f"""train: {WORK_DIR}/a\n""")',
        ),
        (
            '%%writefile "/content/a.json"\n{"a": "/content/a\\n"}',
            'get_ipython().run_cell_magic("writefile", \'"$WORK_DIR/a.json"\', '
            'r"""{"a": "WORK_DIR/a\\n"}\n""".replace("WORK_DIR", WORK_DIR))',
        ),
    ],
)
def test_files_use_the_local_folder(before, after):
    new, found = migrated(before)
    assert new == after
    assert all(finding.changed for finding in found)


@pytest.mark.parametrize(
    "text",
    [
        "%%writefile page.html\n<a href='/content/x'>",
        "%%writefile book.ipynb\n{'x': '/content'}",
        "%%html\n<img src='/content/x'>",
        "%%R\nread.csv('/content/x')",
        "%%writefile a.py\nx = '/content\n",
        "%%writefile a.py\nWORK_DIR = '/content'\n",
        "%%writefile a.txt\n'''\"\"\"/content\n",
    ],
)
def test_other_texts_are_a_manual_step(text):
    new, (finding,) = migrated(text)
    assert new == text
    assert (finding.rule, finding.line, finding.keeps) == ("LF406", 2, Keeps.NEEDS_HUMAN)


def test_a_file_without_a_folder_is_unchanged():
    assert migrated("%%writefile a.txt\nhttps://a.b/content/x\n") == ("%%writefile a.txt\nhttps://a.b/content/x\n", [])


@pytest.mark.parametrize(
    "cell, name, content",
    [
        ("%%writefile /content/a.yaml\na: /content/x\nb: '\\d'\n\n", "a.yaml", "a: {work}/x\nb: '\\d'\n\n"),
        ('%%writefile a.json\n{"a": ["/content", "\\"{x}\\""]}', "a.json", '{"a": ["{work}", "\\"{x}\\""]}\n'),
        ("%%writefile -a x.txt\nand /content/drive/MyDrive\n", "x.txt", "hello\nand {drive}\n"),
        ("%%file a.cfg\n/content/x = '''a'''\n", "a.cfg", "{work}/x = '''a'''\n"),
    ],
)
def test_a_migrated_file_is_written_as_before(tmp_path, monkeypatch, capsys, cell, name, content):
    work, drive = tmp_path / "work folder", tmp_path / "drive"
    work.mkdir()
    (work / "x.txt").write_text("hello\n")
    monkeypatch.chdir(work)
    shell = InteractiveShell()
    shell.user_ns.update(WORK_DIR=str(work), DRIVE_DIR=str(drive))
    with monkeypatch.context() as during:
        # The magic is called from the cell by the name that a kernel gives to its shell.
        during.setitem(shell.user_ns, "get_ipython", lambda: shell)
        shell.run_cell(migrated(cell)[0]).raise_error()
    assert (work / name).read_text() == content.replace("{work}", str(work)).replace("{drive}", str(drive))
    assert capsys.readouterr().out.split()[0] in ("Writing", "Appending")


def test_a_migrated_program_reads_the_folder_from_the_environment(tmp_path):
    body = migrated("%%writefile a.py\nimport sys\nprint('/content/x', f'{sys.argv[1]} in /content')\n")[0]
    program = tmp_path / "a.py"
    program.write_text(body.split("\n", 1)[1])
    environment = {**os.environ, "WORK_DIR": "/plant/site"}
    result = subprocess.run([sys.executable, program, "a"], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == "/plant/site/x a in /plant/site\n"
