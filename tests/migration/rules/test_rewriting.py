"""Edits are applied in order, and every finding contains the original line."""

import re

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, apply, holding
from migration.python.source import CellSource
from migration.rules.rewriting import rewrite
from migration.rules.rule import Match, Rule


def rule(rule_id, pattern, replacement=None, keeps=Keeps.EXACT):
    """A rule that replaces every match of a pattern, or reports it."""

    def find(source, facts):
        for found in re.finditer(pattern, source.text):
            edits = () if replacement is None else (Edit(found.start(), found.end(), replacement),)
            yield Match(found.start(), found.end(), f"found {found[0]}", edits, "act" if replacement is None else "")

    return Rule(rule_id, rule_id, "", "", keeps, find, holding("", like=pattern))


def run(text, *rules):
    return rewrite(CellSource(text, index=7), cell_type="code", rules=rules, facts=NotebookFacts())


def test_an_unchanged_cell_is_the_same_object():
    source = CellSource("x = 1")
    assert rewrite(source, cell_type="code", rules=[rule("A", "y", "z")], facts=NotebookFacts())[0] is source


def test_overlapping_rules_are_applied_in_order():
    new, findings = run("abc", rule("A", "abc", "xbc"), rule("B", "b", "y"))
    assert new.text == "xyc"
    assert [(found.rule, found.before, found.after) for found in findings] == [("A", "abc", "xyc"), ("B", "xbc", "xyc")]


def test_findings_name_lines_of_the_original():
    new, findings = run(
        "one\ntwo\nthree\nfour\n", rule("A", "one\n", ""), rule("B", "three", "3\n3"), rule("C", "four")
    )
    assert new.text == "two\n3\n3\nfour\n"
    assert [(found.rule, found.line, found.changed, found.cell) for found in findings] == [
        ("A", 1, True, 7), ("B", 3, True, 7), ("C", 4, False, 7)
    ]  # fmt: skip


def test_report_only_findings_come_once_from_the_final_text():
    _, findings = run("a a", rule("A", r"^a", "b"), rule("R", "a", keeps=Keeps.NEEDS_HUMAN))
    assert [(found.rule, found.action) for found in findings] == [("A", ""), ("R", "act")]


def test_conflicting_rules_terminate():
    assert run("a", rule("A", "a", "b"), rule("B", "b", "a"))[0].text in ("a", "b")


def test_a_secret_is_never_in_a_finding():
    token = "hf_" + "aB3dE5fG7h" * 3 + "aB3d"
    _, findings = run(f"login('{token}')\n", rule("A", "login", "logon"), rule("R", "hf_.*"))
    assert findings
    assert not any(token in str(found) for found in findings)


def test_added_lines_are_attributed_to_the_replaced_line():
    text, origin = apply("a\nb\nc", [Edit(2, 3, "x\ny")], [1, 2, 3])
    assert (text, origin) == ("a\nx\ny\nc", [1, 2, 2, 3])


def test_a_finding_names_the_lines_that_its_edits_reach():
    def find(source, facts):
        start = source.text.index("if colab")
        yield Match(start, len(source.text), "a branch", (Edit(start - len("# on Colab\n"), len(source.text), "y"),))

    source = CellSource("x\n# on Colab\nif colab:\n    y\n")
    _, (finding,) = rewrite(
        source,
        cell_type="code",
        rules=[Rule("A", "", "", "", Keeps.EXACT, find, holding("colab"))],
        facts=NotebookFacts(),
    )
    assert (finding.line, finding.before, finding.after) == (2, "# on Colab\nif colab:\n    y", "y")
