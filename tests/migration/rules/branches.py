"""Rewrites cells with a test for Colab; ASK in a text is the most common test."""

from migration.analysis.facts import collect_facts
from migration.python.source import CellSource
from migration.rules import detection, human
from migration.rules.rewriting import rewrite

RULES = (*detection.RULES, *(rule for rule in human.RULES if rule.id == "LF308"))


def rewritten(*texts):
    """The cells after the rules, and their findings."""
    return rewritten_with((), *texts)


def rewritten_with(more, *texts):
    asking = [text.replace("ASK", "'google.colab' in sys.modules") for text in texts]
    sources = [CellSource(text, index=index) for index, text in enumerate(asking)]
    facts = collect_facts(sources)
    results = [rewrite(source, cell_type="code", rules=(*RULES, *more), facts=facts) for source in sources]
    return [new.text for new, _ in results], [finding for _, found in results for finding in found]


def rewritten_one(text):
    (new,), found = rewritten(text)
    assert rewritten(new)[0] == [new]
    return new, found
