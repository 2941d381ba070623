from time import perf_counter

import pytest

from migration.colab.forms import Declaration, declaration, form_fields, marks, papermill_comment, plain_comment
from migration.python.source import CellSource


@pytest.mark.parametrize(
    "text, expected",
    [
        (' {type:"slider", min:0, step:.1}', Declaration((), (("type", "slider"), ("min", "0"), ("step", ".1")))),
        (' ["a", "b"] {allow-input: true}', Declaration(("a", "b"), (("allow-input", "true"),))),
        ("['a', 'b, c']", Declaration(("a", "b, c"))),
        (' {type:"string"} ["a"] # in pixels', Declaration(("a",), (("type", "string"),), "in pixels")),
        (" { isTemplate:true, type:'date' }", Declaration((), (("isTemplate", "true"), ("type", "date")))),
        ("", Declaration()),
        ("[1, 2", Declaration(("1", "2"))),
        ("{type:'string", Declaration((), (("type", "'string"),))),
        ('["(\\"a\\", 1)"] {type:"raw"}', Declaration(('("a", 1)',), (("type", "raw"),))),
    ],
)
def test_every_kind_of_form_declaration_is_read(text, expected):
    assert declaration(text) == expected


@pytest.mark.parametrize(
    "text, value, expected",
    [
        ('{type:"slider", min:1, max:100, step:1}', 10, "# type: int slider, 1 to 100 in steps of 1"),
        ('{type:"slider", min:0, max:1, step:.1}', 0, "# type: float slider, 0 to 1 in steps of .1"),
        ('{type:"number", min:0}', 3, "# type: int at least 0"),
        ('["a", "b"] {allow-input: true}', "a", '# type: str one of "a", "b", or another'),
        ('["1", "2"] {type:"raw"}', 1, "# type: int one of 1, 2"),
        ('["None", "1"] {type:"raw"}', None, "# type: any one of None, 1"),
        ('{type:"date"}', "2024-01-01", "# type: str date"),
        ('{type:"string", placeholder:"a=b"}', "", "# type: str such as a=b"),
        ('["a=b"]', "a=b", '# type: str one of "a=b"'),
        ('{type:"boolean"}', True, "# type: bool"),
        ("int", 8, "# type: int"),
    ],
)
def test_the_comment_contains_type_range_and_options(text, value, expected):
    assert papermill_comment(declaration(text), value) == expected


def test_all_options_are_listed():
    comment = papermill_comment(declaration(str(list(range(1000)))), 1)
    assert comment.endswith(", 998, 999")


@pytest.mark.parametrize(
    "text, kinds",
    [
        ("#@title A\nx = 1 #@param\n# @markdown b", ["title", "param", "markdown"]),
        ("text = '''\n#@title no\n'''\n", []),
        ('print("#@param")', []),
        ("#@title A\n%%writefile x.py\n#@title no\n", ["title"]),
        ("%%bash\n# @title yes\necho '#@title no'\n", ["title"]),
        ("# x = 1 #@param {}", ["param"]),
        ("#@test {}\n#@save\n# @titled", []),
        ("!ls # it's\n#@title A", ["title"]),
    ],
)
def test_form_comments_are_found_only_in_comments(text, kinds):
    assert [mark.kind for mark in marks(CellSource(text))] == kinds


@pytest.mark.parametrize(
    "text, name, obstacle",
    [
        ("x = 1 #@param", "x", ""),
        ("x: int = 1 #@param", "x", ""),
        ("x = -1.5;  #@param", "x", ""),
        ("x = (1, 'a', [None, {'k': True}]) #@param", "x", ""),
        ("%%time\nx = 1 #@param", "x", ""),
        ("x = y #@param {type:'raw'}", "x", "expression"),
        ("x = f'{y}' #@param", "x", "expression"),
        ("x = b'1' #@param", "x", "expression"),
        ("# x = 1 #@param", "x", "commented out"),
        ("a = 2; x = 1 #@param", "", "one name"),
        ("a(); x = 1 #@param", "x", "share"),
        ("if y:\n    x = 1 #@param", "x", "inside"),
        ("x = [1,\n 2] #@param", "x", "several lines"),
        ("\\\nx = 1 #@param", "x", "several lines"),
        ("x = 1 #@param\n%%bash", "x", "cell magic"),
        ("x = y = 1 #@param", "", "one name"),
        ("x, y = 1, 2 #@param", "", "one name"),
        ("f(\n  x=1, #@param\n)", "x", "one name"),
        ("%%timeit\nx = 1 #@param", "x", "%%timeit"),
        ("x = 1 #@param\nprint 2", "x", "parsed"),
    ],
)
def test_fields_that_cannot_move_have_a_reason(text, name, obstacle):
    (field,) = form_fields(CellSource(text))
    assert obstacle in field.obstacle if obstacle else field.obstacle == ""
    if name:
        assert field.name == name


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", ""),
        ('{type:"string"}', ""),
        (" { 'type' : 'raw', allow-input: true }", ""),
        ('{type:"string"} # in pixels {wide}', "# in pixels {wide}"),
        ('["a", "b"] {type:"string"}', '# one of ["a", "b"]'),
        ('["a"] {allow-input: true} the mode', '# one of ["a"], or another; the mode'),
        ('{type:"slider", min:0, max:9}', "# slider, 0 to 9"),
        ('{type:"date"}', ""),
        ('{type:"string", hint:"a {b}"}', '# param: {type:"string", hint:"a {b}"}'),
        ('{type:"string" my words}', '# param: {type:"string" my words}'),
        ("{type:", "# param: {type:"),
        ("[1, 2", "# one of [1, 2"),
        ("int", ""),
        (" float # a note", "# a note"),
    ],
)
def test_a_field_that_stays_keeps_all_but_its_type(text, expected):
    assert plain_comment(text) == expected


def test_long_texts_in_braces_are_read_in_linear_time():
    text = "{" + 20_000 * "a" + "}"
    start = perf_counter()
    assert plain_comment(text) == f"# param: {text}"
    assert perf_counter() - start < 5
