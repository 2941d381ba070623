"""Random programs with tests for Colab behave as outside Colab after their migration."""

import contextlib
import importlib.util
import io
import random

import pytest

from tests.migration.rules.branches import rewritten
from tests.support import most_nightly
from tests.support.compiling import compiles

# ------------------------------------------------------------------------------------------------------ random programs
HEAD = """import importlib.util, os, sys
IN_COLAB = 'google.colab' in sys.modules
def f(x): return x > 1
a = 1
b = ''
"""


QUESTIONS = (
    "'google.colab' in sys.modules", "'google.colab' not in sys.modules", '"COLAB_" in "".join(os.environ.keys())',
    "os.getenv('COLAB_RELEASE_TAG')", "IN_COLAB", "not IN_COLAB", "bool(os.environ.get('COLAB_GPU'))",
    "any(k.startswith('COLAB_') for k in os.environ)",
)  # fmt: skip


class _Programs:
    """Random nested blocks of statements that test for Colab, with comments and multi-line strings."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def condition(self, depth=0):
        kind = self.random.random()
        if kind < 0.5:
            return self.random.choice(QUESTIONS)
        if kind < 0.7 and depth < 2:
            return f"({self.condition(depth + 1)}) {self.random.choice(['and', 'or'])} {self.condition(depth + 1)}"
        if kind < 0.8 and depth < 2:
            return f"not ({self.condition(depth + 1)})"
        return self.random.choice(["a > 1", "b == 'x'", "f(a)", "a", "b"])

    def simple(self):
        number = self.random.randrange(9)
        return self.random.choice(
            [f"a += {number}", f"b = b + '{number}'", "print(a, b)", "pass", "a = (1 +\n   2)",
             f"a = {number} if {self.condition()} else 7", f'b = """q\n  w\n      e{number}"""',
             f"print(bool({self.condition()}))", "a += 1; b += 'x'", "print(f'{a} {\"c\" if IN_COLAB else 1}')  # c"]
        )  # fmt: skip

    def block(self, depth):
        lines = []
        for _ in range(self.random.randint(1, 3)):
            lines += ["# on Colab:"] if self.random.random() < 0.2 else []
            lines.append(self.statement(depth))
        return "\n".join(lines)

    def inside(self, depth):
        return "\n" + _indented(self.block(depth + 1), self.random.choice(["  ", "    ", "\t"]))

    def statement(self, depth):
        kind = self.random.random()
        if depth >= 3 or kind < 0.4:
            return self.simple()
        if kind < 0.7:
            text = f"if {self.condition()}:{self.inside(depth)}"
            for _ in range(self.random.choice([0, 0, 1, 2])):
                text += f"\nelif {self.condition()}:{self.inside(depth)}"
            return text + (f"\n# of here\nelse:{self.inside(depth)}" if self.random.random() < 0.5 else "")
        if kind < 0.9:
            indent = self.random.choice(["  ", "    "])
            first = self.random.choice(["", "", "import json\n", "a += 1\n"])
            text = "try:\n" + _indented(f"{first}import google.colab\na = 5\n{self.block(depth + 1)}", indent)
            caught = self.random.choice(["ImportError", "Exception as e", "(ImportError, ValueError)"])
            text += f"\nexcept {caught}:{self.inside(depth)}"
            text += f"\nelse:{self.inside(depth)}" if self.random.random() < 0.3 else ""
            return text + (f"\nfinally:{self.inside(depth)}" if self.random.random() < 0.3 else "")
        return "for i in range(2):" + self.inside(depth)


def _indented(text, indent):
    lines, inside = [], False
    for line in text.split("\n"):
        lines.append(line if inside else indent + line)
        inside ^= line.count('"""') % 2 == 1
    return "\n".join(lines)


def _run(text):
    out, names = io.StringIO(), {}
    with contextlib.redirect_stdout(out):
        exec(compile(text, "<program>", "exec"), names)
    return out.getvalue(), names["a"], names["b"]


@pytest.mark.parametrize("seed", most_nightly(range(60), but=15))
def test_random_programs_behave_as_outside_colab(seed, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cells = [HEAD, _Programs(seed).block(0), _Programs(seed + 1000).block(0)]
    new, _ = rewritten(*cells)
    assert all(compiles(text) for text in new)
    assert not any("google.colab" in text or "COLAB_" in text for text in new)
    assert _run("\n".join(new)) == _run("\n".join(cells))
    assert rewritten(*new)[0] == new
