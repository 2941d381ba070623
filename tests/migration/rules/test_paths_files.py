import pytest
from IPython.core.interactiveshell import InteractiveShell

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import paths
from migration.rules.rewriting import rewrite


def migrated(text):
    new, found = rewrite(CellSource(text), cell_type="code", rules=paths.RULES, facts=NotebookFacts())
    return new.text, found


@pytest.mark.parametrize(
    "text",
    [
        "%%writefile page.html\n<a href='/content/x'>",
        "%%html\n<img src='/content/x'>",
        "%%R\nread.csv('/content/x')",
        "%%python3\nprint('/content')",
        '%%writefile a.txt\n"""/content\n',
        "%%writefile a.txt\nsed s/\\/content/x/",
    ],
)
def test_folders_below_a_cell_magic_are_a_manual_step(text):
    new, (finding,) = migrated(text)
    assert new == text
    assert (finding.rule, finding.line, finding.keeps) == ("LF406", 2, Keeps.NEEDS_HUMAN)


@pytest.mark.parametrize(
    "before, after",
    [
        ("%%writefile /content/x.txt\nhello", '%%writefile "$WORK_DIR/x.txt"\nhello'),
        ('%%writefile -a "/content/a b.txt"\nhello', '%%writefile -a "$WORK_DIR/a b.txt"\nhello'),
    ],
)
def test_the_path_of_a_file_is_the_local_one(before, after):
    assert migrated(before)[0] == after


def test_a_shell_script_uses_the_environment():
    before = "%%writefile /content/a.sh\ncd /content/x\nrun --path='/content/y' \"$HOME\" {a}"
    after = '%%writefile "$WORK_DIR/a.sh"\ncd "$WORK_DIR"/x\nrun --path="$WORK_DIR/y" "$HOME" {a}'
    assert migrated(before)[0] == after


def test_a_file_without_a_folder_is_unchanged():
    assert migrated("%%writefile a.txt\nhttps://a.b/content/x\n") == ("%%writefile a.txt\nhttps://a.b/content/x\n", [])


@pytest.mark.parametrize(
    "cell, name, content",
    [
        ("%%writefile /content/a.yaml\na: /content/x\nb: '\\d'\n\n", "a.yaml", "a: {work}/x\nb: '\\d'\n\n"),
        ('%%writefile a.json\n{"a": ["/content", "\\"{x}\\""]}', "a.json", '{"a": ["{work}", "\\"{x}\\""]}\n'),
        ("%%writefile -a x.txt\nand /content/drive/MyDrive\n", "x.txt", "hello\nand {drive}\n"),
        ("%%file a.py\nx = '/content', '\\N{DASH}', f'{y}'", "a.py", "x = '{work}', '\\N{DASH}', f'{y}'\n"),
        ("%%writefile a.yaml\na: /content/x\n", "a.yaml", "a: {work}/x\n"),
        ("%%capture\n%%writefile a.py\nx = '/content'", "a.py", "x = '{work}'\n"),
    ],
)
def test_a_file_is_written_with_the_local_folder(tmp_path, monkeypatch, cell, name, content):
    work, drive = tmp_path / "work folder", tmp_path / "drive"
    work.mkdir()
    (work / "x.txt").write_text("hello\n")
    monkeypatch.chdir(work)
    shell = InteractiveShell()
    shell.user_ns.update(WORK_DIR=str(work), DRIVE_DIR=str(drive))
    new, found = migrated(cell)
    assert {finding.rule for finding in found} <= {"LF404", "LF406"}
    assert all(finding.changed for finding in found)
    with monkeypatch.context() as during:
        # The magic is called from the cell by the name that a kernel gives to its shell.
        during.setitem(shell.user_ns, "get_ipython", lambda: shell)
        shell.run_cell(new).raise_error()
    assert (work / name).read_text() == content.replace("{work}", str(work)).replace("{drive}", str(drive))
    assert migrated(new) == (new, [])
