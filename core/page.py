"""Where a workspace has the page of the training dashboard, and the documents that the page reads."""

from __future__ import annotations

from pathlib import Path

PAGE = "training_dashboard"
# The document of the first page, and those that running commands rewrite.
STATE = f"{PAGE}/data/dashboard-state.json"
LIVE = f"{PAGE}/data/live"
# The page and its data as one file.
SINGLE_FILE = "artifacts/report.html"


def has_page(root: Path) -> bool:
    """Whether the workspace contains the page; a copy with configurations and data only does not."""
    return (root / PAGE / "index.html").is_file()
