"""The schema of a Landfall configuration: every key, with its type, default and meaning.

`docs/configuration.md` is generated from these descriptions. The sections are in modules of their own: `data`,
`training`, `scoring` with `charts`, `models`, `execution` (hardware and processes); types of values in `fields`.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from core.config.bearing import Bearing
from core.config.data import Data, Quality, Scalogram
from core.config.execution import Execution
from core.config.fields import Contradiction, Count, Section, SwitchOrAuto
from core.config.models import PatchTSTModel, SwinMAEModel
from core.config.scoring import Scoring
from core.config.training import Training

Stream = Literal["patchtst", "swinmae"]
STREAMS: tuple[Stream, ...] = ("patchtst", "swinmae")
# Model and data of each stream, for users.
TITLES: dict[Stream, tuple[str, str]] = {
    "patchtst": ("PatchTST-SSL", "process sensors (FDC)"),
    "swinmae": ("Swin-MAE", "vibration scalograms"),
}
# Folders of the quality reports according to the contract of a workspace.
REPORT_DIRS: dict[Stream, str] = {"patchtst": "artifacts/dqvl/fdc", "swinmae": "artifacts/dqvl/vib"}


class Logging(Section):
    log_dir: str = Field(description="Folder of the run logs; each run has a sub-folder with its run id.")
    checkpoint_path: str = Field(
        description="File of the best model; the state to resume is next to it, in `.last.pt`."
    )
    artifacts_dir: str = Field("artifacts", description="Folder of loss, score and notebook artifacts.")
    tensorboard: bool = Field(True, description="Write TensorBoard events next to metrics.jsonl.")
    every_steps: Count = Field(10, description="Number of steps between two records in the run log.")
    progress: Literal["auto", "bar", "lines", "off"] = Field(
        "auto", description="Progress display; `auto`: a bar in a terminal or notebook, otherwise a line every 30 s."
    )


class Config(Execution):
    """Keys of both streams."""

    stream: Stream
    enabled: SwitchOrAuto = Field(
        "auto",
        description="Whether commands for both streams (`landfall pipeline`, `validate`, `export`, `check`) include "
        "this one. `auto` does unless the folders of its data have no files while the other stream has data.",
    )
    logging: Logging = Field(description="Output folders and progress display.")
    data: Data = Field(Data(), description="Files, windows and splits.")
    dqvl: Quality = Field(description="Data quality and label validation (DQVL).")
    training: Training = Field(Training(), description="Optimisation.")
    scoring: Scoring = Field(Scoring(), description="Scores, thresholds and events.")

    @property
    def score_stride(self) -> int:
        """Samples between the starts of two windows as they are scored."""
        return self.data.score_stride

    @property
    def score_context(self) -> int:
        """Samples at the start of a scored window that are context only, and not scored."""
        return 0


class PatchTSTConfig(Config):
    """Stream `patchtst`: PatchTST-SSL on multivariate process sensors."""

    stream: Literal["patchtst"] = Field("patchtst", description="Model and data of this configuration.")
    model: PatchTSTModel = Field(PatchTSTModel(), description="PatchTST-SSL.")

    @property
    def score_stride(self) -> int:
        stride = self.data.score_stride
        return stride if self.scoring.look_ahead else min(stride, self.model.patch_length)

    @property
    def score_context(self) -> int:
        return 0 if self.scoring.look_ahead else self.data.window - self.model.patch_length

    def contradictions(self) -> Iterator[Contradiction]:
        yield from super().contradictions()
        window, length = self.data.window, self.model.patch_length
        if "auto" in (window, length):
            return
        if window < 2 * length or window % length:
            fitting = max(window // length, 2) * length
            yield Contradiction(
                f"data.window = {window} is not a multiple (two or more) of the patch length {length}; {fitting} "
                f"would be",
                ("data.window", "model.patch_length"),
            )


class SwinMAEConfig(Config):
    """Stream `swinmae`: Swin-MAE on scalograms of vibration."""

    stream: Literal["swinmae"] = Field("swinmae", description="Model and data of this configuration.")
    scalogram: Scalogram = Field(Scalogram(), description="Morlet wavelet transform of each window.")
    model: SwinMAEModel = Field(SwinMAEModel(), description="Swin-MAE.")
    bearing: Bearing | None = Field(
        None,
        description="Geometry of the bearing (`balls`, `ball_mm`, `pitch_mm`, `contact_deg`) and its speed "
        "(`shaft_hz`), for a machine at one speed: the dashboard marks its defect frequencies in envelope spectra.",
    )

    def contradictions(self) -> Iterator[Contradiction]:
        yield from super().contradictions()
        size, model = self.scalogram.image_size, self.model
        if self.data.window != "auto" and self.data.window < 2 * size:
            yield Contradiction(
                f"data.window = {self.data.window} is less than two samples for each of the {size} columns of an image",
                ("data.window", "scalogram.image_size"),
            )
        for name, step in (
            ("mask units", model.patch_size * model.mask_unit),
            ("patches of the deepest stage", model.patch_size * 2 ** (len(model.depths) - 1)),
        ):
            if size % step:
                yield Contradiction(
                    f"scalogram.image_size = {size} is not a multiple of the {step} pixels of {name}",
                    ("scalogram.image_size", "model.patch_size", "model.mask_unit", "model.depths"),
                )


AnyConfig = PatchTSTConfig | SwinMAEConfig
SCHEMAS: dict[Stream, type[Config]] = {"patchtst": PatchTSTConfig, "swinmae": SwinMAEConfig}
# Paths that a run writes to and deletes in. A configuration from outside of `configs/` may only name paths in the
# workspace.
OUTPUT_KEYS = (
    "logging.log_dir",
    "logging.checkpoint_path",
    "logging.artifacts_dir",
    "dqvl.report_dir",
    "data.store_dir",
)
