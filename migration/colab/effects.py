"""Effects of a block of statements other than assignments: downloads, installations, prompts, files, settings. A branch
for Colab may be removed only if it has no such effect, or if the other branch has the same ones.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from migration import shell
from migration.colab.paths import DEFAULT_MOUNTS, find_paths
from migration.python.shell_texts import list_commands, shell_texts
from migration.python.source import CellSource, once_a_cell
from migration.python.statements import end_of
from migration.python.trees import children, last_name, walk
from migration.shell.installs import pip_call

INSTALL, FETCH, SECRET, FILES, FOLDER, ENVIRONMENT, RUN, DELETE, CALL = (
    *("installs", "fetches", "reads secrets", "names files", "changes folders"),
    *("sets the environment", "runs code", "deletes files", "calls a function of the notebook"),
)
PLACES = frozenset({FETCH, FILES, FOLDER})
"""Kinds of effects on which the rest of a notebook depends: if they are kept, the branch for other machines does not
apply."""

SETS_UP = frozenset({INSTALL, FETCH, SECRET, ENVIRONMENT})

MAGIC, MESSAGE, ADVICE = "runs a magic", "shows a message", "says what to install"
_NO_EFFECT = frozenset({MAGIC, MESSAGE, ADVICE})
"""Kinds of statements that decide no branch, because they change nothing outside the notebook."""

_NAMED = SETS_UP | {FOLDER} | _NO_EFFECT
_NEVER_NEEDED = frozenset({DELETE, CALL})
"""Kinds of effects for which alone no branch for Colab is kept."""

_SAMPLES = "sample_data"
_NAMES_PATH = re.compile(r"[\w.]*(?:join|Path)\(|[rbfuRBFU]{0,2}[\"']")  # and neither creates nor fetches it
_WORDS = re.compile(r"(?<![\w./~*$-])[\w./~*$][\w./~*$-]*")


def _by_name(names: Mapping[str, str]) -> dict[str, str]:
    """The kind of effect of each name, from the names of each kind."""
    return {name: kind for kind, listed in names.items() for name in listed.split()}


_PROGRAMS = _by_name(
    {
        "": "ls pwd echo cat head tail nvidia-smi which whereis type df du free lscpu uname date tree wc hostname ps "
        "find grep true cd printf lsb_release top",
        INSTALL: "pip pip3 uv conda mamba micromamba apt apt-get aptitude dpkg npm yarn gem cargo brew poetry "
        "easy_install add-apt-repository make cmake ninja",
        FETCH: "wget curl git gdown aria2c axel gsutil gcloud kaggle svn hg rsync scp rclone azcopy aws dvc "
        "huggingface-cli hf",
        FILES: "cp mv mkdir ln unzip tar 7z gunzip touch",
        DELETE: "rm rmdir",
    }
)
_VERSION = frozenset({"--version", "-V", "-v", "version", "list", "freeze", "show", "check", "--help", "-h"})
_WORKING_MAGICS = _by_name(
    {
        INSTALL: "pip conda mamba uv",
        FOLDER: "cd pushd popd",
        ENVIRONMENT: "env set_env",
        RUN: "run system sx sh bash shell script tensorboard",
        FILES: "mkdir cp mv unzip",
        DELETE: "rm rmdir",
    }
)
# An extension, whose magics, such as `%tensorboard`, may be in any cell below.
_LOADS = re.compile(r"\s*(?:re)?load_ext\s+(?!\s|google\.colab|autoreload)")
_CALLS = _by_name(
    {
        FETCH: "urlretrieve urlopen get_file download_file download_folder download_url snapshot_download "
        "hf_hub_download load_dataset download_and_extract wget gdown clone_from",
        SECRET: "authenticate_user login notebook_login interpreter_login Authenticate getpass Initialize",
        FILES: "upload upload_file download makedirs mkdir copy copy2 copyfile copytree move symlink symlink_to rename "
        "extractall unpack_archive make_archive write write_text write_bytes save savefig to_csv dump",
        DELETE: "rmtree remove unlink rmdir",
        FOLDER: "chdir addsitedir",
        ENVIRONMENT: "putenv load_dotenv",
    }
)
_LOG_INS = frozenset({"login", "notebook_login", "interpreter_login"})
_LOGS_IN = {"huggingface-cli": "huggingface", "hf": "huggingface", "wandb": "wandb"}  # with `login`: to which service
_USER_INTERFACE = re.compile(
    r"(?:google\.colab\.|colab\.)?(?:output|data_table|widgets|runtime|snippets|syntax|_message|_shell|_installation_commands"
    r"|_reprs|colabtools\.\w+)\.[\w.]+|cv2_imshow|print|pprint|display|HTML|Javascript|IFrame|Image|Markdown|"
    r"display_\w+|clear_output|set_matplotlib_formats|enable_\w+|disable_\w+|register_callback|eval_js|"
    r"files\.view|drive\.flush_and_unmount|(?:\w+\.)*(?:set_option|set_verbosity\w*|basicConfig|"
    r"filterwarnings|simplefilter|info|warning|warn|debug|error|setLevel|set_theme|set_style|flush|seed|sleep|use|"
    r"init_notebook_mode|set_default_renderer|output_notebook|notebook_extension|extension)"
)
_ONLY_COLAB = re.compile(
    r"TPU(?![a-z])|colab_tpu|torch_xla|cloud[_-]tpu|\beval_js\(|_message\.blocking_request|getUserMedia"
)
_NO_PATH = re.compile(r"[<>:]")  # in HTML, an address or the name of a device
_NAME = re.compile(r"[A-Za-z][\w.-]*$")
_VERBS = frozenset({"pip", "pip3", "apt", "apt-get", "uv", "conda", "python", "python3", "update", "upgrade"})
_INSTALLERS = frozenset({"pip", "setuptools", "wheel"})
_INSTALLS = re.compile(r"\binstall|\bconda\b", re.IGNORECASE)


@dataclass(frozen=True)
class Effect:
    """One effect: its kind, the position of its text in the cell, and its object, for comparison."""

    kind: str
    start: int
    end: int
    about: frozenset[str] = frozenset()


Functions = Mapping[str, tuple[str, ...]]  # the kinds of effects of the notebook's functions, by name
_NO_FUNCTIONS: Functions = {}


def effects(source: CellSource, block: Sequence[ast.stmt], functions: Functions = _NO_FUNCTIONS) -> list[Effect]:
    """The effects of a block of a cell, in the order of the text, without those inside its functions; a call of one of
    `functions` has the effects of its body."""
    return [effect for effect in _all(source, block, functions) if effect.kind not in _NO_EFFECT]


def lost(
    source: CellSource, removed: Sequence[ast.stmt], kept: Sequence[ast.stmt], functions: Functions = _NO_FUNCTIONS
) -> list[Effect]:
    """What a removed block sets up, runs as a program or magic, or says, and the kept one does not, in the order of the
    text. Files and calls of Python functions are not included: each branch has its own."""
    gone, left = (_all(source, block, functions) for block in (removed, kept))
    return [
        effect
        for effect in different(gone, left)
        if effect.kind in _NAMED or (effect.kind == RUN and source.is_in_command(effect.start))
    ]


def _all(source: CellSource, block: Sequence[ast.stmt], functions: Functions) -> list[Effect]:
    """The effects of a block, and its magics and messages without any."""
    found = [effect for statement in block for effect in _of_statement(source, statement, functions)]
    spans = [_span(source, statement) for statement in block]
    others = [*of_shell(source), *_of_magics(source)]
    found += [effect for effect in others if any(start <= effect.start < end for start, end in spans)]
    return sorted(dict.fromkeys(found), key=lambda effect: effect.start)


def of_function(source: CellSource, node: ast.FunctionDef, functions: Functions = _NO_FUNCTIONS) -> tuple[str, ...]:
    """The kinds of effects that a call of a function has, except transfers in the browser and plain computation."""
    kinds = []
    for effect in effects(source, node.body, functions):
        name = source.text[effect.start : effect.end].partition("(")[0]
        runs = effect.kind == RUN and (source.is_in_command(effect.start) or name in functions)
        if name.partition(".")[0] != "files" and (runs or effect.kind in {*SETS_UP, *PLACES}):
            kinds.append(effect.kind)
    mounts = any(isinstance(part, ast.Call) and last_name(part.func) == "mount" for part in walk(node))
    return tuple(sorted({*kinds, *[FILES] * mounts}))


def deletes(source: CellSource, block: Sequence[ast.stmt]) -> bool:
    """Whether a block deletes files that it does not create or fetch, except Colab's samples."""
    found = [(effect.kind, source.text[effect.start : effect.end]) for effect in effects(source, block)]
    others = " ".join(text for kind, text in found if kind in (FETCH, FILES) and not _NAMES_PATH.match(text))
    deleted = (_WORDS.findall(text.partition(",")[0])[1:] for kind, text in found if kind == DELETE)
    names = (posixpath.basename(path.rstrip("/*")) for paths in deleted for path in paths or ("",))
    return any(not name or name not in others for name in names if name != _SAMPLES)


def uncovered(colab: Sequence[Effect], local: Sequence[Effect]) -> list[Effect]:
    """Effects of the branch for Colab without any counterpart in the other one.

    None if both branches install a common package: the local branch is then the author's complete set-up for other
    machines. Pip itself is not upgraded outside Colab, unless the branch installs something else.
    """
    packages, others = (frozenset().union(*(e.about for e in part if e.kind == INSTALL)) for part in (local, colab))
    if packages & others - _INSTALLERS:
        return []
    needed = (effect for effect in colab if effect.kind not in _NEVER_NEEDED)
    lost = [effect for effect in needed if not any(_stands_for(other, effect) for other in local)]
    return lost if any(effect.kind != INSTALL or not set() < effect.about <= _INSTALLERS for effect in lost) else []


def different(colab: Sequence[Effect], local: Sequence[Effect]) -> list[Effect]:
    """Effects of the branch for Colab that differ in the other one, or are missing there."""
    return [effect for effect in colab if not any(_is_same(other, effect) for other in local)]


def clones(effect: Effect, repository: str) -> bool:
    """Whether an effect is `git clone` of a repository of this name, or into a folder of this name."""
    pattern = rf"git clone\b.*(?:[/:]{re.escape(repository)}(?:\.git)?/?(?:\s.*)?|\s{re.escape(repository)}/?)"
    return effect.kind == FETCH and any(re.fullmatch(pattern, text) for text in effect.about)


def needs_colab(source: CellSource, block: Sequence[ast.stmt]) -> bool:
    """Whether a block needs something that exists on Colab only: its TPU, or responses of its page."""
    return any(_ONLY_COLAB.search(source.text, *_span(source, statement)) for statement in block)


def _stands_for(local: Effect, colab: Effect) -> bool:
    if colab.kind in (INSTALL, RUN):
        return local.kind == colab.kind
    return _is_same(local, colab)


def _is_same(local: Effect, colab: Effect) -> bool:
    return local.kind == colab.kind and bool(colab.about) and colab.about <= local.about


def _span(source: CellSource, statement: ast.stmt) -> tuple[int, int]:
    return source.span(statement)[0], end_of(source, statement)


# ------------------------------------------------------------------------------------------------------------- Python
def _of_statement(source: CellSource, statement: ast.stmt, functions: Functions) -> Iterator[Effect]:
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        waiting += reversed(children(node))
        if isinstance(node, ast.Call):
            kinds = functions.get(ast.unparse(node.func), ())
            about = _about(node)
            yield from (Effect(kind, *source.span(node), about) for kind in kinds) if kinds else _of_call(source, node)
        elif isinstance(node, ast.Assign | ast.AugAssign):
            yield from _of_assignment(source, node)
        elif isinstance(node, ast.Return | ast.withitem | ast.For):
            yield from _uses_path(source, node)
        elif (
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and "environ" in ast.unparse(node.value)
        ):
            yield from _reads_environment(source, node, [node.slice])
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and not functions.get(name := ast.unparse(node.value.func))
            and _is_unknown(source, node.value)
        ):
            yield Effect(CALL if name in functions else RUN, *source.span(node), frozenset({ast.unparse(node)}))


def _of_call(source: CellSource, node: ast.Call) -> Iterator[Effect]:
    name, function = last_name(node.func), ast.unparse(node.func)
    span = source.span(node)
    if name == "get" and (function.startswith("requests.") or "userdata" in function):
        kind = SECRET if "userdata" in function else FETCH
        yield Effect(kind, *span, frozenset(_texts(node.args)) if kind == SECRET else _about(node))
    elif name in ("append", "insert", "extend") and "sys.path" in function:
        yield Effect(FOLDER, *span, _about(node))
    elif name in ("getenv", "get") and ("environ" in function or function == "os.getenv"):
        yield from _reads_environment(source, node, node.args[:1])
    elif name in ("setdefault", "update", "pop") and "environ" in function:
        yield Effect(ENVIRONMENT, *span, frozenset(_texts(node.args)))
    elif function == "print":
        text = source.segment(node)
        yield Effect(ADVICE if _INSTALLS.search(text) else MESSAGE, *span, frozenset({text}))
    elif name == "open" and any(text[:1] in ("w", "a", "x") and len(text) < 4 for text in _texts(node.args[1:])):
        yield Effect(FILES, *span, _about(node))
    elif name == "remove" and function != "os.remove":
        return  # of a list
    elif name in _LOG_INS:
        yield Effect(SECRET, *span, frozenset({"wandb" if function.startswith("wandb.") else "huggingface"}))
    elif (kind := _CALLS.get(name)) and not _USER_INTERFACE.fullmatch(function):
        yield Effect(kind, *span, _about(node))


def _reads_environment(source: CellSource, node: ast.expr, key: Sequence[ast.expr]) -> Iterator[Effect]:
    names = frozenset(_texts(key))
    if not any(name.startswith("COLAB_") for name in names):
        yield Effect(SECRET, *source.span(node), names)


def _of_assignment(source: CellSource, node: ast.Assign | ast.AugAssign) -> Iterator[Effect]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        text = ast.unparse(target)
        if isinstance(target, ast.Subscript) and "environ" in text:
            yield Effect(ENVIRONMENT, *source.span(node), frozenset(_texts([target.slice])))
    if isinstance(node, ast.Assign):
        yield from path_effects(source, node.value)


def _uses_path(source: CellSource, node: ast.Return | ast.withitem | ast.For) -> Iterator[Effect]:
    """The folders that a function returns, a `with` opens or a loop lists."""
    match node:
        case ast.Return(value=value) | ast.withitem(context_expr=value) | ast.For(iter=value) if value is not None:
            found = path_effects(source, value)
            yield from (effect for effect in found if not any(map(_NO_PATH.search, effect.about)))


def path_effects(source: CellSource, value: ast.expr) -> Iterator[Effect]:
    """The folders of Colab that a value names, and relative paths that may stand for them on other machines; no data
    URL."""
    for part in _strings(value):
        text = str(part.value)
        if "\n" in text or text.startswith("data:"):
            continue
        if find_paths(text, DEFAULT_MOUNTS) or "/" in text or text in (".", ".."):
            yield Effect(FILES, *source.span(value), frozenset({_normal(text)}))


def _normal(path: str) -> str:
    """A path relative to `/content`, without redundant parts."""
    path = re.sub(r"^/content/?", "", path)
    return posixpath.normpath(path) if path else "."


def _is_unknown(source: CellSource, call: ast.Call) -> bool:
    """Whether a call, which is a statement of its own, may have any effect."""
    name, function = last_name(call.func), ast.unparse(call.func)
    if name in _CALLS or _USER_INTERFACE.fullmatch(function) or source.command_of(call) is not None:
        return False
    if name in ("append", "insert", "extend", "setdefault", "update", "run_line_magic", "magic", "mount"):
        return name == "mount" and not _texts(call.args)
    if name in ("decode", "strip") or function.startswith(("subprocess.", "os.system", "os.popen")):
        return False
    return "get_ipython" not in function and not isinstance(call.func, ast.Call)


def _about(node: ast.Call) -> frozenset[str]:
    return frozenset({_normal(text) for text in _texts(node.args)} or {ast.unparse(node)})


def _texts(nodes: Sequence[ast.expr]) -> list[str]:
    return [str(part.value) for node in nodes for part in _strings(node)]


def _strings(node: ast.AST) -> list[ast.Constant]:
    return [part for part in walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


# -------------------------------------------------------------------------------------------------------------- shell
@once_a_cell
def of_shell(source: CellSource) -> list[Effect]:
    """The effects of all programs that a cell runs; a magic that is a program is counted as a magic."""
    texts = (
        text
        for text in shell_texts(source)
        if not (text.magic and text.command is not None and text.command.name in _WORKING_MAGICS)
    )
    commands = [(command, text.span(command)) for text in texts for command in text.commands]
    commands += [(found.command, source.span(found.call)) for found in list_commands(source)]
    return [
        Effect(kind, *span, frozenset({_service(command)} - {""}) or _objects(kind, _values(command.words)))
        for command, span in commands
        if (kind := _kind(command))
    ]


@once_a_cell
def _of_magics(source: CellSource) -> list[Effect]:
    """All magics of a cell, with their effects."""
    magics = [(_WORKING_MAGICS.get(found.name, MAGIC), found) for found in source.commands if found.kind == "magic"]
    return [
        Effect(RUN if _LOADS.match(text) else kind, found.start, found.end, _objects(kind, text.split()))
        for kind, found in magics
        for text in [source.text[found.body : found.end]]
    ]


def _values(words: Sequence[shell.Word]) -> list[str]:
    return [word.value for word in words]


def _objects(kind: str, words: Sequence[str]) -> frozenset[str]:
    """The object of a command: the names of its packages, without versions, or all its words."""
    if kind != INSTALL:
        return frozenset({" ".join(words)})
    is_install = "install" in words
    words = words[words.index("install") + 1 :] if is_install else words
    names = (re.split(r"[\[<>=!~;@ ]", word)[0] for word in words if not word.startswith("-"))
    named = frozenset(name.lower().replace("_", "-") for name in names if _NAME.match(name))
    return named if is_install else named - _VERBS


def _service(command: shell.Command) -> str:
    """The service to which a command logs in; empty for any other command."""
    values = _values(command.arguments)
    return _LOGS_IN.get(command.program, "") if "login" in values[:2] else ""


def _kind(command: shell.Command) -> str | None:
    program = command.program.rpartition("/")[2]
    values = _values(command.arguments)
    if not program or (values and values[0] in _VERSION):
        return None
    if pip_call(command) is not None:
        return INSTALL
    if _service(command):
        return SECRET
    return _PROGRAMS.get(program, RUN) or None
