"""The files of Colab's folder /content that a notebook reads although no cell creates them, as the report lists
them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from migration.python.source import CellSource
from migration.report.drive import code_lines, uses_of_paths

_PATH = re.compile(r"""(["'])/content/(?P<path>[^"'\n{}*]*\.\w+)\1""")
# The drive, and Colab's own samples.
_OTHERS = ("drive/", "gdrive/", "google_drive/", "sample_data/")
# Code that may create files without their names: downloads, archives, uploads, and commands other than of pip.
_CREATES = re.compile(
    r"^[ \t]*!(?![ \t]*pip\b)|^[ \t]*%%(?:bash|sh|shell|script|writefile|file)\b|^[ \t]*%(?:run|sx|system|cp|mv)\b"
    r"|\b(?:extract\w*|unpack_archive|ZipFile|urlretrieve|urlopen|requests|shutil|subprocess|system|popen|upload\w*"
    r"|(?<!nltk\.)\w*download\w*|get_file|kagglehub|gdown|wget|clone\w*|chdir)\b",
    re.MULTILINE | re.IGNORECASE,
)


def content_files(cells: Sequence[CellSource]) -> tuple[str, ...]:
    """The paths below /content, in the order of the notebook, each once. A file that the code also writes or names
    elsewhere, or may get from a download or an archive, is left out."""
    if not any("/content/" in source.text for source in cells):
        return ()
    code = code_lines(cells)
    text = "\n".join(code)
    if _CREATES.search(text):
        return ()
    rest = _PATH.sub("", text)
    uses = uses_of_paths(
        code, lambda line: ((found["path"], found.start() + 1, found.end() - 1) for found in _PATH.finditer(line))
    )
    return tuple(
        path
        for path, kinds in uses.items()
        if "reads" in kinds
        and kinds.isdisjoint({"writes", "creates"})
        and not path.startswith(_OTHERS)
        and path.rpartition("/")[2] not in rest
    )
