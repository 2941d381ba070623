"""LF21x, LF22x: the local effect of each part of `google.colab`; the calls are kept, their module changes.

A row of the table is one part of the API. The rules only report: `colab_api` rewrites the names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from migration.analysis.facts import NotebookFacts
from migration.colab.names import Use, is_offered
from migration.notebook.findings import Keeps
from migration.notebook.texts import Trigger, holding
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

_EXCEPTION = re.compile(r"(?:Error|Exception)$")
_NO_EFFECT = "has no effect here, and a plain notebook needs none"
# Effects of single calls, by the beginnings of their paths, for the message of a finding.
_CALLS = {
    "output.eval_js": "the cell fails here with MessageError, because only Colab's page runs its JavaScript",
    "_message.blocking_request": "the cell fails here with MessageError, because only Colab's page answers the request",
    "output.register_callback": "the function is never called here, because only Colab's page runs the JavaScript "
    "that calls it",
    "output.clear": "clears the output of the cell",
    "output.serve_kernel_port_as_window": "shows a link to the port of this machine",
    "output.serve_kernel_port_as_iframe": "shows the page at the port of this machine",
    **dict.fromkeys(
        ("output.redirect_to_element", "output.to_", "output.temporary"), "the outputs stay in that of the cell"
    ),
    "data_table.DataTable": "shows the data frame as a plain table",
    "widgets": "shows the outputs one below the other, each with its title",
    "files.view": "prints the path",
    "runtime": "prints a message: a local machine is not released",
    **dict.fromkeys(
        ("output.enable_", "output.disable_", "output.no_vertical_scroll", "output.use_tags", "data_table", "snippets"),
        _NO_EFFECT,
    ),
}
_SCOPE = "https://www.googleapis.com/auth/"
_SIGN_IN = (
    "sign in once with `gcloud auth application-default login --scopes={}`: without these scopes {} the credentials"
)
_UPLOADED = "copy the files to the folder `uploads"
_PAGE_PORT = "gives the local URL of the port"


@dataclass(frozen=True)
class Part:
    """One part of the API: paths below google.colab (`userdata`, `output.clear`), including everything below them.
    `local` is the local effect of the call, `action` what the user must do (`{text}` is its first argument, if
    literal).
    """

    id: str
    name: str
    paths: tuple[str, ...]
    calls: str
    local: str
    keeps: Keeps = Keeps.EQUIVALENT
    action: str = ""
    example: Example | None = None

    def covers(self, path: str) -> bool:
        return any(path == own or path.startswith(own + ".") for own in self.paths)


PARTS: tuple[Part, ...] = (
    Part(
        "LF210",
        "Upload of files",
        ("files.upload", "files.upload_file"),
        "`files.upload()`, `files.upload_file(name)`",
        "uses the files of `uploads` or of LANDFALL_UPLOAD, else prompts; returns `{name: bytes}` and copies "
        "them into the working folder",
        action=f"{_UPLOADED}` of the work folder, or set LANDFALL_UPLOAD",
        example=Example("from google.colab import files\nnew = files.upload()"),
    ),
    Part(
        "LF211",
        "Download of files",
        ("files.download",),
        "`files.download(path)`",
        "copies the file to the folder `downloads` of the work folder, or to LANDFALL_DOWNLOADS",
        action="find the file in the folder `downloads` of the work folder",
        example=Example('from google.colab import files\nfiles.download("a.csv")'),
    ),
    Part(
        "LF213",
        "Secrets",
        ("userdata",),
        '`userdata.get("KEY")`, `userdata.SecretNotFoundError`, `userdata.NotebookAccessError`',
        "reads the environment variable KEY, else a `.env` file; the same exceptions",
        action="set the environment variable {text}, or put it into the file `.env` of the work folder",
        example=Example('from google.colab import userdata\nkey = userdata.get("KEY")'),
    ),
    Part(
        "LF214",
        "Sign-in to Google Cloud",
        ("auth",),
        "`auth.authenticate_user()`, `auth.authenticate_service_account()`",
        "nothing if there are application-default credentials, else a warning",
        action="sign in once with `gcloud auth application-default login`",
        example=Example("from google.colab import auth\nauth.authenticate_user()"),
    ),
    Part(
        "LF215",
        "Images in OpenCV's channel order",
        ("patches",),
        "`cv2_imshow(image)`",
        "shows the image in the notebook: clipped to 0…255, BGR(A) as RGB(A), grey as it is",
        example=Example("from google.colab.patches import cv2_imshow\ncv2_imshow(image)"),
    ),
    Part(
        "LF218",
        "JavaScript and messages of Colab's page",
        (
            *("output.eval_js", "output.register_callback", "output.unregister_callback", "output.invoke_function"),
            *("kernel", "_message"),
        ),
        "`output.eval_js(script)`, `output.register_callback(name, function)`, `_message.blocking_request(…)`",
        "the local URL for `proxyPort(…)`; everything else raises `MessageError` or has no effect",
        Keeps.NEEDS_HUMAN,
        "delete the call, or replace it: `input()` or ipywidgets to ask for a value, `files.upload()` for a file, a "
        "cell of its own for a function that JavaScript calls",
        example=Example("from google.colab import output\noutput.eval_js(script)"),
    ),
    Part(
        "LF221",
        "Display in Colab's page",
        ("output", "data_table", "widgets", "files.view", "runtime", "snippets", "syntax", "errors"),
        "`output.clear()`, `data_table.DataTable(frame)`, `output.serve_kernel_port_as_window(port)`, "
        "`widgets.TabBar(names)`, `files.view(path)`, `runtime.unassign()`, …",
        "shows the same as a plain notebook does: a data frame, outputs one below the other, a link to "
        "`localhost`, a path, a message",
        example=Example("from google.colab import output\noutput.clear()"),
    ),
)

_UNKNOWN = Part(
    "LF229",
    "A part of Colab without a counterpart",
    (),
    "any other name below `google.colab`, such as `sheets.InteractiveSheet` and `ai.generate_text`",
    "the cell fails here, because landfall_runtime does not have it",
    Keeps.NEEDS_HUMAN,
    "remove {path}: it has no local replacement",
    example=Example("from google.colab import sheets\nsheets.InteractiveSheet()"),
)


def _part_of(path: str) -> Part | None:
    """The first row that covers a path, if landfall_runtime has its name; None for the package and for the drive, which
    has its own rules."""
    if not path or path == "drive" or path.startswith("drive."):
        return None
    part = next((part for part in PARTS if part.covers(path)), _UNKNOWN)
    return _UNKNOWN if not is_offered(path) and part.keeps is not Keeps.NEEDS_HUMAN else part


def _finder(part: Part) -> Callable[[CellSource, NotebookFacts], Iterator[Match]]:
    def find(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
        for use in facts.colab.cell(source).uses:
            if _part_of(use.path) is part and not _is_plain_name(part, use):
                match = _match(source, part, use)
                for keyword in use.call.keywords if use.call is not None else ():
                    if keyword.arg == "call":  # the number of an upload
                        match = replace(match, action=f"{_UPLOADED}/{ast.unparse(keyword.value)}` of the work folder")
                if use.path == "auth.authenticate_user" and (facts.drive_service or facts.scopes):
                    match = replace(match, action=_sign_in(facts), keeps=Keeps.NEEDS_HUMAN)
                yield match

    return find


def _sign_in(facts: NotebookFacts) -> str:
    """The action for a sign-in whose credentials need the scopes that the notebook names, or uses."""
    used = {*facts.scopes, *[_SCOPE + "drive"] * facts.drive_service}
    refuse = "Google's services refuse" if facts.scopes else "Drive and Sheets refuse"
    return _SIGN_IN.format(",".join([*sorted(used), _SCOPE + "cloud-platform"]), refuse)


def _is_plain_name(part: Part, use: Use) -> bool:
    """Whether a use is only the name of a module or an exception, not a call."""
    is_module = "." not in use.path and (part is not _UNKNOWN or is_offered(use.path))
    return is_module or bool(_EXCEPTION.search(use.path))


def _match(source: CellSource, part: Part, use: Use) -> Match:
    start, end = source.span(use.node)
    first = use.call.args[0] if use.call is not None and use.call.args else None
    text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    effects = (effect for path, effect in _CALLS.items() if use.path.startswith(path) and part is not _UNKNOWN)
    local = next(effects, part.local)
    keeps, action = part.keeps, part.action
    if part.id == "LF218" and first is not None and "proxyPort" in source.segment(first):
        keeps, action, local = Keeps.EQUIVALENT, "", _PAGE_PORT
    if part.id == "LF213" and text and not text.isidentifier():
        action = "put {text} into the file `.env` of the work folder, because no shell can set a variable of this name"
    action = action.format(text=text or "that it asks for", path=use.path) if "{" in action else action
    return Match(start, end, f"`{use.path}`: {local}", action=action, keeps=keeps)


def _trigger(part: Part) -> Trigger | None:
    """Searches for the last word of each path. None for a part with a whole module, which can be used under any
    alias."""
    words = {path.rpartition(".")[2] for path in part.paths}
    whole_module = any("." not in path for path in part.paths)
    return None if whole_module or not words else holding(*sorted(words))


RULES: tuple[Rule, ...] = tuple(
    Rule(
        part.id,
        part.name,
        part.calls,
        part.local,
        part.keeps,
        _finder(part),
        _trigger(part),
        of_colab=True,
        example=part.example,
    )
    for part in (*PARTS, _UNKNOWN)
)
