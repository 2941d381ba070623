"""What the packages require, with all that those require."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import REPO_ROOT

PROJECT = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(*extras: str) -> list[str]:
    """Requirements without an extra and those of the extras, with references between extras resolved."""
    found = list(PROJECT["dependencies"])
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            included = re.fullmatch(rf"{PROJECT['name']}\[([\w,]+)\]", text)
            found += requirements(*included[1].split(",")) if included else [text]
    return found


def closure(requirements: Iterable[str]) -> set[str]:
    """All distributions that pip installs for these, as far as this environment has them."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (key := f"{name}[{wanted}]") not in found:
                found.add(key)
                waiting += [(Requirement(text), wanted) for text in metadata.requires(name) or []]
    return {key.partition("[")[0] for key in found}
