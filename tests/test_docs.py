"""Everything that the documentation names exists: links, pictures, targets, commands, modules, keys."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

import landfall
from core.config.faults import schema_fields
from core.config.schema import SCHEMAS
from migration.report.reference import FILE as RULES_FILE
from tests.support import REPO_ROOT
from tools import command_reference
from tools.config_reference import FILE, reference

PAGES = [
    *(REPO_ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((REPO_ROOT / "docs").glob("**/*.md")),
    *sorted((REPO_ROOT / "dev").glob("*.md")),
]
# Its code is what Colab notebooks hold, not what we promise.
QUOTES_NOTEBOOKS = REPO_ROOT / RULES_FILE
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPO_ROOT).as_posix())


def code_of(page: Path) -> str:
    """All text formatted as code: fenced blocks and spans, one line each."""
    if page == QUOTES_NOTEBOOKS:
        return ""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join([*blocks, *(" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))])


def make_targets() -> set[str]:
    makefile = (REPO_ROOT / "Makefile").read_text(encoding="utf-8")
    return {target for line in re.findall(r"^\.PHONY: (.+)$", makefile, flags=re.MULTILINE) for target in line.split()}


def test_the_configuration_reference_equals_the_schema():
    assert (REPO_ROOT / FILE).read_text(encoding="utf-8") == reference(), "python -m tools.config_reference --write"


@pytest.mark.parametrize("name", landfall.COMMANDS)
def test_the_command_reference_has_the_options_of_every_command(name):
    page = (REPO_ROOT / command_reference.FILE).read_text(encoding="utf-8")
    section = page.partition(f"## landfall {name}\n")[2].partition("\n## ")[0]
    documented, offered = (
        set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) for text in (section, command_reference.help_of(name))
    )
    assert documented == offered, "python -m tools.command_reference --write"


@every_page
def test_every_link_and_picture_has_a_target(page):
    prose = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    files = {target.partition("#")[0] for target in targets if not re.match(r"https?:|mailto:|#", target)}
    assert [name for name in sorted(files) if not (page.parent / name).is_file()] == []


@every_page
def test_every_make_target_exists(page):
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", code_of(page)))
    assert named <= make_targets()


@every_page
def test_every_landfall_command_exists(page):
    named = re.findall(r"\blandfall ([a-z][a-z-]*)(?: (patchtst|swinmae)\b)?", code_of(page))
    # A stream is a part of the name, or an argument of the command.
    unknown = [words for words in named if landfall.COMMANDS.keys().isdisjoint({" ".join(words).strip(), words[0]})]
    assert unknown == []


@every_page
def test_every_named_module_exists(page):
    modules = set(re.findall(r"\bpython -m ([a-z][\w.]*)", code_of(page)))
    assert [module for module in sorted(modules) if find_spec(module) is None] == []


@every_page
def test_every_override_shown_is_a_key_or_a_group(page):
    keys = {key for schema in SCHEMAS.values() for key, _ in schema_fields(schema)}
    shown = set(re.findall(r"(?<![\w.-])([a-z_]+(?:[./][a-z_]+)+|trainer)=[\w\[]", code_of(page)))
    groups = {name for name in shown if (REPO_ROOT / "configs" / name).is_dir()}
    assert sorted(shown - keys - groups) == []


def test_the_readme_shows_the_two_commands_and_ci_calls_the_second_and_the_slow_tests():
    readme = (REPO_ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```sh\n(.*?)^```", readme, flags=re.DOTALL | re.MULTILINE)[1]
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert commands == [["make", "validate"], ["make", "test"]]
    lines = (REPO_ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    assert [shlex.split(line) for line in lines[-2:]] == [commands[1], ["make", "test-slow"]]
