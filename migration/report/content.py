"""The files of Colab's folder /content that a notebook reads although no cell creates them, as the report lists
them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence, Set

from migration.colab.effects import FETCH, FILES, RUN, of_shell
from migration.python.source import CellSource
from migration.report.drive import NEAR, code_lines, must_exist, uses_of_paths

_PATH = re.compile(r"""(["'])/content/(?P<path>[^"'\n{}*]*\.\w+)\1""")
_STORED = re.compile(r"\s*(\w+)\s*=(?!=)")
_DEFINES = re.compile(r"\s*(?:async\s+)?def\b")
_NAME = re.compile(r"\w+")
_QUOTES = re.compile(r"""["'\\]""")
# Code that reads a file by its name alone.
_READS = re.compile(r"""\b(?:read|load|open|imread)\w*\(\s*[rf]?(["'])[^"'\n]*\1(?!\s*,\s*(?:mode\s*=\s*)?["'][wxa])""")
# The drive, and Colab's own samples, of which the files that Colab has are listed.
_OTHERS = ("drive/", "gdrive/", "google_drive/")
_SAMPLES = re.compile(
    r"\bsample_data/(?:california_housing_t(?:est|rain)\.csv|mnist_t(?:est|rain_small)\.csv|anscombe\.json)"
)
# Code that may create files without their names: downloads, archives, uploads, copies, and files of computed names.
_CREATES = re.compile(
    r"^[ \t]*%%(?:bash|sh|shell|script|writefile|file)\b|^[ \t]*%(?:run|sx|system|cp|mv)\b|\bsubprocess\."
    r"|\b(?:extract\w*|unpack_archive|ZipFile|urlretrieve|urlopen|system|popen|\w*upload\w*|clone_\w+|get_file|chdir"
    r"|(?<!nltk\.)(?<!files\.)(?<!yf\.)(?<!yfinance\.)\w*download\w*|copyfile|copytree|shutil\.(?:copy|move)\w*)\("
    r"|\bopen\(\s*(?:f[\"']|[^\s\"'])[^()\n]*,\s*(?:mode\s*=\s*)?[\"'][wxa]"
    r"|\.to_(?:csv|excel|json|parquet|pickle)\(\s*(?:f[\"']|(?:\w+|[\"'][^\"'\n]*[\"'])\s*(?:\.format\(|[+%]))",
    re.MULTILINE | re.IGNORECASE,
)
# Code directly before a file from which it creates others: an archive, or the original of a copy.
_CREATES_FROM = re.compile(
    r"(?:\b(?:unzip|unrar|gunzip|7z|tar)\s[^;&|]*|\b(?:open|ZipFile|TarFile|unpack_archive|copy\w*|move)\(\s*)$"
)
# Commands that create no file that is read, and those that name what they fetch.
_CREATES_NOTHING = re.compile(r"(?:mkdir|rm|rmdir|touch|chmod|git config)\b")
_FETCHES_BY_NAME = re.compile(r"(?:wget|curl|git)\s(?!.*(?:^|\s)(?:-i|-r|--recursive|--input-file)\b)[^{$]*")


def content_files(cells: Sequence[CellSource]) -> tuple[str, ...]:
    """The paths below /content, each once: Colab's own samples, then the files that the code reads before anything may
    create files without their names, such as an archive or a program. A file that it writes before it reads it,
    fetches by its name, or names elsewhere without reading it, is left out."""
    if not any("/content/" in source.text or "sample_data/" in source.text for source in cells):
        return ()
    code = code_lines(cells)
    samples = tuple(dict.fromkeys(found[0] for line in code for found in _SAMPLES.finditer(line)))
    commands = [command for source in cells for command in _creating_commands(source)]
    by_name = [command for command in commands if _FETCHES_BY_NAME.fullmatch(command)]
    others = set(commands).difference(by_name)
    every, code = code, list(_until_created(code, others))
    later = frozenset(_NAME.findall("\n".join(every[len(code) :])))
    code = list(_outside_functions(code)) if later else code
    fetched = {word.rstrip("/").rpartition("/")[2].removesuffix(".git") for text in by_name for word in text.split()}
    uses = uses_of_paths(
        code, lambda line: ((found["path"], found.start() + 1, found.end() - 1) for found in _PATH.finditer(line))
    )
    rest = _READS.sub("", _PATH.sub("", "\n".join(code)))
    read = (
        path
        for path, kinds in uses.items()
        if must_exist(path, kinds)
        and "creates" not in kinds
        and not path.startswith(_OTHERS)
        and not _SAMPLES.fullmatch(path)
        and fetched.isdisjoint(path.split("/"))
        and not _has_name_in(later, path, code)
        and path.rpartition("/")[2] not in rest
    )
    return (*samples, *read)


def _has_name_in(later: Set[str], path: str, code: Sequence[str]) -> bool:
    """Whether code gives one of the names of later code to a path."""
    stored = (_STORED.match(line) for line in code if path in line)
    return any(found and found[1] in later for found in stored)


def _until_created(code: Sequence[str], commands: Collection[str]) -> Iterator[str]:
    """The lines of code up to the first that may create files without their names, by a command or a function. Of that
    line, only the paths from which it creates others stay. No lines if a command is in none of them."""
    plain = [_QUOTES.sub("", line) for line in code]
    wanted = {_QUOTES.sub("", command) for command in commands}
    if all(any(command in line for line in plain) for command in wanted):
        for line, text in zip(code, plain, strict=True):
            if _CREATES.search(line) or any(command in text for command in wanted):
                yield _PATH.sub(_if_read, line)
                return
            yield line


def _if_read(path: re.Match[str]) -> str:
    """A path in a line that creates files, if the line reads it; empty otherwise."""
    start = path.start()
    return path[0] if _CREATES_FROM.search(path.string, max(start - NEAR, 0), start) else ""


def _outside_functions(code: Sequence[str]) -> Iterator[str]:
    """The lines of code that run where they are written: none of a function."""
    depth = None
    for line in code:
        indent = len(line) - len(line.lstrip())
        if depth is not None and line.strip() and indent <= depth:
            depth = None
        if depth is None:
            yield line
            depth = indent if _DEFINES.match(line) else None


def _creating_commands(source: CellSource) -> list[str]:
    """The commands of a cell that may create files: no installations, and none that only print or make folders."""
    creating = (effect for effect in of_shell(source) if effect.kind in (FETCH, FILES, RUN))
    texts = (next(iter(effect.about), "") for effect in creating)
    return [text for text in texts if not _CREATES_NOTHING.match(text)]
