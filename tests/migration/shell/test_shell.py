import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migration import shell

_PIECES = [
    *"abé \t\n\\'\"$`(){}[]<>|&;#*~!=\r\0",
    *("pip", "install", "\\\n", "{x}", "${x}", "$(", "$((", "))", "<<EOF\n", "EOF\n", "<<-E", "<(", "2>&1", "&&", "||"),
    *(
        "case ",
        "esac",
        "in ",
        "if ",
        "then",
        "fi",
        "for x in",
        "do",
        "done",
        "[[",
        "]]",
        "A=1",
        "A=(",
        "$'",
        "# c",
        "{{",
    ),
]


def _words(text, *, script=False):
    return [[word.value for word in command.words] for command in shell.commands(text, script=script)]


def _check(text, offset, script):
    """Checks of every text: positions are exact and in order."""
    read = shell.read(text, offset, script=script)
    assert len(read.quotes) == len(text)
    assert [command.start for command in read.commands] == sorted(command.start for command in read.commands)
    for command in read.commands:
        assert offset <= command.start < command.end <= offset + len(text)
        targets = [found.target for found in command.redirections if found.target]
        for word in (*command.words, *command.assignments, *targets):
            assert text[word.start - offset : word.end - offset] == word.raw
            assert len(word.quotes) == len(word.raw) > 0
            assert command.start <= word.start < word.end <= command.end
        for found in command.redirections:
            assert found.body is None or offset <= found.body[0] <= found.body[1] <= offset + len(text)
        assert isinstance(command.program, str)
        assert command.arguments == command.words[command.program_at + 1 :]
    assert all(text[start - offset] == "#" and start < end for start, end in read.comments)


@given(st.lists(st.sampled_from(_PIECES), max_size=50).map("".join), st.integers(0, 9), st.booleans())
def test_no_text_fails_and_every_position_is_exact(text, offset, script):
    _check(text, offset, script)


@pytest.mark.parametrize(
    "piece",
    [
        "$(",
        "(",
        "`",
        "{",
        '"$(',
        "((",
        "{x:",
        '"`',
        "[[ ",
        "<(",
        "x=(",
        "<<A\n",
        "\\\n",
        "if ",
        "a ",
        "'",
        "case a in ",
    ],
)
@pytest.mark.timeout(20)
def test_deep_and_long_texts_are_read(piece):
    for script in (False, True):
        _check(piece * 2000, 0, script)


@given(st.lists(st.text(alphabet="ab '\"\\$;|&<>#*é`~", max_size=6), min_size=1, max_size=5))
def test_words_equal_those_of_python_shlex(values):
    text = "run " + " ".join(map(shlex.quote, values))
    (command,) = shell.commands(text, script=True)
    assert [word.value for word in command.arguments] == values
    assert all(word.is_literal for word in command.words)


@pytest.mark.parametrize(
    "text, words",
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a && b || c; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a 'b c' \"d e\" f\\ g h'i'\"j\"", [["a", "b c", "d e", "f g", "hij"]]),
        ('a "$x \\" \\$ \\n"', [["a", '$x " $ \\n']]),
        ("a 'x;y' \"z && w\" v\\;u", [["a", "x;y", "z && w", "v;u"]]),
        ("(a; b) && c", [["a"], ["b"], ["c"]]),
        ("{ a; b; }", [["a"], ["b"]]),
        ("a $(b c) `d`", [["a", "$(b c)", "`d`"], ["b", "c"], ["d"]]),
        ('a "x $(b "c d") y"', [["a", 'x $(b "c d") y'], ["b", "c d"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("for i in 1 2; do a $i; done", [["for", "i", "in", "1", "2"], ["a", "$i"]]),
        ("while read x; do a; done < f", [["read", "x"], ["a"], []]),
        ("case $x in\n a) b;;\n c|d) e;;\nesac; f", [["case", "$x", "in"], ["b"], ["c"], ["e"], ["f"]]),
        ("f() { a; }\nfunction g { b; }", [["a"], ["function", "g"], ["b"]]),
        ("a # b; c\nd", [["a"], ["d"]]),
        ("a#b #c", [["a#b"]]),
        ("[[ -f a && -f b ]] || c", [["[[", " -f a && -f b ]]"], ["c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a <(b) >(c)", [["a", "<(b)", ">(c)"], ["b"], ["c"]]),
        ("", []),
        ("# a", []),
    ],
)
def test_a_script_is_split_as_the_shell_does(text, words):
    assert _words(text, script=True) == words


def test_a_continued_line_is_one_command_as_in_ipython():
    assert _words("a \\\n  b\\\nc") == [["a", "b", "c"]]
    assert _words("a b\\\nc", script=True) == [["a", "bc"]]
    assert _words("a 'b \\\n c' \"d \\\n e\"") == [["a", "b   c", "d   e"]]
    assert _words("a 'b \\\nc' \"d \\\ne\"", script=True) == [["a", "b \\\nc", "d e"]]


def test_a_comment_hides_the_lines_that_continue_it_only_where_ipython_joins_them():
    text = "a # b \\\nc"
    assert _words(text) == [["a"]]
    assert _words(text, script=True) == [["a"], ["c"]]


def test_here_documents_are_not_commands():
    text = "cat > f <<'EOF' && b\npip install x\n EOF\nEOF\nc <<-E <<F\n\tone\n\tE\ntwo\nF\nd"
    read = shell.read(text, 5, script=True)
    assert [command.program for command in read.commands] == ["cat", "b", "c", "d"]
    bodies = [
        text[found.body[0] - 5 : found.body[1] - 5]
        for command in read.commands
        for found in command.redirections
        if found.body
    ]
    assert bodies == ["pip install x\n EOF\n", "\tone\n", "two\n"]
    assert read.quotes[text.index("install")] == "h"
    assert _words("cat <<EOF\nnever ended", script=True) == [["cat"]]


def test_redirections_are_not_words():
    (command,) = shell.commands("a >b 2>&1 < 'c d' &> e >> f 3<<< g h2>i")
    assert [word.value for word in command.words] == ["a", "h2"]
    assert [(found.number, found.operator, found.target.value) for found in command.redirections] == [
        ("", ">", "b"),
        ("2", ">&", "1"),
        ("", "<", "c d"),
        ("", "&>", "e"),
        ("", ">>", "f"),
        ("3", "<<<", "g"),
        ("", ">", "i"),
    ]
    (command,) = shell.commands("a >")
    assert command.redirections[0].target is None


@pytest.mark.parametrize(
    "text, values, literal",
    [
        ("a {x}/b", ["a", "{x}/b"], [True, False]),
        ("a {x['a b']} c", ["a", "{x['a b']}", "c"], [True, False, True]),
        ("a {', '.join(y)} '{z}'", ["a", "{', '.join(y)}", "{z}"], [True, False, False]),
        ("a {x:.2f} {y!r}", ["a", "{x:.2f}", "{y!r}"], [True, False, False]),
        ("a $x ${y} $1", ["a", "$x", "${y}", "$1"], [True, False, False, False]),
        ("a '$x' \"$x\" \\$x", ["a", "$x", "$x", "$x"], [True, True, False, True]),
        ("a ~/b *.c d?", ["a", "~/b", "*.c", "d?"], [True, False, False, False]),
        ("a {} {", ["a", "{}", "{"], [True, True, True]),
    ],
)
def test_substitutions_are_distinguished_from_literal_text(text, values, literal):
    (command,) = shell.commands(text)
    assert [word.value for word in command.words] == values
    assert [word.is_literal for word in command.words] == literal


def test_braces_in_a_script_belong_to_the_shell():
    (command,) = shell.commands("a {b,c} {d} ${e}", script=True)
    assert [word.is_literal for word in command.words] == [True, False, True, False]


def test_every_character_knows_its_quotes():
    text = "a 'b' \"c $(d 'e') f\" # g"
    contexts = {letter: quote for letter, quote in zip(text, shell.read(text).quotes, strict=True) if letter.isalpha()}
    assert contexts == {"a": "u", "b": "s", "c": "d", "d": "u", "e": "s", "f": "d", "g": "c"}
    (command,) = shell.commands("a b'c'", 10)
    assert command.words[1].quotes == "usss"


@pytest.mark.parametrize(
    "text, program, arguments",
    [
        ("/usr/bin/pip install x", "pip", ["install", "x"]),
        ("sudo -u me -H pip install x", "pip", ["install", "x"]),
        ("A=1 B='2 3' pip list", "pip", ["list"]),
        ("env A=1 nohup time -p pip list", "pip", ["list"]),
        ("timeout -k 5 10 pip list", "pip", ["list"]),
        ("sudo", "", []),
        ("A=1", "", []),
        ("> f", "", []),
        ("{sys.executable} -m pip", "{sys.executable}", ["-m", "pip"]),
        ("$(which python)/x -m pip", "$(which python)/x", ["-m", "pip"]),
    ],
)
def test_the_program_is_found_behind_those_that_run_it(text, program, arguments):
    command = shell.commands(text)[0]
    assert command.program == program
    assert [word.value for word in command.arguments] == arguments


def test_separators_are_kept():
    found = shell.commands("if ! a; then (b | c) || d; fi", script=True)
    assert [(command.program, command.before, command.after, command.depth) for command in found] == [
        ("a", "", ";", 0),
        ("b", "(", "|", 1),
        ("c", "|", ")", 1),
        ("d", "||", ";", 0),
    ]
