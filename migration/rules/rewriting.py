"""Applies the rules to one cell until nothing more matches, and keeps track of the original lines.

The rules are in order of priority. In each round, all rules search the same text. If the edits of several matches
overlap, only the match of the first rule is applied. The next round searches the new text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Finding
from migration.notebook.texts import Edit, Trigger, apply, words_in
from migration.python.source import CellSource
from migration.rules.rule import Match, Rule

MAX_ROUNDS = 20

# Cached: several rules match the same line, and many notebooks contain the same lines.
_masked_before = lru_cache(maxsize=4096)(masked)
_MAX_CACHED_CHARACTERS = 1000  # characters; a line may have megabytes


def rewrite(
    source: CellSource,
    *,
    cell_type: str,
    rules: Sequence[Rule],
    facts: NotebookFacts,
) -> tuple[CellSource, list[Finding]]:
    """The rewritten cell and its findings. A cell without a match is returned unchanged."""
    fitting = _fitting(tuple(rules), cell_type, facts.language)
    origin = list(range(1, source.text.count("\n") + 2))
    changes: list[Finding] = []
    for _ in range(MAX_ROUNDS):
        matches = list(_matches(fitting, source, facts))
        chosen = _without_overlap([pair for pair in matches if pair[1].edits])
        if not chosen:
            found = [_finding(rule, match, source, origin, "") for rule, match in matches]
            return source, _with_final_lines(changes, source, origin) + found
        changes += [
            replace(_finding(rule, match, source, origin, _after(source, match)), changed=True)
            for rule, match in chosen
        ]
        text, origin = apply(source.text, sorted(edit for _, match in chosen for edit in match.edits), origin)
        prose = "\n\n".join(filter(None, [source.prose, *(match.prose for _, match in chosen)]))
        source = CellSource(
            text, index=source.index, language=source.language, prose=prose, own_magics=source.own_magics
        )
    return source, _with_final_lines(changes, source, origin)


@lru_cache(maxsize=64)
def _fitting(rules: tuple[Rule, ...], cell_type: str, language: str) -> tuple[Rule, ...]:
    """The rules for cells of a type in a notebook of a language."""
    return tuple(rule for rule in rules if cell_type in rule.cells and (rule.any_language or language == "python"))


@lru_cache(maxsize=64)
def _words_of(rules: tuple[Rule, ...]) -> frozenset[str]:
    """The words of the rules' triggers, of which many share some."""
    return frozenset(word for rule in rules if rule.trigger is not None for word in rule.trigger.words)


def _with_final_lines(changes: list[Finding], source: CellSource, origin: list[int]) -> list[Finding]:
    """The changes with their final lines, after all rules."""
    lines = source.text.split("\n") if changes else []
    now: dict[int, list[str]] = {}
    for line, row in zip(lines, origin, strict=True) if lines else ():
        now.setdefault(row, []).append(line)
    return [
        replace(
            found,
            after=_masked(
                "\n".join(
                    line
                    for row in range(found.line, found.line + found.before.count("\n") + 1)
                    for line in now.get(row, ())
                )
            ),
        )
        if found.line is not None
        else found
        for found in changes
    ]


def _matches(rules: tuple[Rule, ...], source: CellSource, facts: NotebookFacts) -> Iterator[tuple[Rule, Match]]:
    """The matches of the rules whose trigger the cell satisfies. Rules of one family share a trigger."""
    present = words_in(source.text, _words_of(rules))
    fired: dict[Trigger | None, bool] = {None: True}
    concerns_colab = facts.colab.cell(source).concerned
    for rule in rules:
        if rule.find is None or (rule.of_colab and not concerns_colab):
            continue
        if rule.trigger is not None and rule.trigger not in fired:
            fired[rule.trigger] = rule.trigger.fires(source.text, present)
        if fired[rule.trigger]:
            yield from ((rule, match) for match in rule.find(source, facts))


def _without_overlap(pairs: list[tuple[Rule, Match]]) -> list[tuple[Rule, Match]]:
    """Matches in order of priority, without those whose edits overlap with an earlier match; two insertions at one
    position overlap."""
    taken: list[tuple[int, int]] = []
    chosen = []
    for rule, match in pairs:
        spans = [(edit.start, max(edit.end, edit.start + 1)) for edit in match.edits]
        if all(end <= low or high <= start for start, end in spans for low, high in taken):
            taken += spans
            chosen.append((rule, match))
    return chosen


def _masked(text: str) -> str:
    return _masked_before(text) if len(text) <= _MAX_CACHED_CHARACTERS else masked(text)


def _finding(rule: Rule, match: Match, source: CellSource, origin: list[int], after: str) -> Finding:
    start, end = _lines_of(source, match)
    return Finding(
        rule=rule.id,
        keeps=match.keeps or rule.keeps,
        cell=source.index,
        line=origin[min(source.line_of(start), len(origin) - 1)],
        message=_masked(match.message),
        before=_masked(source.text[start:end]),
        after=_masked(after),
        action=_masked(match.action),
    )


def _lines_of(source: CellSource, match: Match) -> tuple[int, int]:
    """The complete lines that a match spans or changes. An edit may begin before the match, at a comment above it."""
    start, end = match.start, match.end
    for edit in _changing(source, match):
        # The newline before the last line is removed together with that line.
        start = min(start, edit.start + source.text.startswith("\n", edit.start, edit.end))
        end = max(end, edit.end)
    return source.line_span(start, end)


def _changing(source: CellSource, match: Match) -> list[Edit]:
    """The edits that change something, in order; the others only reserve their position."""
    return sorted(edit for edit in match.edits if source.text[edit.start : edit.end] != edit.text)


def _after(source: CellSource, match: Match) -> str:
    """The lines of the match after its edits."""
    edits = _changing(source, match)
    start, end = _lines_of(source, match)
    pieces, at = [], min((start, *(edit.start for edit in edits)))
    for edit in edits:
        pieces += [source.text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, source.text[at:end]])
