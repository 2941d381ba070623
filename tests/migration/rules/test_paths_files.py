import pytest

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
        "%%writefile /tmp/a.yaml\na: /content/x",
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
    assert (finding.rule, finding.line, finding.keeps) == ("LF404", 2, Keeps.NEEDS_HUMAN)


@pytest.mark.parametrize(
    "before, after",
    [
        ("%%writefile /content/x.txt\nhello", '%%writefile "$WORK_DIR/x.txt"\nhello'),
        ('%%writefile -a "/content/a b.txt"\nhello', '%%writefile -a "$WORK_DIR/a b.txt"\nhello'),
    ],
)
def test_the_path_of_a_file_is_the_local_one(before, after):
    assert migrated(before)[0] == after


def test_a_file_without_a_folder_is_unchanged():
    assert migrated("%%writefile a.txt\nhttps://a.b/content/x\n") == ("%%writefile a.txt\nhttps://a.b/content/x\n", [])
