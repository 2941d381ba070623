"""Constructs that need manual changes: log-ins, prompts, cameras, accelerators, cells that cannot be parsed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts
from migration.analysis.imports import ONLY_ON_COLAB
from migration.colab.names import path_below
from migration.notebook.findings import Finding, Keeps
from migration.notebook.texts import holding
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.statements import catching
from migration.python.strings import outside_comments
from migration.python.trees import last_name
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import pip_call

_LOGINS = {
    **dict.fromkeys(
        ("notebook_login", "interpreter_login", "huggingface_hub.login"),
        "log in once on this machine with `hf auth login`, or set HF_TOKEN in the environment, and delete the call",
    ),
    "wandb.login": "log in once on this machine with `wandb login`, or set WANDB_API_KEY in the environment",
    "ee.Authenticate": "authenticate once on this machine with `earthengine authenticate`, and delete the call",
}
_PROMPTS = ("input", "raw_input", "getpass", "getpass.getpass")
_ENDS = {name.rpartition(".")[2] for name in (*_LOGINS, *_PROMPTS)}
_ATTENDED = re.compile(r"\b(?:notebook_login|interpreter_login|login|Authenticate|raw_input|input|getpass)\s*\(")
_SHELL_LOGINS = {
    ("huggingface-cli", "login"): "`hf auth login` once in a terminal, or HF_TOKEN in the environment",
    ("hf", "auth"): "`hf auth login` once in a terminal, or HF_TOKEN in the environment",
    ("wandb", "login"): "`wandb login` once in a terminal, or WANDB_API_KEY in the environment",
    ("gcloud", "auth"): "`gcloud auth application-default login` once in a terminal",
    ("gcloud", "init"): "`gcloud init` once in a terminal",
    ("earthengine", "authenticate"): "`earthengine authenticate` once in a terminal",
    ("rclone", "config"): "`rclone config` once in a terminal",
}
_SHELLS = frozenset({"bash", "zsh", "python", "python3", "ipython"})
_ALONE = re.compile(r"(?:-i|-l|--login)?")
_TPU = re.compile(
    r"\bTPUClusterResolver\b|\bcolab_tpu\b|\btorch_xla\b|\bCOLAB_TPU_ADDR\b|\bkeras_to_tpu_model\b|\binitialize_tpu_system\b"
    r"|\bTPUStrategy\b|\bcloud_tpu_client\b"
)
# Without a TPU, TensorFlow raises a ValueError, and JAX different errors.
_CATCHES_NO_TPU = {
    "TPUClusterResolver": frozenset({"ValueError", "Exception", "BaseException"}),
    "colab_tpu": frozenset({"Exception", "BaseException"}),
}
_VARIABLE = re.compile(
    r"(?<![\w.])COLAB_(?:GPU|TPU_ADDR|TPU|RELEASE_TAG|BACKEND_VERSION|JUPYTER_\w+|KERNEL_MANAGER_\w+|NOTEBOOK_\w+|"
    r"LANGUAGE_SERVER_\w+|WARMUP_DEFAULTS|DEBUG_ADAPTER_\w+|USE_\w+|DATA_\w+)\b"
    r"|(?<=environ\[[\"'])(?:PYTHONPATH|LD_LIBRARY_PATH)(?=[\"']\](?!\s*=(?!=)))"
)
_IS_SET = (
    r"[\"']{0}[\"'](?:\]\s*=[^=\n][^\n]*\n|\s+(?:not\s+)?in\b)|setdefault\(\s*[\"']{0}\b"
    r"|%(?:set_)?env[ \t]+{0}[ \t=]+\S|(?:environ\.get|getenv)\(\s*[\"']{0}[\"']"
)
_VARIABLE_ACTION = "set {} in the environment of the kernel, or remove the code that reads it: only Colab sets it"
_GENERAL_ACTION = "use `os.environ.get('{}', '')` to read it"
_TPU_ADDRESS_ACTION = (
    "Colab's TPU does not exist here: remove this part and run the code on the GPU or CPU "
    "(tf.distribute.get_strategy() is the strategy for one device), or set the address of your own TPU"
)
_OLD_PRINT = re.compile(
    r"^[ \t]*(?:print[ \t]+[^\s(=.,)\]]|exec[ \t]+[\"'\w]|raise[ \t]+\w+,|except[ \t]+[\w.]+,[ \t]*\w+:)", re.MULTILINE
)
# Modules that need Colab, by their names; other rules report jax.tools.colab_tpu and colab_transfer.
_FOR_COLAB = re.compile(r"(?:^|[._])colab(?:[._]|$)|colab(?:setup|utils?|helpers?)(?![a-z])|[a-z]colabtools?(?![a-z])")
_ASKS_FOR_COLAB = re.compile(r"_?(?:(?:is|in|on|am|i|if|are|we|running|detect|check)_)+(?:google_)?colab")
_OPTION = re.compile(
    r"(?<![\w-])(?<!argument\([\"'])--(?:"
    r"\w*(?:tpu|accelerator|env|environment|platform|runtime|mode|backend|device|machine|host|target)"
    r"(?:[ \t=]+[\"']?|[\"'],\s*[\"'])(?:google_)?colab|(?:\w+[_-])?(?:google_)?colab)(?![\w./-])"
    r"|\b(?P<renderer>renderer(?:s\.default)?\s*=\s*[\"']colab[\"'])"
)
_NOT_FOR_COLAB = frozenset({"jax.tools.colab_tpu", "midi_to_colab_audio", "plot_model_in_colab", *ONLY_ON_COLAB})
_COLAB = re.compile(
    r"google\.colab|(?<!<)/content\b|#[ \t]*@(?:param|title|markdown)|COLAB_|/g?drive/My ?Drive|tensorflow_version"
    r"|^%%shell\b",
    re.MULTILINE,
)


def _find_attended(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    yield from _shell_logins(source)
    if not source.is_python or not _ATTENDED.search(source.text):
        return
    if source.tree is None:
        for match in outside_comments(source, re.compile(r"(?<![\w.])(?:raw_input|input|getpass|notebook_login)\(")):
            yield _prompt(match.start(), match.end(), match[0].rstrip("("))
        return
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    ends = _ENDS | imported.keys()
    for node in source.nodes:
        if not isinstance(node, ast.Call) or last_name(node.func) not in ends:
            continue
        name = ast.unparse(node.func)
        name = "huggingface_hub.login" if imported.get(name) == "huggingface_hub.login" else name
        start, end = source.span(node)
        if name in _PROMPTS:
            yield _prompt(start, end, name)
        known = name if name in _LOGINS else name.rpartition(".")[2]
        if known in _LOGINS and not node.args and not any(word.arg in ("token", "key") for word in node.keywords):
            yield Match(start, end, f"`{name}()` asks for a log-in", (), _LOGINS[known])


def _prompt(start: int, end: int, name: str) -> Match:
    if name.startswith("getpass"):
        action = "set the secret in the environment and read it with `os.environ`: papermill does not answer prompts"
        return Match(start, end, f"`{name}()` waits for a secret to be typed in", (), action)
    action = "assign the answer here, or in a cell tagged `parameters`: papermill does not answer prompts"
    return Match(start, end, f"`{name}()` waits for input", (), action)


def _shell_logins(source: CellSource) -> Iterator[Match]:
    for text in shell_texts(source):
        for command in text.commands:
            values = [word.value for word in command.arguments]
            is_open = text.is_line and command.before not in ("|", "|&") and not command.redirections
            if command.program in _SHELLS and is_open and _ALONE.fullmatch(" ".join(values)):
                action = "write its commands into cells and delete the line: papermill does not answer prompts"
                yield Match(*text.span(command), f"`{command.program}` waits for commands", (), action)
            call = pip_call(command) if is_open or text.magic else None
            if call is not None and call.subcommand == "uninstall" and not (call.uv or call.option("--yes")):
                action = "add `-y`: the question cannot be answered here, and without an answer pip uninstalls nothing"
                yield Match(*text.span(command), "`pip uninstall` asks for confirmation", (), action)
            words = [command.program, *values]
            # `uv run wandb login`, `python -m wandb login`
            words = words[2:] if words[1:2] in (["run"], ["-m"]) else words
            instead = _SHELL_LOGINS.get((words[0], words[1])) if len(words) > 1 else None
            if instead and not any(re.match(r"--(?:token|key-file|cred-file)|\$|\{", value) for value in words[2:]):
                yield Match(
                    *text.span(command),
                    "a log-in that asks in the terminal",
                    (),
                    f"{instead}; then delete the line",
                )


def _find_tpu(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for match in outside_comments(source, _TPU)[:1]:
        action = "this machine has no Colab TPU: delete the set-up and use the GPU or CPU strategy"
        caught = _CATCHES_NO_TPU.get(match[0])
        is_caught = caught and catching(source, match.start(), caught)
        keeps = Keeps.EQUIVALENT if is_caught else None
        yield Match(match.start(), match.end(), f"`{match[0]}` sets up a Colab TPU", (), action, keeps)


def _find_variables(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Uses of Colab's environment variables, and of general ones that exist there; code that only tests for one of
    Colab is rewritten by other rules."""
    for match in _VARIABLE.finditer(source.text):
        is_general = not match[0].startswith("COLAB_")
        if is_general and re.search(_IS_SET.format(match[0]), source.text[: match.start()]):
            continue
        message, action = f"`{match[0]}` is an environment variable of Colab", _VARIABLE_ACTION
        if is_general:
            message, action = f"`{match[0]}` need not exist here", _GENERAL_ACTION
        elif "TPU" in match[0]:
            message, action = f"`{match[0]}` is the address of Colab's TPU", _TPU_ADDRESS_ACTION
        yield Match(*match.span(), message, action=action.format(match[0]))


def _find_modules(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Imports of modules, calls of their functions, and options of commands, that are made for Colab by their names."""
    for found in outside_comments(source, _OPTION) if source.is_python or source.is_shell else ():
        action = "check what the option does on this machine, and delete or change it"
        if found["renderer"]:
            action = "delete the option: plotly chooses the renderer for Jupyter by itself"
        yield Match(*found.span(), f"`{found[0]}` is an option for Colab by its name", (), action)
    removed = facts.colab.cell(source).removed
    for node in source.nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            parts = [f"{module}.{alias.name}" for alias in node.names if re.match("colab(?:_|$)", alias.name)]
            names = [module] if _FOR_COLAB.search(module) else parts
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "_" in node.func.attr:
            names += [node.func.attr] if not _ASKS_FOR_COLAB.fullmatch(node.func.attr) else []
        for name in names if id(node) not in removed else ():
            if _FOR_COLAB.search(name) and path_below(name) is None and name not in _NOT_FOR_COLAB:
                message = f"`{name}` is made for Colab by its name, and may import `google.colab`"
                action = "check whether the module works on this machine; if not, delete what uses it"
                yield Match(*source.span(node), message, (), action)


def unparsed(source: CellSource) -> Finding | None:
    """The finding for a cell that cannot be parsed and is not a magic without `%`; None for any other."""
    error = source.error
    if error is None or source.bare_magic:
        return None
    line = max(1, min(error.lineno or 1, len(source.line_starts)))
    start, end = source.line_span(source.line_starts[line - 1], source.line_starts[line - 1])
    is_old = _OLD_PRINT.search(source.text) is not None
    cause = "is Python 2, or cannot be parsed" if is_old else "cannot be parsed"
    remedy = "rewrite the cell for Python 3" if is_old else "complete or correct the cell"
    return Finding(
        rule="LF901",
        keeps=Keeps.NEEDS_HUMAN,
        cell=source.index,
        line=line,
        message=masked(f"the cell {cause}: {str(error.msg).rstrip('.')}, line {line}"),
        before=masked(source.text[start:end]),
        action=f"{remedy}, and check its paths and shell lines by hand: only its text was searched",
    )


def _find_other_language(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    if facts.language == "python":
        return
    if match := _COLAB.search(source.text):
        message = f"the notebook is written in {facts.language}, whose code is not changed"
        action = f"replace `{match[0]}` by hand"
        yield Match(match.start(), match.end(), message, (), action)


LOGIN_RULES: tuple[Rule, ...] = (
    Rule(
        "LF811",
        "prompt or log-in",
        "`input(…)`, `getpass(…)`, `notebook_login()`, `wandb.login()`, `!huggingface-cli login`, "
        "`!gcloud auth login`, `!bash` alone, `!pip uninstall a` without `-y`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_attended,
        holding(
            *("login", "uthenticate", "input", "getpass", "gcloud", "rclone", "hf auth", "bash", "zsh", "python"),
            "uninstall",
        ),
        example=Example('name = input("Name: ")'),
    ),
)

RULES: tuple[Rule, ...] = (
    Rule(
        "LF308",
        "An environment variable of Colab, or PYTHONPATH or LD_LIBRARY_PATH",
        "`COLAB_GPU`, `COLAB_TPU_ADDR` and similar variables, where they are read; `os.environ['PYTHONPATH']` and "
        "`os.environ['LD_LIBRARY_PATH']`, unless the cell sets the variable or asks for it above",
        "nothing; it is reported",
        Keeps.NEEDS_HUMAN,
        _find_variables,
        holding("COLAB_", "PYTHONPATH", "LD_LIBRARY_PATH"),
        example=Example('print(os.environ["COLAB_GPU"])'),
    ),
    Rule(
        "LF841",
        "TPU",
        "`TPUClusterResolver`, `jax.tools.colab_tpu.setup_tpu()`, `torch_xla`, `COLAB_TPU_ADDR`",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_tpu,
        holding("TPU", "colab_tpu", "to_tpu_model", "initialize_tpu", "cloud_tpu", "torch_xla", like=_TPU),
        any_language=True,
        example=Example("tf.distribute.cluster_resolver.TPUClusterResolver()"),
    ),
    Rule(
        "LF842",
        "module or option for Colab",
        "`import colab_utils`, `import rosettacolabsetup`, `from a.colab_tools import b`, `a.colab_play(…)`, "
        '`--tpu colab`, `--use_colab`, `fig.show(renderer="colab")`',
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_modules,
        holding("colab", like=r"(?:\b(?:import|from)\s[^\n]*|\.\w*|(?<!-)--[^\n]*|renderer(?:s\.default)?\W*)colab"),
        example=Example("import colab_utils"),
    ),
    Rule(
        "LF901",
        "cell that cannot be parsed",
        "Python 2, incomplete lines, templates, in a cell that may use Colab or its folders",
        "only unambiguous text; reported",
        Keeps.NEEDS_HUMAN,
    ),
    Rule(
        "LF902",
        "rewrite rolled back",
        "a cell that compiled before its rewrite but not afterwards",
        "nothing: the cell is unchanged; reported",
        Keeps.NEEDS_HUMAN,
    ),
    Rule(
        "LF903",
        "other language",
        "Colab's constructs in a notebook of another language than Python",
        "nothing; reported",
        Keeps.NEEDS_HUMAN,
        _find_other_language,
        holding("colab", "/content", "@", "COLAB_", "rive", "tensorflow_version", "%%shell"),
        any_language=True,
        example=Example('setwd("/content/x")', language="r"),
    ),
)
