"""Output folders of the runs of a stream, relative to the workspace: the default ones, or those of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from core.config.schema import REPORT_DIRS, STREAMS, AnyConfig, Stream


@dataclass(frozen=True)
class Places:
    """Folders of the run logs, the artifacts and the quality reports, and the file of the best model."""

    log_dir: str
    checkpoint: str
    artifacts: str
    reports: str

    @classmethod
    def of_contract(cls, stream: Stream) -> Self:
        return cls(f"runs/{stream}_ssl", f"checkpoints/{stream}_ssl.pt", "artifacts", REPORT_DIRS[stream])

    @classmethod
    def of(cls, config: AnyConfig) -> Self:
        logging = config.logging
        return cls(logging.log_dir, logging.checkpoint_path, logging.artifacts_dir, config.dqvl.report_dir)

    @property
    def scores(self) -> str:
        return f"{self.artifacts}/scores"


CONTRACT: Mapping[Stream, Places] = {stream: Places.of_contract(stream) for stream in STREAMS}
