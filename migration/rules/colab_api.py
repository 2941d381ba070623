"""LF20x: imports and full names of `google.colab` become those of `landfall_runtime`, which offers the same names.

The rows of `colab_calls` describe the local effect of each call; `colab_text` handles text such as comments and
strings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from migration.analysis.facts import NotebookFacts
from migration.analysis.mounts import SAYS_MOUNT
from migration.colab.names import (
    IDLE,
    MOUNT,
    MOUNTS,
    OUTPUT,
    RUNTIME,
    UNMOUNT,
    imported_names,
    is_offered,
    path_below,
    uploads,
)
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.python.statements import Block, blocks, end_of, take_out
from migration.python.strings import comments
from migration.rules.rule import Example, Match, Rule

_COLAB = holding("colab")
_MODULE = re.compile(r"from\s+(?P<module>google\s*\.\s*colab(?:\s*\.\s*\w+)*)\s+import\b")
_COMMENT = re.compile(r"#[^\n]*")
_ROOT = re.compile(r"google\s*\.\s*colab")
_MOUNT_ACTION = "put any files that the notebook reads from the drive into the folder of the parameter `drive_dir`"

Import = ast.Import | ast.ImportFrom


# ---------------------------------------------------------------------------------------------------------------- names
def _find_names(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    yield from _imported(source, facts)
    yield from _full_names(source, facts)


def _imported(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for node in _imports(source, facts):
        left = [alias for alias in node.names if not _is_dropped(node, alias, facts)]
        if not left:
            if _paths(node).isdisjoint({*MOUNTS, OUTPUT, *IDLE}):  # those are removed together with their calls
                yield Match(*source.span(node), "Colab's package is imported, but not used", take_out(source, [node]))
            continue
        modules = ", ".join(sorted(_colab_modules(node)))
        unknown = sorted(path for path in _paths(node) if not is_offered(path))
        action, keeps = "", None
        if unknown:
            action, keeps = f"remove `{unknown[0]}`: it has no local replacement", Keeps.NEEDS_HUMAN
        message = f"`{modules}` is imported, which only Colab has"
        yield Match(*source.span(node), message, _import_edits(source, node, left), action, keeps)


def _imports(source: CellSource, facts: NotebookFacts) -> Iterator[Import]:
    """The imports of google.colab that run here."""
    if source.tree is None or not _COLAB.fires(source.text):
        return
    removed = facts.colab.cell(source).removed
    for node in source.nodes:
        if isinstance(node, Import) and id(node) not in removed and _colab_modules(node):
            yield node


def _colab_modules(node: Import) -> set[str]:
    """The modules at and below google.colab that an import names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if path_below(alias.name) is not None}
    if node.module == "google" and not node.level:
        return {"google.colab"} if any(alias.name == "colab" for alias in node.names) else set()
    return {node.module} if node.module and not node.level and path_below(node.module) is not None else set()


def _paths(node: Import) -> set[str]:
    """The paths below google.colab that an import binds or loads."""
    if isinstance(node, ast.Import):
        return {below for alias in node.names if (below := path_below(alias.name))}
    return {path for _, path in imported_names(node) if path}


def _is_dropped(node: Import, alias: ast.alias, facts: NotebookFacts) -> bool:
    """Whether a name is never used, or imported only for calls that are removed too: mounts of the drive, and those of
    `IDLE`."""
    if isinstance(node, ast.Import):
        return False
    name = alias.asname or alias.name
    path = dict(imported_names(ast.ImportFrom(node.module, [alias], node.level))).get(name)
    return (
        name in facts.unused
        or (facts.static_mount and path in MOUNTS)
        or (facts.idle_output and path in {OUTPUT, *IDLE})
    )


def _import_edits(source: CellSource, node: Import, left: Sequence[ast.alias]) -> tuple[Edit, ...]:
    """The edits that import the names that are left."""
    start, end = source.span(node)
    if isinstance(node, ast.Import):
        return tuple(
            Edit(*_alias_span(source, alias), _new_module(alias.name, bool(alias.asname)))
            for alias in node.names
            if path_below(alias.name) is not None
        )
    if node.module == "google":
        ours = [alias for alias in node.names if alias.name == "colab"]
        others = [alias for alias in node.names if alias.name != "colab"]
        statements = [f"from google import {_written(others)}"] if others else []
        statements += [f"import {RUNTIME} as {alias.asname or 'colab'}" for alias in ours]
        return (Edit(start, end, "; ".join(statements)),)
    module = _MODULE.match(source.text, start, end)
    if module is None or len(left) < len(node.names):
        return (Edit(start, end, f"from {_new_from(node)} import {_written(left)}"),)
    return (Edit(*module.span("module"), _new_from(node)),)


def _alias_span(source: CellSource, alias: ast.alias) -> tuple[int, int]:
    start = source.offset(alias.lineno, alias.col_offset)
    name = re.compile(r"\s*\.\s*".join(map(re.escape, alias.name.split(".")))).match(source.text, start)
    return start, name.end() if name else start + len(alias.name)


def _new_module(name: str, has_alias: bool) -> str:
    """The module to import instead. Without an alias only the package is bound, so the package is imported."""
    below = path_below(name)
    return f"{RUNTIME}.{below}" if below and has_alias else RUNTIME


def _new_from(node: ast.ImportFrom) -> str:
    below = path_below(node.module or "")
    if below == "patches" and all(alias.name == "cv2_imshow" for alias in node.names):
        return RUNTIME
    return f"{RUNTIME}.{below}" if below else RUNTIME


def _written(aliases: Sequence[ast.alias]) -> str:
    return ", ".join(f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in aliases)


def _full_names(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """`google.colab.files.upload()`, with its full name."""
    for use in facts.colab.cell(source).uses:
        if use.root is not None and _ROOT.fullmatch(source.text, *(span := source.span(use.root))):
            yield Match(*span, "the full name `google.colab` exists on Colab only", (Edit(*span, RUNTIME),))


# ---------------------------------------------------------------------------------------------------------- drive.mount
def _find_mounts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The drive is a folder: mounts are removed, and the import if it has no other use. They are kept if their result
    or the name `drive` is used, or their path is computed."""
    if not facts.colab.cell(source).concerned or source.tree is None:
        return
    if not facts.static_mount:
        for use in facts.colab.cell(source).uses:
            if use.path in (MOUNT, UNMOUNT):
                message = "the drive is mounted: here the mount point becomes a link to the drive folder, if possible"
                yield Match(*source.span(use.node), message, action=_MOUNT_ACTION)
        return
    # Not by `is_mount`: another rule may have replaced the literal path meanwhile.
    mounts = {id(use.call): use.path for use in facts.colab.cell(source).uses if use.path in (MOUNT, UNMOUNT)}
    dropped = _dropped_imports(source, facts, MOUNTS)
    for block in blocks(source):
        taken = [
            node
            for node in block.statements
            if id(node) in dropped or (isinstance(node, ast.Expr) and id(node.value) in mounts)
        ]
        mounts_here = any(isinstance(node, ast.Expr) for node in taken)
        if taken and (mounts_here or not mounts):  # the import last: without it a mount is not recognised
            message = "the drive is mounted: here it is a folder of this machine"
            if not mounts_here:
                message = "Colab's `drive` is imported only to be mounted"
            span = source.span(taken[0])[0], source.span(taken[-1])[1]
            edits = take_out(source, taken)
            mounting = [node for node in taken if isinstance(node, ast.Expr) and mounts[id(node.value)] == MOUNT]
            if mounting and "drive" in facts.folders and _is_described(source, block, taken, facts):
                line_above = ["", *source.text.split("\n")][source.line_of(source.span(mounting[0])[0])].lstrip()
                is_apart = len(taken) < len(block.statements) or (block.owner is None and line_above.startswith("#"))
                rows = {node.lineno for node in mounting}
                others = [node for node in taken if is_apart and node.lineno not in rows]
                shown = [node for node in taken if node not in others]
                edits = _shown(source, block, shown, f'print("The drive is the folder", {facts.drive})')
                edits = tuple(sorted({*edits, *(take_out(source, others) if others else ())}))
            yield Match(*span, message, edits, _MOUNT_ACTION if mounts_here and "drive" in facts.folders else "")


def _dropped_imports(source: CellSource, facts: NotebookFacts, paths: Collection[str]) -> set[int]:
    """The ids of the imports without another use that name one of the paths."""
    return {
        id(node)
        for node in _imports(source, facts)
        if not _paths(node).isdisjoint(paths) and all(_is_dropped(node, alias, facts) for alias in node.names)
    }


def _find_uploads(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Several uploads, of which each has a folder of its own."""
    if source.index not in facts.uploads:
        return
    for number, call in enumerate(uploads(facts.colab.cell(source).uses), facts.uploads[source.index] + 1):
        if any(keyword.arg in ("call", "paths") for keyword in call.keywords):
            continue
        start, end = source.span(call)
        ends = [source.span(node)[1] for node in (*call.args, *(keyword.value for keyword in call.keywords))]
        after = _COMMENT.sub("", source.text[max(ends, default=start) : end - 1])
        comma = "" if not ends else " " if "," in after else ", "
        edit = Edit(end - 1, end - 1, f"{comma}call={number}")
        yield Match(start, end, f"upload {number} of several, with a folder of its own", (edit,))


def _find_idle(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Calls that only Colab's page needs are removed, and the import if it has no other use."""
    if not facts.colab.cell(source).concerned or source.tree is None:
        return
    calls = {id(use.call) for use in facts.colab.cell(source).uses if use.is_statement and use.path in IDLE}
    dropped = _dropped_imports(source, facts, {OUTPUT, *IDLE})
    for block in blocks(source):
        taken = [node for node in block.statements if id(node) in dropped or id(getattr(node, "value", None)) in calls]
        if taken:
            span = source.span(taken[0])[0], source.span(taken[-1])[1]
            message = "Colab's package is imported, but not used"
            if any(isinstance(node, ast.Expr) for node in taken):
                message = "a setting of widgets that only Colab's page needs"
            yield Match(*span, message, take_out(source, taken))


def _shown(source: CellSource, block: Block, mounts: Sequence[ast.stmt], text: str) -> tuple[Edit, ...]:
    """Edits that replace the mounts of a block by a statement."""
    if block.owner is not None and len(mounts) == len(block.statements):
        return (Edit(source.span(mounts[0])[0], end_of(source, mounts[-1]), text),)
    return take_out(source, mounts, text, always=True)


def _is_described(source: CellSource, block: Block, taken: Sequence[ast.stmt], facts: NotebookFacts) -> bool:
    """Whether something would describe nothing without these statements of a block: a comment about a mount, one above
    them that ends a paragraph, the text cell above, a message, or the handlers of a `try` with nothing else."""
    if block.owner is not None:
        is_tried = isinstance(block.owner, ast.Try) and len(taken) == len(block.statements)
        before = (source.segment(node) for node in block.statements if node.lineno < taken[-1].lineno)
        return is_tried or any(text.startswith("print(") and SAYS_MOUNT.search(text) for text in before)
    if any(SAYS_MOUNT.search(source.text, *span) for span in comments(source)):
        return True
    if source.tree is not None and len(taken) == len(source.tree.body):
        return source.index in facts.described or bool(comments(source))
    spans = [map(source.line_of, source.span(node)) for node in taken]
    rows = {row + 1 for first, last in spans for row in range(first, last + 1)}
    lines = ["", *map(str.strip, source.text.split("\n")), ""]
    return any(
        lines[row - 1].startswith("#") and (not lines[end] or lines[end].startswith("#"))
        for row in rows - {row + 1 for row in rows}
        for end in [next(end for end in range(row, len(lines)) if end not in rows)]
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "LF201",
        "Names of Colab's modules",
        "`from google.colab import files`, `import google.colab.output as o`, `from google import colab`, "
        "`google.colab.files.upload()`",
        f"the same names from `{RUNTIME}`, one module without dependencies next to the notebook; "
        "nothing for a name that the notebook never uses",
        Keeps.EQUIVALENT,
        _find_names,
        _COLAB,
        example=Example(
            "from google.colab import files\nfiles.upload()", "from landfall_runtime import files\nfiles.upload()"
        ),
    ),
    Rule(
        "LF203",
        "The drive is mounted",
        '`drive.mount("/content/drive")` and `drive.flush_and_unmount()`, and the import of `drive` if it has no other '
        "use",
        "nothing: the drive is the folder of the parameter `drive_dir`. The name of the folder is printed where a text "
        "would describe nothing else. A mount with a computed path, or whose "
        "result is used, stays: `landfall_runtime` makes a link to the drive folder",
        Keeps.EQUIVALENT,
        _find_mounts,
        holding("mount", "colab"),
        example=Example('from google.colab import drive\ndrive.mount("/content/drive")\nprint(1)', "print(1)"),
    ),
    Rule(
        "LF205",
        "Several uploads",
        "`files.upload()` whose result is used, and `files.upload_file(name)`, more than once in a notebook",
        "`files.upload(call=1)`, `files.upload(call=2)`, …: the files of the folders `uploads/1`, `uploads/2`, …",
        Keeps.EQUIVALENT,
        _find_uploads,
        holding("upload"),
        of_colab=True,
        example=Example(
            "from google.colab import files\na = files.upload()\nb = files.upload()",
            "from google.colab import files\na = files.upload(call=1)\nb = files.upload(call=2)",
        ),
    ),
    Rule(
        "LF204",
        "Widgets of Colab's page",
        "`output.enable_custom_widget_manager()`, and the import of `output` if it has no other use",
        "nothing: a local notebook shows widgets without it",
        Keeps.EQUIVALENT,
        _find_idle,
        holding("custom_widget_manager", "colab"),
        example=Example("from google.colab import output\noutput.enable_custom_widget_manager()\nprint(1)", "print(1)"),
    ),
)
