"""How much a run of the benchmarks does, and what it leaves behind."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paired import Comparison

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Effort:
    """rounds: paired rounds of each comparison. full: also what takes minutes. bf16: also bfloat16, which a CPU without
    instructions for it only emulates. peers: the folder with clones of the authors' code, if there is one. data: the
    folder with real data sets, if there is one."""

    rounds: int = 5
    full: bool = False
    bf16: bool = False
    peers: Path | None = None
    data: Path | None = None


def write_results(question: str, comparisons: Sequence[Comparison], folder: Path = RESULTS) -> Path:
    """The comparisons of one question as JSON, with the machine, the versions and the date."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{question}.json"
    document = {"question": question, **environment(), "comparisons": [found.as_json() for found in comparisons]}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def environment() -> dict[str, Any]:
    """What figures depend on."""
    import torch

    from core.devices.host import cpu_model, usable_cores

    packages = ("torch", "numpy", "transformers", "PyWavelets")
    return {
        "date": datetime.date.today().isoformat(),
        "machine": {"cpu": cpu_model(), "cores": usable_cores(), "capability": torch.backends.cpu.get_cpu_capability(),
                    "system": platform.platform(terse=True)},
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
