"""The table of rules, in order of priority: if two rules match the same characters, the earlier row is applied
first."""

from __future__ import annotations

from migration.rules import (
    cell_magics,
    colab_api,
    colab_calls,
    colab_prose,
    colab_text,
    commands,
    configurations,
    credentials,
    detection,
    files,
    forms,
    hazards,
    human,
    indentation,
    installs,
    magics,
    paths,
    prose,
    restarts,
    system_installs,
)
from migration.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *files.RULES,
    *detection.RULES,
    *forms.RULES,
    *configurations.RULES,
    *forms.PARAMETER_RULES,
    *colab_api.RULES,
    *colab_calls.RULES,
    *colab_text.RULES,
    *restarts.RULES,
    *cell_magics.RULES,
    *magics.RULES,
    *indentation.RULES,
    *installs.RULES,
    *system_installs.RULES,
    *commands.RULES,
    *paths.RULES,
    *prose.RULES,
    *colab_prose.RULES,
    *credentials.RULES,
    *human.LOGIN_RULES,
    *hazards.RULES,
    *human.RULES,
)
"""Every row."""
