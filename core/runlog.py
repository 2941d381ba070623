"""The log of one training run: status, metrics, configuration and environment, persisted at each change."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from core.config.schema import AnyConfig
from core.documents import SCHEMA_VERSION
from core.errors import StoppedError
from core.livefile import LiveFile
from core.lock import Lock
from core.numbers import finite
from core.owner import Owner
from core.reading import UnreadableError, json_object_or_none, parse_json, read_bytes, text_of
from core.run_status import RunStatus
from core.secrets.redaction import redacted, redacted_text
from core.workspace import json_text, utc_now, write_text, writing

log = logging.getLogger(__name__)

# More than a hundred thousand epochs.
_LARGEST_LOSSES = 1 << 24


@dataclass(frozen=True)
class EpochRecord:
    """One row of the loss history; the fields are the columns of the CSV."""

    epoch: int
    train_loss: float
    val_loss: float
    lr: float
    seconds: float
    windows_per_second: float


@dataclass(frozen=True)
class DeviceReading:
    """memory_mb: MiB of the device that this process has reserved; allocators keep reserved memory, so occasional
    readings find the peak. gpu_utilisation: share of the time in which the GPU computed, 0 to 1; None if unknown."""

    memory_mb: float
    gpu_utilisation: float | None


class RunLog:
    """Writes `<log_dir>/<run_id>/`; a context manager, so that a run that dies is recorded as failed with its reason.

    A resumed run continues in the same folder: `rewind` drops the records that will be repeated and restores the
    status. A new run with a used name rewinds to the start.
    """

    def __init__(
        self, root: Path, config: AnyConfig, run_id: str, *, steps: int, windows: int = 0, lock: Lock | None = None
    ):
        """steps, windows: planned total of the run. lock: also locks the folder, and is checked on every write."""
        self.root, self.config, self.run_id = root, config, run_id
        self.folder = root / config.logging.log_dir / run_id
        self.metrics_file = self.folder / "metrics.jsonl"
        self._tensorboard: Any = None
        self._lock = lock
        self._live = LiveFile(root, config.stream)
        self._windows_per_step = windows / max(1, steps)
        self._began, self._began_step = time.monotonic(), 0
        self._time = ""
        self._records = 0
        self._status = RunStatus(
            schema_version=SCHEMA_VERSION,
            run_id=run_id,
            stream=config.stream,
            state="running",
            started_at=self._now(),
            epochs=config.training.epochs,
            steps=steps,
            checkpoint=config.logging.checkpoint_path,
            pid=os.getpid(),
            owner=Owner.this_process().token,
        )

    def __enter__(self) -> Self:
        if self._lock is not None:
            self._lock.take(self.folder, key="--run-id")
        self._update()
        if self.config.logging.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(self.folder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, reason = "completed", None
        if error is not None:
            state = "stopped" if isinstance(error, StoppedError | KeyboardInterrupt) else "failed"
            reason = redacted_text(str(error)) or kind.__name__
        try:
            if self._tensorboard is not None:
                self._tensorboard.close()
            self._update(state=state, reason=reason, finished_at=self._now(), eta_seconds=None)
        except OSError as cause:
            if error is None:
                raise
            log.warning("the end of the run is not recorded: %s", cause)  # most likely the reason of the failure

    def write_config(self, rendered: str) -> None:
        self._write("config.yaml", rendered)

    def write_environment(self, record: Mapping[str, Any]) -> None:
        self._write("environment.json", json_text(redacted(record)))

    def steps(
        self, epoch: int, records: Sequence[tuple[int, float, float, float]], *, reading: DeviceReading | None = None
    ) -> None:
        """Step records (step, loss, learning rate, gradient norm), `step` counted from 1 over the whole run.

        reading: the memory use of the device after the last step, if it was measured.
        """
        now = self._now()
        lines = [
            {"kind": "step", "time": now, "epoch": epoch, "step": step, "loss": loss, "lr": rate, "grad_norm": norm}
            for step, loss, rate, norm in records
        ]
        last_step, held = records[-1][0], {}
        if reading is not None:
            held = {"memory_mb": reading.memory_mb, "gpu_utilisation": reading.gpu_utilisation}
            lines[-1] |= held
            held["peak_memory_mb"] = max(reading.memory_mb, self._status.peak_memory_mb or 0.0)
        self._append(lines)
        if self._tensorboard is not None:
            for step, loss, rate, norm in records:
                self._tensorboard.add_scalar("loss/step", loss, step)
                self._tensorboard.add_scalar("optimizer/learning_rate", rate, step)
                self._tensorboard.add_scalar("optimizer/gradient_norm", norm, step)
        self._update(step=last_step, **self._pace(last_step), **held)

    def epoch(
        self,
        record: EpochRecord,
        *,
        best: EpochRecord,
        skill: Mapping[str, Any] | None = None,
        best_skill: Mapping[str, Any] | None = None,
    ) -> None:
        """Records an epoch. skill, best_skill: of this and of the best epoch, from `Skill.to_json`."""
        total = skill["total"] if skill else None
        self._append([
            {"kind": "epoch", "time": self._now(), **asdict(record), "skill": total,
             "channel_skill": skill["channels"] if skill else {}}
        ])  # fmt: skip
        if self._tensorboard is not None:
            self._tensorboard.add_scalar("loss/train", record.train_loss, record.epoch)
            self._tensorboard.add_scalar("loss/validation", record.val_loss, record.epoch)
            if total is not None:
                self._tensorboard.add_scalar("skill/validation", total, record.epoch)
            self._tensorboard.add_scalar("speed/windows_per_second", record.windows_per_second, record.epoch)
            self._tensorboard.flush()
        best_total = best_skill["total"] if best_skill else None
        self._update(epoch=record.epoch, best={"epoch": best.epoch, "val_loss": best.val_loss, "skill": best_total})

    def recovery(self, record: Mapping[str, Any]) -> None:
        """Records a step that was rolled back, and the remedy (`trainers.recovery`)."""
        self._append([{"kind": "recovery", "time": self._now(), **record}])
        self._update(recoveries=self._status.recoveries + 1)

    @property
    def records(self) -> int:
        """Number of records; saved with a state, it is the position to rewind to."""
        return self._records

    def rewind(self, records: int | None, *, step: int, epoch: int) -> None:
        """Keeps the first `records` records, or with None all valid ones; a truncated last line is dropped.

        step, epoch: completed so far. They do not determine the records to keep: with another batch size, the steps of
        an epoch have other numbers.
        """
        kept = read_metrics(self.metrics_file)[:records]
        self._records = len(kept)
        lines = [json.dumps(record) for record in kept]
        self._write(self.metrics_file.name, "".join(line + "\n" for line in lines))
        self._live.restart()
        self._live.add(zip(kept, lines, strict=True))
        self._began, self._began_step = time.monotonic(), step
        epochs = [record for record in kept if record["kind"] == "epoch"]
        best = min(epochs, key=_val_loss, default=None)
        recoveries = sum(record["kind"] == "recovery" for record in kept)
        self._update(step=step, epoch=epoch, best=best, recoveries=recoveries)

    def check_ownership(self) -> None:
        """Raises LandfallError if another run has taken over the files because it considered this run dead."""
        if self._lock is not None:
            self._lock.check()

    def _pace(self, step: int) -> dict[str, float | None]:
        """Time left and throughput, estimated from the steps of this process, and from validation after the first
        one."""
        seconds, done = time.monotonic() - self._began, step - self._began_step
        if done <= 0 or seconds <= 0:
            return {}
        left = max(0, self._status.steps - step) * seconds / done
        rate = self._windows_per_step * done / seconds
        return {"eta_seconds": round(left, 1), "windows_per_second": round(rate, 2) or None}

    def _append(self, records: Sequence[Mapping[str, Any]]) -> None:
        strict = [{key: finite(value) for key, value in record.items()} for record in records]
        lines = [json.dumps(record) for record in strict]
        self.check_ownership()
        with writing(self.metrics_file), self.metrics_file.open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        self._records += len(lines)
        self._live.add(zip(strict, lines, strict=True))

    def _update(self, **changes: Any) -> None:
        self._status = RunStatus(**dict(self._status) | {"updated_at": self._now()} | changes)
        status = self._status.model_dump(mode="json")
        self._write("status.json", json_text(status))
        self._live.refresh(status, last=self._status.state != "running")

    def _now(self) -> str:
        """The time, which never goes back in a log even if the clock does: no duration is negative."""
        self._time = max(self._time, utc_now())
        return self._time

    def _write(self, name: str, text: str) -> None:
        write_text(self.folder / name, text)


def _val_loss(record: Mapping[str, Any]) -> float:
    """That of an epoch, for the search of the best one; infinite without one."""
    return math.inf if record["val_loss"] is None else record["val_loss"]


class SilentRunLog(RunLog):
    """The log of a process that does not write because another process of the run does."""

    def __enter__(self) -> Self:
        return self

    def _append(self, records: Sequence[Mapping[str, Any]]) -> None: ...

    def _update(self, **changes: Any) -> None: ...

    def _write(self, name: str, text: str) -> None: ...


def read_status(folder: Path) -> dict[str, Any] | None:
    """The status of the run in a folder; None if it is missing or unreadable."""
    return json_object_or_none(folder / "status.json")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics file. Damaged lines, such as a truncated last line of a killed run, are skipped with one
    warning."""
    if not path.exists():
        return []
    lines = list(metrics_lines(path))
    damaged = [number for number, record in lines if record is None]
    if damaged:
        log.warning("%s: %d of %d lines skipped, the first is line %d", path, len(damaged), len(lines), damaged[0])
    return [record for _, record in lines if record is not None]


def metrics_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The lines of a metrics file: number and record; None for a damaged line. Raises UnreadableError and OSError."""
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        try:
            record = parse_json(line)
        except UnreadableError:
            record = None
        is_record = isinstance(record, dict) and isinstance(record.get("kind"), str)
        yield number, record if is_record else None


# ------------------------------------------------------------------------------------------------------ loss artifacts
def loss_csv_path(root: Path, config: AnyConfig) -> Path:
    return root / config.logging.artifacts_dir / "loss" / f"{config.stream}_loss_history.csv"


def loss_png_path(root: Path, config: AnyConfig) -> Path:
    return root / config.logging.artifacts_dir / "loss" / f"{config.stream}_loss_curve.png"


def write_loss_csv(path: Path, history: Sequence[EpochRecord]) -> None:
    rows = [",".join(EpochRecord.__dataclass_fields__)]
    rows += [",".join(repr(value) for value in asdict(record).values()) for record in history]
    write_text(path, "\n".join(rows) + "\n")


def read_loss_csv(path: Path) -> list[EpochRecord]:
    """Raises ValueError for a file of other columns, a truncated row, cells that are not numbers or too many bytes."""
    columns = list(EpochRecord.__dataclass_fields__)
    lines = text_of(read_bytes(path, largest=_LARGEST_LOSSES)).splitlines()
    header, *rows = [line.split(",") for line in lines] or [[]]
    if header != columns or any(len(row) != len(columns) for row in rows):
        raise ValueError(f"{path}: a line does not have the columns {', '.join(columns)}")
    return [EpochRecord(int(epoch), *(float(cell) for cell in rest)) for epoch, *rest in rows]
