"""Converts a notebook to valid nbformat 4.5 for papermill (ids, kernel, language), without Colab's metadata."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from migration.notebook.findings import Finding, Keeps, Notes, listed
from migration.notebook.outputs import clean_outputs
from migration.notebook.reading import KERNEL_LANGUAGES, as_dict, language_of, stated_language

_NOTEBOOK_METADATA = frozenset({"colab", "accelerator", "gpuClass", "gpuType", "colab_type"})
_TRANSIENT_METADATA = frozenset({"orig_nbformat", "orig_nbformat_minor", "signature"})
_CELL_METADATA = frozenset(
    {"colab", "colab_type", "outputId", "executionInfo", "base_uri", "referenced_widgets", "cellView", "id"}
)
_CELL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PYTHON = {"display_name": "Python 3", "language": "python", "name": "python3"}
_PYTHON_2 = re.compile(r"i?python ?-?2|py2|py27", re.IGNORECASE)
_GPU_MEMORY = {"T4": 16, "P100": 16, "V100": 16, "L4": 24, "A100": 40, "H100": 80}  # GB
_TEXT_FIELDS = ("file_extension", "mimetype", "pygments_lexer")


def clean(
    notebook: Mapping[str, Any], *, is_python_3: Callable[[], bool] = lambda: False
) -> tuple[dict[str, Any], str | None, list[Finding]]:
    """The notebook as valid nbformat 4.5 without Colab's metadata, its accelerator, and the findings. The accelerator
    is "GPU", "GPU T4", "TPU" and so on, or None. `is_python_3`, which is asked if the kernel is one for Python 2: every
    cell is valid Python 3. The input is not changed; kept outputs are the same objects. Cleaning the result again
    changes nothing and finds nothing.
    """
    notes = Notes()
    hardware = _hardware(notebook["metadata"], notes)
    _note_cell_metadata(notebook["cells"], notes)
    _note_ids(notebook["cells"], notebook["nbformat_minor"], notes)
    drops_views = _drops_views(notebook["metadata"])
    cells = [_clean_cell(cell, index, notes, drops_views) for index, cell in enumerate(notebook["cells"])]
    cleaned = {
        "cells": with_ids(cells),
        "metadata": _with_kernel(
            _clean_metadata(notebook["metadata"], notes), language_of(notebook), notes, is_python_3
        ),
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return cleaned, hardware, notes.findings()


# ----------------------------------------------------------------------------------------------------- Colab's metadata
def _hardware(metadata: dict[str, Any], notes: Notes) -> str | None:
    """The accelerator of the notebook. `gpuType` alone is not sufficient: Colab keeps it when a notebook is switched
    back to the CPU."""
    stated, colab = metadata.get("accelerator"), as_dict(metadata.get("colab"))
    accelerator = stated.strip().upper() if isinstance(stated, str) else ""
    if colab.get("machine_shape") == "hm":
        notes.add(
            "LF113",
            "the notebook was made for a machine with much memory (Colab's high-RAM machines have 25 GB and more)",
            keeps=Keeps.EQUIVALENT,
            changed=False,
        )
    if accelerator in ("", "NONE", "CPU"):
        return None
    model = colab.get("gpuType")
    fits = isinstance(model, str) and bool(re.fullmatch(r"V(?:28|\d+E\d+)", model)) == (accelerator == "TPU")
    hardware = f"{accelerator} {model}" if fits else accelerator
    memory = f" with {_GPU_MEMORY[model]} GB" if fits and model in _GPU_MEMORY else ""
    need = f"run it on a machine with a {accelerator}{memory}, or on the CPU with smaller models and data"
    notes.add("LF113", f"the notebook was made for a {hardware}", keeps=Keeps.EQUIVALENT, action=need, changed=False)
    return hardware


def _clean_metadata(metadata: dict[str, Any], notes: Notes) -> dict[str, Any]:
    removed = metadata.keys() & _NOTEBOOK_METADATA
    if removed:
        notes.add("LF110", f"Colab's metadata of the notebook: {listed(removed)}")
    removed |= _TRANSIENT_METADATA
    if "widgets" in metadata and not _has_widget_state(metadata):
        notes.add("LF115", "the saved state of widgets", keeps=Keeps.EQUIVALENT)
        removed.add("widgets")
    return {key: value for key, value in metadata.items() if key not in removed}


def _has_widget_state(metadata: dict[str, Any]) -> bool:
    """Whether the notebook contains the state of its widgets as Jupyter saves it. Colab saves the models without
    `state` around them, which no other program reads; of a large file the reader has dropped them."""
    saved = as_dict(as_dict(metadata.get("widgets")).get("application/vnd.jupyter.widget-state+json"))
    models = saved.get("state")
    return isinstance(models, dict) and all("model_name" in as_dict(model) for model in models.values())


def _drops_views(metadata: dict[str, Any]) -> bool:
    """Whether the widgets of a Colab notebook cannot be shown."""
    return bool(metadata.keys() & {"colab", "widgets"}) and not _has_widget_state(metadata)


def _note_cell_metadata(cells: list[dict[str, Any]], notes: Notes) -> None:
    """One finding for all cells, because nearly every cell has such metadata."""
    counts = Counter(key for cell in cells for key in cell["metadata"].keys() & _CELL_METADATA)
    if counts:
        stated = ", ".join(f"`{key}` ({count})" for key, count in sorted(counts.items()))
        notes.add("LF111", f"Colab's metadata of cells: {stated}")


def _clean_cell(cell: dict[str, Any], index: int, notes: Notes, drops_views: bool) -> dict[str, Any]:
    metadata = cell["metadata"]
    if any(as_dict(as_dict(metadata.get("executionInfo")).get("user")).values()):
        notes.add("LF112", "the name and account of the person who ran the cell", index)
    new = {key: value for key, value in metadata.items() if key not in _CELL_METADATA and key != "trusted"}
    if metadata.get("cellView") == "form":
        new["jupyter"] = {**as_dict(metadata.get("jupyter")), "source_hidden": True}
        notes.add("LF114", "the hidden code of a form stays hidden in JupyterLab", index, keeps=Keeps.EQUIVALENT)
    cell = {**cell, "metadata": new}
    if cell["cell_type"] == "code":
        cell["outputs"] = clean_outputs(cell["outputs"], index, notes, drops_views=drops_views)
    return cell


# ---------------------------------------------------------------------------------------------------------------- ids
def with_ids(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells, each with a valid unique id. Valid ids are kept, duplicates only in the first cell; new ids are
    computed from position and content."""
    faults = _faults_of_ids(cells)
    taken = {cell["id"] for cell, fault in zip(cells, faults, strict=True) if not fault}
    return [
        {**cell, "id": _new_id(cell, index, taken)} if fault else cell
        for index, (cell, fault) in enumerate(zip(cells, faults, strict=True))
    ]


def _faults_of_ids(cells: Sequence[dict[str, Any]]) -> list[str]:
    """For each cell the fault of its id, empty if it is valid."""
    seen: set[str] = set()
    faults = []
    for cell in cells:
        stated = cell.get("id")
        if not isinstance(stated, str) or not _CELL_ID.fullmatch(stated):
            faults.append("invalid" if "id" in cell else "missing")
            continue
        faults.append("duplicated" if stated in seen else "")
        seen.add(stated)
    return faults


def _note_ids(cells: Sequence[dict[str, Any]], minor: int, notes: Notes) -> None:
    if minor < 5:
        notes.add("LF103", f"nbformat 4.{minor} became 4.5, which gives every cell an id")
    for index, fault in enumerate(_faults_of_ids(cells)):
        if fault and (fault != "missing" or minor >= 5):
            notes.add("LF107", f"the cell's id was {fault}; it has a new one", index)


def _new_id(cell: dict[str, Any], index: int, taken: set[str]) -> str:
    """An unused id, always the same for the same notebook; it is added to `taken`."""
    for attempt in range(len(taken) + 1):
        content = f"{index}\0{attempt}\0{cell['cell_type']}\0{cell['source']}".encode("utf-8", "surrogatepass")
        new = hashlib.blake2b(content, digest_size=4).hexdigest()
        if new not in taken:
            break
    taken.add(new)
    return new


# ------------------------------------------------------------------------------------------------------------- kernel
def _with_kernel(
    metadata: dict[str, Any], language: str, notes: Notes, is_python_3: Callable[[], bool]
) -> dict[str, Any]:
    """The metadata with a kernel and a language that papermill accepts."""
    kernel, info = as_dict(metadata.get("kernelspec")), as_dict(metadata.get("language_info"))
    new_info = {key: value for key, value in info.items() if key not in _TEXT_FIELDS or isinstance(value, str)}
    if not isinstance(info.get("codemirror_mode", ""), str | dict):
        del new_info["codemirror_mode"]
    if language == "python":
        new_kernel = _python_kernel(metadata.get("kernelspec"), info, notes, is_python_3)
        if _is_python_2(kernel, info):
            # Version, lexer and file type are those of Python 2.
            new_info = {}
        new_info["name"] = "python"
    else:
        stated = stated_language(metadata) or language
        name = next((name for name, known in KERNEL_LANGUAGES.items() if known.lower() == language), language)
        name = _text_of(kernel.get("name")) or name
        new_kernel = {
            **kernel,
            "name": name,
            "display_name": _text_of(kernel.get("display_name")) or stated,
            "language": _text_of(kernel.get("language")) or stated,
        }
        new_info["name"] = _text_of(info.get("name")) or stated
    missing = [field for field in ("name", "display_name", "language") if kernel.get(field) is None]
    added = [f"kernelspec.{field}" for field in missing]
    added += [] if info.get("name") == new_info["name"] else ["language_info.name"]
    if added:
        notes.add("LF105", f"kernel `{new_kernel['name']}`, language {new_kernel['language']}: {listed(added)} added")
    return {**metadata, "kernelspec": new_kernel, "language_info": new_info}


def _python_kernel(
    stated: object, info: Mapping[str, Any], notes: Notes, is_python_3: Callable[[], bool]
) -> dict[str, Any]:
    """`python3` instead of any kernel name that other machines do not have."""
    kernel = as_dict(stated)
    name = _text_of(kernel.get("name")) or _text_of(stated)
    if name == "python3" and not _is_python_2(kernel, info):
        return {
            **kernel,
            "display_name": _text_of(kernel.get("display_name")) or "Python 3",
            "language": "python",
            "name": name,
        }
    if name:
        shown = _text_of(kernel.get("display_name")) or name
        what = f"the kernel `{name}` ({shown}) became `python3`"
        if _is_python_2(kernel, info) and is_python_3():
            notes.add("LF104", f"{what}, and every cell is valid Python 3", keeps=Keeps.EQUIVALENT)
        elif _is_python_2(kernel, info):
            notes.add(
                "LF104",
                f"{what}: the notebook was written for Python 2",
                keeps=Keeps.EQUIVALENT,
                action="convert the cells to Python 3 (`print x`, `xrange`, integer division)",
            )
        else:
            notes.add("LF104", what, keeps=Keeps.EQUIVALENT)
    return dict(_PYTHON)


def _is_python_2(kernel: Mapping[str, Any], info: Mapping[str, Any]) -> bool:
    stated = (kernel.get("name"), kernel.get("display_name"))
    if any(isinstance(text, str) and _PYTHON_2.match(text) for text in stated):
        return True
    return not kernel.get("name") and str(info.get("version") or "").startswith("2.")


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
