"""The effects of two runs of a notebook, in a form that does not depend on the position of folders, and their
differences."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tools.traces.stubs import MAX_TEXT

Effect = tuple[int, str, str]  # the position of the cell in the original, or -1; the kind; the text

GUARDED = ("install", "fetch", "secret", "read", "write", "upload", "download")
"""Kinds that must not differ unless the report asks the user to act: installs, downloads, secrets and files."""
KINDS = (*GUARDED, "process", "folder", "module path", "environment", "sign-in", "question", "call", "print", "error")

# Characters compared of a text that the log has cut: after the names of folders are replaced, the cuts differ.
_COMPARED = MAX_TEXT * 3 // 4
_OWN_VARIABLES = re.compile(r"(?:LANDFALL_)?(?:WORK_DIR|DRIVE_DIR)|PATH|SHELL|PWD|OLDPWD")
_VARIABLES_SHOWN = re.compile(rf"'(?:{_OWN_VARIABLES.pattern}|COLAB_\w+)': '[^']*'(?:, )?")  # os.environ as an argument
# What Colab prints about a drive, or a migrated notebook in its place, and what differs by chance.
_SHOWN_BY_COLAB = re.compile(
    r"Mounted at|Drive already mounted|The drive is the folder ‹drive›|Out\[\d+\]: <(?:google\.colab|cv2_imshow)"
)
_PROMPT = re.compile(r"^Out\[\d+\]: ")
_CHANCE = re.compile(r"(?:0x|(?<=object at ))[0-9a-f]{6,}|CPU times: .*? total: [\d.]+ \w+|Wall time: [\d.]+ \w+")
_BACKGROUND = re.compile(r'\(trap "" HUP; \(?(?P<command>.*?)\)?(?: > /dev/null)?(?: 2>&1)? &\)$', re.DOTALL)
_REFRESHES = re.compile(r"apt(?:-get)? (?:-\S+ )*update\b")  # installs nothing
_INSTALLS = re.compile(r"(?:uv )?pip3? (?:install|uninstall|download)|(?:conda|mamba|npm|apt|apt-get)\b")
_FUNCTION = re.compile(r"((?:[^(]|\(\))*)\(")  # `a.B().c` of `a.B().c(1, 2)`
_LASTING = re.compile(
    r"download|upload|fetch|retrieve|clone|get_file|load_dataset|from_pretrained|install|login|authenticate|initialize|"
    r"secret|token|save|write|dump|mount",
    re.IGNORECASE,
)
_DELETES_SAMPLES = re.compile(r"(?:rm|shutil\.rmtree|os\.rmdir) (?:-\w+ )*(?:\./|‹work›/)?sample_data(?:/\*?)?")
_COLAB_MODULES = re.compile(r"(?<=PYTHONPATH=)/env/python(?=:|$)")  # Colab's folder of modules
_PLACE = re.compile(r" in line [\d, ]+$")  # of an error
_FETCHES = re.compile(r"wget|curl|git|gdown|aria2c|gsutil|kaggle")
_MY_DRIVE = r"(?:My\\? ?Drive|'My ?Drive'|\"My ?Drive\")"
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]* -m (?=pip\b|uv\b)")


@dataclass
class Difference:
    """Effects of only one of the runs, by kind. `flagged`: those that the report asks the user about. `own`: those that
    the original itself has, or does not have, outside Colab. `derived`: those of cells that compute with `flagged`
    ones."""

    lost: dict[str, list[str]] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)
    flagged: dict[str, list[str]] = field(default_factory=dict)
    derived: dict[str, list[str]] = field(default_factory=dict)
    own: dict[str, list[str]] = field(default_factory=dict)

    @property
    def kinds(self) -> set[str]:
        return {*self.lost, *self.added}


def compare(
    original: Sequence[Effect],
    migrated: Sequence[Effect],
    human: Collection[int],
    outside: Sequence[Effect] = (),
    dependent: Collection[int] = (),
) -> Difference:
    """The difference of two traces with normalised folder names. `human`: the cells that need manual changes.
    `outside`: the effects of the original outside Colab. `dependent`: the cells that compute with the results of
    `human`."""
    mounts = tuple(dict.fromkeys(text for _, kind, text in original if kind == "mount"))
    before, after = _plain_all(original, "/content", mounts), _plain_all(migrated, "/started")
    elsewhere = Counter(_plain_all(outside, "/started"))
    # Cells that end earlier outside Colab than on Colab: an error in the same line of both runs is not one.
    failed = {effect[0] for effect in outside if effect[1] == "error" and effect not in original}
    found = Difference()

    def add(effect: Effect, otherwise: dict[str, list[str]], *, is_own: bool) -> None:
        cell, kind, text = effect
        if cell in human:
            otherwise = found.flagged
        elif is_own or cell in dependent:
            otherwise = found.own if is_own else found.derived
        otherwise.setdefault(kind, []).append(text)

    for effect in _only_first(before, after):
        is_own = bool(outside) and effect[0] not in failed and not elsewhere[effect]
        add(effect, found.lost, is_own=is_own and _may_be_of_colab(effect))
    for effect in _only_first(after, before):
        add(effect, found.added, is_own=elsewhere[effect] > 0)
    return found


def _may_be_of_colab(effect: Effect) -> bool:
    """Whether the author can do without an effect outside Colab: a print, or a call of a package that neither fetches,
    stores nor signs in, such as another library for maps."""
    _, kind, text = effect
    function = _FUNCTION.match(text) if kind == "call" else None
    return kind == "print" or (function is not None and not _LASTING.search(function[1]))


def _only_first(first: Sequence[Effect], second: Sequence[Effect]) -> Iterable[Effect]:
    """The effects that the second run does not have, neither in the same cell nor in another."""
    here = Counter(first) - Counter(second)
    there = Counter((kind, text) for _, kind, text in (Counter(second) - Counter(first)).elements())
    for effect in first:
        if here[effect] > 0:
            here[effect] -= 1
            if there[effect[1:]] > 0:
                there[effect[1:]] -= 1
            else:
                yield effect


def _plain_all(effects: Sequence[Effect], start: str, mounts: Sequence[str] = ()) -> list[Effect]:
    return _without_samples([(effect[0], *key) for effect in effects for key in _plain(effect, start, mounts)])


def _without_samples(effects: list[Effect]) -> list[Effect]:
    """The effects without deletions of `sample_data`, which only Colab's machine has: unless the notebook names the
    folder elsewhere, or has changed to another folder, where it may be a folder of the author."""
    kept: list[Effect] = []
    folder = "‹work›"
    for effect in effects:
        folder = effect[2] if effect[1] == "folder" else folder
        if folder != "‹work›" or not _DELETES_SAMPLES.fullmatch(effect[2]):
            kept.append(effect)
    return effects if any("sample_data" in text for _, _, text in kept) else kept


def _plain(effect: Effect, start: str, mounts: Sequence[str]) -> list[tuple[str, str]]:
    """An effect without the parts that may differ between the machines; empty if all of it may differ."""
    _, kind, text = effect
    is_cut = len(text) >= MAX_TEXT
    text = _CHANCE.sub("", _with_folders(_VARIABLES_SHOWN.sub("", text), start, mounts))
    text = text[:_COMPARED] if is_cut else text
    if kind == "environment" and _OWN_VARIABLES.match(text):
        return []
    if kind == "secret" and (_OWN_VARIABLES.fullmatch(text) or text == "PYTHONPATH"):  # read by `dict(os.environ)`
        return []
    if kind == "write" and re.search(r"os\.mkdir ‹(?:work|drive)›(?:/(?:drive|uploads|downloads))?/?$", text):
        return []
    if kind == "mount":
        return []
    if kind == "write" and re.fullmatch(r"os\.symlink ‹(?:work|drive)›", text):
        return []  # the mount point
    if kind in ("read", "write") and text.endswith(("landfall_runtime.py", ".pyc")):
        return []
    if kind == "print" and (not text.strip() or _SHOWN_BY_COLAB.match(text)):
        return []
    if kind == "module path" and text == "‹work›":
        return []  # is on Colab's module path by default
    if kind == "print":
        text = _PROMPT.sub("", text)
    if kind == "error":
        text = _PLACE.sub("", text)  # lines differ
    if kind == "process":
        return list(_process(text))
    return [(kind, text)]


def _with_folders(text: str, start: str, mounts: Sequence[str]) -> str:
    """The text with marks instead of the folders. On Colab the drive is where the notebook has mounted it, or in a
    folder of a usual name."""
    text = _COLAB_MODULES.sub("", text)
    for name in ("WORK_DIR", "DRIVE_DIR"):
        variable = rf"\$\{{?(?:LANDFALL_)?{name}\}}?"
        text = re.sub(f'"{variable}"|{variable}', "‹work›" if name == "WORK_DIR" else "‹drive›", text)
    if start == "/content":
        for mount in (mount for mount in mounts if mount not in ("/", "/content")):
            text = re.sub(rf"(?<![\w.]){re.escape(mount)}(?:/{_MY_DRIVE})?(?![\w-])", "‹drive›", text)
            below = re.escape(mount.removeprefix("/content/"))
            text = re.sub(rf"(?<![\w./])(?:\./)?{below}/{_MY_DRIVE}(?![\w-])", "‹drive›", text)
        text = re.sub(rf"(?<![\w.])/content/(?:g|google_)?[dD]rive/{_MY_DRIVE}(?![\w-])", "‹drive›", text)
        text = re.sub(r"(?<![\w.])/content/(?:g|google_)?drive(?![\w-])", "‹drive›", text)
        text = re.sub(r"^/gdrive$", "‹drive›", text)
        text = re.sub(rf"(?<![\w.])/g?drive/{_MY_DRIVE}(?![\w-])", "‹drive›", text)
        text = re.sub(rf"(?<![\w./])(?:\./)?g?drive/{_MY_DRIVE}(?![\w-])", "‹drive›", text)
        return re.sub(r"(?<![\w./:])(/?)/content(?![\w-])", r"\1‹work›", text)
    text = re.sub(rf"(?:/started/drive|‹drive›)(?:/{_MY_DRIVE})?(?![\w-])", "‹drive›", text)
    return text.replace("/started", "‹work›")


def _process(text: str) -> Iterable[tuple[str, str]]:
    """The commands of a shell line, each by its kind."""
    text = text.strip()
    if background := _BACKGROUND.fullmatch(text):
        text = background["command"]
    text = text.removesuffix("&").strip()
    text = re.sub(r' --python (?:"\$\(which python\)"|\$\(which python\))', "", text).replace(" --system", "")
    text = re.sub(r"(?:>>?|2>)\s*(?:/dev/null|&1|nohup\.out)", "", text)
    for command in re.split(r"\s*(?:&&|;|\|\|)\s*", text):
        try:
            words = " ".join(shlex.split(command, comments=True))
        except ValueError:
            words = " ".join(command.split())
        words = _PYTHON.sub("", words.removeprefix("sudo ").strip("() "))
        words = re.sub(r"^(?:\S*/)?pip3?(?= )", "pip", words)
        # Colab's pip installs for the kernel with or without it; a virtual environment refuses it.
        words = re.sub(r"^(pip install\b.*?) --user(?= |$)", r"\1", words)
        if words and words != "true" and not _REFRESHES.match(words):
            kind = "install" if _INSTALLS.match(words) else "fetch" if _FETCHES.match(words) else "process"
            yield kind, words


def summarised(found: Mapping[str, Difference]) -> dict[str, int]:
    """Notebooks by the outcome of their comparison."""
    counts: Counter[str] = Counter()
    for difference in found.values():
        kinds = difference.kinds
        if kinds & set(GUARDED):
            what = "silent difference in installs, fetches, secrets or files"
        elif kinds:
            what = "other difference"
        elif difference.derived:
            what = "equal except for what the report asks about and what follows from it"
        elif difference.flagged:
            what = "equal except for what the report asks the user about"
        else:
            what = "equal except for what the original does outside Colab" if difference.own else "equal"
        counts[what] += 1
    return dict(counts)
