"""A check of the checklist: its definition and its execution."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from core.checkpoint import sidecar_path
from core.config.compose import LoadedConfig
from core.config.schema import AnyConfig, Stream
from core.errors import LandfallError, WriteError
from core.git import tracked_files
from core.secrets.redaction import printable, redacted
from inference.summary import is_by_charts, read_summary
from pipelines.checklist import Group, Item, Status
from pipelines.imported_models import is_imported, missing_splits

log = logging.getLogger(__name__)

# Folders and files of Landfall in a workspace; all others belong to the user.
_OWN = ("core", "trainers", "inference", "migration", "pipelines", "benchmarks", "tests", "configs", "notebooks",
        "landfall.py", "landfall_runtime.py")  # fmt: skip


class CheckFailed(Exception):
    """The check failed: a message and a hint."""

    def __init__(self, detail: str, hint: str):
        super().__init__(detail)
        self.detail, self.hint = detail, hint


class CheckWarned(CheckFailed):
    """Something the user should know, although the outputs of the run are valid."""


class CheckSkipped(CheckFailed):
    """The check could not run: the reason, and what would enable it."""


@dataclass(frozen=True)
class Context:
    """The input of the checks. configs: configurations of the streams in use. off: the other streams, each with the
    reason."""

    root: Path
    configs: Mapping[Stream, LoadedConfig]
    off: Mapping[Stream, str] = field(default_factory=dict)

    def config(self, stream: Stream) -> AnyConfig:
        return self.configs[stream].config

    def checkpoint(self, stream: Stream) -> Path:
        return self.root / self.config(stream).logging.checkpoint_path

    def has_no_model(self, stream: Stream) -> bool:
        """Whether control charts alone scored the stream and no model was trained, which they do not need."""
        summary = read_summary(self.config(stream), root=self.root)
        path = self.checkpoint(stream)
        return is_by_charts(summary) and not path.exists() and not sidecar_path(path).exists()

    def splits_elsewhere(self, stream: Stream, names: Sequence[str]) -> list[str]:
        """The splits whose files are missing because the model was imported without them."""
        if not is_imported(self.root, stream, self.checkpoint(stream)):
            return []
        return missing_splits(self.config(stream), self.root, names)

    @cached_property
    def own_files(self) -> frozenset[str] | None:
        """The files of Landfall that git tracks in this workspace, relative to its root; None without git."""
        return tracked_files(self.root, _OWN)

    def is_own(self, file: str) -> bool:
        """Whether a file, relative to the root, belongs to Landfall. Files that the user adds to its folders do not."""
        if self.own_files is not None:
            return file in self.own_files
        return file.partition("/")[0] in _OWN


@dataclass(frozen=True)
class Check:
    """`run` returns the detail of a pass, or raises CheckFailed, CheckWarned or CheckSkipped.

    of: what is checked; of a stream or its model, the check runs once for each stream. A model is skipped if control
    charts alone scored and there is none.
    needs: id of an earlier check of the same stream; if it failed, this check is skipped, because it would fail too.
    """

    id: str
    group: Group
    title: str
    run: Callable[..., str]
    of: Literal["workspace", "stream", "model"] = "workspace"
    needs: str | None = None
    is_smoke: bool = False

    def items(self, context: Context, earlier: Sequence[Item] = ()) -> list[Item]:
        if self.of == "workspace":
            return [self._item(f"{self.group}.{self.id}", self.title, lambda: self.run(context), context.root)]
        failed = {item.id for item in earlier if item.status == "FAIL"}

        def run(stream: Stream) -> str:
            if self.of == "model" and context.has_no_model(stream):
                raise CheckSkipped(
                    "control charts alone scored, without a model", f"`landfall train {stream}` trains a model"
                )
            if f"{self.group}.{self.needs}.{stream}" in failed:
                raise CheckSkipped(f"the check of the {self.needs} failed", f"fix the {self.needs} first")
            return self.run(context, stream)

        return [
            self._item(
                f"{self.group}.{self.id}.{stream}", f"{self.title}, {stream}", lambda s=stream: run(s), context.root
            )
            for stream in context.configs
        ]

    def _item(self, identity: str, title: str, run: Callable[[], str], root: Path) -> Item:
        status: Status
        try:
            status, detail, hint = "PASS", run(), None
        except CheckWarned as warned:
            status, detail, hint = "WARN", warned.detail, warned.hint
        except CheckSkipped as skipped:
            status, detail, hint = "SKIP", skipped.detail, skipped.hint
        except CheckFailed as failed:
            status, detail, hint = "FAIL", failed.detail, failed.hint
        except LandfallError as error:
            status, detail, hint = "FAIL", error.message, error.hint
        except Exception as error:
            status = "FAIL"
            if isinstance(error, OSError) and error.errno in WriteError.HINTS:  # no permission, a bad disk
                detail, hint = f"{error.filename}: {error.strerror}", WriteError.HINTS[error.errno]
            else:
                # A damaged file fails this check only; the traceback is in the log.
                log.exception("check %s", identity)
                hint = "the log contains the traceback; `landfall pipeline` creates every output again"
                detail = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        # The report is published with the dashboard: it does not contain the path of the workspace.
        detail, hint = redacted((detail.replace(f"{root}/", ""), hint))
        return Item(identity, self.group, title, status, printable(detail), hint and printable(hint))
