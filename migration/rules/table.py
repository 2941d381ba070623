"""The table of rules, in order of priority: where two rules want the same characters, the earlier row goes first."""

from __future__ import annotations

from migration.rules import (
    colab_api,
    commands,
    configurations,
    detection,
    files,
    forms,
    human,
    installs,
    magics,
    paths,
    prose,
    restarts,
)
from migration.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *files.RULES,
    *detection.RULES,
    *forms.RULES,
    *configurations.RULES,
    *forms.PARAMETER_RULES,
    *colab_api.RULES,
    *restarts.RULES,
    *magics.RULES,
    *installs.RULES,
    *commands.RULES,
    *paths.RULES,
    *prose.RULES,
    *human.RULES,
)
"""Every row."""
