"""The table of rules as text, as JSON, and as `docs/migration-rules.md`.

python -m migration.report.reference --write
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from html import escape

from core.cli import run_page_command
from core.secrets.finding import masked
from core.workspace import json_text
from migration.rules.rule import Example, Rule
from migration.rules.table import RULES

FILE = "docs/migration-rules.md"

# Each family begins at its number and ends where the next begins.
FAMILIES: dict[int, str] = {
    100: "The file, its structure and its outputs",
    200: "The `google.colab` API",
    250: "Restarts",
    300: "Does this run on Colab?",
    400: "Paths",
    500: "Installs",
    530: "Other shell commands",
    560: "Magics",
    600: "Forms and parameters",
    700: "Prose",
    800: "Secrets, hazards, and manual changes",
    900: "Cells that cannot be migrated",
}

_INTRODUCTION = """\
# Migration rules

Generated from `migration/rules/` by `python -m migration.report.reference --write`; edit the descriptions there.
`landfall migrate --rules` prints the same table, [migration.md](migration.md) describes the command.

*Behaviour* is the effect of a rewrite. **exact**: the same values, files and output as before. **equivalent**: the same
purpose, by local means. **needs-human**: the user must act, and the finding says how; one match of a rule may need
manual changes although others do not. The last line of *matches* and of *writes* is an example, which is also a test: a
cell before and after this rule.
"""

_WIDTH = 100


def reference() -> str:
    """The whole page."""
    rules = sorted(RULES, key=lambda rule: rule.id)
    return "\n".join([_INTRODUCTION, *_sections(rules)])


def family_of(rule: Rule) -> str:
    number = int(rule.id.removeprefix("LF"))
    return FAMILIES[max(first for first in FAMILIES if first <= number)]


def _sections(rules: Sequence[Rule]) -> Iterable[str]:
    for family in FAMILIES.values():
        rows = [_row(rule) for rule in rules if family_of(rule) == family]
        if rows:
            head = ["| rule | | matches | writes | behaviour |", "|---|---|---|---|---|"]
            yield f"## {family}\n\n" + "\n".join([*head, *rows]) + "\n"


def _row(rule: Rule) -> str:
    example = rule.example or Example("")
    matches = _in_table(rule.matches) + _code(example.before)
    writes = _in_table(rule.writes) + _code(example.after or "")
    anchor = f'<a id="{rule.id.lower()}"></a>{rule.id}'
    return f"| {anchor} | {_in_table(rule.name)} | {matches} | {writes} | {rule.keeps.value} |"


def _code(text: str) -> str:
    """The source of a cell as a separate line in a table cell; secrets are masked."""
    if not text:
        return ""
    written = escape(masked(text), quote=False).replace("|", "&#124;").replace("*", "&#42;").replace("\n", "<br>")
    return f"<br><code>{written}</code>"


def _in_table(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(argv: Sequence[str] | None = None) -> int:
    return run_page_command(FILE, reference, description="Prints the reference of the migration rules.", argv=argv)


def rules_text(rules: Sequence[Rule]) -> str:
    """The table of rules."""
    lines = []
    for rule in rules:
        lines.append(f"{rule.id}  {rule.keeps.value:<11}  {rule.name}")
        for label, text in (("finds", rule.matches), ("writes", rule.writes)):
            lines += wrapped(text, f"       {label:<7} ", 15) if text else []
    return "".join(f"{line}\n" for line in lines)


def rules_json(rules: Sequence[Rule]) -> str:
    return json_text(
        [
            {
                "id": rule.id,
                "name": rule.name,
                "matches": rule.matches,
                "writes": rule.writes,
                "keeps": rule.keeps.value,
                "anchor": rule.anchor,
            }
            for rule in rules
        ]
    )


def wrapped(text: str, head: str, indent: int) -> list[str]:
    """Lines of at most `_WIDTH` characters, without broken words, so that paths and URLs can be copied. `head` begins
    the first line; the others are indented by `indent` spaces."""
    wrapper = textwrap.TextWrapper(_WIDTH, head, " " * indent, break_on_hyphens=False, break_long_words=False)
    return wrapper.wrap(text)


if __name__ == "__main__":
    sys.exit(main())
