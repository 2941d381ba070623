"""Finds string literals of Python code that are assigned to the name of a secret, with the syntax tree.

`token = 'x'`, `f(token='x')`, `{'token': 'x'}`, `token = given or 'x'` and `os.environ.get('TOKEN', 'x')` have one;
`token = os.environ['X']` and `print('token:', token)` have none.
"""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from core.secrets.finding import is_password, is_placeholder, is_random
from core.secrets.names import (
    has_secret_word,
    is_plural,
    is_secret_name,
    is_short_name,
    is_short_secret,
    suggests_secret,
)

# Lines of a notebook that are not Python: `!command`, `%magic` and `files = !ls`, also over several lines.
_SHELL = re.compile(rb"(?m)^(?P<before>[ \t]*(?:[\w, \t]+=[ \t]*)?)(?P<line>[!%](?:[^\n]*\\\n)*[^\n]*)")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_QUOTE = re.compile(rb"[A-Za-z]*('''|\"\"\"|'|\")")
_NAME = re.compile(r"[\w.-]+")
# Calls and arguments whose second value is a password: `auth=('reader', 'x')`.
_USER_AND_PASSWORD = frozenset({"auth", "basic_auth", "HTTPBasicAuth", "HTTPDigestAuth", "username_pw_set"})
# Stands for a name that a value of such a function does not have.
_OF_LOGIN = "login()"
# Functions whose last text is a password or a key: `login('x')`, `smtp.login('reader', 'x')`, `set_password('x')`.
_LOGIN = re.compile(r"(?:^|_)(?:log_?in|sign_?in)$|^authenticate$", re.IGNORECASE)
_SETTER = re.compile(r"set_?(\w+)", re.IGNORECASE)
_ADDRESS = re.compile(r"\w+://")

_Texts = ast.Constant | ast.JoinedStr
# A value is hidden if it passes this test.
_Test = Callable[[str], bool]


def secret_values(code: str) -> set[str]:
    """The texts of these literals that look like passwords; other texts also occur as ordinary words."""
    tree = _parsed(code.encode("utf-8", "surrogatepass"))
    found = (literal for literal in _secret_literals(tree) if isinstance(literal, ast.Constant)) if tree else ()
    return {text for text in map(_text, found) if is_password(text)}


def with_hidden_literals(code: str, hidden: str) -> str | None:
    """The code with `hidden` in these literals; None if it is not Python."""
    data = code.encode("utf-8", "surrogatepass")
    tree = _parsed(data)
    if tree is None:
        return None
    starts = [0, *accumulate(map(len, _LINE.findall(data)))]
    literals = (literal for literal in _secret_literals(tree) if _text(literal) != hidden)
    for start, end in sorted({_span(literal, starts) for literal in literals}, reverse=True):
        if quote := _QUOTE.match(data, start, end):
            data = data[: quote.end()] + hidden.encode() + quote[1] + data[end:]
    return data.decode("utf-8", "surrogatepass")


def _parsed(data: bytes) -> ast.Module | None:
    """The tree of the code; lines that are not Python are blanked if necessary, so that every statement keeps its
    position. None if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of wrong escapes
        for tried in (data, _SHELL.sub(_blank, data)):
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                return ast.parse(tried)
    return None


def _blank(found: re.Match[bytes]) -> bytes:
    """A statement or value with as many bytes in each line."""
    return found["before"] + b"0" + re.sub(rb"[^\n]", b" ", found["line"][1:])


def _span(literal: _Texts, starts: Sequence[int]) -> tuple[int, int]:
    last, column = literal.end_lineno or literal.lineno, literal.end_col_offset or 0
    return starts[literal.lineno - 1] + literal.col_offset, starts[last - 1] + column


def _secret_literals(tree: ast.Module) -> Iterator[_Texts]:
    for name, value in _given(tree):
        if test := _test_of(name):
            yield from (literal for literal in _literals(value) if _text(literal) and test(_text(literal)))


def _test_of(name: str) -> _Test | None:
    if name in _USER_AND_PASSWORD or has_secret_word(name):
        return lambda text: True
    if is_plural(name):
        return lambda text: not is_placeholder(text)
    if is_short_name(name):
        return lambda text: is_short_secret(name, text)
    if name == _OF_LOGIN or (is_secret_name(name) and re.search("pass|pw", name, re.IGNORECASE)):
        return lambda text: is_password(text) and not _ADDRESS.match(text)
    return is_random if is_secret_name(name) or suggests_secret(name) else None


def _given(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Each name with the value that is assigned to it or compared with it."""
    rest: list[ast.AST] = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.JoinedStr):  # places in it are not exact
            continue
        rest.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
            yield from _pairs(node.target, node.value)
        elif isinstance(node, ast.Dict):
            yield from ((_name(key), value) for key, value in zip(node.keys, node.values, strict=True) if key)
        elif isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2:
            yield from _after_a_name(node.elts)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            yield from ((_name(node.left), value) for value in node.comparators if _is_likely(value))
        elif isinstance(node, ast.arguments):
            defaults = [*zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults), strict=False)]
            yield from ((argument.arg, value) for argument, value in defaults)
            named = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from ((argument.arg, value) for argument, value in named if value)
        elif isinstance(node, ast.Call):
            yield from ((each.arg, _password_of(each.arg, each.value)) for each in node.keywords if each.arg)
            if _name(node.func) in _USER_AND_PASSWORD and len(node.args) >= 2:
                yield _name(node.func), node.args[1]
            yield from _after_a_name(node.args)
            yield from _of_login(node)


def _of_login(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The value of `login('x9')`, `login(key='x9')`, `login('reader', 'x')` and `set_password('x9')`."""
    name = _name(call.func)
    if _LOGIN.search(name):
        yield from ((_OF_LOGIN, each.value) for each in call.keywords if each.arg == "key")
        if len(call.args) > 1:
            yield "password", call.args[1]
        elif not any(has_secret_word(each.arg or "") for each in call.keywords):
            yield from ((_OF_LOGIN, value) for value in call.args)
    elif (setter := _SETTER.fullmatch(name)) and has_secret_word(setter[1]) and len(call.args) == 1:
        yield _OF_LOGIN, call.args[0]


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for inner, inner_value in zip(target.elts, value.elts, strict=False):
            yield from _pairs(inner, inner_value)
    else:
        yield _name(target), value


def _password_of(name: str, value: ast.expr) -> ast.expr:
    is_pair = name in _USER_AND_PASSWORD and isinstance(value, ast.Tuple) and len(value.elts) == 2
    return value.elts[1] if is_pair and isinstance(value, ast.Tuple) else value


def _after_a_name(values: Sequence[ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    """The second value of `setdefault('TOKEN', 'x9')` and `('TOKEN', 'x9')`."""
    if len(values) >= 2 and isinstance(values[0], ast.Constant) and _is_likely(values[1]):
        yield _name(values[0]), values[1]


def _is_likely(value: ast.expr) -> bool:
    """Whether a text is probably a secret: most texts that are compared, or that follow another text, are not."""
    text = _text(value) if isinstance(value, ast.Constant) else ""
    return is_password(text) and any(map(str.isdigit, text))


def _name(node: ast.expr) -> str:
    """The name of a variable, an attribute or a key; empty for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and _NAME.fullmatch(node.value) else ""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):  # `settings['token']` and `tokens['a']`
        return next((name for name in (_name(node.slice), _name(node.value)) if _test_of(name)), "")
    return ""


def _literals(value: ast.expr) -> Iterator[_Texts]:
    """The literals of an expression; from arguments of calls, which are mostly names, only those that look random."""
    if isinstance(value, ast.Constant | ast.JoinedStr):
        yield value
        return
    arguments: list[ast.expr] = []
    if isinstance(value, ast.Call):
        arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
        inner: list[ast.expr] = [value.func]
    elif isinstance(value, ast.Subscript):
        inner = [value.value]
    elif isinstance(value, ast.IfExp):
        inner = [value.body, value.orelse]
    elif isinstance(value, ast.Dict):
        inner = value.values
    elif isinstance(value, ast.BoolOp | ast.BinOp | ast.Tuple | ast.List | ast.Set | ast.Attribute | ast.NamedExpr):
        inner = [each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr)]
    else:
        inner = []
    for each in inner:
        yield from _literals(each)
    for each in arguments:
        yield from (literal for literal in _literals(each) if is_random(_text(literal)))


def _text(literal: _Texts) -> str:
    """The text of a literal, without the values that an f-string inserts."""
    if isinstance(literal, ast.JoinedStr):
        return "".join(_text(part) for part in literal.values if isinstance(part, ast.Constant))
    if isinstance(literal.value, bytes):
        return literal.value.decode("latin-1")
    return literal.value if isinstance(literal.value, str) else ""
