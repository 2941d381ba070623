"""What the rules about Colab's folders report: places that are rewritten, and places left to a person."""

from __future__ import annotations

from dataclasses import dataclass

from migration.colab.paths import PathSpan
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.rules.rule import Match

_REASONS = {
    "pattern": (
        "a pattern of `match` names Colab's folder, and a pattern cannot hold a variable",
        "compare with the variable in a guard: `case path if path == …`",
    ),
    "annotation": (
        "a type annotation names Colab's folder",
        "write the folder that is meant on this machine",
    ),
    "route": (
        "a decorator's argument begins with /content: taken for the address of a route, not for a folder",
        "replace it by the work folder if it is one",
    ),
    "appended": (
        "text that begins like a path of Colab is appended to something else",
        "replace it by the work folder if what stands before it is no path or address",
    ),
    "split": (
        "a command that names Colab's folder is split at blanks, and a folder here may have a blank in its name",
        "write the command as a list of words, with the work folder in place of /content",
    ),
    "escaped": (
        "a path of Colab has escaped slashes, which no variable can have",
        "write the folder's path on this machine there, or use another delimiter than the slash",
    ),
    "bytes": (
        "a bytes literal with escapes names Colab's folder",
        "build it from the folder's name with os.fsencode",
    ),
    "shell": (
        "shell text names Colab's folder where no variable is read",
        "write the folder's path on this machine there",
    ),
    "unread": (
        "a cell that cannot be parsed names Colab's folder",
        "repair the cell, with the work folder in place of /content",
    ),
    "body": (
        "the text under a cell magic names Colab's folder, and no variable is read there",
        "write the folder's path on this machine there, or a path relative to the work folder",
    ),
    "notebook": (
        "a line of a notebook that this cell writes names Colab's folder",
        "let the cell write a local path, or migrate the notebooks it makes",
    ),
}
"""Why a place is left to a person, and what to do there."""


@dataclass(frozen=True)
class Found:
    """A match, and whether it names the drive folder."""

    match: Match
    drive: bool


def changed(edit: Edit, message: str, spans: list[PathSpan]) -> Found:
    """A place that one edit rewrites; `message` says with `{0}` where the folder's name goes."""
    drive = any(span.folder == "drive" for span in spans)
    what = "the mounted Drive" if drive else "Colab's folder /content"
    equivalent = any(span.is_mount or span.is_relative for span in spans)
    keeps = Keeps.EQUIVALENT if equivalent else None
    return Found(Match(edit.start, edit.end, message.format(what), (edit,), keeps=keeps), drive)


def kept(start: int, end: int, reason: str, *, drive: bool) -> Found:
    """A place that is left to a person, for one of the reasons above."""
    message, action = _REASONS[reason]
    return Found(Match(start, end, message, action=action, keeps=Keeps.NEEDS_HUMAN), drive)
