"""LF308, LF311, LF313: Colab's environment in shell scripts and in the code that reads it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts
from migration.colab.local_value import SHELL_TEST
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.scopes import ids_in
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource, once_a_cell
from migration.python.trees import children, last_name
from migration.rules.human import running
from migration.rules.rule import Example, Match, Rule

_VARIABLE = re.compile(
    r"(?<![\w.])COLAB_(?:GPU|TPU_ADDR|TPU|RELEASE_TAG|BACKEND_VERSION|JUPYTER_\w+|KERNEL_MANAGER_\w+|NOTEBOOK_\w+|"
    r"LANGUAGE_SERVER_\w+|WARMUP_DEFAULTS|DEBUG_ADAPTER_\w+|USE_\w+|DATA_\w+)\b"
)
_VARIABLE_ACTION = "set {} in the environment of the kernel, or remove the code that reads it: only Colab sets it"
_TPU_ADDRESS_ACTION = (
    "Colab's TPU does not exist here: remove this part and run the code on the GPU or CPU "
    "(tf.distribute.get_strategy() is the strategy for one device), or set the address of your own TPU"
)
# Variables that Colab sets and a usual machine does not.
_SET_BY_COLAB = frozenset({"PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PYTHONWARNINGS", "CUDA_VERSION"})
_TIGHT = (ast.Constant, ast.JoinedStr, ast.Name, ast.Call, ast.Attribute, ast.Subscript)
_LEAVES, _FI = re.compile(r"\bexit\b"), re.compile(r"^\s*(?:else|elif|fi)\b|;\s*fi\b", re.MULTILINE)


def _find_shell_tests(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for text in shell_texts(source):
        if (test := SHELL_TEST.search(text.text)) is None:
            continue
        line, _, below = text.text[test.end() :].partition("\n")
        guarded = line.split("&&")[1:]
        if _LEAVES.search(line):
            guarded = below.split("\n")
        elif "then" in line:
            guarded = _FI.split(f"{line.partition('then')[2]}\n{below}", maxsplit=1)[0].split("\n")
        lines = "; ".join(f"`{part.strip()}`" for part in guarded if part.strip() and not part.lstrip().startswith("#"))
        if lines:
            message = "this test for Colab fails here, so the commands that it guards do not run"
            action = f"check whether this machine needs these commands, and run them without the test: {lines}"
            yield Match(text.at(test.start()), text.at(test.end()), message, action=masked(action))


def _find_variables(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Uses of Colab's environment variables; code that only tests for one is rewritten by other rules."""
    for match in running(source, facts, _VARIABLE.finditer(source.text)):
        message, action = f"`{match[0]}` is an environment variable of Colab", _VARIABLE_ACTION
        if "TPU" in match[0]:
            message, action = f"`{match[0]}` is the address of Colab's TPU", _TPU_ADDRESS_ACTION
        yield Match(*match.span(), message, action=action.format(match[0]))


def _find_missing(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Reads of variables that Colab sets: where they are not set, they raise KeyError."""
    if "KeyError" in source.text:
        return
    added = {id(node.target): node for node in source.nodes if isinstance(node, ast.AugAssign)}
    for node in source.nodes:
        name = _variable(node)
        if name not in _SET_BY_COLAB or re.search(rf"[\"']{name}[\"'] (?:not )?in\b", source.text):
            continue
        variables, key = source.segment(node.value), source.segment(node.slice)
        read, message = f"{variables}.get({key}, {key[-1] * 2})", f"`{name}` is set on Colab, but need not be here"
        statement = added.get(id(node))
        if statement is not None and isinstance(statement.op, ast.Add):
            value = source.segment(statement.value)
            value = value if isinstance(statement.value, _TIGHT) else f"({value})"
            edit = Edit(*source.span(statement), f"{source.segment(node)} = {read} + {value}")
            yield Match(edit.start, edit.end, message, (edit,))
        elif isinstance(node.ctx, ast.Load) and id(node) not in _inside_texts(source):
            yield Match(*source.span(node), message, (Edit(*source.span(node), read),))


def _variable(node: ast.AST) -> str:
    """The name of an environment variable, as in `os.environ["PATH"]`; empty for anything else."""
    match node:
        case ast.Subscript(value=variables, slice=ast.Constant(value=str(name))):
            return name if last_name(variables) == "environ" else ""
    return ""


@once_a_cell
def _inside_texts(source: CellSource) -> set[int]:
    """The ids of the nodes in f-strings, whose positions are not exact up to Python 3.11."""
    return ids_in(part for node in source.nodes if isinstance(node, ast.JoinedStr) for part in children(node))


RULES: tuple[Rule, ...] = (
    Rule(
        "LF313",
        "A test for Colab in a shell",
        "`stat /usr/local/lib/*/dist-packages/google/colab`, `pip show google-colab`, with commands that it guards",
        "nothing: the test fails here, and the commands are reported",
        Keeps.NEEDS_HUMAN,
        _find_shell_tests,
        holding("google/colab", "google-colab", "google.colab"),
        example=Example("!pip show google-colab && pip install a"),
    ),
    Rule(
        "LF308",
        "An environment variable of Colab",
        "`COLAB_GPU`, `COLAB_TPU_ADDR` and similar variables, where they are read",
        "nothing; it is reported",
        Keeps.NEEDS_HUMAN,
        _find_variables,
        holding("COLAB_"),
        example=Example('print(os.environ["COLAB_GPU"])'),
    ),
    Rule(
        "LF311",
        "A variable that Colab sets",
        '`os.environ["PYTHONPATH"] += x`, also `LD_LIBRARY_PATH` and others, where they are read',
        "the same with an empty text if the variable is not set",
        Keeps.EQUIVALENT,
        _find_missing,
        holding(*_SET_BY_COLAB, like="environ"),
        example=Example(
            'os.environ["PYTHONPATH"] += ":/a"', 'os.environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", "") + ":/a"'
        ),
    ),
)
