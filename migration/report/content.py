"""The files of Colab's folder /content that a notebook reads although no cell creates them, as the report lists
them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from migration.python.source import CellSource
from migration.python.strings import without_comments

# Not the drive, and not Colab's own samples.
_READ = re.compile(
    r"""\b(?:read_\w+|open|imread|loadtxt|genfromtxt)\(\s*[rb]?(?P<quote>["'])"""
    r"""/content/(?P<path>(?!(?:g?drive|google_drive|sample_data)/)[^"'\n{}*]*\.\w+)(?P=quote)"""
    r"""(?!\s*,\s*(?:mode\s*=\s*)?["'][wax])"""
)
# Code that may create files without their names: downloads, archives, uploads, and commands other than of pip.
_CREATES = re.compile(
    r"^[ \t]*!(?![ \t]*pip\b)|^[ \t]*%%(?:bash|sh|shell|script|writefile|file)\b|^[ \t]*%(?:run|sx|system|cp|mv)\b"
    r"|\b(?:extract\w*|unpack_archive|ZipFile|urlretrieve|urlopen|requests|shutil|subprocess|system|popen|upload\w*"
    r"|(?<!nltk\.)\w*download\w*|get_file|kagglehub|gdown|wget|clone\w*|chdir)\b",
    re.MULTILINE | re.IGNORECASE,
)


def content_files(cells: Sequence[CellSource]) -> tuple[str, ...]:
    """The paths below /content, in the order of the notebook, each once. A file that the code also names elsewhere, or
    may get from a download or an archive, is left out."""
    if not any("/content/" in source.text for source in cells):
        return ()
    code = "\n".join(without_comments(source) for source in cells if source.language == "python")
    paths = dict.fromkeys(found["path"] for found in _READ.finditer(code))
    if not paths or _CREATES.search(code):
        return ()
    others = _READ.sub("", code)
    return tuple(path for path in paths if path.rpartition("/")[2] not in others)
