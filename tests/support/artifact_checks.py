"""Checks that the artifacts of runs are complete: each is read as its readers do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import torch
import yaml
from PIL import Image

from core import checkpoint
from core.runlog import read_loss_csv
from inference.detector.file import load_detector

FOLDERS = ("checkpoints", "runs", "artifacts", "cache", "training_dashboard/data")
_TEMPORARY = re.compile(r"\..*\.(part|lock)")


def faults(root: Path, read: set[tuple[Path, int, int, int]] | None = None) -> list[str]:
    """Unreadable artifacts below `root`, one line each; a file that is removed meanwhile is not a fault.

    read: files that were read before and are not read again as long as their inode, size and time are the same.
    """
    found, read = [], set() if read is None else read
    for path in artifacts(root):
        try:
            facts = path.stat()
            key = (path, facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if key not in read:
                _reader_of(path)(path)
                read.add(key)
        except Exception as error:
            if path.exists():
                found.append(f"{path.relative_to(root)}: {type(error).__name__}: {error}")
    return found


def artifacts(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
            if not hidden and path.suffix in _READERS and path.is_file():
                yield path


def leftovers(root: Path) -> list[str]:
    """Temporary files and locks that were not removed."""
    return sorted(str(path.relative_to(root)) for path in root.rglob(".*") if _TEMPORARY.fullmatch(path.name))


def _reader_of(path: Path) -> Callable[[Path], Any]:
    return read_loss_csv if path.name.endswith("_loss_history.csv") else _READERS[path.suffix]


def _read_json(path: Path) -> None:
    json.loads(path.read_bytes())


def _read_lines(path: Path) -> None:
    """The last line may be truncated by a kill; a resumed run continues before it."""
    lines = path.read_text(encoding="utf-8").split("\n")
    for line in lines[:-2]:
        json.loads(line)


def _read_picture(path: Path) -> None:
    with Image.open(path) as picture:
        picture.load()


def _read_yaml(path: Path) -> None:
    yaml.safe_load(path.read_text(encoding="utf-8"))


def _read_array(path: Path) -> None:
    np.load(path, mmap_mode="r", allow_pickle=False)


_READERS: dict[str, Callable[[Path], Any]] = {
    ".json": _read_json,
    ".jsonl": _read_lines,
    ".csv": pd.read_csv,
    ".png": _read_picture,
    ".parquet": pd.read_parquet,
    ".npz": load_detector,
    ".npy": _read_array,
    ".pt": checkpoint.load,
    ".yaml": _read_yaml,
    ".ipynb": lambda path: nbformat.read(path, as_version=4),
}


# --------------------------------------------------------------------------------------------------- what runs give
def trained(best: Path, loss_csv: Path) -> dict[str, Any]:
    """The results of a training without times: weights, optimizer and losses."""
    last = checkpoint.load(checkpoint.last_path(best))
    losses = [(r.epoch, r.train_loss, r.val_loss, r.lr) for r in read_loss_csv(loss_csv)]
    return {
        "best": checkpoint.load(best)["model"], "last": last["model"], "optimizer": last["optimizer"], "losses": losses,
    }  # fmt: skip


def is_same(one: Any, other: Any) -> bool:
    """Bit-exact comparison of dicts, lists, tensors and tables."""
    if isinstance(one, pd.DataFrame):
        return one.equals(other)
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and _bits(one) == _bits(other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, Sequence) and not isinstance(one, str):
        return len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and one == other


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()
