"""The files of Colab's folder /content that a notebook reads although no cell creates them, as the report lists
them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from migration.colab.effects import FETCH, FILES, RUN, of_shell
from migration.python.source import CellSource
from migration.report.drive import code_lines, must_exist, uses_of_paths

_PATH = re.compile(r"""(["'])/content/(?P<path>[^"'\n{}*]*\.\w+)\1""")
# The drive, and Colab's own samples, of which the files that Colab has are listed.
_OTHERS = ("drive/", "gdrive/", "google_drive/", "sample_data/")
_SAMPLES = re.compile(
    r"\bsample_data/(?:california_housing_t(?:est|rain)\.csv|mnist_t(?:est|rain_small)\.csv|anscombe\.json)"
)
# Code that may create files without their names: downloads, archives, uploads, copies, and files of computed names.
_CREATES = re.compile(
    r"^[ \t]*%%(?:bash|sh|shell|script|writefile|file)\b|^[ \t]*%(?:run|sx|system|cp|mv)\b|\bsubprocess\."
    r"|\b(?:extract\w*|unpack_archive|ZipFile|urlretrieve|urlopen|system|popen|\w*upload\w*|clone_\w+|get_file|chdir"
    r"|(?<!nltk\.)(?<!files\.)\w*download\w*|copyfile|copytree|shutil\.(?:copy|move)\w*)\("
    r"|\bopen\(\s*(?:f[\"']|[^\s\"'])[^()\n]*,\s*(?:mode\s*=\s*)?[\"'][wxa]",
    re.MULTILINE | re.IGNORECASE,
)
# Commands that create no file that is read, and those that name what they fetch.
_CREATES_NOTHING = re.compile(r"(?:mkdir|rm|rmdir|touch|chmod|git config)\b")
_FETCHES_BY_NAME = re.compile(r"(?:wget|curl|git)\s(?!.*(?:^|\s)(?:-i|-r|--recursive|--input-file)\b)[^{$]*")


def content_files(cells: Sequence[CellSource]) -> tuple[str, ...]:
    """The paths below /content, each once: Colab's own samples, then the files that the code reads. A file that it
    writes before it reads it, or names elsewhere, or may get from a download or an archive, is left out."""
    if not any("/content/" in source.text or "sample_data/" in source.text for source in cells):
        return ()
    code = code_lines(cells)
    samples = tuple(dict.fromkeys(found[0] for line in code for found in _SAMPLES.finditer(line)))
    commands = [command for source in cells for command in _creating_commands(source)]
    text = "\n".join(code)
    if _CREATES.search(text) or not all(map(_FETCHES_BY_NAME.fullmatch, commands)):
        return samples
    fetched = {
        word.rstrip("/").rpartition("/")[2].removesuffix(".git") for command in commands for word in command.split()
    }
    rest = _PATH.sub("", text)
    uses = uses_of_paths(
        code, lambda line: ((found["path"], found.start() + 1, found.end() - 1) for found in _PATH.finditer(line))
    )
    read = (
        path
        for path, kinds in uses.items()
        if must_exist(path, kinds)
        and "creates" not in kinds
        and not path.startswith(_OTHERS)
        and fetched.isdisjoint(path.split("/"))
        and path.rpartition("/")[2] not in rest
    )
    return (*samples, *read)


def _creating_commands(source: CellSource) -> list[str]:
    """The commands of a cell that may create files: no installations, and none that only print or make folders."""
    creating = (effect for effect in of_shell(source) if effect.kind in (FETCH, FILES, RUN))
    texts = (next(iter(effect.about), "") for effect in creating)
    return [text for text in texts if not _CREATES_NOTHING.match(text)]
