"""Findings of the rules about Colab's folders: rewritten paths, and paths that need manual changes."""

from __future__ import annotations

from migration.colab.paths import PathSpan
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.rules.rule import Match

_REASONS = {
    "route": (
        "a decorator's argument begins with /content: treated as the URL of a route, not as a folder",
        "replace it by the work folder if it is one",
    ),
    "appended": (
        "text that begins like a path of Colab is appended to something else",
        "replace it by the work folder if the text before it is not a path or URL",
    ),
    "split": (
        "a command with Colab's folder is split at spaces, and the name of a folder here may contain a space",
        "write the command as a list of words, with the work folder instead of /content",
    ),
    "escaped": (
        "a path of Colab has escaped slashes, so that it cannot be a variable",
        "write the folder's path on this machine there, or use another delimiter than the slash",
    ),
    "bytes": (
        "a bytes literal with escapes names Colab's folder",
        "build it from the folder's name with os.fsencode",
    ),
    "shell": (
        "shell text contains Colab's folder where variables are not expanded",
        "write the folder's path on this machine there",
    ),
    "body": (
        "the text under a cell magic contains Colab's folder, and variables are not expanded there",
        "write the folder's path on this machine there, or a path relative to the work folder",
    ),
    "notebook": (
        "a line of a notebook that this cell writes names Colab's folder",
        "let the cell write a local path, or migrate the notebooks that it writes",
    ),
}
"""Reasons for manual changes, with the action."""


def changed(edit: Edit, message: str, spans: list[PathSpan]) -> Match:
    """A path that one edit rewrites; `{0}` in `message` is the folder's name."""
    what = "the mounted Drive" if any(span.folder == "drive" for span in spans) else "Colab's folder /content"
    equivalent = any(span.is_mount or span.is_relative for span in spans)
    return Match(edit.start, edit.end, message.format(what), (edit,), keeps=Keeps.EQUIVALENT if equivalent else None)


def kept(start: int, end: int, reason: str) -> Match:
    """A path that needs manual changes, for one of the reasons above."""
    message, action = _REASONS[reason]
    return Match(start, end, message, action=action, keeps=Keeps.NEEDS_HUMAN)
