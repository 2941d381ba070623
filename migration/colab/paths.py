r"""Finds Colab's folders in plain text: `/content` and the mount points of Google Drive. A path is recognised by the
characters around it: `/content` must begin a path (not `./content`, `https://x/content`,
`{base}/content`) and end a name (not `/contents`, `/content-type`, the tag `</content>`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from migration.notebook.texts import FIELD, holding

ROOT = "/content"
Folder = Literal["work", "drive"]

TRIGGER = holding(
    *("/content", "rive"),
    like=r"/content\b|My\\* ?Drive|My%20Drive|[Ss]hared ?[Dd]rives|[Gg](?:oogle_?)?[Dd]rive"
    r"|(?:/(?:my)?|\bcd[ \t]+[\"']?)drive\b",
)
"""A cheap test whether a text may contain a path."""

_AFTER = r"(?![A-Za-z0-9_-]|\.\w)"
_NEVER = r"(?!)"
_MY_DRIVE = r"""/+(?P<{0}>["']?)My(?:\\* |%20)?Drive(?P={0})"""
_FLAG = re.compile(r"""(?:^|[\s"'=,(\[])-[A-Za-z]$""")
_DRIVE_LETTER = re.compile(r"(?:^|[^\w/])[A-Z]:$")
_REMOTE = re.compile(r"[\w.-]+@[\w.-]+:$")
_ENDS_ADDRESS = re.compile(r"""[\s"'<>`]""")
_CLOSED_QUOTE = re.compile(r"""[\w})\]$]["']$""")
_AFTER_PREFIX = re.compile(r"""(?:^|\W)[bfru]{1,2}["']$""", re.IGNORECASE)
_BELOW = re.compile(r"\\?/")
# `cd` and what follows its folder, of which `gdrive` is the complete name: `%cd gdrive`, then `%cd My Drive`.
_ENTERS = re.compile(r"""(?:^|[%!;&|(])[ \t]*cd[ \t]+["']?\Z""", re.MULTILINE)
_ENDS = r"""(?=/?["']?[ \t]*(?:[;&|#)\n]|$))"""
_NO_BOUNDARY = frozenset("._~-})]*%?/\\$" + FIELD)

DEFAULT_MOUNTS = ("/content/drive", "/content/gdrive", "/gdrive", "/content/google_drive")


@dataclass(frozen=True)
class PathSpan:
    """The characters `start:end` of a text that name a folder of Colab; the rest of the path follows.

    `is_mount`: it is the mount point itself, below which Colab has `MyDrive`. `is_relative`: the path is valid only if
    the current folder is `/content`. `is_escaped`: its slashes are escaped (`\\/content`), so that no variable can
    replace it.
    """

    start: int
    end: int
    folder: Folder
    is_mount: bool = False
    is_relative: bool = False
    is_escaped: bool = False


def find_paths(text: str, mounts: tuple[str, ...], *, quotes: str = "") -> list[PathSpan]:
    """The folders of Colab in `text`, in order, without texts that only look like one. `quotes` contains for each
    character of shell text how it is quoted (`migration.shell`), to distinguish opening and closing quotation marks.
    """
    if not may_name_folder(text, mounts):
        return []
    return [span for found in _pattern(mounts).finditer(text) if (span := _span(text, found, quotes)) is not None]


def may_name_folder(text: str, mounts: tuple[str, ...]) -> bool:
    """Whether a text may contain a path."""
    return TRIGGER.fires(text) or any(mount in text for mount in mounts)


@lru_cache(maxsize=64)
def _pattern(mounts: tuple[str, ...]) -> re.Pattern[str]:
    named = mounts != DEFAULT_MOUNTS
    # A notebook that mounts nothing may have an unrelated `/gdrive`.
    roots = [root for mount in mounts if (root := mount.rstrip("/")) and (named or root.startswith(ROOT))]
    roots.sort(key=len, reverse=True)
    # If the notebook mounts its drive elsewhere, or at /content itself, only `MyDrive` identifies a path on it.
    others = [root for root in DEFAULT_MOUNTS if root not in roots] + [ROOT] * (ROOT in roots)
    below = [root[len(ROOT) + 1 :] for root in (*roots, *others) if root.startswith(ROOT + "/")]
    clouds = [name for name in below if named and ROOT + "/" + name in roots]
    plain = [name for name in clouds if name != "drive"]
    places = [root for root in roots if root != ROOT]
    shared = r"(?=/+[Ss]hared ?[Dd]rives)"
    parts = [
        rf"(?P<escaped>\\/content{_AFTER})",
        rf"(?P<mount>{_any(places)})(?P<my>{_MY_DRIVE.format('q1')}{_AFTER})?(?P<shared>{shared})?{_AFTER}"
        * bool(places),
        rf"(?P<inside>(?:{_any(others)})(?:{_MY_DRIVE.format('q2')}{_AFTER}|{shared}))" * bool(others),
        rf"(?P<relative>(?:\./)?(?:{_any(below)})(?:{_MY_DRIVE.format('q3')}{_AFTER}|{shared}))" * bool(below),
        rf"(?P<cloud>\./(?:{_any(clouds)}){_AFTER}|(?:{_any(plain) or _NEVER})(?=/))" * bool(clouds),
        rf"(?P<entered>(?:{_any(clouds)}){_ENDS})" * bool(clouds),
        rf"(?P<work>{ROOT}){_AFTER}",
    ]
    return re.compile("|".join(part for part in parts if part))


def _any(paths: list[str]) -> str:
    return "|".join(re.escape(path).replace("/", "/+") for path in paths)


def _span(text: str, found: re.Match[str], quotes: str) -> PathSpan | None:
    start, end = found.span()
    groups = found.groupdict()
    if text[start - 1 : start] == "<" and not _BELOW.match(text, end):
        return None  # a tag of XML; what follows `<` of the shell is a file below the folder
    if groups["escaped"]:
        # The text before it may be the delimiter of `sed`, or other slashes of a URL.
        before = text[max(0, start - 2) : start]
        opens = before.endswith("/") and not before.endswith(("\\/", ":/"))
        is_path = opens or begins_path(text, start, quotes)
        return PathSpan(start, end, "work", is_escaped=True) if is_path else None
    if groups.get("entered") and not _ENTERS.search(text, max(0, start - 20), start):
        return None  # a word of a text
    is_cloud = bool(groups.get("cloud") or groups.get("entered"))
    is_relative = is_cloud or bool(groups.get("relative"))
    if not (_begins_relative(text, start, quotes) if is_relative else begins_path(text, start, quotes)):
        return None
    if groups["work"]:
        return PathSpan(start, end, "work")
    is_mount = is_cloud or bool(groups.get("mount") and not groups["my"] and groups["shared"] is None)
    return PathSpan(start, end, "drive", is_mount=is_mount, is_relative=is_relative)


def begins_path(text: str, at: int, quotes: str = "") -> bool:
    """Whether an absolute path may begin at a position of a text; `quotes`: see `find_paths`."""
    if at == 0:
        return True
    before = text[max(0, at - 300) : at]
    char = before[-1]
    if char == "/":
        return before.endswith("file://")
    if char in _NO_BOUNDARY:
        return False
    if char.isascii() and char.isalnum():
        return bool(_FLAG.search(before))
    if char in "\"'":
        if quotes and quotes[at - 1] == ("d" if char == '"' else "s") and not before.endswith('\\"'):
            return at < len(quotes) and quotes[at] == quotes[at - 1] and begins_path(text, at - 1, quotes)
        if _CLOSED_QUOTE.search(before) and not _AFTER_PREFIX.search(before):
            return False
    if char == ":" and (_DRIVE_LETTER.search(before) or _REMOTE.search(before)):
        return False
    address = before.rfind("://")
    return address < 0 or _ENDS_ADDRESS.search(before, address) is not None


def _begins_relative(text: str, at: int, quotes: str) -> bool:
    """Whether a relative path begins at a position."""
    return at == 0 or (text[at - 1] in " \t\n\"'=(,[`:" and begins_path(text, at, quotes))
