import os
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import DEFAULT_MOUNTS
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import paths
from migration.rules.rewriting import rewrite


def migrated(text, mounts=DEFAULT_MOUNTS):
    facts = NotebookFacts(mounts=mounts)
    new, found = rewrite(CellSource(text), cell_type="code", rules=paths.RULES, facts=facts)
    again, repeated = rewrite(new, cell_type="code", rules=paths.RULES, facts=NotebookFacts())
    assert again is new
    assert not any(finding.changed for finding in repeated)
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("!cp /content/a /content", '!cp "$WORK_DIR"/a "$WORK_DIR"'),
        ('!cp "/content/b" "to /content"', '!cp "$WORK_DIR/b" "to $WORK_DIR"'),
        ("!cp '/content/c' '/content/My File'", '!cp "$WORK_DIR/c" "$WORK_DIR/My File"'),
        ("!sed -i 's#./i/#/content/c/#g' x", "!sed -i 's#./i/#'\"$WORK_DIR\"'/c/#g' x"),
        ("!echo 'in /content'", "!echo 'in '\"$WORK_DIR\""),
        ("!f --a='/content/c,/content/drive/MyDrive/d'", '!f --a="$WORK_DIR/c,$DRIVE_DIR/d"'),
        ("!echo '/content/content/d'>> x", '!echo "$WORK_DIR/content/d">> x'),
        ("!echo '/content/$x'", "!echo \"$WORK_DIR\"'/$x'"),
        ("!python -c 'open(\"/content/x\")'", "!python -c 'open(\"'\"$WORK_DIR\"'/x\")'"),
        ("!python -c \"open('/content/y')\"", "!python -c \"open('$WORK_DIR/y')\""),
        ("!g++ -o/content/x -I/content/i -L/content", '!g++ -o"$WORK_DIR"/x -I"$WORK_DIR"/i -L"$WORK_DIR"'),
        ('!f --a=/content/x --b="/content/y" -o"/content/z"', '!f --a="$WORK_DIR"/x --b="$WORK_DIR/y" -o"$WORK_DIR/z"'),
        ("!PATH=/content/bin:$PATH f", '!PATH="$WORK_DIR"/bin:$PATH f'),
        ("!unzip /content/*.zip -d /content/{a,b}", '!unzip "$WORK_DIR"/*.zip -d "$WORK_DIR"/{a,b}'),
        ("!f > /content/o 2>/content/e  # in it", '!f > "$WORK_DIR"/o 2>"$WORK_DIR"/e  # in it'),
        ('!(cd /content) "$(ls /content)" `ls /content`', '!(cd "$WORK_DIR") "$(ls "$WORK_DIR")" `ls "$WORK_DIR"`'),
        ("files = !ls /content", 'files = !ls "$WORK_DIR"'),
        ("if a:\n  !ls \\\n    /content", 'if a:\n  !ls \\\n    "$WORK_DIR"'),
        ("!cp /content/drive/My\\ Drive/x .", '!cp "$DRIVE_DIR"/x .'),
        ('!cp "/content/drive/My Drive/x" .', '!cp "$DRIVE_DIR/x" .'),
        ("!cp /content/drive/'My Drive'/x .", '!cp "$DRIVE_DIR"/x .'),
        ("!ls drive/MyDrive ./drive/MyDrive/x", '!ls "$DRIVE_DIR" "$DRIVE_DIR"/x'),
        ("%cd /content", "%cd $WORK_DIR"),
        ("%cd /content/a b", "%cd $WORK_DIR/a b"),
        ("%cd '/content/a b'", '%cd "$WORK_DIR/a b"'),
        ('%cd "/content/a b"', '%cd "$WORK_DIR/a b"'),
        ("%cd /content/drive/My Drive/x", "%cd $DRIVE_DIR/x"),
        ("%cd /content/gdrive/$name/x", "%cd $DRIVE_DIR/$name/x"),
        ("%env A=/content/a", "%env A=$WORK_DIR/a"),
        ("%run /content/a.py --b=/content/b", '%run "$WORK_DIR/a.py" --b="$WORK_DIR/b"'),
        ("%tensorboard --logdir '/content/l o'", '%tensorboard --logdir "$WORK_DIR/l o"'),
        ("%alias a /content/a", '%alias a "$WORK_DIR/a"'),
        ("%%own_magic -o /content/a.txt\nb", "%%own_magic -o $WORK_DIR/a.txt\nb"),
        ("%load /content/a.py", "%load $WORK_DIR/a.py"),
        ("%pip install -r /content/r.txt", '%pip install -r "$WORK_DIR"/r.txt'),
        ("%cp /content/a /content/drive/My\\ Drive", '%cp "$WORK_DIR"/a "$DRIVE_DIR"'),
        ("%time x = open('/content/x')", "%time x = open(f'{WORK_DIR}/x')"),
        ("%%time\n!ls /content", '%%time\n!ls "$WORK_DIR"'),
        ("%%bash -s /content/x\ncd /content", '%%bash -s "$WORK_DIR/x"\ncd "$WORK_DIR"'),
        ("# t\n%%bash\nA=/content; B=\"/content/$A\"", '# t\n%%bash\nA="$WORK_DIR"; B="$WORK_DIR/$A"'),
        ("%%bash\n#unzip /content/x -d /content/y", '%%bash\n#unzip "$WORK_DIR"/x -d "$WORK_DIR"/y'),
        ("%%time\n%%bash\nsource /content/x\nrun -n 2", '%%time\n%%bash\nsource "$WORK_DIR"/x\nrun -n 2'),
        ("%%bash\ncat <<E > /content/x\n'/content/y' $A\nE", '%%bash\ncat <<E > "$WORK_DIR"/x\n\'$WORK_DIR/y\' $A\nE'),
    ],
)  # fmt: skip
def test_commands_use_the_exported_variable(before, after):
    new, found = migrated(before)
    assert new == after
    assert found
    assert all(finding.changed for finding in found)


@pytest.mark.parametrize(
    "text",
    [
        '!ls "$X"/content ${X}/content $X/content "a"/content ./content {x}/content',
        "!git clone https://a.b/content/c && scp a@b:/content/x .",
        "%cd content",
        "%%bash\nls ./content /contents",
        "!ls 'a'/content",
    ],
)
def test_texts_that_only_look_like_folders_are_unchanged(text):
    assert migrated(text) == (text, [])


@pytest.mark.parametrize(
    "text",
    ["%%bash\nls  # /content", "%%bash\n#!/content/sh\nls", "%%bash\n# copy it to /content/x\nls", "!ls # /content"],
)
def test_comments_of_the_shell_are_named(text):
    new, (finding,) = migrated(text)
    assert new == text
    assert (finding.rule, finding.keeps) == ("LF407", Keeps.EQUIVALENT)


@pytest.mark.parametrize(
    "text",
    [
        "!sed -i 's/a/\\/content\\/b/' x",
        "%%bash\ncat <<'E'\n/content/x \\d\nE\n",
        "%env A=/content/a:$PATH",
        "!f {join('/content', x)}",
        "/content/a/b.jpg",
    ],
)
def test_places_without_variables_are_a_manual_step(text):
    new, (finding,) = migrated(text)
    assert new == text
    assert finding.keeps is Keeps.NEEDS_HUMAN


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An IPython whose work folder has a blank in its name, with a drive folder next to it."""
    work, drive = tmp_path / "work folder", tmp_path / "drive"
    for folder in (work / "a b", drive):
        folder.mkdir(parents=True)
    (work / "x.txt").write_text("hello\n")
    (drive / "d.txt").write_text("from the drive\n")
    monkeypatch.chdir(work)
    for name, folder in (("WORK_DIR", work), ("DRIVE_DIR", drive)):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("A", "")
    shell = InteractiveShell()
    shell.user_ns.update(WORK_DIR=str(work), DRIVE_DIR=str(drive), name="x", os=os)
    return shell, work


@pytest.mark.parametrize(
    "cell, expected",
    [
        ("y = !cat /content/$name'.txt'", ["hello"]),
        ("y = !cat /content/{name}.txt \"/content/x.txt\" '/content/x.txt'", ["hello"] * 3),
        ("y = !cat /content/x.txt && echo {not_a_name} {print}", ["hello", "{not_a_name} {print}"]),
        ("y = !cp '/content/x.txt' '/content/a b/' && cat /content/a\\ b/x.txt", ["hello"]),
        ("y = !python3 -c 'print(open(\"/content/x.txt\").read(), end=\"\")'", ["hello"]),
        ("y = !echo in /content | sed 's#^in /content$#/content/here#'", ["{work}/here"]),
        ("y = !cat /content/drive/My\\ Drive/d.txt '/content/drive/MyDrive/d.txt'", ["from the drive"] * 2),
        ("%cd /content/a b\ny = [os.getcwd()]", ["{work}/a b"]),
        ("%cd '/content/a b'\ny = [os.getcwd()]", ["{work}/a b"]),
        ("%env A=/content/x\ny = [os.environ['A']]", ["{work}/x"]),
        ("%mkdir -p /content/c\n%ls /content/c\ny = os.listdir('/content')", ["a b", "c", "x.txt"]),
        ("%%bash\ncat <<E > /content/y.txt\nat /content/y\nE\ncp /content/y.txt \"/content/a b\"", None),
        ("import subprocess\ny = [subprocess.check_output('cat /content/x.txt', shell=True, text=True)]", ["hello\n"]),
        ("y = [os.popen('cat /content/*.txt \"/content/x.txt\"').read()]", ["hello\nhello\n"]),
    ],
)  # fmt: skip
def test_migrated_commands_run_in_a_folder_with_a_blank_in_its_name(machine, cell, expected):
    shell, work = machine
    shell.run_cell(migrated(cell)[0]).raise_error()
    if expected is None:
        assert (work / "a b" / "y.txt").read_text() == f"at {work}/y\n"
    else:
        assert sorted(shell.user_ns["y"]) == [line.replace("{work}", str(work)) for line in expected]


def test_run_finds_a_script_in_a_folder_with_a_blank_in_its_name(machine):
    shell, work = machine
    Path("made.py").write_text("import sys\nseen = sys.argv")
    shell.run_cell(migrated("%run /content/made.py --to /content/x")[0]).raise_error()
    assert shell.user_ns["seen"] == [f"{work}/made.py", "--to", f"{work}/x"]
