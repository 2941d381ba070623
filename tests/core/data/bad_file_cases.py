"""The bad files with the stream of each, and a configuration for one of them."""

from __future__ import annotations

from collections.abc import Sequence

from core.config.compose import config_from_dict
from core.config.schema import AnyConfig
from core.data.dataset import SPLIT_NAMES
from tests.core.data import bad_files
from tests.core.data.bad_files import Judged, Refused

REFUSED = [(bad, "patchtst") for bad in bad_files.TABLES_REFUSED] + [
    (bad, "swinmae") for bad in bad_files.ARRAYS_REFUSED
]
JUDGED = [(bad, "patchtst") for bad in bad_files.TABLES_JUDGED] + [(bad, "swinmae") for bad in bad_files.ARRAYS_JUDGED]


def config_for(stream: str, file: str, *, splits: Sequence[str] = SPLIT_NAMES, **settings: object) -> AnyConfig:
    data = {"root": ".", "splits": {name: {"files": [file]} for name in splits}, **settings}
    return config_from_dict(
        {
            "stream": stream,
            "logging": {"log_dir": "runs/x", "checkpoint_path": "checkpoints/x.pt", "progress": "off"},
            "dqvl": {"report_dir": "artifacts/dqvl"},
            "data": data,
        },
        source="a test",
    )


def names(table: list[tuple[Refused | Judged, str]]) -> list[str]:
    return [bad.id for bad, _ in table]
