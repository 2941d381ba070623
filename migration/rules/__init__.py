"""The table of rules, in order of priority: where two rules want the same characters, the earlier row goes first."""

from __future__ import annotations

from functools import cache

from migration.matching import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every row of the table."""
    from migration.notebook import reading, structure
    from migration.parameters import hoisting
    from migration.rules import (
        colab_api,
        commands,
        configurations,
        detection,
        forms,
        human,
        installs,
        magics,
        paths,
        prose,
        restarts,
    )

    file = (reading, structure)
    first = (detection, forms, configurations, hoisting, colab_api, restarts)
    then = (magics, installs, commands, paths, prose, human)
    return tuple(rule for stage in (*file, *first, *then) for rule in stage.RULES)


def rule_by_id(rule_id: str) -> Rule:
    """Raises KeyError for an id that is not in the table."""
    return {rule.id: rule for rule in all_rules()}[rule_id]
