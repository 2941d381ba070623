import pytest

from migration.python.source import CellSource
from migration.rules.guards import guard, is_conditional_on_files, is_repeated, pipeline, run_texts, statement_span


@pytest.mark.parametrize(
    "text, found",
    [
        ("!ls a", [("ls a", "!")]),
        ("x = !ls a", [("ls a", "!")]),
        ("%sx ls", [(" ls", "!")]),
        ("%%bash\nls\n", [("ls\n", "%%")]),
        ("os.system('ls')", [("ls", "os.system")]),
        ("get_ipython().system('ls')", [("ls", "get_ipython().system")]),
        ("x = os.system('ls')", []),
        ("if os.system('ls'): pass", []),
        ("f(os.system('ls'))", []),
        ("subprocess.run('ls', shell=True)", []),
        ("%pip install x", []),
        ("%%writefile a\n!ls", []),
    ],
)
def test_shell_texts_with_unused_status_are_found(text, found):
    assert [(shell.text, runs) for shell, runs in run_texts(CellSource(text))] == found


@pytest.mark.parametrize("text", ["!ls a", "x = 1\nif x:\n  !ls \\\n  -l\ny = 2", "os.system('ls')", "x = !ls"])
def test_the_statement_around_a_text(text):
    source = CellSource(text)
    (shell, _), *_ = run_texts(source)
    start, end = statement_span(source, shell)
    assert text[start:end].startswith(("!ls", "os.system("))
    assert shell.text.strip() in text[start:end]


def _guarded(text, test="[ -e x ]"):
    source = CellSource(text)
    ((shell, _),) = run_texts(source)
    (command,) = (found for found in shell.commands if found.program == "get")
    for edit in sorted(guard(shell, command, test), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


@pytest.mark.parametrize(
    "before, after",
    [
        ("!get a", "![ -e x ] || get a"),
        ("!get a | tail", "![ -e x ] || get a | tail"),
        ("!get a; ls", "![ -e x ] || get a; ls"),
        ("!get a && ls", "!([ -e x ] || get a) && ls"),
        ("!ls && get a > log; ls", "!ls && ([ -e x ] || get a > log); ls"),
        ("!ls && get a | tail && ls", "!ls && ([ -e x ] || get a | tail) && ls"),
        ("!(cd a; get a)", "!(cd a; [ -e x ] || get a)"),
        ("os.system(\"get 'a'\")", "os.system(\"[ -e x ] || get 'a'\")"),
        ("!get a || ls", "!get a || ls"),
        ("!ls || get a", "!ls || get a"),
        ("!! get a", "!! [ -e x ] || get a"),
        ("!echo $(get a)", "!echo $(get a)"),
        ("!if ! get a; then ls; fi", "!if ! get a; then ls; fi"),
        ("%%bash\nget <<E\nx\nE\n", "%%bash\nget <<E\nx\nE\n"),
    ],
)
def test_a_condition_before_a_command(before, after):
    assert _guarded(before) == after


def test_a_condition_that_the_literal_cannot_contain_is_not_written():
    assert _guarded('os.system(r"get a")', '[ -e "x" ]') == 'os.system(r"get a")'


def test_the_commands_of_a_pipeline():
    ((shell, _),) = run_texts(CellSource("!a | b $(c | d) | e; f"))
    found = {command.program: command for command in shell.commands}
    for names in ("abe", "cd", "f"):
        for name in names:
            assert "".join(command.program for command in pipeline(shell.commands, found[name])) == names


@pytest.mark.parametrize(
    "text, repeated",
    [
        ("!get", False),
        ("if a:\n  !get", False),
        ("for i in r:\n  !get", True),
        ("while a:\n  if b:\n    x = !get", True),
        ("def f():\n  !get", True),
        ("for i in r:\n  os.system('get')", True),
        ("!for i in 1 2; do get; done", True),
        ("%%bash\nget\n", False),
        ("%%bash\nwhile true; do get; done\n", True),
        ("print 'old'\n!get", False),
        ("print 'old'\nfor i in r:\n  !get", True),
    ],
)
def test_a_text_that_may_run_more_than_once(text, repeated):
    source = CellSource(text)
    ((shell, _),) = run_texts(source)
    assert is_repeated(source, shell) is repeated


@pytest.mark.parametrize(
    "text, conditional",
    [
        ("if not os.path.exists('a'):\n  !get", True),
        ("if a:\n  pass\nelif Path(a).is_file():\n  x = !get", True),
        ("if a:\n  !get", False),
        ("!get", False),
        ("%%bash\nget\n", False),
    ],
)
def test_python_that_tests_for_a_file_is_found(text, conditional):
    source = CellSource(text)
    ((shell, _),) = run_texts(source)
    assert is_conditional_on_files(source, shell) is conditional
