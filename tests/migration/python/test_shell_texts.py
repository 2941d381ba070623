import ast

import pytest

from migration.notebook.texts import FIELD
from migration.python.shell_texts import command_of_list, shell_texts, simple_line, string_of
from migration.python.source import CellSource
from migration.shell.words import is_known


def _texts(text, language="python"):
    return shell_texts(CellSource(text, language=language))


@pytest.mark.parametrize(
    "cell, texts",
    [
        ("!ls a\nx = !ls b\n!!ls c", ["ls a", "ls b", "ls c"]),
        ("if x:\n    !ls \\\n  a\n", ["ls \\\n  a"]),
        ("%pip install x\n%conda list\n%uv pip list", ["pip install x", "conda list", "uv pip list"]),
        ("%sx ls a\n%system ls b\n%shell ls c", [" ls a", " ls b", " ls c"]),
        ("%cd x\n%timeit y", []),
        ("%%bash -s a\nls\nls b\n", ["ls\nls b\n"]),
        ("# a\n%%shell\nls", ["ls"]),
        ("%%script bash\nls", ["ls"]),
        ("%%script perl\nls", []),
        ("%%writefile a.sh\nls", []),
        ("%%capture\n!ls", ["ls"]),
        ("# a\npip install x  # b\n", ["pip install x  # b"]),
        ("pip -q install x\n", ["pip -q install x"]),
        ("pip -x", []),
        ("x = 1\npip install x", []),
        ("os.system('ls a')\nsp.run(args='ls b', shell=True)", ["ls a", "ls b"]),
        ("os.system(f'ls {a}b')", [f"ls {FIELD}b"]),
        ("os.system('ls ' + a + 'b')", ["ls "]),
        ("os.system('ls %s' % a); os.system('ls {}'.format(a))", ["ls %s", "ls {}"]),
        ("os.system('ls ' 'a')", []),
        ("os.system(b'ls')", []),
        ("os.system(a); os.system()", []),
        ("print('ls')", []),
        ("", []),
    ],
)
def test_every_shell_text_is_found(cell, texts):
    assert [found.text for found in _texts(cell)] == texts


def test_other_languages_have_no_shell_texts():
    assert _texts("!ls", language="R") == ()


@pytest.mark.parametrize(
    "cell", ["x = 'é'; y = 2\n!ls é a", "%%bash\nls é a", "os.system('''ls \\x41 é a''')", "%sx ls é a"]
)
def test_positions_are_those_of_the_cell(cell):
    (found,) = _texts(cell)
    (command,) = found.commands
    start, end = found.span(command)
    assert cell[start:end].startswith("ls")
    assert cell[start:end].endswith("é a")
    edit = found.edit(command.words[-2].start, command.words[-2].end, "b")
    assert cell[: edit.start] + edit.text + cell[edit.end :] == cell.replace("é a", "b a")


def test_an_edit_keeps_the_enclosing_string_valid():
    def edited(cell):
        (found,) = _texts(cell)
        edit = found.edit(0, 2, '"a"')
        return None if edit is None else cell[: edit.start] + edit.text + cell[edit.end :]

    assert edited("os.system('ls')") == "os.system('\"a\"')"
    assert edited('os.system("ls")') == r'os.system("\"a\"")'
    assert edited('os.system(f"""ls""")') == r'os.system(f"""\"a\"""")'
    assert edited("os.system(r'ls')") == "os.system(r'\"a\"')"
    assert edited('os.system(r"ls")') is None
    assert edited("!ls") == '!"a"'


@pytest.mark.parametrize(
    "cell, simple",
    [
        ("!ls a > b  # c", True),
        ("!ls a; ls b", False),
        ("!A=1 ls", False),
        ("!> a ls", False),
        ("!(ls)", False),
        ("x = !ls", False),
        ("%sx ls", False),
        ("!# a", False),
    ],
)
def test_a_simple_line_is_one_command(cell, simple):
    (found,) = _texts(cell)
    assert simple_line(found, found.commands) is simple


@pytest.mark.parametrize(
    "cell, known",
    [("!a b", True), ("!a 'b c'", True), ("!a b==1.*", True), ("!a {b}", False), ("!a $b", False), ("!a ~/b", False)],
)
def test_a_word_without_a_substitution_is_known(cell, known):
    (found,) = _texts(cell)
    assert is_known(found.commands[0].words[1]) is known


def test_a_field_of_an_f_string_is_not_known():
    (found,) = _texts("os.system(f'a {b}')")
    assert [is_known(word) for word in found.commands[0].words] == [True, False]


def test_a_list_of_arguments_is_a_command():
    command = command_of_list(ast.parse("[sys.executable, '-m', x] + y", mode="eval").body)
    assert [word.value for word in command.words] == ["{sys.executable}", "-m", "{x}", "{y}"]
    assert command_of_list(ast.parse("x", mode="eval").body) is None


def test_only_a_single_literal_is_a_text():
    source = CellSource("f('a' 'b', 'c', 1)")
    call = source.tree.body[0].value
    assert [found and found.text for found in (string_of(source, node) for node in call.args)] == [None, "c", None]
