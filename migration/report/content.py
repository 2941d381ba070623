"""The files of Colab's folder /content that a notebook reads although no cell creates them, as the report lists
them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from migration.colab.effects import FETCH, FILES, RUN, of_shell
from migration.python.source import CellSource
from migration.report.drive import code_lines, must_exist, uses_of_paths

_PATH = re.compile(r"""(["'])/content/(?P<path>[^"'\n{}*]*\.\w+)\1""")
# The drive, and Colab's own samples.
_OTHERS = ("drive/", "gdrive/", "google_drive/", "sample_data/")
# Code that may create files without their names: downloads, archives, uploads, copies, and files of computed names.
_CREATES = re.compile(
    r"^[ \t]*%%(?:bash|sh|shell|script|writefile|file)\b|^[ \t]*%(?:run|sx|system|cp|mv)\b"
    r"|\b(?:extract\w*|unpack_archive|ZipFile|urlretrieve|urlopen|subprocess|system|popen|upload\w*"
    r"|(?<!nltk\.)\w*download\w*|get_file|kagglehub|gdown|wget|clone\w*|chdir|copyfile|copytree|shutil\.(?:copy|move)\w*"
    r"|open\(\s*(?:f[\"']|[^\s\"'])[^()\n]*,\s*(?:mode\s*=\s*)?[\"'][wxa])",
    re.MULTILINE | re.IGNORECASE,
)
# Commands that change files and folders but create no file that is read.
_CREATES_NOTHING = re.compile(r"(?:mkdir|rm|rmdir|touch|chmod|git config)\b")


def content_files(cells: Sequence[CellSource]) -> tuple[str, ...]:
    """The paths below /content, in the order of the notebook, each once. A file that the code writes before it reads
    it, or names elsewhere, or may get from a download or an archive, is left out."""
    if not any("/content/" in source.text for source in cells):
        return ()
    code = code_lines(cells)
    text = "\n".join(code)
    if _CREATES.search(text) or any(map(_runs_a_creator, cells)):
        return ()
    rest = _PATH.sub("", text)
    uses = uses_of_paths(
        code, lambda line: ((found["path"], found.start() + 1, found.end() - 1) for found in _PATH.finditer(line))
    )
    return tuple(
        path
        for path, kinds in uses.items()
        if must_exist(path, kinds)
        and "creates" not in kinds
        and not path.startswith(_OTHERS)
        and path.rpartition("/")[2] not in rest
    )


def _runs_a_creator(source: CellSource) -> bool:
    """Whether a command of a cell may create files: it is no installation, and does more than print or make folders."""
    creating = (effect for effect in of_shell(source) if effect.kind in (FETCH, FILES, RUN))
    return any(not _CREATES_NOTHING.match(next(iter(effect.about), "")) for effect in creating)
