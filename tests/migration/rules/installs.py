"""Cells under the rules for installations, and checks that apply to every rewrite."""

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import installs, system_installs
from migration.rules.rewriting import rewrite
from tests.support.compiling import compiles

RULES = (*installs.RULES, *system_installs.RULES)


def rewritten(text, facts=None, language="python"):
    facts = facts or NotebookFacts(language=language)
    new, found = rewrite(CellSource(text, language=language), cell_type="code", rules=RULES, facts=facts)
    again, repeated = rewrite(new, cell_type="code", rules=RULES, facts=facts)
    assert again is new
    assert not any(finding.changed for finding in repeated)
    assert compiles(new.text) or not compiles(text)
    assert all(finding.action for finding in found if finding.keeps is Keeps.NEEDS_HUMAN)
    return new.text, found


def rules_of(found):
    return [finding.rule for finding in found]
