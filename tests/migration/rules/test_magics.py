import pytest

from migration.analysis.facts import NotebookFacts, collect_facts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import cell_magics, magics, paths
from migration.rules.rewriting import rewrite
from tests.support.compiling import compiles


def _rewrite(text, *, language="python"):
    facts = NotebookFacts(language=language)
    new, found = rewrite(
        CellSource(text, language=language), cell_type="code", rules=(*cell_magics.RULES, *magics.RULES), facts=facts
    )
    again, repeated = rewrite(new, cell_type="code", rules=(*cell_magics.RULES, *magics.RULES), facts=facts)
    assert again is new
    assert not any(finding.changed for finding in repeated)
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("%shell ls -l", "!ls -l"),
        ("%shell   wget -q {url} \\\n  -O a\nx = 1", "!wget -q {url} \\\n  -O a\nx = 1"),
        ("if a:\n    %shell --ignore-errors rm f", "if a:\n    !rm f"),
    ],
)
def test_shell_lines_are_rewritten(before, after):
    new, (finding,) = _rewrite(before)
    assert new == after
    assert (finding.rule, finding.keeps) == ("LF561", Keeps.EQUIVALENT)


@pytest.mark.parametrize(
    "handler, decides",
    [
        ("except subprocess.CalledProcessError:\n    print(1)\n    raise", True),
        ("except (OSError, CalledProcessError) as error:\n    print(error)", True),
        ("except:\n    print(1)", True),
        ("except Exception:\n    pass", False),
        ("except KeyError:\n    print(1)", False),
        ("finally:\n    print(1)", False),
    ],
)
def test_a_failure_that_is_handled_is_a_decision(handler, decides):
    new, (finding,) = _rewrite(f"try:\n    with a:\n        %shell ls\n{handler}")
    assert new == f"try:\n    with a:\n        !ls\n{handler}"
    assert finding.keeps is (Keeps.NEEDS_HUMAN if decides else Keeps.EQUIVALENT)
    assert ("_exit_code" in finding.action) is decides


def test_a_shell_line_in_a_handler_is_not_handled_by_it():
    assert _rewrite("try:\n    a()\nexcept Exception:\n    %shell ls")[1][0].keeps is Keeps.EQUIVALENT


def test_the_result_of_a_shell_line_is_another_object():
    new, (finding,) = _rewrite("out = %shell ls")
    assert new == "out = !ls"
    assert finding.keeps is Keeps.NEEDS_HUMAN
    assert "list of printed lines" in finding.action


@pytest.mark.parametrize("text", ["%shell", "%shells ls", "x = '%shell ls'", "# %shell ls", "!echo %shell"])
def test_other_lines_are_unchanged(text):
    assert _rewrite(text)[0] == text


@pytest.mark.parametrize(
    "before, after",
    [
        ("%tensorflow_version 2.x\nimport x", "import x"),
        ("import x\n%tensorflow_version 2.x", "import x"),
        ("%tensorflow_version 2.x", ""),
        ("if a:\n  %tensorflow_version 2.x\nx = 1", "x = 1"),
        ("if a:\n  # why\n  %tensorflow_version 2.x\n  b()\n", "if a:\n  # why\n  b()\n"),
        ("  %tensorflow_version 2.x\n  x = 1", "  x = 1"),
        ("try:\n  %tensorflow_version 2.x\nexcept Exception:\n  pass\nx = 1", "x = 1"),
        (
            "if a():\n  try:\n    %tensorflow_version 2.x\n  except:\n    pass\n",
            "if a():\n  pass\n",
        ),
        (
            "try:\n  %tensorflow_version 2.x\n  import b\nexcept Exception:\n  pass",
            "try:\n  import b\nexcept Exception:\n  pass",
        ),
    ],
)
def test_the_tensorflow_version_magic_is_removed(before, after):
    new, (finding,) = _rewrite(before)
    assert new == after
    assert compiles(new)
    assert (finding.rule, finding.keeps) == ("LF563", Keeps.EQUIVALENT)


@pytest.mark.parametrize("line", ["%tensorflow_version 1.x", "% tensorflow_version 1.x"])
def test_tensorflow_version_1_is_a_manual_step(line):
    new, (finding,) = _rewrite(f"x = 1\n{line}\n")
    assert new == "x = 1\n"
    assert (finding.keeps, finding.line) == (Keeps.NEEDS_HUMAN, 2)
    assert "TensorFlow 1.15" in finding.action


def test_a_version_inside_a_detection_is_left_to_that_rule():
    text = "try:\n  %tensorflow_version 2.x\n  here = False\nexcept:\n  here = True\n"
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "# set tensorflow_version=1.15 in the environment",
        "x = 1  # %tensorflow_version 2.x",
        's = """\n# %tensorflow_version 2.x\n"""',
        "%%writefile a.py\n# %tensorflow_version 2.x\n",
        "f(tensorflow_version=tf.__version__)",
    ],
)
def test_other_text_about_the_version_is_unchanged(text):
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "before, after",
    [
        ("%load_ext google.colab.data_table\nx", "x"),
        ("x\n%unload_ext google.colab.data_table", "x"),
        ("%reload_ext google.colab.data_table", ""),
        ("if a():\n  %load_ext google.colab.data_table", "if a():\n  pass"),
        (
            "if a():\n  %tensorflow_version 2.x\n  %load_ext google.colab.data_table\n",
            "if a():\n  pass\n",
        ),
    ],
)
def test_colab_extensions_are_removed(before, after):
    new, found = _rewrite(before)
    assert new == after
    assert found[-1].rule == "LF563"


@pytest.mark.parametrize(
    "text",
    ["%load_ext tensorboard", "%tensorboard --logdir logs", "%env A=1", "%killbgscripts", "%load_ext autoreload"],
)
def test_local_magics_are_unchanged(text):
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "before, after, keeps",
    [
        ("cd /content/x", "%cd /content/x", "exact"),
        ("cd/content/x", "%cd /content/x", "exact"),
        ("%%time\ncd /content/x", "%%time\n%cd /content/x", "exact"),
        ("ls -lh /content", "%ls -lh /content", "exact"),
        ("mkdir /content/a-b c", "%mkdir /content/a-b c", "exact"),
        # As Python, these lines are divisions.
        ("mkdir /content/a/b", "%mkdir /content/a/b", "exact"),
        ("rm -rf /content/a", "%rm -rf /content/a", "exact"),
        ("cat /content/a", "%cat /content/a", "exact"),
        ("pip install -q /content/x.whl", "%pip install -q /content/x.whl", "exact"),
        ("% cd /content/x", "%cd /content/x", "equivalent"),
        ("a()\nif b:\n    %  cd x", "a()\nif b:\n    %cd x", "equivalent"),
        ("% matplotlib inline", "%matplotlib inline", "equivalent"),
        ("% timeit x", "%timeit x", "equivalent"),
    ],
)
def test_an_automagic_with_a_folder_gets_its_percent_sign(before, after, keeps):
    new, found = _rewrite(before)
    assert new == after
    assert [(finding.rule, finding.keeps.value) for finding in found] == [("LF567", keeps)]


@pytest.mark.parametrize(
    "before, after",
    [
        ('cd "/content/drive/MyDrive"', '%cd "$DRIVE_DIR"'),
        ("cd '/content/drive/My Drive/a b'", '%cd "$DRIVE_DIR/a b"'),
        ('cp "/content/a" "/content/b"', '%cp "$WORK_DIR/a" "$WORK_DIR/b"'),
    ],
)
def test_the_string_of_an_automagic_is_text_of_a_command(before, after):
    facts = collect_facts([CellSource(before)])
    new, _ = rewrite(CellSource(before), cell_type="code", rules=(*paths.RULES, *magics.RULES), facts=facts)
    assert new.text == after


def test_an_automagic_enters_the_mounted_drive_by_its_name():
    cells = [
        CellSource("from google.colab import drive\ndrive.mount('/content/drive')"),
        CellSource("cd drive", index=1),
    ]
    new, _ = rewrite(cells[1], cell_type="code", rules=(*paths.RULES, *magics.RULES), facts=collect_facts(cells))
    assert new.text == "%cd $DRIVE_DIR"
    assert _rewrite("cd drive") == ("cd drive", [])


@pytest.mark.parametrize(
    "text",
    [
        "ls",
        "cd folder/x",
        "pip install -q x",
        "cd = 1",
        "rm (x)",
        "cat.shape",
        "cat /content_size",
        "rm -x",
        "cp - mv",
        "x = 1\ncd /content",
        "time to go",
        "print 'old'\ncd /content/folder\n",
        "%%bash\ncd /content",
        "cd/contents",
        "cd/folder/x",
        "!cd/content/x",
        "%cd/content/x",
        "s = '''\ncd /content\n'''",
        "s = (a\n% cd)",
        "s = a \\\n    % ls",
        "s = '''\n% cd x\n'''",
        "% a comment of another language",
    ],
)
def test_possible_python_is_unchanged(text):
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "text", ["", "(", "%", "%%", "!", "'''", "\t%tensorflow_version", "if x:\n%shell ls\n  (", "\x00"]
)
def test_no_input_raises(text):
    _rewrite(text)


def test_other_languages_are_unchanged():
    assert _rewrite("%tensorflow_version 2.x", language="swift") == ("%tensorflow_version 2.x", [])
