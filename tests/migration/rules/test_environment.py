import pytest

from migration.analysis.facts import collect_facts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import environment
from migration.rules.rewriting import rewrite


def _rewrite(text):
    source = CellSource(text)
    new, found = rewrite(source, cell_type="code", rules=environment.RULES, facts=collect_facts([source]))
    assert rewrite(new, cell_type="code", rules=environment.RULES, facts=collect_facts([new]))[0].text == new.text
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("os.environ['PYTHONPATH'] += a", "os.environ['PYTHONPATH'] = os.environ.get('PYTHONPATH', '') + a"),
        ('x = f(environ["LD_LIBRARY_PATH"])', 'x = f(environ.get("LD_LIBRARY_PATH", ""))'),
        ("os.environ['HOME'] += 'a'", None),
        ("os.environ['PYTHONPATH'] = 'a'", None),
        ("if 'PYTHONPATH' in os.environ:\n    os.environ['PYTHONPATH'] += 'a'", None),
        ("try:\n    x = os.environ['PYTHONPATH']\nexcept KeyError:\n    x = 1", None),
    ],
)
def test_a_variable_that_only_colab_sets_may_be_missing(before, after):
    new, found = _rewrite(before)
    assert new == (after or before)
    assert [finding.rule for finding in found] == ["LF311"] * bool(after)


@pytest.mark.parametrize(
    "text, guarded",
    [
        ("!pip show google-colab && pip install a", "`pip install a`"),
        ("%%bash\nls /usr/local/lib/python3.7/dist-packages/google/colab || exit 0\na\n# b\nc", "`a`; `c`"),
        ("%%bash\nif [ -d /usr/local/lib/python3/dist-packages/google/colab ]; then\n  a\nelse\n  b\nfi\nc", "`a`"),
        ("%%bash\nif pip freeze | grep -q google-colab; then a; fi\nc", "`a`"),
        ("!pip show google-colab", ""),
        ("!pip install google-colab && a", ""),
    ],
)
def test_commands_that_a_shell_test_guards_are_reported(text, guarded):
    new, found = _rewrite(text)
    assert new == text
    assert [finding.keeps for finding in found] == [Keeps.NEEDS_HUMAN] * bool(guarded)
    assert all(finding.action.endswith(guarded) for finding in found)
