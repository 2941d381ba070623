"""Every row of the table has an example, which the rule alone rewrites as stated."""

from dataclasses import replace

from migration.analysis.facts import NotebookFacts, collect_facts
from migration.python.source import CellSource
from migration.rules.rewriting import rewrite
from migration.rules.rule import Rule
from migration.rules.table import RULES

LOCAL_CONFIGS = frozenset({"configs/x.yaml"})
FINDING = [rule for rule in RULES if rule.find is not None]


def applied(rule: Rule, text: str) -> tuple[str, bool]:
    """The text after this rule alone, and whether the rule found anything."""
    language = rule.example.language if rule.example else "python"
    source, kind = CellSource(text, language=language), rule.cells[0]
    facts = collect_facts([source] if kind == "code" else [], language=language)
    facts = replace(facts, local_configs=LOCAL_CONFIGS, folders=NotebookFacts().folders)
    new, findings = rewrite(source, cell_type=kind, rules=[rule], facts=facts)
    return new.text, any(finding.rule == rule.id for finding in findings)


def test_every_rule_has_a_unique_id_and_a_description():
    ids = [rule.id for rule in RULES]
    assert sorted(ids) == sorted(set(ids))
    assert [rule.id for rule in RULES if not (rule.name and rule.matches and rule.writes)] == []
    assert [rule.id for rule in RULES if rule.matches.count("`") % 2 or rule.writes.count("`") % 2] == []


def test_every_rule_that_finds_something_has_an_example():
    assert [rule.id for rule in FINDING if rule.example is None] == []


def test_each_example_is_found_and_rewritten_as_stated():
    wrong = {}
    for rule in FINDING:
        if (example := rule.example) is not None:
            expected = (example.before if example.after is None else example.after, True)
            if (found := applied(rule, example.before)) != expected:
                wrong[rule.id] = found
    assert wrong == {}


def test_rules_are_idempotent():
    written = {rule: rule.example.after for rule in FINDING if rule.example is not None and rule.example.after}
    assert [rule.id for rule, text in written.items() if applied(rule, text)[0] != text] == []
