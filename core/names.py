"""Names of runs: one rule, checked wherever a name is typed or read from a file.

A name becomes part of several paths, so a name from a foreign file could lead to any folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

# Some file systems allow 143 bytes in a name; locks and temporary files add to it.
_MAX_BYTES = 100
# A letter or digit of any script, then also the signs of versions and dates.
_NAME = re.compile(r"\w[\w.+-]*(?<!\.)")
# Files and folders next to those of runs, and names that Windows keeps for devices.
_RESERVED = re.compile(r"(?i)(?:index|last|steps|con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")


def checked_run_id(name: str) -> str:
    """Returns the name. Raises ValueError if it is not a valid name of a run."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name.encode()) > _MAX_BYTES:
        rule = f"letters, digits and . _ + - only, at most {_MAX_BYTES} bytes"
        raise ValueError(f"{str(name)[:60]!r} is not a valid name of a run: {rule}")
    if _RESERVED.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name of a run: Windows reserves it; use another name")
    return name


def is_run_id(name: object) -> bool:
    try:
        checked_run_id(name)  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


def run_folder(parent: Path, run_id: str) -> Path:
    """The folder of a run. Raises ValueError for a name that is not valid."""
    return parent / checked_run_id(run_id)


RunId = Annotated[str, AfterValidator(checked_run_id)]
"""For pydantic models of files."""
