"""Applies the rules to one cell until nothing more matches, and keeps track of the original lines.

Rules stand in order of priority. In each round every rule looks at the same text; of matches whose edits overlap only
the first rule's is applied, the others get their turn in the next round, on the new text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from core.secrets import masked
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Finding
from migration.notebook.texts import Edit, Trigger, apply
from migration.python.source import CellSource
from migration.rules.rule import Match, Rule

MAX_ROUNDS = 20

# The same lines are found by several rules and in many notebooks of a folder, in the same words.
_masked_before = lru_cache(maxsize=4096)(masked)
_MOST_KEPT = 1000  # characters; a line may as well be megabytes


def rewrite(
    source: CellSource,
    *,
    cell_type: str,
    rules: Sequence[Rule],
    facts: NotebookFacts,
    possible: Candidates | None = None,
) -> tuple[CellSource, list[Finding]]:
    """The cell as the rules leave it, and what was found in it; a cell no rule touched comes back as it is.

    `possible` are those that can match before anything is rewritten, by default all of this cell type.
    """
    candidates = possible or Candidates.of(rules, cell_type)
    origin = list(range(1, source.text.count("\n") + 2))
    changes: list[Finding] = []
    for _ in range(MAX_ROUNDS):
        matches = list(_matches(candidates, source, facts))
        chosen = _without_overlap([pair for pair in matches if pair[1].edits])
        if not chosen:
            found = [_finding(rule, match, source, origin, "") for rule, match in matches]
            return source, _as_they_are(changes, source, origin) + found
        changes += [
            replace(_finding(rule, match, source, origin, _after(source, match)), changed=True)
            for rule, match in chosen
        ]
        text, origin = apply(source.text, sorted(edit for _, match in chosen for edit in match.edits), origin)
        prose = "\n\n".join(filter(None, [source.prose, *(match.prose for _, match in chosen)]))
        source = CellSource(text, index=source.index, language=source.language, prose=prose)
        candidates = Candidates.of(rules, cell_type)
    return source, _as_they_are(changes, source, origin)


def _as_they_are(changes: list[Finding], source: CellSource, origin: list[int]) -> list[Finding]:
    """The changes with their lines as all rules together leave them."""
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


@dataclass(frozen=True)
class Candidates:
    """The rules that look at some cells, and the words of their triggers that these can hold."""

    rules: tuple[Rule, ...]
    words: frozenset[str]

    @staticmethod
    def of(rules: Sequence[Rule], cell_type: str) -> Candidates:
        """All that look at cells of one type."""
        return _candidates(tuple(rules), cell_type)

    def within(self, texts: Iterable[str]) -> Candidates:
        """The same rules, for cells of these texts."""
        text = "\n".join(texts)
        return Candidates(self.rules, frozenset(filter(text.__contains__, self.words)))


@lru_cache(maxsize=32)
def _candidates(rules: tuple[Rule, ...], cell_type: str) -> Candidates:
    found = tuple(rule for rule in rules if rule.find is not None and cell_type in rule.cells)
    return Candidates(found, frozenset().union(*(rule.trigger.words for rule in found if rule.trigger)))


@lru_cache(maxsize=4096)  # most cells hold none of the words, or the same few
def _asked_by(words: frozenset[str], rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules whose trigger asks for no word, or for one of these."""
    return tuple(rule for rule in rules if rule.trigger is None or not rule.trigger.words.isdisjoint(words))


def _matches(candidates: Candidates, source: CellSource, facts: NotebookFacts) -> Iterator[tuple[Rule, Match]]:
    """What the rules find whose trigger the cell holds; rules of one family share a trigger."""
    held = frozenset(filter(source.text.__contains__, candidates.words))
    fired: dict[Trigger, bool] = {}
    concerns_colab = facts.colab.concern(source)
    for rule in _asked_by(held, candidates.rules):
        if rule.opt_in and not facts.rerunnable:
            continue
        if (rule.of_colab and not concerns_colab) or (facts.language != "python" and not rule.any_language):
            continue
        if (trigger := rule.trigger) is not None and trigger.pattern is not None:
            if trigger not in fired:
                fired[trigger] = trigger.pattern.search(source.text) is not None
            if not fired[trigger]:
                continue
        if rule.find is not None:
            for match in rule.find(source, facts):
                yield rule, match


def _without_overlap(pairs: list[tuple[Rule, Match]]) -> list[tuple[Rule, Match]]:
    """Matches in order of priority whose spans of edits do not meet; two insertions at one place meet."""
    taken: list[tuple[int, int]] = []
    chosen = []
    for rule, match in pairs:
        spans = [(edit.start, max(edit.end, edit.start + 1)) for edit in match.edits]
        if all(end <= low or high <= start for start, end in spans for low, high in taken):
            taken += spans
            chosen.append((rule, match))
    return chosen


def _masked(text: str) -> str:
    return _masked_before(text) if len(text) <= _MOST_KEPT else masked(text)


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
    """The whole lines that a match spans or changes; an edit may reach beyond the match, to a comment above it."""
    start, end = match.start, match.end
    for edit in _changing(source, match):
        # The newline before the last line goes with that line.
        start = min(start, edit.start + source.text.startswith("\n", edit.start, edit.end))
        end = max(end, edit.end)
    return source.line_span(start, end)


def _changing(source: CellSource, match: Match) -> list[Edit]:
    """The edits that change something, in order; others only hold their place against other rules."""
    return sorted(edit for edit in match.edits if source.text[edit.start : edit.end] != edit.text)


def _after(source: CellSource, match: Match) -> str:
    """The lines of the match as they will be."""
    edits = _changing(source, match)
    start, end = _lines_of(source, match)
    pieces, at = [], min((start, *(edit.start for edit in edits)))
    for edit in edits:
        pieces += [source.text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, source.text[at:end]])
