"""What a check is, how it runs and what it reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from core.config.compose import LoadedConfig
from core.config.schema import AnyConfig, Stream
from core.errors import LandfallError

log = logging.getLogger(__name__)

Group = Literal["V-01", "V-02", "V-03"]
GROUP_TITLES: dict[Group, str] = {"V-01": "Environment", "V-02": "Static quality", "V-03": "Runtime"}


class CheckFailed(Exception):
    """What is wrong, and the way out."""

    def __init__(self, detail: str, hint: str | None = None):
        super().__init__(detail)
        self.detail, self.hint = detail, hint


class CheckSkipped(CheckFailed):
    """Why the check could not be made."""


@dataclass(frozen=True)
class Item:
    """One line of the checklist."""

    id: str
    group: Group
    title: str
    status: Literal["PASS", "FAIL", "SKIP"]
    detail: str
    hint: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Context:
    """What the checks look at."""

    root: Path
    configs: Mapping[Stream, LoadedConfig]

    def config(self, stream: Stream) -> AnyConfig:
        return self.configs[stream].config

    def checkpoint(self, stream: Stream) -> Path:
        return self.root / self.config(stream).logging.checkpoint_path

    def artifacts(self, stream: Stream) -> Path:
        return self.root / self.config(stream).logging.artifacts_dir


@dataclass(frozen=True)
class Check:
    """`run` gives the detail of a pass, or raises CheckFailed or CheckSkipped. A stream check runs once a stream."""

    id: str
    group: Group
    title: str
    run: Callable[..., str]
    per_stream: bool = False
    is_smoke: bool = False

    def items(self, context: Context) -> list[Item]:
        if not self.per_stream:
            return [self._item(f"{self.group}.{self.id}", self.title, lambda: self.run(context))]
        return [
            self._item(
                f"{self.group}.{self.id}.{stream}", f"{self.title}, {stream}", lambda s=stream: self.run(context, s)
            )
            for stream in context.configs
        ]

    def _item(self, identity: str, title: str, run: Callable[[], str]) -> Item:
        try:
            return Item(identity, self.group, title, "PASS", run())
        except CheckSkipped as skipped:
            return Item(identity, self.group, title, "SKIP", skipped.detail, skipped.hint)
        except CheckFailed as failed:
            return Item(identity, self.group, title, "FAIL", failed.detail, failed.hint)
        except LandfallError as error:
            return Item(identity, self.group, title, "FAIL", error.message, error.hint)
        except Exception as error:
            # A checklist that dies on a damaged file helps nobody: the item fails and the trace is in the log.
            log.exception("check %s", identity)
            return Item(identity, self.group, title, "FAIL", f"{type(error).__name__}: {error}")
