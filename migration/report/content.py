"""The files of Colab's folder /content that a notebook reads although no cell creates them, as the report lists
them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from migration.colab.effects import FETCH, FILES, RUN, of_shell
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.strings import outside_comments, read_cell
from migration.report.drive import code_lines, must_exist, uses_of_paths
from migration.rules.hazards import written_paths

_PATH = re.compile(r"""(["'])/content/(?P<path>[^"'\n{}*]*\.\w+)\1""")
# The drive, and Colab's own samples, of which the files that Colab has are listed.
_OTHERS = ("drive/", "gdrive/", "google_drive/", "sample_data/")
_SAMPLES = re.compile(
    r"\bsample_data/(?:california_housing_t(?:est|rain)\.csv|mnist_t(?:est|rain_small)\.csv|anscombe\.json)"
)
# Code that may create files without their names: downloads, archives, uploads, copies, and files of computed names.
_CREATES = re.compile(
    r"^[ \t]*%%(?:bash|sh|shell|script|writefile|file)\b|^[ \t]*%(?:run|sx|system|cp|mv)\b"
    r"|\b(?:extract\w*|unpack_archive|ZipFile|urlretrieve|urlopen|subprocess|system|popen|upload\w*"
    r"|(?<!nltk\.)(?<!files\.)\w*download\w*|get_file|kagglehub|gdown|wget|clone\w*|chdir|copyfile|copytree"
    r"|shutil\.(?:copy|move)\w*|open\(\s*(?:f[\"']|[^\s\"'])[^()\n]*,\s*(?:mode\s*=\s*)?[\"'][wxa])",
    re.MULTILINE | re.IGNORECASE,
)
# Of these, those that create files from the one that they name.
_UNPACKS = re.compile(r"extract\w*|unpack_archive|ZipFile|shutil\.(?:copy|move)\w*|copyfile", re.IGNORECASE)
_PACKS = re.compile(r"""ZipFile\([^()\n]*["'][wxa]["']""", re.IGNORECASE)
_IMPORT = re.compile(r"^[ \t]*(?:import|from)\b[^;\n]*", re.MULTILINE)
# Programs that read the files of their arguments, except those that they write, and options of the latter.
_READS = re.compile(r"unzip|unrar|7z\w?|tar|gunzip|cp|mv|python[\d.]*|bash|sh|cat|head|pip3?")
_MAKES_ARCHIVE = re.compile(r"tar -?\w*c|7z\w? a\b")
_OUTPUT = re.compile(r"-o|--?(?:out|save|log|dest|result|export|target|name|project)[\w-]*")
_UNPACKING = re.compile(r"(?:unpack|unzip|unrar|7z\w?|tar|gunzip|cp|mv)\s")
_ARCHIVE = re.compile(r".*\.(?:zip|tar|gz|tgz|bz2|xz|rar|7z)")
_WORD = re.compile(r"/content/(?P<path>[^{}$*?]*\.\w+)")
# Commands that create no file that is read, and those that name what they fetch.
_CREATES_NOTHING = re.compile(r"(?:mkdir|rm|rmdir|touch|chmod|git config)\b")
_FETCHES_BY_NAME = re.compile(r"(?:wget|curl|git)\s(?!.*(?:^|\s)(?:-i|-r|--recursive|--input-file)\b)[^{$]*")


def content_files(cells: Sequence[CellSource]) -> tuple[str, ...]:
    """The paths below /content, each once: Colab's own samples, then the files that the code or a command reads. A file
    that it writes before it reads it, or names elsewhere, or may get from a download or an archive, is left out; a
    command that unpacks or copies a file does not create that one."""
    if not any("/content/" in source.text or "sample_data/" in source.text for source in cells):
        return ()
    code = code_lines(cells)
    samples = tuple(dict.fromkeys(found[0] for line in code for found in _SAMPLES.finditer(line)))
    creators = [text for source in cells for text in (*_creating_code(source), *_creating_commands(source))]
    by_name = [text for text in creators if _FETCHES_BY_NAME.fullmatch(text)]
    unknown = [text for text in creators if text not in by_name]
    if "" in unknown:
        return samples
    fetched = {word.rstrip("/").rpartition("/")[2].removesuffix(".git") for text in by_name for word in text.split()}
    rest = _PATH.sub("", "\n".join(code))
    named = [found for source in cells for found in _read_by_commands(source)]
    uses = uses_of_paths(
        code, lambda line: ((found["path"], found.start() + 1, found.end() - 1) for found in _PATH.finditer(line))
    )
    read = [path for path, kinds in uses.items() if must_exist(path, kinds) and "creates" not in kinds]
    read += [path for path, _ in named if not {"writes", "creates"} & set(uses.get(path, ()))]
    return (
        *samples,
        *(
            path
            for path in dict.fromkeys(read)
            if not path.startswith(_OTHERS)
            and fetched.isdisjoint(path.split("/"))
            and len(re.findall(rf"(?<![\w.-]){re.escape(path.rpartition('/')[2])}", rest)) == named.count((path, False))
            and all(_keeps(text, path) for text in unknown)
        ),
    )


def _keeps(creator: str, path: str) -> bool:
    """Whether code that creates unknown files does not create this one: it reads the file, or unpacks or copies another
    one and this is an archive."""
    return f"/content/{path}" in creator or bool(_ARCHIVE.fullmatch(path) and _UNPACKING.match(creator))


def _read_by_commands(source: CellSource) -> Iterator[tuple[str, bool]]:
    """The files of /content that the shell commands of a cell read, and whether each is in quotation marks."""
    if "/content/" not in source.text:
        return
    for text in shell_texts(source):
        for command in text.commands:
            line = " ".join(word.value for word in command.words)
            if not _READS.fullmatch(command.program) or _MAKES_ARCHIVE.match(line):
                continue
            written = set(written_paths(command))
            for before, word in pairwise(command.words):
                option, equals, value = word.value.rpartition("=")
                found = _WORD.fullmatch(value)
                if found and value not in written and not _OUTPUT.fullmatch(option if equals else before.value):
                    yield found["path"], not word.raw.endswith(value)


def _creating_code(source: CellSource) -> list[str]:
    """The code of a cell if it may create files, outside its texts and shell commands; empty if it does more than to
    unpack files."""
    found = outside_comments(source, _CREATES)
    literals = read_cell(source)[0] if found and source.is_python else []
    others = [(each.start, each.end) for each in literals]
    others += [(each.start, each.end) for each in source.commands if found and each.kind == "shell"]
    others += [match.span() for match in _IMPORT.finditer(source.text)]
    found = [match for match in found if not any(start < match.start() < end for start, end in others)]
    is_unpacking = all(_UNPACKS.fullmatch(match[0]) for match in found) and not _PACKS.search(source.text)
    return [f"unpack {source.text}" if is_unpacking else ""] if found else []


def _creating_commands(source: CellSource) -> list[str]:
    """The commands of a cell that may create files: no installations, and none that only print or make folders."""
    creating = (effect for effect in of_shell(source) if effect.kind in (FETCH, FILES, RUN))
    texts = (next(iter(effect.about), "") for effect in creating)
    return [text for text in texts if not _CREATES_NOTHING.match(text)]
