"""Paths below the root of the file system that code reads or writes. On Colab the user is root and may create them; a
local user may not."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from migration.python.source import CellSource
from migration.python.trees import last_name

# Folders that a local machine has too, and those of Colab that other rules find.
_PRESENT = (
    "content gdrive tmp dev proc sys usr bin sbin lib lib32 lib64 etc home opt var run mnt media srv boot snap nix "
    "root Users Volumes datalab env tools"
)
_PATH = re.compile(rf"(?P<first>/(?!(?:{'|'.join(_PRESENT.split())})(?:/|$))[^\W\d_][\w.-]*)(?:/[^\n:<>?&=^$\\|]*)?")
_TRIGGER = re.compile(rf"""(?<!\+)(?<!\+ )["']{_PATH.pattern}""")
# Functions whose arguments are paths.
_USES_FILE = re.compile(
    r"open|Path|(?:im)?(?:read|load|save)\w*|imwrite|write_(?!text|bytes)\w+|\w+_(?:load|save|read|write)|dump|genfromtxt"
    r"|to_(?:csv|excel|pickle|parquet|feather|hdf|json|html|file|disk|netcdf|zarr)|export\w*"
    r"|makedirs|mkdir|listdir|scandir|walk|i?glob|chdir|getsize|stat|copy2?|copyfile|copytree|move|rename|unlink|rmtree"
    r"|ZipFile|extract\w*|unpack_archive|make_archive|urlretrieve|VideoCapture|VideoWriter"
    r"|\w*(?:ImageFolder|DatasetFolder|SummaryWriter|FileWriter|CSVLogger|ModelCheckpoint|TensorBoard)"
    r"|flow_from_directory|image_dataset_from_directory|from_pretrained|add_argument"
)
# Parameters and keys that name a path, by their last word.
_NAMES = re.compile(r"(?:.*_)?(?:dir|dirs|folder|filename|filepath|dirpath|directory)|.+(?<!url)(?<!api)_(?:path|file)")
_NO_PATHS = ("xpath", "key")
# Objects whose paths are on other machines, or inside a file.
_ELSEWHERE = re.compile(r"(?:\w*_)?(?:s?ftp|s3|hdfs|client|session|requests?|bucket|blob|dbutils|h5f?|hf|driver|app)\b")
_PREFIX = re.compile(r"""^\w*["']+""")
_JOINS = frozenset({"join", "Path", "PurePath", "str", "abspath", "expanduser", "normpath"})
_ASKS = re.compile(r"""(?<![\w.])(?<!not )(?:os\.path\.)?(?:exists|isdir|isfile)\(\s*[rf]?["'](/\w[\w.-]*)""")


def root_paths(cells: Sequence[CellSource], mounts: tuple[str, ...]) -> Mapping[int, frozenset[str]]:
    """Such paths as the strings of each cell contain them: arguments of functions for files, parameters that name
    a path, and the values of names that are used so. A path is left out if the notebook asks whether its first folder
    exists."""
    if not any(_TRIGGER.search(source.text) for source in cells):
        return {}
    asked = {folder for source in cells for folder in _ASKS.findall(source.text)}
    values: dict[str, list[tuple[CellSource, ast.expr]]] = defaultdict(list)
    waiting: list[tuple[CellSource, ast.expr]] = []
    for source in cells:
        for node in source.nodes:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                values[last_name(target)].append((source, node.value))
            waiting += ((source, used) for used in _used(node))
    found: dict[int, set[str]] = defaultdict(set)
    known: set[str] = set()
    for source, value in waiting:
        first = _beginning(value)
        if name := last_name(first):
            waiting += values[name] if name not in known else ()
            known.add(name)
        elif (path := _PATH.fullmatch(_text(first))) and path["first"] not in asked.union(mounts):
            found[source.index].add(_PREFIX.sub("", source.segment(first)).rstrip("\"'"))
    return {index: frozenset(texts) for index, texts in found.items()}


def _used(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions in a node that are used as paths."""
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords):
            is_file = _USES_FILE.fullmatch(last_name(function)) and not (
                isinstance(function, ast.Attribute) and _ELSEWHERE.fullmatch(last_name(function.value))
            )
            yield from arguments if is_file else ()
            for keyword in keywords:
                if (is_file and keyword.arg not in _NO_PATHS) or (keyword.arg and _NAMES.fullmatch(keyword.arg)):
                    yield keyword.value
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and _NAMES.fullmatch(key.value):
                    yield value


def _beginning(node: ast.expr) -> ast.expr:
    """The string or name with which the path in an expression begins."""
    while True:
        match node:
            case (
                ast.BinOp(op=ast.Add() | ast.Mod() | ast.Div(), left=first)
                | ast.Call(func=ast.Attribute(attr="format", value=first))
            ):
                node = first
            case ast.Call(func=function, args=[first, *_]) if last_name(function) in _JOINS:
                node = first
            case _:
                return node


def _text(node: ast.expr) -> str:
    """The text of a string; that of an f-string up to its first field."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
