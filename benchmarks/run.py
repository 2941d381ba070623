"""Options of a run of the benchmarks, and its output."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.packages import version_of

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Effort:
    """rounds: paired rounds of each comparison. full: includes comparisons that take minutes. bf16: includes bfloat16,
    which a CPU without native support emulates. peers: folder with clones of the authors' code, or None."""

    rounds: int = 5
    full: bool = False
    bf16: bool = False
    peers: Path | None = None


def write_results(question: str, found: Sequence[Any], folder: Path = RESULTS) -> Path:
    """Writes the results of one question as JSON, with the machine, the versions and the date. The key of the results
    is `KIND` of their class. Returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{question}.json"
    document = {"question": question, **environment(), found[0].KIND: [asdict(each) for each in found]}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def environment() -> dict[str, Any]:
    """The environment that results depend on."""
    import torch

    from core.host import cpu_model, usable_cores

    packages = ("torch", "numpy", "transformers", "PyWavelets")
    return {
        "date": datetime.date.today().isoformat(),
        "machine": {"cpu": cpu_model(), "cores": usable_cores(), "capability": torch.backends.cpu.get_cpu_capability(),
                    "system": platform.platform(terse=True)},
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in packages}},
    }  # fmt: skip
