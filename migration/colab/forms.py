"""Colab's form comments: the positions of `#@title`, `#@markdown` and `#@param` in a cell, and the content of
`#@param`."""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from migration.notebook.texts import holding
from migration.python.source import CellSource, once_a_cell
from migration.python.statements import blocks
from migration.python.strings import comments

MARK = re.compile(r"#[ \t]*@[ \t]*(?P<kind>title|markdown|param)\b(?P<text>[^\n]*)")
OPTIONS = re.compile(r"""\s*\{\s*["']?(?:run|isTemplate|default|[a-z]+-[a-z-]+)["']?\s*:[^{}]*\}\s*$""")
"""Options of a form in its title."""
_HIDES = re.compile(r"""\{.*\bdisplay-mode["']?\s*:\s*["']form["']""")
HEADING = re.compile(r"\A(?:#{1,6}\s+|#{2,6}|#(?=[^\W\d]))")
"""The mark of a Markdown heading at the start of a text; Colab's forms need no space after it."""
_ESCAPED = re.compile(r"\A(\d+)\\(?=[.)])")  # `1\. A` is no list in Markdown
_LINE = re.compile(r"\s*(?:-{3,}|_{3,}|\*{3,}|(?:<[bh]r\s*/?>\s*)+)\s*")
_NO_TEXT = re.compile(r"(?:<(?!(?:img|a)\b)[^<>]*>|&nbsp;|\s)+")
FIELD_TRIGGER = holding("param", like=r"#[ \t]*@[ \t]*param\b")
"""Text in every cell with a `#@param`."""

_PAIR = re.compile(
    r"""["']?(?<![\w-])(?P<key>[A-Za-z][\w-]*)["']?\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^,}\s]+)"""
)
_TYPE = re.compile(r"\A(?:int(?:eger)?|float|number|str(?:ing)?|bool(?:ean)?)\s*(?=#|\Z)")
_FORM_KEYS = frozenset({"type", "allow-input", "min", "max", "step", "placeholder"})


@dataclass(frozen=True)
class Mark:
    """One form comment: `kind` is title, markdown or param, `text` follows that word, `start:end` is the complete span.

    `comment` is the start of the comment that contains it: before `start` in `# x = 1 #@param`.
    """

    kind: str
    text: str
    start: int
    end: int
    comment: int


@once_a_cell
def marks(source: CellSource) -> tuple[Mark, ...]:
    """The form comments of a cell, in order; at most one per comment. Text in a string is not a form comment."""
    found: list[Mark] = []
    if not MARK.search(source.text):
        return ()
    for start, end in comments(source):
        match = MARK.search(source.text, start, end)
        if match:
            found.append(Mark(match["kind"], match["text"], match.start(), end, start))
    return tuple(found)


def hides_code(source: CellSource) -> bool:
    """Whether Colab shows a cell as a form without its code, because its title says so."""
    return any(mark.kind == "title" and _HIDES.search(mark.text) for mark in marks(source))


def text_comment(kind: str, text: str) -> str:
    """The comment for a title or a text of a form, without the marks of a heading; `#` for an empty text, and nothing
    for an empty title or a horizontal line."""
    text = HEADING.sub("", (OPTIONS.sub("", text) if kind == "title" else text).strip())
    text = _ESCAPED.sub(r"\1", text)
    if _LINE.fullmatch(text) or _NO_TEXT.fullmatch(text) or (kind == "title" and not text):
        return ""
    return f"# {text}".rstrip()


@dataclass(frozen=True)
class FormField:
    """One `#@param`: the assignment before it, or None, and why it cannot be moved, as far as the cell shows. `name` is
    the assigned name, also if the assignment is commented out, and empty if there is none.
    """

    mark: Mark
    name: str
    statement: ast.Assign | ast.AnnAssign | None
    obstacle: str = ""

    @property
    def value(self) -> ast.expr:
        """The literal of a field without obstacle."""
        return self.statement.value  # type: ignore[union-attr, return-value]


@once_a_cell
def form_fields(source: CellSource) -> tuple[FormField, ...]:
    """The `#@param` fields of a cell, in order; cached for the rules."""
    return tuple(_read_fields(source))


def _read_fields(source: CellSource) -> list[FormField]:
    found = [mark for mark in marks(source) if mark.kind == "param"]
    if not found:
        return []
    if source.tree is None:
        return [FormField(mark, _name_before(source, mark), None, "its cell cannot be parsed") for mark in found]
    top = {id(statement) for statement in source.tree.body}
    by_line: dict[int, list[ast.stmt]] = {source.line_of(mark.start): [] for mark in found}
    for node in (node for block in blocks(source) for node in block.statements):
        line = bisect_right(source.line_starts, source.offset(node.end_lineno or node.lineno, 0)) - 1
        if line in by_line:
            by_line[line].append(node)
    return [_form_field(source, mark, by_line[source.line_of(mark.start)], top) for mark in found]


def _form_field(source: CellSource, mark: Mark, statements: list[ast.stmt], top: set[int]) -> FormField:
    name = _name_before(source, mark)
    if mark.comment != mark.start:
        return FormField(mark, name, None, "its assignment is commented out")
    if source.magic is not None and source.magic.name not in ("capture", "time"):
        return FormField(mark, name, None, f"its cell runs under `%%{source.magic.name}`")
    if source.magic is None and re.search(r"^[ \t]*%%", source.text, re.MULTILINE):
        return FormField(mark, name, None, "a cell magic is in the middle of its cell")
    simple = [node for node in statements if isinstance(node, ast.Assign | ast.AnnAssign)]
    target = _single_name(simple[0]) if len(simple) == 1 else ""
    if not target:
        return FormField(mark, name, None, "it does not follow the assignment of one name")
    statement = simple[0]
    start, end = source.span(statement)
    line = source.line_span(start, start)[0]
    if id(statement) not in top:
        return FormField(mark, target, statement, "it is inside a branch, a loop or a definition")
    if source.line_of(start) != source.line_of(mark.start) or source.text[:line].endswith("\\\n"):
        return FormField(mark, target, statement, "its value takes several lines")
    if source.text[line:start].strip() or source.text[end : mark.start].strip(" \t;") or len(statements) > 1:
        return FormField(mark, target, statement, "other statements share its line")
    if statement.value is None or not is_literal(statement.value):
        return FormField(mark, target, statement, "its value is an expression, not a literal")
    return FormField(mark, target, statement)


def _single_name(statement: ast.stmt) -> str:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _name_before(source: CellSource, mark: Mark) -> str:
    """The name assigned on the line of the mark, found by its text only."""
    line = source.text[source.line_span(mark.start, mark.start)[0] : mark.start]
    found = re.match(r"[\s#]*([^\W\d]\w*)\s*(?::[^=]*)?=(?!=)", line)
    return found[1] if found else ""


def is_literal(node: ast.expr) -> bool:
    """Whether an expression is a number, string, bool or None, or a list, tuple or dict of these."""
    value = _evaluated(node)
    return _is_plain(value) and (value is not None or isinstance(node, ast.Constant))


def _evaluated(literal: ast.expr | str) -> Any:
    """The value of a literal, or of its text; None for any other expression."""
    try:
        return ast.literal_eval(literal)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    return value is None or isinstance(value, str | int | float)


# ---------------------------------------------------------------------------------------------- what a field declares
@dataclass(frozen=True)
class Declaration:
    """The text after `#@param`: options as Python values, the pairs in braces, and free text."""

    options: tuple[Any, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    note: str = ""

    def setting(self, key: str) -> str:
        return dict(self.settings).get(key, "")


def declaration(text: str) -> Declaration:
    """Reads `["a", "b"] {type:"string", allow-input: true} a note`, in either order and with any quotes."""
    options: tuple[Any, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    blocks, rest = _blocks(text)
    for block in blocks:
        if block.startswith("["):
            options = _options(block)
        else:
            settings = tuple((match["key"], _unquoted(match["value"])) for match in _PAIR.finditer(block))
    return Declaration(options, settings, rest.lstrip("#@ ").strip())


def _blocks(text: str) -> tuple[list[str], str]:
    """The blocks in brackets and braces at the start of a text, and the rest."""
    found, rest = [], text.strip()
    while rest and rest[0] in "[{":
        end = _closing(rest)
        found.append(rest[:end])
        rest = rest[end:].strip()
    return found, rest


def papermill_comment(declared: Declaration, value: Any) -> str:
    """The comment that papermill's help shows: `# type: int slider, 1 to 100 in steps of 1`.

    Papermill reads the first word as the type and the rest as the help. `--help-notebook` leaves out lines with a
    second `=`.
    """
    words = _range(declared)
    any_text = declared.setting("allow-input").lower() == "true"
    if declared.options:
        words.append(f"one of {_listed(declared)}{', or another' if any_text else ''}")
    if declared.setting("placeholder"):
        words.append(f"such as {declared.setting('placeholder')}")
    type_name = _type_name(declared, value)
    if declared.note and declared.note != type_name:
        words.append(declared.note)
    help_text = re.sub(r"#[ \t]*@[ \t]*", "", ", ".join(words))
    help_text = " ".join(help_text.split())
    return f"# type: {type_name} {help_text}".rstrip()


def _range(declared: Declaration) -> list[str]:
    """The input that the form shows, and its limits: `slider`, `1 to 100 in steps of 1`."""
    kind = declared.setting("type").lower()
    low, high, step = (declared.setting(key) for key in ("min", "max", "step"))
    words = [kind] if kind in ("slider", "date", "time") else []
    if low or high:
        words.append(f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}")
    if step:
        words[-1:] = [" ".join([*words[-1:], f"in steps of {step}"])]
    return words


def plain_comment(text: str) -> str:
    """The comment for a field that stays in its cell, from the text after `#@param`; empty if that only says the
    type, or which input the form shows. Every other text is kept as it is written."""
    blocks, rest = _blocks(text)
    declared = declaration(text)
    any_text = declared.setting("allow-input").lower() == "true"
    shown = ", ".join(filter(None, [*_range(declared), declared.setting("placeholder")]))
    kept = [shown if _is_of_form(block) else block for block in blocks]
    kept = [part for part in kept if part not in ("", "date", "time", "slider")]
    if kept and kept[0].startswith("["):
        kept[0] = f"one of {kept[0]}{', or another' if any_text else ''}"
    elif kept and kept[0].startswith("{"):
        kept[0] = f"param: {kept[0]}"
    words = "; ".join(filter(None, [*kept, _TYPE.sub("", rest).lstrip("# \t")]))
    return f"# {words}" if words else ""


def _is_of_form(block: str) -> bool:
    """Whether a block in braces contains known pairs only."""
    if not (block.startswith("{") and block.endswith("}")):
        return False
    keys = {pair["key"] for pair in _PAIR.finditer(block)}
    return keys <= _FORM_KEYS and not _PAIR.sub("", block).strip("{}, \t")


def _type_name(declared: Declaration, value: Any) -> str:
    """The type of the value; float if the range has a fraction, and `any` if the field accepts several types."""
    if declared.setting("type").lower() == "raw":
        choices = [_evaluated(option) if isinstance(option, str) else option for option in declared.options]
        return (
            type(value).__name__
            if all(type(choice) is type(value) for choice in choices) and value is not None
            else "any"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return "float" if any("." in declared.setting(key) for key in ("min", "max", "step")) else "int"
    return "any" if value is None else type(value).__name__


def _listed(declared: Declaration) -> str:
    is_code = declared.setting("type").lower() == "raw"
    return ", ".join(
        option if is_code and isinstance(option, str) and "\n" not in option else written_literal(option)
        for option in declared.options
    )


def written_literal(value: Any) -> str:
    """A literal on one line."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _closing(text: str) -> int:
    """The end of the bracket at the start of `text`; the length of `text` if it is not closed."""
    depth, quote, at = 0, "", 0
    while at < len(text):
        character = text[at]
        if character == "\\" and quote:
            at += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
            if depth <= 0:
                return at + 1
        at += 1
    return len(text)


def _options(block: str) -> tuple[Any, ...]:
    try:
        value = json.loads(block)
    except (ValueError, RecursionError):
        value = _evaluated(block)
    if isinstance(value, list):
        return tuple(value)
    return tuple(_unquoted(part.strip()) for part in block.strip("[]").split(",") if part.strip())


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
