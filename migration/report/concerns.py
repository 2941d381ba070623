"""What a finding concerns: Colab alone, a secret, or a reach beyond the notebook's folders."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from migration.matching import Finding, Keeps
from migration.notebook.structure import UPKEEP
from migration.report.document import Place

# Commands that change the machine, run code of others, or open a way in from outside.
HAZARDS = frozenset({"LF821", "LF822", "LF823", "LF824", "LF825"})
SECRETS = frozenset({"LF123", "LF801", "LF803"})
# What notebooks of any origin hold and a person should look at: secrets to fill in, log-ins, a GPU, cells that are no
# Python.
_ANYWHERE = HAZARDS | UPKEEP | {"LF802", "LF811", "LF812", "LF842", "LF901"}


def only_colab_has(found: Finding) -> bool:
    """Whether a finding is of what no local notebook should hold: migration changes it, or a person must."""
    return (found.changed or found.keeps is Keeps.NEEDS_HUMAN) and found.rule not in _ANYWHERE


def places(findings: Iterable[Finding], rules: Collection[str]) -> tuple[Place, ...]:
    """Where findings of the given rules are."""
    return tuple(Place(found.rule, found.message, found.cell, found.line) for found in findings if found.rule in rules)
