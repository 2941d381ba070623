import pytest

from migration.notebook.findings import Finding, Keeps
from migration.report.document import HAZARDS, SECRETS, only_colab_has, places
from migration.rules.table import RULES


def finding(rule: str, keeps: Keeps = Keeps.EXACT, *, changed: bool = False) -> Finding:
    return Finding(rule, keeps, 1, 2, f"found by {rule}", changed=changed)


def test_every_rule_named_is_in_the_table():
    assert {rule.id for rule in RULES} >= HAZARDS | SECRETS


@pytest.mark.parametrize(
    "found, expected",
    [
        (finding("LF110", changed=True), True),
        (finding("LF201", changed=True), True),
        (finding("LF841", Keeps.NEEDS_HUMAN), True),
        (finding("LF704", Keeps.EQUIVALENT), False),
        (finding("LF103", changed=True), False),
        (finding("LF107", changed=True), False),
        (finding("LF822", Keeps.NEEDS_HUMAN), False),
        (finding("LF811", Keeps.NEEDS_HUMAN), False),
        (finding("LF901", Keeps.NEEDS_HUMAN), False),
        (finding("LF902", Keeps.NEEDS_HUMAN), True),
    ],
    ids=lambda value: value.rule if isinstance(value, Finding) else str(value),
)
def test_features_only_of_colab_are_listed(found, expected):
    assert only_colab_has(found) is expected


def test_places_belong_to_the_requested_rules():
    found = [finding("LF822"), finding("LF201"), finding("LF822")]
    assert [(place.rule, place.kind, place.cell, place.line) for place in places(found, HAZARDS)] == [
        ("LF822", "found by LF822", 1, 2),
        ("LF822", "found by LF822", 1, 2),
    ]
