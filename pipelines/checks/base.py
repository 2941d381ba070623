"""What a check is, how it runs and what it reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from core.config.compose import LoadedConfig
from core.config.schema import AnyConfig, Stream
from core.errors import LandfallError
from core.redaction import redacted

log = logging.getLogger(__name__)

Group = Literal["V-01", "V-02", "V-03"]
GROUP_TITLES: dict[Group, str] = {"V-01": "Environment", "V-02": "Static quality", "V-03": "Runtime"}


class CheckFailed(Exception):
    """What is wrong, and the way out."""

    def __init__(self, detail: str, hint: str):
        super().__init__(detail)
        self.detail, self.hint = detail, hint


class CheckSkipped(CheckFailed):
    """Why the check could not be made, and what would let it."""


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
    """`run` gives the detail of a pass, or raises CheckFailed or CheckSkipped. A stream check runs once a stream.

    needs: id of a check of the same stream, before this one; where that fails, this one would only repeat its failure.
    """

    id: str
    group: Group
    title: str
    run: Callable[..., str]
    per_stream: bool = False
    is_smoke: bool = False
    needs: str | None = None

    def items(self, context: Context, earlier: Sequence[Item] = ()) -> list[Item]:
        if not self.per_stream:
            return [self._item(f"{self.group}.{self.id}", self.title, lambda: self.run(context), context.root)]
        failed = {item.id for item in earlier if item.status == "FAIL"}

        def run(stream: Stream) -> str:
            if f"{self.group}.{self.needs}.{stream}" in failed:
                raise CheckSkipped(f"the {self.needs} fails its check", f"mend the {self.needs} first")
            return self.run(context, stream)

        return [
            self._item(
                f"{self.group}.{self.id}.{stream}", f"{self.title}, {stream}", lambda s=stream: run(s), context.root
            )
            for stream in context.configs
        ]

    def _item(self, identity: str, title: str, run: Callable[[], str], root: Path) -> Item:
        try:
            status, detail, hint = "PASS", run(), None
        except CheckSkipped as skipped:
            status, detail, hint = "SKIP", skipped.detail, skipped.hint
        except CheckFailed as failed:
            status, detail, hint = "FAIL", failed.detail, failed.hint
        except LandfallError as error:
            status, detail, hint = "FAIL", error.message, error.hint
        except Exception as error:
            # A checklist that dies on a damaged file helps nobody: the item fails and the trace is in the log.
            log.exception("check %s", identity)
            status, hint = "FAIL", "the log has the trace; `make validate` makes every output anew"
            detail = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        # The report is published with the dashboard: where the workspace lies is nobody's business.
        detail, hint = redacted((detail.replace(f"{root}/", ""), hint))
        return Item(identity, self.group, title, status, detail, hint)
