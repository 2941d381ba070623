import re

from migration.notebook.findings import Keeps
from migration.report import reference as reference_module
from migration.report.reference import FAMILIES, FILE, family_of, reference
from migration.rules.rule import Rule
from migration.rules.table import RULES
from tests.support import REPO_ROOT


def test_the_page_equals_the_table():
    assert (REPO_ROOT / FILE).read_text(encoding="utf-8") == reference(), "python -m migration.report.reference --write"


def test_every_rule_has_an_anchor_a_name_and_a_row_of_five_cells():
    page = reference()
    for rule in RULES:
        assert re.fullmatch(r"LF[1-9]\d\d", rule.id)
        row = next(line for line in page.splitlines() if f'<a id="{rule.id.lower()}"></a>' in line)
        assert len(re.split(r"(?<!\\)\|", row)) == 7, row


def test_rules_are_below_their_family_in_id_order():
    page = reference()
    places = [page.index(f'<a id="{rule.id.lower()}"></a>') for rule in sorted(RULES, key=lambda rule: rule.id)]
    assert places == sorted(places)


def test_a_family_starts_at_its_number():
    def named(number):
        return family_of(Rule(f"LF{number}", "", "", "", Keeps.EXACT))

    assert named(201) == named(249) == FAMILIES[200]
    assert named(250) == FAMILIES[250]
    assert named(999) == FAMILIES[900]


def test_the_reference_is_printed(capsys):
    assert reference_module.main([]) == 0
    assert capsys.readouterr().out == reference()
