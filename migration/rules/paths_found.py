"""Findings of the rules about Colab's folders: rewritten paths, and paths that need manual changes."""

from __future__ import annotations

from migration.colab.paths import PathSpan
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.rules.rule import Match


def changed(edit: Edit, message: str, spans: list[PathSpan]) -> Match:
    """A path that one edit rewrites; `{0}` in `message` is the folder's name."""
    what = "the mounted Drive" if any(span.folder == "drive" for span in spans) else "Colab's folder /content"
    equivalent = any(span.is_mount or span.is_relative for span in spans)
    return Match(edit.start, edit.end, message.format(what), (edit,), keeps=Keeps.EQUIVALENT if equivalent else None)


def kept(span: PathSpan) -> Match:
    """A path that needs manual changes."""
    message = "Colab's folder is named where no variable can replace it"
    action = "write the folder's path on this machine there, or a path relative to the work folder"
    return Match(span.start, span.end, message, action=action, keeps=Keeps.NEEDS_HUMAN)
