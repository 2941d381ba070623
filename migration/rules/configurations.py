"""A Colab configuration with a local version (rule `configurations`): `configs/x.yaml` and `configs/x_local.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, edited, holding
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

_NAMED = re.compile(r"(?<![\w./-])(?:\./)?configs/(?P<stem>[\w/-]+)(?P<suffix>\.ya?ml)\b")


def local_configs(workspace: Path) -> frozenset[str]:
    """The configurations of a workspace that have a local version, as in a notebook: `configs/x.yaml`."""
    twins = sorted(workspace.glob("configs/*_local.y*ml"))
    return frozenset(f"configs/{twin.stem.removesuffix('_local')}{twin.suffix}" for twin in twins)


def localised(text: str, facts: NotebookFacts) -> str:
    """The text with the local version instead of every configuration that has one."""
    return edited(text, _edits(text, facts))


def _edits(text: str, facts: NotebookFacts) -> Iterator[Edit]:
    for found in _NAMED.finditer(text):
        if f"configs/{found['stem']}{found['suffix']}" in facts.local_configs:
            yield Edit(found.end("stem"), found.end("stem"), "_local")


def _find(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for edit in _edits(source.text, facts):
        yield Match(edit.start, edit.end, "a Colab configuration that has a local version", (edit,))


RULES: tuple[Rule, ...] = (
    Rule(
        "LF430",
        "configuration with a local version",
        "`configs/x.yaml` where the workspace also has `configs/x_local.yaml`",
        "`configs/x_local.yaml`",
        Keeps.EQUIVALENT,
        _find,
        holding("configs/"),
        ("code", "markdown"),
        any_language=True,
        example=Example('config = "configs/x.yaml"', 'config = "configs/x_local.yaml"'),
    ),
)
